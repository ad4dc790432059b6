"""Posting lists of words: weights that are computed on first use equal the weights of `BM25Index` to the last bit."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.encoding.idf import idf
from vocable.errors import VectorsError
from vocable.indexes import exact_numpy
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.exact_numpy import WINDOW_SIZE
from vocable.indexes.postings import arrays_of
from vocable.indexes.words import WeighedWords, WordPostings

WORDS = ["fox", "owl", "night", "rain", "ünder", "zebra"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=20)


def weighed(words: WordPostings) -> WeighedWords:
    """Return words with the weights of a collection of these documents alone."""
    lengths = words.lengths.astype(np.int64)
    result = WeighedWords(words, float(lengths.mean()) if lengths.any() else 1.0)
    columns = np.arange(len(words.vocabulary))
    result.weigh(columns, idf(words.postings.frequency(), len(words)))
    return result


@given(TEXTS, st.integers(1, 25))
def test_scores_equal_those_of_an_index_of_texts(texts: list[str], k: int) -> None:
    index, words = BM25Index(texts), WordPostings.of(texts, "english")
    assert list(words.vocabulary) == list(index.vocabulary)
    np.testing.assert_array_equal(weighed(words).postings.get().toarray(), index.get().toarray())
    queries = index.query_vectors([" ".join(WORDS), "fox fox night", "unknown"])
    expected = index.search(queries, k)
    rows, scores = weighed(words).postings.search(arrays_of(queries), k)
    np.testing.assert_array_equal(rows, expected.rows)
    np.testing.assert_array_equal(scores, expected.scores)


def test_weights_of_several_windows_are_those_of_an_index_of_texts() -> None:
    random = np.random.default_rng(0)
    texts = [" ".join(words) for words in random.choice(WORDS, (WINDOW_SIZE + 300, 3)).tolist()]
    index, words = BM25Index(texts), WordPostings.of(texts, "none")
    columns = [words.column(word) for word in index.vocabulary]
    result = weighed(words).postings.get([0, 5, WINDOW_SIZE - 1, WINDOW_SIZE, WINDOW_SIZE + 299]).toarray()[:, columns]
    expected = index.get([0, 5, WINDOW_SIZE - 1, WINDOW_SIZE, WINDOW_SIZE + 299]).toarray()
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("repeats", "kind"), [(255, np.uint8), (256, np.uint16), (70_000, np.uint32)])
def test_counts_take_as_few_bytes_as_the_largest_needs(repeats: int, kind: type) -> None:
    texts = ["fox " * repeats, "fox owl"]
    words = WordPostings.of(texts, "english")
    assert words.arrays()["word_counts"].dtype == kind
    stored = WordPostings.stored(words.arrays(), 2, "place")
    assert stored.counts().toarray().tolist() == [[repeats, 0], [1, 1]]
    assert stored.lengths.tolist() == [repeats, 2]
    np.testing.assert_array_equal(weighed(stored).postings.get().toarray(), BM25Index(texts).get().toarray())


def test_words_are_weighed_on_first_use_and_once() -> None:
    words = WordPostings.of(["fox owl", "fox night"], "english")
    result, fox = WeighedWords(words, 2.0), np.array([words.column("fox")])
    result.weigh(fox, np.float32([1]))
    before = result.postings.lists[2].copy()
    result.weigh(fox, np.float32([7]))
    result.weigh(np.empty(0, np.int64), np.empty(0, np.float32))
    first, end = (words.postings.lists[0][fox[0] + shift] for shift in (0, 1))
    np.testing.assert_array_equal(result.postings.lists[2][first:end], before[first:end])
    assert (before[first:end] > 0).all()


def test_threads_weigh_words_once() -> None:
    texts = [" ".join(np.random.default_rng(number).choice(WORDS, 5)) for number in range(300)]
    words = WordPostings.of(texts, "english")
    result, factors = WeighedWords(words, 5.0), np.ones(len(words.vocabulary), np.float32)
    columns = np.arange(len(words.vocabulary))
    threads = [Thread(target=result.weigh, args=(columns, factors)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = WeighedWords(words, 5.0)
    alone.weigh(columns, factors)
    np.testing.assert_array_equal(result.postings.get().toarray(), alone.postings.get().toarray())


@given(TEXTS, st.text("fonrzüa", max_size=3))
def test_words_with_an_initial_are_found(texts: list[str], initials: str) -> None:
    words = WordPostings.of(texts, "none")
    expected = [word for word in words.vocabulary if word[0] in initials]
    assert sorted(words.vocabulary[column] for column in words.starting(initials)) == sorted(expected)
    assert [words.column(word) for word in words.vocabulary] == list(range(len(words.vocabulary)))
    assert words.column("unknown") == -1


def test_words_that_do_not_fit_together_are_refused() -> None:
    arrays = WordPostings.of(["fox owl", "fox night"], "english").arrays()
    for changed in (
        {"word_lengths": arrays["word_lengths"][:1]},
        {"word_counts": arrays["word_counts"].astype(np.float32)},
        {"word_counts": arrays["word_counts"][:2]},
        {"word_starts": arrays["word_starts"][:2]},
        {"word_places": arrays["word_places"][:2]},
        {"word_lengths": -arrays["word_lengths"]},
        {"word_counts": arrays["word_counts"] * 0},
    ):
        with pytest.raises(VectorsError):
            WordPostings.stored(arrays | changed, 2, "place")
    assert exact_numpy.windows_of(0) == 1
