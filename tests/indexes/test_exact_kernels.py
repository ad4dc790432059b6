"""The compiled loops against brute force and against the loops in NumPy; wrong arrays; installations without them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tests.indexes.test_exact_index import brute_force
from tests.indexes.test_exact_numpy import Q, V, make_queries, make_vectors
from vocable.indexes import _kernels as compiled
from vocable.indexes import exact_kernels
from vocable.indexes.exact_numpy import WINDOW_SIZE
from vocable.indexes.postings import Postings, arrays_of, needed_terms

Arguments = dict[str, Any]


def test_the_compiled_loops_are_taken() -> None:
    assert all(getattr(exact_kernels, name) is getattr(compiled, name) for name in exact_kernels.__all__)


@given(st.integers(0, 9), st.integers(0, 40), st.integers(1, 30), st.sampled_from([0.0, 0.4, 1.0]), st.booleans())
def test_a_search_is_brute_force(seed: int, n: int, k: int, share: float, limited: bool) -> None:
    documents, queries = make_vectors(n, seed), make_vectors(Q, seed + 1)
    arrays, allowed = arrays_of(queries), np.random.default_rng(seed).random(n if limited else 0) < 0.5
    rows, scores = np.full((Q, k), -1, np.int32), np.zeros((Q, k), np.float32)
    lists, needed = Postings.of(documents).lists, needed_terms(arrays, share)
    compiled.search(lists, n, arrays, needed, allowed, rows, scores)
    dense = documents.toarray()
    if allowed.size:
        dense[~allowed] = 0
    expected = brute_force(queries.toarray(), dense, k, None, share)
    np.testing.assert_array_equal(rows, expected[0])
    np.testing.assert_array_equal(scores, expected[1])


@given(st.integers(0, 9), st.integers(1, 40), st.integers(0, 12), st.sampled_from([None, 8, 16]))
def test_scores_of_candidates_are_products(seed: int, n: int, c: int, bits: int | None) -> None:
    documents, queries = make_vectors(n, seed), make_vectors(Q, seed + 1)
    arrays, random = arrays_of(queries), np.random.default_rng(seed)
    candidates, shape = random.integers(-1, n, (Q, c)).astype(np.int32), (Q, c)
    stored = Postings.of(documents, bits)
    in_lists, in_rows, expected = np.ones(shape, np.float32), np.ones(shape, np.float32), np.zeros(shape, np.float32)
    weights = stored.get().toarray() / np.float32(stored.unit)  # exact: the unit is a power of 2
    for q, query in enumerate(queries.toarray()):
        for column, row in enumerate(candidates[q]):
            for term in np.flatnonzero(query) if row >= 0 else ():
                expected[q, column] += query[term] * weights[row, term]
    compiled.score_candidates(stored.lists, n, arrays, candidates, in_lists)
    compiled.rescore(arrays_of(csr_array(weights)), V, arrays, candidates, in_rows)
    np.testing.assert_array_equal(in_lists, expected)
    np.testing.assert_array_equal(in_rows, expected)


def test_threads_share_arrays_and_give_the_same_bits() -> None:
    documents = make_vectors(WINDOW_SIZE + 700, 1)
    lists, n, queries = Postings.of(documents).lists, documents.shape[0], make_queries(2)

    def searched(part: int) -> tuple[bytes, bytes]:
        rows, scores = np.full((Q, 50), -1, np.int32), np.zeros((Q, 50), np.float32)
        compiled.search(lists, n, queries, np.zeros(Q, np.int32), np.ones(0, bool), rows, scores)
        return rows.tobytes(), scores.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(searched, range(40))}) == 1


@pytest.fixture
def arguments() -> Arguments:
    """Arguments of all functions, by name; each test spoils one of them."""
    lists, queries = Postings.of(make_vectors(30, 1)).lists, make_queries(2)
    (starts, places, weights), (query_starts, terms, query_weights) = lists, queries
    given: Arguments = {"starts": starts, "places": places, "weights": weights, "n": 30}
    given |= {"query_starts": query_starts, "terms": terms, "query_weights": query_weights}
    given |= {"needed": np.zeros(Q, np.int32), "allowed": np.ones(30, bool), "chosen": np.arange(3)}
    given |= {"rows": np.zeros((Q, 4), np.int32), "scores": np.zeros((Q, 4), np.float32)}
    return given | {"counts": np.zeros(Q, np.int64), "entries": np.full((3, V), -1, np.int64)}


def call(name: str, given: Arguments) -> object:
    """Call a function with those arguments that it takes; documents are the queries."""
    lists = given["starts"], given["places"], given["weights"]
    queries = given["query_starts"], given["terms"], given["query_weights"]
    arguments: dict[str, tuple[object, ...]] = {
        "search": (lists, given["n"], queries, given["needed"], given["allowed"], given["rows"], given["scores"]),
        "count_matches": (lists, given["n"], queries, given["needed"], given["counts"]),
        "find_postings": (lists, given["n"], given["chosen"], given["entries"]),
        "score_candidates": (lists, given["n"], queries, given["rows"], given["scores"]),
        "rescore": (queries, V, queries, given["rows"], given["scores"]),
        "in_order": (queries, V),
    }
    return getattr(compiled, name)(*arguments[name])


def frozen(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


ARRAYS = {
    "search": "starts places weights query_starts terms query_weights needed allowed rows scores",
    "count_matches": "starts places weights query_starts terms query_weights needed counts",
    "find_postings": "starts places weights chosen entries",
    "score_candidates": "starts places weights query_starts terms query_weights rows scores",
    "rescore": "query_starts terms query_weights rows scores",
    "in_order": "query_starts terms query_weights",
}
WRITTEN = {
    *(("search", "rows"), ("search", "scores"), ("count_matches", "counts"), ("find_postings", "entries")),
    *(("score_candidates", "scores"), ("rescore", "scores")),
}
EACH = [(function, name) for function, names in ARRAYS.items() for name in names.split()]


@pytest.mark.parametrize(("function", "name"), EACH)
def test_an_array_of_another_kind_is_refused(function: str, name: str, arguments: Arguments) -> None:
    call(function, arguments)
    array = arguments[name]
    scattered = np.repeat(array, 2, axis=-1)[..., ::2]
    wrongs = [array.astype(np.float64), array.astype(">i4"), array[None], scattered, array.tolist(), None]
    if array.itemsize > 1:
        shifted = np.frombuffer(bytearray(array.nbytes + 1), array.dtype, array.size, offset=1)
        wrongs.append(shifted.reshape(array.shape))
    for wrong in wrongs:
        with pytest.raises((TypeError, ValueError, BufferError)):
            call(function, arguments | {name: wrong})
    if (function, name) in WRITTEN:
        with pytest.raises((ValueError, BufferError)):
            call(function, arguments | {name: frozen(array)})
    call(function, arguments)


@pytest.mark.parametrize(("function", "name"), EACH)
def test_an_array_of_another_length_is_refused(function: str, name: str, arguments: Arguments) -> None:
    array = arguments[name]
    wrongs = [array[:-1], np.concatenate([array, array[-1:]]), array[:0]]
    if name == "starts" or (function, name) == ("in_order", "query_starts"):
        del wrongs[1]  # a term more, or an empty row
    if name == "allowed":
        del wrongs[2]  # all are allowed
    for wrong in wrongs:
        if function == "in_order":
            assert call(function, arguments | {name: wrong}) is False
        else:
            with pytest.raises((ValueError, IndexError)):
                call(function, arguments | {name: wrong})


SCORING = "search", "count_matches", "score_candidates", "rescore"
OUT_OF_RANGE = [
    *((function, "starts", value) for function in (*SCORING[:3], "find_postings") for value in (-1, 99_999)),
    *((function, "query_starts", value) for function in SCORING for value in (-1, 999)),
    *((function, "terms", value) for function in SCORING for value in (-1, V, 2**31 - 1)),
    *(("find_postings", "chosen", value) for value in (-1, 30, 2**62)),
    *((function, "rows", value) for function in SCORING[2:] for value in (30, 2**31 - 1)),
]


@pytest.mark.parametrize(("function", "name", "value"), OUT_OF_RANGE)
def test_an_entry_out_of_range_is_refused(function: str, name: str, value: int, arguments: Arguments) -> None:
    spoilt = arguments[name].copy()
    spoilt.flat[len(spoilt) // 2] = value
    with pytest.raises(IndexError):
        call(function, arguments | {name: spoilt})


def test_calls_with_another_number_of_arguments_are_refused(arguments: Arguments) -> None:
    for function in ARRAYS:
        for wrong in ((), (arguments["starts"],), ((), ()), (1, 2, 3), [arguments["starts"]] * 30):
            with pytest.raises((TypeError, ValueError)):
                getattr(compiled, function)(*wrong)
    for n in (-1, 2**31, 2**70, 1.5, "30"):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            call("search", arguments | {"n": n})


def test_a_failed_call_leaves_no_array_locked() -> None:
    """An array with a view cannot be resized."""
    starts = np.arange(9)
    with pytest.raises(TypeError):
        compiled.in_order((starts, starts, starts), 3)
    starts.resize(20, refcheck=False)
    given = bytearray(8)
    with pytest.raises(TypeError):
        compiled.in_order((given, given, given), 3)
    given.extend(b"more")


@given(st.data())
def test_arrays_of_any_contents_end_in_an_answer_or_an_error(data: st.DataObject) -> None:
    """Damaged lists, whose checksums nobody compared, must not read beyond an array."""
    small = st.integers(-2, 8)
    starts, query_starts = (data.draw(st.lists(small, min_size=size, max_size=size)) for size in (V + 1, 3))
    terms, places = (
        data.draw(st.lists(st.integers(-2, V), max_size=6)),
        data.draw(st.lists(st.integers(0, 65_535), max_size=6)),
    )
    lists = np.array(starts), np.array(places, np.uint16), np.ones(len(places), np.float32)
    queries = np.array(query_starts), np.array(terms, np.int32), np.ones(len(terms), np.float32)
    rows = np.array(data.draw(st.lists(small, min_size=6, max_size=6)), np.int32).reshape(2, 3)
    for function in ("search", "count_matches", "score_candidates", "rescore", "find_postings"):
        given = {"starts": lists[0], "places": lists[1], "weights": lists[2], "n": 20}
        given |= {"query_starts": queries[0], "terms": queries[1], "query_weights": queries[2]}
        given |= {"needed": np.full(2, 2, np.int32), "allowed": np.ones(0, bool), "rows": rows.copy()}
        given |= {"scores": np.zeros((2, 3), np.float32), "counts": np.zeros(2, np.int64)}
        given |= {"chosen": rows[0].astype(np.int64), "entries": np.full((3, V), -1, np.int64)}
        with suppress(IndexError):
            call(function, given)


MISSING = """
import sys
sys.modules["vocable.indexes._kernels"] = None
import numpy as np
from scipy.sparse import csr_array
from vocable.indexes import exact_kernels, exact_numpy
from vocable.indexes.exact_index import ExactIndex
index = ExactIndex(csr_array(np.eye(50, dtype=np.float32)))
print(index.search(csr_array(np.ones((3, 50))), 2).rows.tolist(), index.get([3, 1]).nnz)
print(exact_kernels.search is exact_numpy.search)
"""


def test_an_installation_without_the_compiled_loops_searches_and_says_once_what_is_slower() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True)
    assert done.stdout == "[[0, 1], [0, 1], [0, 1]] 2\nTrue\n"
    [line] = done.stderr.splitlines()
    assert "searches of large indexes take longer" in line
    assert "C compiler" in line
