"""Mining against a product of all pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import PreTrainedTokenizerFast

from studies.toy_models import make_cross_encoder
from tests.toys import killed
from vocable.collection.index import index
from vocable.data import Document, Example, read_examples
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.errors import ArgumentError, DataError, ModelError, VectorsError
from vocable.training import example_files
from vocable.training.mine import mine, teacher_scores
from vocable.training.teachers import load_scoring_model


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_files, "CHUNK", 3)


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


@pytest.mark.slow
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
def test_mined_negatives_are_those_of_all_pairs(
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


def test_mining_takes_an_existing_index(
    toy_model: SparseEncoder, examples: Path, texts: list[str], tmp_path: Path
) -> None:
    documents = [Document(f"{i:02}", text) for i, text in enumerate(texts)]
    index(toy_model, documents, tmp_path / "index").close()
    mine(toy_model, examples, tmp_path / "out.jsonl", index=tmp_path / "index", negatives=3)
    expected = reference(toy_model, list(read_examples(examples)), documents, negatives=3)
    assert [list(one.negatives) for one in read_examples(tmp_path / "out.jsonl")] == [one[2] for one in expected]


def test_mining_refuses_an_index_of_another_vocabulary(
    toy_model: SparseEncoder, backbones: dict[str, Path], examples: Path, texts: list[str], tmp_path: Path
) -> None:
    other = load(backbones["roberta"], device="cpu")
    index(other, texts[:1], tmp_path / "index").close()
    with pytest.raises(VectorsError):
        mine(toy_model, examples, tmp_path / "out.jsonl", index=tmp_path / "index")
    assert not (tmp_path / "out.jsonl.partial").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"corpus": "a", "index": "b"},
        {"negatives": 0},
        {"from_rank": 0, "to_rank": 9},
        {"from_rank": 9, "to_rank": 3},
        {"from_rank": 1, "to_rank": 7},
        {"margin": float("nan")},
        {"relative_margin": 1.0},
    ],
)
def test_arguments_of_mining_out_of_range_are_refused(
    toy_model: SparseEncoder, examples: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(ArgumentError):
        mine(toy_model, examples, tmp_path / "out.jsonl", **options)
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_examples_are_read_more_than_once(toy_model: SparseEncoder, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        mine(toy_model, "-", tmp_path / "out.jsonl")


def test_missing_sources_are_named_before_the_mining(toy_model: SparseEncoder, examples: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl"):
        mine(toy_model, tmp_path / "none.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(DataError, match=r"corpus\.tsv"):
        mine(toy_model, examples, tmp_path / "out.jsonl", corpus=str(tmp_path / "corpus.tsv"))
    with pytest.raises(VectorsError):
        mine(toy_model, examples, tmp_path / "out.jsonl", index=tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.jsonl"]


@pytest.fixture
def cross(tmp_path: Path, tokenizers: dict[str, PreTrainedTokenizerFast]) -> Path:
    return make_cross_encoder(tokenizers["wordpiece"], tmp_path / "cross")


@pytest.fixture
def dense(tmp_path: Path, backbones: dict[str, Path]) -> Path:
    transformer = Transformer(str(backbones["roberta"]))
    pooling = Pooling(transformer.get_embedding_dimension())
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save_pretrained(str(tmp_path / "dense"))
    return tmp_path / "dense"


@pytest.fixture
def examples_score(tmp_path: Path, toy_texts: list[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eleven examples with none to three negatives, texts of many lengths, in chunks of four."""
    monkeypatch.setattr(example_files, "CHUNK", 4)
    texts = sorted(set(toy_texts))
    rows = [
        {"query": texts[i][:12], "positive": f"{texts[i]} " * (1 + i % 3), "negatives": texts[40 : 40 + i % 4]}
        for i in range(11)
    ]
    path = tmp_path / "examples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def scored(model, examples: Path, tmp_path: Path) -> list[tuple[str, str, float]]:
    """Every query and text with its score."""
    done = teacher_scores(model, examples, tmp_path / "out.jsonl")
    found = list(read_examples(tmp_path / "out.jsonl"))
    assert [one._replace(source="", scores=()) for one in found] == [
        one._replace(source="") for one in read_examples(examples)
    ]
    assert (done.read, done.written, done.negatives) == (11, 11, sum(i % 4 for i in range(11)))
    return [
        (one.query, text, value)
        for one in found
        for text, value in zip((one.positive, *one.negatives), one.scores, strict=True)
    ]


def test_a_cross_encoder_scores_mined_examples(cross: Path, examples_score: Path, tmp_path: Path) -> None:
    model = load_scoring_model(cross)
    assert isinstance(model, CrossEncoder)
    found = scored(model, examples_score, tmp_path)
    for query, text, value in found:
        inputs = model.tokenizer(query, text, return_tensors="pt", truncation=True, max_length=64)
        with torch.inference_mode():
            logit = model.model(**inputs.to(model.device)).logits.item()
        assert value == pytest.approx(logit, abs=1e-4)
    values = [value for *_, value in found]
    assert not 0 <= min(values) <= max(values) <= 1  # no sigmoid


def test_a_dense_model_scores_mined_examples(dense: Path, examples_score: Path, tmp_path: Path) -> None:
    model = load_scoring_model(dense)
    assert isinstance(model, SentenceTransformer)
    for query, text, value in scored(model, examples_score, tmp_path):
        one, other = model.encode([query]), model.encode([text])
        assert value == pytest.approx(float(model.similarity(one, other)), abs=1e-4)


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_a_sparse_model_scores_mined_examples(
    backbones: dict[str, Path], examples_score: Path, tmp_path: Path, architecture: str
) -> None:
    model = load_scoring_model(backbones[architecture])
    assert isinstance(model, SparseEncoder)
    for query, text, value in scored(model, examples_score, tmp_path):
        one, other = (model.encode([part], convert_to_sparse_tensor=False).float() for part in (query, text))
        assert value == pytest.approx(float((one * other).sum()), rel=0.02)


def test_saved_models_say_what_they_are(cross: Path, backbones: dict[str, Path], tmp_path: Path) -> None:
    CrossEncoder(str(cross)).save_pretrained(str(tmp_path / "saved-cross"))
    SparseEncoder(str(backbones["bert"])).save_pretrained(str(tmp_path / "saved-sparse"))
    assert isinstance(load_scoring_model(tmp_path / "saved-cross"), CrossEncoder)
    assert isinstance(load_scoring_model(tmp_path / "saved-sparse"), SparseEncoder)
    assert isinstance(load_scoring_model(backbones["bert"], "dense"), SentenceTransformer)


def test_models_that_cannot_score_are_refused(
    tokenizers: dict[str, PreTrainedTokenizerFast], examples_score: Path, tmp_path: Path
):
    several = load_scoring_model(make_cross_encoder(tokenizers["wordpiece"], tmp_path / "several", labels=3))
    with pytest.raises(ModelError):
        teacher_scores(several, examples_score, tmp_path / "out.jsonl")
    with pytest.raises(ModelError):
        load_scoring_model(tmp_path / "nowhere")
    (tmp_path / "encoder").mkdir()
    config = {"model_type": "bert", "architectures": ["BertModel"]}
    (tmp_path / "encoder" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError):
        load_scoring_model(tmp_path / "encoder")


def test_scores_that_are_not_finite(cross: Path, examples_score: Path, tmp_path: Path) -> None:
    model = load_scoring_model(cross)
    torch.nn.init.constant_(model.model.classifier.bias, np.nan)
    with pytest.raises(ModelError):
        teacher_scores(model, examples_score, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_another_model_does_not_go_on(cross: Path, examples_score: Path, tmp_path: Path, monkeypatch) -> None:
    model = load_scoring_model(cross)
    with monkeypatch.context() as patch:
        patch.setattr(example_files, "write_record", killed)
        with pytest.raises(KeyboardInterrupt):
            teacher_scores(model, examples_score, tmp_path / "out.jsonl")
    torch.nn.init.constant_(model.model.classifier.bias, 1.0)
    with pytest.raises(ArgumentError, match=r"\(model\)"):
        teacher_scores(model, examples_score, tmp_path / "out.jsonl")
