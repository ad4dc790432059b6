"""Titles weighed apart from texts, in a folder and in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.collection.test_writer import corpus
from vocable.collection.index import index
from vocable.collection.verbs import add
from vocable.data import Document
from vocable.errors import ArgumentError
from vocable.indexes.bm25 import BM25Index

OPTIONS: Any = {"dtype": "float32", "device": "cpu"}
QUERIES = ["chapter 7 owl", "posting lists", "chapter"]


@pytest.fixture
def some(documents: Sequence[Document]) -> list[Document]:
    """With titles, all but one."""
    return [documents[0]._replace(title=""), *documents[1:]]


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_words_of_a_title_count_as_often_as_it_weighs(
    model: str, some: list[Document], tmp_path: Path, place: str
) -> None:
    output, source = tmp_path / "index" if place == "folder" else None, corpus(tmp_path / "corpus.jsonl", some)
    opened = index(model, source, output, bm25=True, title_weight=3, **OPTIONS)
    texts, ids = [f"{f'{one.title} ' * 3}{one.text}" for one in some], [one.id for one in some]
    expected, found = BM25Index(texts, ids).search(QUERIES, 10), opened.search(QUERIES, 10, weights="bm25=1")
    for number in range(len(QUERIES)):
        assert dict(found.hits(number)) == pytest.approx(dict(expected.hits(number)), rel=1e-5)
    new = Document("new", "posting lists", "chapter of owls")
    add(opened, corpus(tmp_path / "more.jsonl", [new]))
    [best] = opened.search(["owls"], 1, weights="bm25=1").hits(0)
    [after] = BM25Index([*texts, new.weighed(3)], [*ids, "new"]).search(["owls"], 1).hits(0)
    assert best == ("new", pytest.approx(after[1], rel=1e-5))
    assert after[0] == "new"
    opened.close()


def test_a_title_weight_below_1_or_without_bm25_is_refused(model: str, some: list[Document], tmp_path: Path) -> None:
    source = corpus(tmp_path / "corpus.jsonl", some)
    with pytest.raises(ArgumentError):
        index(model, source, tmp_path / "index", bm25=False, title_weight=3)
    with pytest.raises(ArgumentError):
        index(model, source, tmp_path / "index", bm25=True, title_weight=0)
