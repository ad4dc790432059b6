"""Posting lists: counts of terms without documents that are gone, over several windows, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from vocable.errors import ArgumentError
from vocable.indexes import postings as module
from vocable.indexes.exact_numpy import WINDOW_SIZE
from vocable.indexes.postings import Postings, arrays_of, in_threads, needed_terms

V = 9


def make_vectors(n: int, seed: int) -> csr_array:
    """Return vectors [n, V]; no document has the last term."""
    matrix = random_array((n, V), density=0.3, rng=np.random.default_rng(seed), dtype=np.float32).toarray()
    matrix[:, -1] = 0
    return csr_array(matrix)


@pytest.mark.parametrize("n", [0, 1, 50, WINDOW_SIZE, 2 * WINDOW_SIZE + 77])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_frequencies_leave_out_documents_that_are_gone(n: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_POSTINGS", 10_007)
    vectors, gone = make_vectors(n, n), np.random.default_rng(1).random(n) < share
    postings, terms = Postings.of(vectors), np.array([3, 0, V - 1, 3])
    expected = np.count_nonzero(vectors.toarray()[~gone], axis=0)
    np.testing.assert_array_equal(postings.frequency(None, gone), expected)
    np.testing.assert_array_equal(postings.frequency(terms, gone), expected[terms])
    np.testing.assert_array_equal(postings.frequency(), np.count_nonzero(vectors.toarray(), axis=0))
    np.testing.assert_array_equal(postings.frequency(terms), postings.frequency()[terms])
    assert postings.frequency(np.empty(0, np.int64), gone).tolist() == []
    assert postings.count == vectors.nnz


@given(st.integers(0, 30), st.integers(0, 9), st.sampled_from([None, 8, 16]), st.lists(st.integers(0, 29), max_size=9))
def test_stored_lists_have_the_same_vectors(n: int, seed: int, bits: int | None, rows: list[int]) -> None:
    vectors = make_vectors(n, seed)
    postings = Postings.of(vectors, bits)
    stored = Postings.stored(postings.arrays(), postings.header(), "place")
    np.testing.assert_array_equal(stored.get().toarray(), postings.get().toarray())
    chosen = [row for row in rows if row < n]
    np.testing.assert_array_equal(stored.get(chosen).toarray(), postings.get().toarray()[chosen])
    np.testing.assert_array_equal(stored.get().toarray() > 0, vectors.toarray() > 0)
    if bits is None:
        np.testing.assert_array_equal(stored.get().toarray(), vectors.toarray())
    with pytest.raises(ArgumentError):
        stored.get([n])


@pytest.mark.parametrize(
    ("share", "needed"), [(0.0, [0, 0, 0]), (0.3, [0, 1, 3]), (0.31, [0, 1, 4]), (1.0, [0, 1, 10])]
)
def test_the_terms_that_a_document_must_share_are_counted_up(share: float, needed: list[int]) -> None:
    queries = csr_array(np.arange(10) < np.array([[0], [1], [10]]), dtype=np.float32)
    assert needed_terms(arrays_of(queries), share).tolist() == needed


@given(st.integers(0, 40), st.none() | st.integers(1, 9))
def test_each_query_is_worked_on_once(count: int, threads: int | None) -> None:
    queries, done = arrays_of(csr_array(np.ones((count, 2), np.float32))), np.zeros(count, np.int64)

    def work(part: slice, queries: module.Sparse) -> None:
        done[part] += np.diff(queries[0])

    in_threads(work, queries, threads)
    assert done.tolist() == [2] * count
    with pytest.raises(ArgumentError):
        in_threads(work, queries, 0)
