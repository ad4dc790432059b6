"""The loops in NumPy give the same bits as the compiled loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from tests.indexes.test_exact_index import brute_force
from vocable.indexes import _kernels, exact_kernels, exact_numpy
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.exact_numpy import WINDOW_SIZE, Sparse
from vocable.indexes.postings import Postings, arrays_of, frozen, needed_terms

V, Q = 12, 5
SIZES = [0, 1, 7, WINDOW_SIZE - 1, WINDOW_SIZE, 2 * WINDOW_SIZE + 500]


def both(name: str, *arguments: object, outputs: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Return what the functions of both modules write into copies of the outputs."""
    results = []
    for module in (exact_numpy, _kernels):
        written = [output.copy() for output in outputs]
        getattr(module, name)(*arguments, *written)
        results.append(written)
    return results


def assert_same_bits(results: list[list[np.ndarray]]) -> None:
    for first, second in zip(*results, strict=True):
        assert first.dtype == second.dtype
        assert first.tobytes() == second.tobytes()


def make_vectors(n: int, seed: int, density: float = 0.3) -> csr_array:
    """Return vectors [n, V] of any weights, a third of which have few values, so that some scores are equal."""
    random = np.random.default_rng(seed)
    matrix = csr_array(random_array((n, V), density=density, rng=random, dtype=np.float32))
    few = random.random(matrix.nnz) < 0.3
    matrix.data[few] = random.choice(np.float32([0.5, 1, 2]), few.sum())
    matrix.data += np.float32(1e-6)
    matrix.sort_indices()
    return matrix


@pytest.fixture(scope="module", params=SIZES)
def documents(request: pytest.FixtureRequest) -> csr_array:
    return make_vectors(request.param, request.param)


@pytest.fixture(params=[None, 8, 16])
def lists(request: pytest.FixtureRequest, documents: csr_array) -> Postings:
    return Postings.of(documents, request.param)


def make_queries(seed: int) -> Sparse:
    """Return the arrays of queries, the first of which is empty."""
    weights = make_vectors(Q, seed, 0.5).toarray()
    weights[0] = 0
    return arrays_of(csr_array(weights))


@pytest.mark.parametrize("k", [1, 10, 700])
def test_a_search_gives_the_same_bits(lists: Postings, k: int) -> None:
    queries, n = make_queries(k), len(lists)
    for share in (0.0, 0.5, 1.0):
        for limited in (False, True):
            needed = frozen(needed_terms(queries, share), np.int32)
            allowed = frozen(np.random.default_rng(1).random(n if limited else 0) < 0.3, np.bool_)
            outputs = np.full((Q, k), -1, np.int32), np.zeros((Q, k), np.float32)
            results = both("search", lists.lists, n, queries, needed, allowed, outputs=outputs)
            assert_same_bits(results)
            assert n < WINDOW_SIZE - 1 or (results[0][0] >= 0).any()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_counts_of_matches_are_the_same(lists: Postings, documents: csr_array, share: float) -> None:
    queries = make_queries(3)
    needed = frozen(needed_terms(queries, share), np.int32)
    results = both("count_matches", lists.lists, len(lists), queries, needed, outputs=[np.zeros(Q, np.int64)])
    assert_same_bits(results)
    starts, terms, _ = queries
    for query, count in enumerate(results[0][0]):
        shared = np.diff(documents[:, terms[starts[query] : starts[query + 1]]].tocsr().indptr)
        assert count == np.count_nonzero(shared >= max(1, needed[query]))


def test_postings_that_are_found_are_the_same(lists: Postings) -> None:
    chosen = np.random.default_rng(0).permutation(len(lists))[:30]
    if len(lists):
        chosen = np.append(chosen, [0, len(lists) - 1]).astype(np.int64)
    outputs = [np.full((len(chosen), V), -1, np.int64)]
    assert_same_bits(both("find_postings", lists.lists, len(lists), chosen.astype(np.int64), outputs=outputs))


@pytest.mark.parametrize("c", [0, 1, 40])
def test_scores_of_candidates_are_the_same(lists: Postings, documents: csr_array, c: int) -> None:
    queries, n = make_queries(c), len(lists)
    candidates = np.random.default_rng(c).integers(-1, max(n, 1) if n else 0, (Q, c)).astype(np.int32)
    outputs = [np.ones((Q, c), np.float32)]
    assert_same_bits(both("score_candidates", lists.lists, n, queries, candidates, outputs=outputs))
    assert_same_bits(both("rescore", arrays_of(documents), V, queries, candidates, outputs=outputs))


matrices = st.tuples(
    st.lists(st.integers(-1, 6), max_size=5),
    st.lists(st.integers(-1, 5), max_size=6),
    st.lists(st.sampled_from([1.0, 0.5, 1.0, 0.0, -1.0, np.inf, np.nan]), max_size=6),
)


@given(matrices, st.booleans())
def test_the_order_of_a_matrix_is_judged_alike(matrix: tuple[list[int], list[int], list[float]], whole: bool) -> None:
    starts, columns, weights = matrix
    if whole:  # lengths that fit, as most matrices have
        weights = (weights + [1.0] * 6)[: len(columns)]
        starts = [0, *sorted(min(max(start, 0), len(columns)) for start in starts), len(columns)]
    arrays = np.array(starts, np.int64), np.array(columns, np.int32), np.array(weights, np.float32)
    assert exact_numpy.in_order(arrays, 5) == _kernels.in_order(arrays, 5)


@given(st.integers(0, 9), st.integers(0, 40), st.integers(1, 30), st.sampled_from([0.0, 0.4, 1.0]))
def test_a_search_in_numpy_is_brute_force(seed: int, n: int, k: int, share: float) -> None:
    documents, queries = make_vectors(n, seed), make_vectors(Q, seed + 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exact_kernels, "search", exact_numpy.search)
        ranking = ExactIndex(documents).search(queries, k, minimum_match=share)
    rows, scores = brute_force(queries.toarray(), documents.toarray(), k, None, share)
    np.testing.assert_array_equal(ranking.rows, rows)
    np.testing.assert_array_equal(ranking.scores, scores)
