"""Counts of words as numbers, against counters of the stemmed strings, and what BM25 and RM3 make of them."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from vocable.encoding.idf import idf
from vocable.indexes import bm25, word_counts
from vocable.indexes.bm25 import RM3, BM25Index
from vocable.indexes.word_counts import count_texts, term_frequency_weights
from vocable.language.words import stemmed

SOME = ["cats", "cat", "The", "dogs", "a", "x", "東京都", "Süden", "owls"]
TEXTS = st.lists(st.lists(st.sampled_from(SOME)).map(" ".join), max_size=9)


def reference(texts: list[str], columns: Mapping[str, int]) -> np.ndarray:
    counts = np.zeros((len(texts), len(columns)))
    for row, words in enumerate(stemmed(texts)):
        for word, times in Counter(words).items():
            if word in columns:
                counts[row, columns[word]] = times
    return counts


@given(TEXTS, st.integers(1, 4))
def test_counts_are_those_of_the_strings_whatever_the_parts(texts: list[str], part: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_counts, "TEXTS_AT_ONCE", part)
        patch.setattr(word_counts, "ENTRIES", part)
        found = count_texts(texts, "english")
        known = count_texts(texts, "english", {"owl": 0, "cat": 1, "zebra": 2})
    words = stemmed(texts)
    assert list(found.vocabulary) == sorted(set().union(*words))
    assert list(found.vocabulary.values()) == list(range(len(found.vocabulary)))
    assert found.counts.has_canonical_format
    assert found.counts.indices.dtype == np.int32
    np.testing.assert_array_equal(found.counts.toarray(), reference(texts, found.vocabulary))
    np.testing.assert_array_equal(known.counts.toarray(), reference(texts, known.vocabulary))
    assert found.lengths.tolist() == known.lengths.tolist() == [len(some) for some in words]


def test_weights_are_those_of_the_formula_to_the_last_bit(
    toy_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "WEIGHED_AT_ONCE", 7)
    monkeypatch.setattr(word_counts, "TEXTS_AT_ONCE", 5)
    ids = [f"{number * 7 % 10_007}" for number in range(len(toy_texts))]
    index = BM25Index(toy_texts, ids)
    counts = csr_array(reference(toy_texts, index.vocabulary).astype(np.float32))
    lengths = np.array(list(map(len, stemmed(toy_texts))), dtype=np.float64)
    weights = idf(np.bincount(counts.indices), len(toy_texts))
    counts.data = (weights[counts.indices] * term_frequency_weights(counts, lengths, lengths.mean())).astype(np.float32)
    assert (index.get() != counts).nnz == 0


def test_words_of_many_texts_are_not_kept_as_strings() -> None:
    texts = [" ".join(f"word{(row * 31 + place) % 997}x" for place in range(60)) for row in range(12_000)]
    ids = list(map(str, range(len(texts))))
    BM25Index(texts[:10], ids[:10])
    tracemalloc.start()
    index = BM25Index(texts, ids)
    rm3 = RM3(index, texts)
    rm3.expand(texts[:2])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    postings = index.document_frequency.sum()
    assert postings == 60 * len(texts)
    strings = 60 * 2_048 * 70  # of one part
    assert peak < 32 * postings + strings  # as strings, 60 bytes and more a posting
