"""Mining against a product of all pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from vocable.data import Document, Example, read_examples
from vocable.encoder.encode import encode
from vocable.encoder.load import load
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError, DataError, VectorsError
from vocable.retrieval.folder import build_collection
from vocable.training import mine as rewrite
from vocable.training.mine import mine


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "CHUNK", 5)


@pytest.fixture
def texts(toy_texts: list[str]) -> list[str]:
    return sorted(set(toy_texts))[:40]


@pytest.fixture
def examples(tmp_path: Path, texts: list[str]) -> Path:
    """Twelve queries; the first has three positives."""
    pairs = [(f"{text[:20]}?", text) for text in texts[::3][:12]]
    pairs += [(pairs[0][0], texts[1]), (pairs[0][0], f"  {texts[2]} ")]
    path = tmp_path / "pairs.jsonl"
    rows = [{"query": query, "positive": positive, "negatives": ["old"]} for query, positive in pairs]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path, texts: list[str]) -> str:
    """Each text once, the first one twice, and some under a title."""
    path = tmp_path / "corpus.jsonl"
    rows = [{"_id": f"{i:02}", "text": text, "title": "A" * (i % 7 == 0)} for i, text in enumerate([*texts, texts[4]])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def reference(
    model: SparseEncoder,
    examples: list[Example],
    documents: list[Document],
    *,
    negatives: int,
    from_rank: int = 1,
    to_rank: int = 100,
    margin: float = -np.inf,
    relative_margin: float = -np.inf,
) -> list[tuple[str, str, list[str], list[float]]]:
    """Query, positive, negatives and scores, from all pairs; documents in the order of their ids."""

    def dense(texts: list[str], role: Any) -> np.ndarray:
        return encode(model, texts, role).toarray()

    queries = dense([example.query for example in examples], "query")
    products = queries @ dense([document.full for document in documents], "document").T
    own = (queries * dense([example.positive for example in examples], "document")).sum(axis=1)
    found = []
    for example, scores, best in zip(examples, products, own, strict=True):
        answers = {" ".join(one.positive.split()) for one in examples if one.query == example.query}
        taken: dict[str, float] = {}
        order = [i for i in np.argsort(-scores, kind="stable") if scores[i] > 0][from_rank - 1 : to_rank]
        for document, score in ((documents[i], scores[i]) for i in order):
            good = score < best - margin and score < (1 - relative_margin) * best
            if good and len(taken) < negatives and not {document.full, document.text} & answers:
                taken.setdefault(document.full, float(score))
        if len(taken) == negatives:
            found.append((example.query, example.positive, list(taken), [float(best), *taken.values()]))
    return found


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
@pytest.mark.parametrize(
    "rule",
    [
        {"negatives": 4},
        {"negatives": 3, "from_rank": 4, "to_rank": 9},
        {"negatives": 3, "margin": 0.5},
        {"negatives": 2, "relative_margin": 0.1},
        {"negatives": 2, "from_rank": 2, "to_rank": 30, "margin": 0.0, "relative_margin": 0.05},
    ],
)
def test_as_all_pairs_say(
    backbones: dict[str, Path],
    examples: Path,
    corpus: str,
    texts: list[str],
    tmp_path: Path,
    architecture: str,
    rule: dict[str, Any],
) -> None:
    model = load(backbones[architecture], device="cpu")
    documents = [Document(f"{i:02}", text, "A" * (i % 7 == 0)) for i, text in enumerate([*texts, texts[4]])]
    expected = reference(model, list(read_examples(examples)), documents, **rule)
    done = mine(model, examples, tmp_path / "out.jsonl", corpus=corpus, with_scores=True, **rule)
    found = list(read_examples(tmp_path / "out.jsonl"))
    assert [(one.query, one.positive, list(one.negatives)) for one in found] == [one[:3] for one in expected]
    for one, (*_, scores) in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.scores, scores, rtol=1e-4)
    assert (done.read, done.written) == (14, len(expected))
    assert done.negatives == rule["negatives"] * len(expected)


def test_the_positives_are_the_corpus(toy_model: SparseEncoder, examples: Path, tmp_path: Path) -> None:
    given = list(read_examples(examples))
    mine(toy_model, examples, tmp_path / "out.jsonl", negatives=2)
    positives = list(dict.fromkeys(example.positive for example in given))
    # Numbers are ids, and ids are compared as strings.
    documents = sorted((Document(str(i), text) for i, text in enumerate(positives)), key=lambda one: one.id)
    expected = reference(toy_model, given, documents, negatives=2)
    found = list(read_examples(tmp_path / "out.jsonl"))
    assert [(one.query, one.positive, list(one.negatives)) for one in found] == [one[:3] for one in expected]
    assert len(found) == 14
    assert all(one.scores == () for one in found)


def test_an_index_that_is_there(toy_model: SparseEncoder, examples: Path, texts: list[str], tmp_path: Path) -> None:
    documents = [Document(f"{i:02}", text) for i, text in enumerate(texts)]
    build_collection(TextEncoder(toy_model), documents, tmp_path / "index", model="toy")
    mine(toy_model, examples, tmp_path / "out.jsonl", index=tmp_path / "index", negatives=3)
    expected = reference(toy_model, list(read_examples(examples)), documents, negatives=3)
    assert [list(one.negatives) for one in read_examples(tmp_path / "out.jsonl")] == [one[2] for one in expected]


def test_an_index_of_another_vocabulary(
    toy_model: SparseEncoder, backbones: dict[str, Path], examples: Path, texts: list[str], tmp_path: Path
) -> None:
    other = TextEncoder(load(backbones["roberta"], device="cpu"))
    build_collection(other, [Document("1", texts[0])], tmp_path / "index", model="other")
    with pytest.raises(VectorsError, match="the vocabulary of other is not the one"):
        mine(toy_model, examples, tmp_path / "out.jsonl", index=tmp_path / "index")
    assert not (tmp_path / "out.jsonl.partial").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corpus": "a", "index": "b"}, "give a corpus, or an index that is made already, not both"),
        ({"negatives": 0}, "negatives must be at least 1, not 0"),
        ({"from_rank": 0, "to_rank": 9}, "from_rank must be at least 1, not 0"),
        ({"from_rank": 9, "to_rank": 3}, "the last rank comes before the first: 9 to 3"),
        ({"from_rank": 1, "to_rank": 7}, "8 negatives cannot come from ranks 1 to 7"),
        ({"margin": float("nan")}, "margin must be a finite number"),
        ({"relative_margin": 1.0}, "relative_margin must be at least 0 and below 1, not 1"),
    ],
)
def test_impossible_arguments(
    toy_model: SparseEncoder, examples: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        mine(toy_model, examples, tmp_path / "out.jsonl", **options)
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_examples_are_read_more_than_once(toy_model: SparseEncoder, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="give a file instead of standard input"):
        mine(toy_model, "-", tmp_path / "out.jsonl")


def test_places_that_are_not_there(toy_model: SparseEncoder, examples: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        mine(toy_model, tmp_path / "none.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(DataError, match=r"corpus\.tsv: no such file"):
        mine(toy_model, examples, tmp_path / "out.jsonl", corpus=str(tmp_path / "corpus.tsv"))
    with pytest.raises(VectorsError, match="there is no index here"):
        mine(toy_model, examples, tmp_path / "out.jsonl", index=tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.jsonl"]
