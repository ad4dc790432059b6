from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.analysis.conftest import POSITIONS, UNHEARD_OF
from vocable.data.records import Example
from vocable.errors import ArgumentError
from vocable.evaluation.expanders import Query2Doc, generate, load_generator, prompt
from vocable.retrieval.bm25 import BM25Index

QUERIES = ["old fox", "", "librarian reads zebra books", "old fox"]


def test_the_query_so_many_times_and_what_is_written(causal: Path, toy_texts: list[str]) -> None:
    index, generator = BM25Index(toy_texts), load_generator(causal, "causal")
    before = dict(index.vocabulary)
    expander = Query2Doc(index, generator, repeats=3, new_tokens=60, seed=4)
    vectors = expander.expand(QUERIES)
    written = generate(generator, [prompt(query) for query in QUERIES if query], new_tokens=60, seed=4)
    passages = [written[0][0], "", written[1][0], written[2][0]]
    assert expander.passages(QUERIES) == passages
    assert passages[0] != passages[3]  # sampled apart, though the query is the same
    for row, (query, passage) in enumerate(zip(QUERIES, passages, strict=True)):
        expected = Counter(3 * index.words([query])[0] + index.words([passage])[0])
        found = {word: vectors[row, column] for word, column in expander.vocabulary.items() if vectors[row, column]}
        assert found == expected
    # What no document has comes after the words of the index, which stays as it is.
    assert index.vocabulary == before
    assert dict(list(expander.vocabulary.items())[: len(before)]) == before
    added = set(expander.vocabulary) - set(before)
    assert "zebra" in added
    assert added & set(index.words([" ".join(UNHEARD_OF)])[0])
    assert vectors.shape == (4, len(expander.vocabulary))


def test_words_keep_their_columns(causal: Path, toy_texts: list[str]) -> None:
    expander = Query2Doc(BM25Index(toy_texts), load_generator(causal, "causal"), new_tokens=10)
    expander.expand(["zebra crossing"])
    before = dict(expander.vocabulary)
    expander.expand(["aardvark zebra"])
    assert before.items() <= expander.vocabulary.items()
    assert "aardvark" in expander.vocabulary


def test_examples_are_shown(causal: Path, toy_texts: list[str]) -> None:
    index, generator = BM25Index(toy_texts), load_generator(causal, "causal")
    examples = [Example("lazy dog", "Every compiler jumped over the lazy dog"), Example("books", "posting lists")]
    [passage] = Query2Doc(index, generator, examples=examples, new_tokens=10).passages(["old fox"])
    assert [[passage]] == generate(generator, [prompt("old fox", examples)], new_tokens=10)
    assert [passage] != Query2Doc(index, generator, new_tokens=10).passages(["old fox"])


def test_what_cannot_be_done_is_refused(causal: Path, toy_texts: list[str]) -> None:
    index, generator = BM25Index(toy_texts), load_generator(causal, "causal")
    with pytest.raises(ArgumentError, match="repeats must be at least 1, not 0"):
        Query2Doc(index, generator, repeats=0)
    with pytest.raises(ArgumentError, match=f"more than the model's {POSITIONS} positions"):
        Query2Doc(index, generator, new_tokens=POSITIONS).expand(["old fox"])  # no room is left for a prompt
