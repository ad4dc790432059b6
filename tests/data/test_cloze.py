"""Sources made of others: examples of texts, the same in every run, and texts of examples."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.core.fingerprint import fingerprint
from vocable.data import read_corpus, read_examples, read_texts
from vocable.data.cloze import cloze, crops
from vocable.data.slices import absolute
from vocable.errors import DataError
from vocable.training.recipe_files import make_recipe

WORDS = st.sampled_from(["The", "retrieval", "of", "sparse", "vectors", "is", "terms.", "Postings", "read!", "(again)"])
TEXT = st.lists(WORDS, min_size=40, max_size=420).map(" ".join)


@given(TEXT)
def test_a_query_is_taken_out_of_its_text(text: str) -> None:
    made = cloze(text)
    assert made == cloze(text)
    words = text.split()
    if made is None:
        return
    assert 50 <= len(words) <= 400
    asked, left = made.query.split(), made.positive.split()
    if made.positive == text:  # keywords
        assert 2 <= len(asked) <= 6
        assert {*asked} <= {word.strip("().!?").lower() for word in words}
    else:  # a run of words: both parts together are the text again
        assert Counter(asked) + Counter(left) == Counter(words)
        begins = [i for i in range(len(left) + 1) if left[:i] + asked + left[i:] == words]
        assert begins
        assert 5 <= len(asked) <= 90


def test_every_kind_of_example_is_made() -> None:
    texts = [
        " ".join(f"Sentence {n} of text {i} speaks of topic{i} and word{n}." for n in range(12)) for i in range(300)
    ]
    made = [one for one in map(cloze, texts) if one is not None]
    whole = {*texts}
    kinds = Counter(
        "keywords" if one.positive in whole else "sentences" if len(one.query.split()) <= 20 else "span" for one in made
    )
    assert len(made) == 300
    for kind, share in (("keywords", 0.30), ("sentences", 0.35), ("span", 0.35)):
        assert kinds[kind] / 300 == pytest.approx(share, abs=0.09)


@given(TEXT)
def test_crops_are_two_spans_of_their_text(text: str) -> None:
    made, words = crops(text), text.split()
    assert made == crops(text) == crops(text, 0)
    assert made is not None
    assert made != crops(text, 1)
    for crop in made:
        part = crop.split()
        assert 0.05 * len(words) - 0.5 <= len(part) <= 0.5 * len(words) + 0.5
        assert any(words[i : i + len(part)] == part for i in range(len(words)))


def test_crops_are_drawn_evenly_and_by_themselves() -> None:
    words = [f"w{place}" for place in range(100)]
    made = [crops(" ".join([*words, str(i)])) for i in range(2000)]
    spans = np.array([[[int(one.split()[0][1:]), len(one.split())] for one in some] for some in made])
    lengths, starts = spans[:, :, 1], spans[:, :, 0] / (101 - spans[:, :, 1])
    assert lengths.mean() == pytest.approx(0.275 * 101, rel=0.03)
    assert starts.mean() == pytest.approx(0.5, abs=0.02)
    for each in (lengths, starts):
        assert abs(np.corrcoef(each[:, 0], each[:, 1])[0, 1]) < 0.07


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Three documents, the second too short."""
    path = tmp_path / "texts.jsonl"
    rows = [
        {"_id": str(n), "text": f"Alpha{n} beta gamma delta epsilon zeta. " * (9 if n != 1 else 2)} for n in range(3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_source_of_examples(texts: Path) -> None:
    bodies = [json.loads(line)["text"] for line in texts.read_text().splitlines()]
    for make, count in ((cloze, 2), (crops, 3)):
        name = make.__name__
        found = [(one.query, one.positive, one.source) for one in read_examples(f"{name}:{texts}")]
        assert found == [(*made, f"{name}-texts") for made in map(make, bodies) if made is not None]
        assert len(found) == count


def test_a_made_source_has_examples_alone(texts: Path, tmp_path: Path) -> None:
    for scheme in ("cloze", "crops"):
        with pytest.raises(DataError, match=rf"no document.* without {scheme}:"):
            list(read_corpus(f"{scheme}:{texts}"))
    with pytest.raises(DataError):
        read_examples(f"cloze:{tmp_path / 'none.jsonl'}")


@pytest.mark.parametrize("scheme", ["cloze", "crops", "pairs"])
def test_a_made_source_has_the_place_and_fingerprint_of_its_source(
    texts: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    smallest = {"model": "m", "data": {"examples": ["a"]}, "training": {"steps": 1}, "data_folder": "/data"}
    assert make_recipe(smallest).place(f"{scheme}:text/wiki.jsonl.gz") == f"{scheme}:/data/text/wiki.jsonl.gz"
    assert make_recipe(smallest).place(f"{scheme}:pydocs:") == f"{scheme}:pydocs:"
    assert fingerprint(f"{scheme}:{texts}") == fingerprint(texts) != ""
    assert fingerprint(f"pairs:{scheme}:{texts}") == fingerprint(f"cloze:{scheme}:{texts}") == fingerprint(texts)
    monkeypatch.chdir(texts.parent)
    assert absolute(f"{scheme}:texts.jsonl") == f"{scheme}:{texts}"


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    path = tmp_path / "examples.jsonl"
    path.write_text(
        '{"query": "lists?", "positive": "A list.", "negatives": ["A set."]}\n{"query": "q", "positive": "p"}\n'
    )
    return path


def test_pairs_are_texts_of_query_and_positive(examples: Path) -> None:
    assert list(read_texts(f"pairs:{examples}")) == ["lists? A list.", "q p"]
    known = [f"{example.query} {example.positive}" for example in read_examples("pydocs:#train")]
    assert list(read_texts("pairs:pydocs:#train")) == known


def test_pairs_are_no_documents(examples: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_corpus(f"pairs:{examples}")
    with pytest.raises(DataError):
        read_texts(f"pairs:{tmp_path / 'none.jsonl'}")
    examples.write_text('{"query": "lists?"}\n')
    with pytest.raises(DataError, match=r"examples\.jsonl:1: .*positive"):
        list(read_texts(f"pairs:{examples}"))
