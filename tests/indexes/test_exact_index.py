from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array, random_array

from vocable.core.arrays import load_arrays, save_arrays
from vocable.encoding.pruning import prune
from vocable.encoding.vectors import VectorsMeta, as_vectors
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes import exact_kernels, exact_numpy
from vocable.indexes.exact_index import ExactIndex, rescore
from vocable.indexes.ranking import Ranking

# Few distinct weights, exact in float32, so that equal scores are common.
WEIGHTS = st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0])


def brute_force(
    queries: np.ndarray, documents: np.ndarray, k: int, ids: list[str] | None = None, minimum_match: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """rows and scores [q, k], by the definition: one float32 addition a term, in the order of the terms."""
    rows = np.full((len(queries), k), -1)
    best = np.zeros((len(queries), k), dtype=np.float32)
    names = ids or list(range(len(documents)))
    for q, query in enumerate(queries):
        scores = np.zeros(len(documents), dtype=np.float32)
        for term in np.flatnonzero(query):
            scores += query[term] * documents[:, term]
        shared = ((documents > 0) & (query > 0)).sum(axis=1)
        allowed = (scores > 0) & (shared >= minimum_match * np.count_nonzero(query) - 1e-9)
        order = sorted(np.flatnonzero(allowed), key=lambda row: (-scores[row], names[row]))[:k]
        rows[q, : len(order)], best[q, : len(order)] = order, scores[order]
    return rows, best


def assert_same(ranking: Ranking, expected: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_array_equal(ranking.rows, expected[0])
    np.testing.assert_array_equal(ranking.scores, expected[1])
    assert (ranking.rows.dtype, ranking.scores.dtype) == (np.int32, np.float32)


def random_vectors(n: int, v: int, density: float, seed: int) -> np.ndarray:
    matrix = random_array((n, v), density=density, rng=np.random.default_rng(seed), dtype=np.float32)
    dense: np.ndarray = matrix.toarray()
    return dense


@st.composite
def searches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, list[str] | None, float]:
    v = draw(st.integers(1, 6))
    documents = draw(arrays(np.float32, (draw(st.integers(0, 12)), v), elements=WEIGHTS))
    queries = draw(arrays(np.float32, (draw(st.integers(0, 4)), v), elements=WEIGHTS))
    ids = draw(st.none() | st.permutations([f"d{row}" for row in range(len(documents))]))
    return queries, documents, draw(st.integers(1, 15)), ids, draw(st.sampled_from([0.0, 0.3, 0.5, 1.0]))


@given(searches())
def test_search_is_brute_force(search: tuple[np.ndarray, np.ndarray, int, list[str] | None, float]) -> None:
    queries, documents, k, ids, share = search
    ranking = ExactIndex(csr_array(documents), ids).search(csr_array(queries), k, minimum_match=share)
    assert_same(ranking, brute_force(queries, documents, k, ids, share))


@pytest.mark.parametrize("k", [10, 700])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_many_documents_over_several_windows(k: int, share: float) -> None:
    n = 2 * exact_numpy.WINDOW_SIZE + 500  # not a multiple of a block
    documents, queries = random_vectors(n, 40, 0.1, seed=1), random_vectors(3, 40, 0.4, seed=2)
    index = ExactIndex(csr_array(documents))
    ranking = index.search(csr_array(queries), k, minimum_match=share)
    assert_same(ranking, brute_force(queries, documents, k, minimum_match=share))
    assert (ranking.rows >= exact_numpy.WINDOW_SIZE).any()


def test_documents_come_back_from_several_windows(tmp_path: Path) -> None:
    n = 2 * exact_numpy.WINDOW_SIZE + 500
    documents = csr_array(random_vectors(n, 40, 0.1, seed=1))
    ids = [f"{row:06}" for row in np.random.default_rng(0).permutation(n)]
    ExactIndex(documents, ids).save(tmp_path / "index")
    index = ExactIndex.load(tmp_path / "index")
    rows = np.array([n - 1, 0, exact_numpy.WINDOW_SIZE, exact_numpy.WINDOW_SIZE - 1])
    np.testing.assert_array_equal(index.get(rows).toarray(), documents[rows].toarray())
    assert (index.get() != documents).nnz == 0
    np.testing.assert_array_equal(index.document_frequency, np.bincount(documents.indices, minlength=40))
    query = csr_array((np.ones(2), ([0, 0], [3, 5])), shape=(1, 40))
    both = documents[:, [3, 5]].toarray() > 0
    assert index.matched(query).tolist() == [both.any(axis=1).sum()]
    assert index.matched(query, minimum_match=1).tolist() == [both.all(axis=1).sum()]


@pytest.mark.parametrize(("place", "wrong"), [(499, False), (500, True), (65_535, True)])
def test_no_window_leads_beyond_the_last_document(place: int, wrong: bool) -> None:
    n = exact_numpy.WINDOW_SIZE + 500
    vectors = csr_array((np.ones(3), ([0, n - 1, n - 1], [0, 0, 1])), shape=(n, 2))
    index = ExactIndex(vectors)
    arrays = {key: np.array(array) for key, array in index.arrays().items()}
    arrays["places"][1] = place
    if wrong:
        with pytest.raises(VectorsError, match=r"^index: .* a posting of a document that does not exist"):
            ExactIndex.from_arrays(arrays, index.header(), "index")
    else:
        loaded = ExactIndex.from_arrays(arrays, index.header(), "index")
        assert loaded.get().indices.tolist() == [0, 0, 1]


@given(searches(), st.sampled_from([8, 16]), st.sampled_from([1.0, 0.37, 1e-4, 1e30]))
def test_rounded_weights_are_searched_exactly(
    search: tuple[np.ndarray, np.ndarray, int, list[str] | None, float], bits: int, scale: float
) -> None:
    queries, documents, k, ids, share = search
    documents = (documents * np.float32(scale) * (1 + np.arange(len(documents))[:, None] / 7)).astype(np.float32)
    queries = queries * np.float32(0.7)
    unit = 1.0
    if documents.any():  # the smallest power of 2 of which the heaviest is no more than 2^bits - 1
        unit = 2.0 ** next(power for power in range(-200, 200) if documents.max() <= 2.0**power * (2**bits - 1))
    rounded = np.where(documents > 0, np.maximum(np.round(documents / unit), 1) * unit, 0).astype(np.float32)
    index = ExactIndex(csr_array(documents), ids, weight_bits=bits)
    expected = brute_force(queries, rounded, k, ids, share)
    assert_same(index.search(csr_array(queries), k, minimum_match=share), expected)
    np.testing.assert_array_equal(index.get().toarray(), rounded)
    assert np.abs(rounded - documents).max(initial=0) < max(2 / (2**bits - 1) * documents.max(initial=0), 1e-30)
    loaded = ExactIndex.from_arrays(index.arrays(), index.header(), "index")
    assert_same(loaded.search(csr_array(queries), k, minimum_match=share), expected)
    places = np.arange(len(documents))
    np.testing.assert_array_equal(loaded.get(places).toarray(), rounded)


@pytest.mark.parametrize(("bits", "size"), [(None, 6), (16, 4), (8, 3)])
def test_a_posting_takes_the_declared_number_of_bytes(bits: int | None, size: int) -> None:
    documents = csr_array(random_vectors(400, 50, 0.3, 3))
    index = ExactIndex(documents, weight_bits=bits)
    assert index.nbytes == size * documents.nnz + 8 * 51


def test_rounded_weights_of_other_bits_and_units_are_refused() -> None:
    documents = csr_array(random_vectors(40, 30, 0.3, 13))
    index = ExactIndex(documents, weight_bits=8)
    weights = index.arrays()["weights"]
    for kind in (np.int8, np.uint32, np.float64):
        with pytest.raises(VectorsError):
            ExactIndex.from_arrays(index.arrays() | {"weights": weights.astype(kind)}, index.header(), "index")
    for unit in (0, -1, float("inf"), float("nan")):
        with pytest.raises(VectorsError):
            ExactIndex.from_arrays(index.arrays(), index.header() | {"unit": unit}, "index")
    for header in ({"unit": "much"}, {"unit": None}, {"unit": [1]}):
        with pytest.raises(VectorsError):
            ExactIndex.from_arrays(index.arrays(), index.header() | header, "index")
    with pytest.raises(ArgumentError):
        ExactIndex(documents, weight_bits=4)


def test_an_index_without_an_array_is_refused_by_its_name() -> None:
    index = ExactIndex(csr_array(np.ones((2, 3))))
    arrays = {name: array for name, array in index.arrays().items() if name != "places"}
    with pytest.raises(VectorsError):
        ExactIndex.from_arrays(arrays | {"documents": np.zeros(6, np.int32)}, index.header(), "index")


@given(
    arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(1, 6)), elements=WEIGHTS),
    st.integers(0, 8),
    st.sampled_from(["", "columns", "weights"]),
    st.sampled_from([-1, 0, 1, 2, 3, 5, 6, 9]),
)
def test_queries_are_taken_as_they_are_only_if_they_are_vectors(
    dense: np.ndarray, place: int, part: str, value: int
) -> None:
    """A matrix that somebody has tampered with is taken, repaired or refused as `as_vectors` does it."""

    def tampered() -> csr_array:
        matrix = csr_array(dense)
        changed = {"columns": matrix.indices, "weights": matrix.data}.get(part, np.empty(0))
        if len(changed):
            changed[place % len(changed)] = value
        return matrix

    matrix = tampered()
    index = ExactIndex(csr_array(np.eye(dense.shape[1], dtype=np.float32)))
    try:
        expected = as_vectors(tampered())
    except VectorsError:
        with pytest.raises(VectorsError):
            index.search(matrix)
        return
    assert_same(index.search(matrix), brute_force(expected.toarray(), np.eye(dense.shape[1], dtype=np.float32), 10))


@pytest.mark.parametrize(
    ("starts", "right"),
    [
        ([0, 1, 3], True),
        ([0, 0, 3], True),
        ([1, 1, 3], False),
        ([0, 4, 3], False),
        ([0, -1, 3], False),
        ([0, 1, 2], False),
        ([0, 1, 4], False),
        ([0, 2, 3], False),
        ([], False),
    ],
)
def test_rows_that_do_not_follow_one_another_are_seen(starts: list[int], right: bool) -> None:
    columns, weights = np.array([2, 0, 3], np.int32), np.ones(3, np.float32)
    if starts == [0, 0, 3]:
        columns = np.array([0, 2, 3], np.int32)
    matrix = np.array(starts, np.int64), columns, weights
    assert exact_kernels.in_order(matrix, 4) == exact_numpy.in_order(matrix, 4) == right


def test_queries_of_other_types_and_shapes_are_as_vectors_has_them() -> None:
    index = ExactIndex(csr_array(np.eye(4, dtype=np.float32)))
    with pytest.raises(VectorsError):
        index.search(csr_array(np.ones(4, np.float32)))
    far = csr_array((np.ones(1, np.float32), np.array([0]), np.array([0, 1])), shape=(1, 4))
    far.indices, far.indptr = np.array([2**32 + 3]), far.indptr.astype(np.int64)
    with pytest.raises(VectorsError):
        index.search(far)
    near = csr_array((np.ones(1, np.float64), np.array([3], np.int64), np.array([0, 1], np.int64)), shape=(1, 4))
    assert index.search(near, 1).rows.tolist() == [[3]]


def test_a_mask_of_other_documents_is_refused() -> None:
    index = ExactIndex(csr_array(np.eye(4, dtype=np.float32)))
    for allowed in (np.ones(3, bool), np.ones(5, bool), np.ones((4, 1), bool)):
        with pytest.raises(ArgumentError):
            index.search(csr_array(np.ones((1, 4))), allowed=allowed)


def test_no_rounded_weight_is_infinite() -> None:
    heavy = np.array([[np.finfo(np.float32).max, 1e38]], dtype=np.float32)
    for bits in (8, 16):
        found = ExactIndex(csr_array(heavy), weight_bits=bits).get().toarray()
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, heavy, rtol=4 / (2**bits - 1))


def test_threads_do_not_change_a_bit() -> None:
    documents, queries = random_vectors(300, 50, 0.2, seed=3), csr_array(random_vectors(70, 50, 0.3, seed=4))
    index = ExactIndex(csr_array(documents))
    alone = index.search(queries, 20, threads=1)
    assert_same(index.search(queries, 20, threads=5), (alone.rows, alone.scores))
    assert_same(index.search(queries, 20), (alone.rows, alone.scores))


def test_scores_are_those_of_a_sparse_product() -> None:
    documents, queries = csr_array(random_vectors(200, 60, 0.3, 5)), csr_array(random_vectors(9, 60, 0.3, 6))
    ranking = ExactIndex(documents).search(queries, 200)
    product = (queries @ documents.T.tocsr()).toarray()
    found = ranking.rows >= 0
    np.testing.assert_array_equal(np.take_along_axis(product, ranking.rows, axis=1)[found], ranking.scores[found])
    assert (product > 0).sum() == found.sum()


def test_equal_scores_are_in_the_order_of_the_ids_whatever_the_order_of_the_rows() -> None:
    documents = csr_array(np.ones((200, 1), dtype=np.float32))
    ids = [f"{row:03}" for row in np.random.default_rng(0).permutation(200)]
    ranking = ExactIndex(documents, ids).search(csr_array(np.ones((1, 1))), 5)
    assert [document for document, _ in ranking.hits(0)] == ["000", "001", "002", "003", "004"]
    assert [ids[row] for row in ranking.rows[0]] == ["000", "001", "002", "003", "004"]


def test_an_empty_index_and_empty_queries_have_no_hits() -> None:
    empty = ExactIndex(csr_array((0, 4), dtype=np.float32), [])
    assert empty.search(csr_array(np.ones((2, 4))), 3).rows.tolist() == [[-1] * 3] * 2
    index = ExactIndex(csr_array(np.array([[1.0, 0.0], [0.0, 0.0]])))
    ranking = index.search(csr_array(np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])), 2, minimum_match=0.5)
    assert ranking.rows.tolist() == [[-1, -1], [-1, -1], [0, -1]]
    assert ranking.scores.tolist() == [[0, 0], [0, 0], [1, 0]]
    assert index.search(csr_array((0, 2), dtype=np.float32), 2).rows.shape == (0, 2)
    assert index.document_frequency.tolist() == [1, 0]
    assert len(index) == 2


def test_minimum_match_counts_terms_not_weights() -> None:
    documents = csr_array(np.array([[9, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]], dtype=np.float32))
    index, query = ExactIndex(documents), csr_array(np.ones((1, 4)))
    assert index.search(query, 3, minimum_match=0.25).rows.tolist() == [[0, 2, 1]]
    assert index.search(query, 3, minimum_match=0.5).rows.tolist() == [[2, 1, -1]]
    assert index.search(query, 3, minimum_match=0.51).rows.tolist() == [[2, -1, -1]]


@given(searches())
def test_matched_documents_are_those_that_brute_force_finds(
    search: tuple[np.ndarray, np.ndarray, int, list[str] | None, float],
) -> None:
    queries, documents, _, ids, share = search
    found = ExactIndex(csr_array(documents), ids).matched(csr_array(queries), minimum_match=share)
    rows, _ = brute_force(queries, documents, max(1, len(documents)), ids, share)
    assert found.tolist() == (rows >= 0).sum(axis=1).tolist()


def test_two_steps_with_enough_candidates_are_one() -> None:
    documents, queries = csr_array(random_vectors(300, 80, 0.3, 9)), csr_array(random_vectors(12, 80, 0.3, 10))
    ids = [f"d{row}" for row in np.random.default_rng(1).permutation(300)]
    exact = ExactIndex(documents, ids).search(queries, 10)
    first = ExactIndex(prune(documents, max_terms=12), ids).search(prune(queries, max_terms=12), 300)
    second = rescore(first, queries, documents, 10, threads=3)
    assert_same(second, (exact.rows, exact.scores))
    assert second.ids == ids


def test_rescoring_is_limited_to_the_candidates() -> None:
    documents = csr_array(np.array([[1, 0], [2, 1], [3, 0], [0, 1]], dtype=np.float32))
    candidates = Ranking(np.array([[3, 0, 1], [-1, -1, -1]], np.int32), np.ones((2, 3), np.float32))
    ranking = rescore(candidates, csr_array(np.array([[1.0, 0.0], [1.0, 0.0]])), documents, 5)
    assert ranking.rows.tolist() == [[1, 0, -1, -1, -1], [-1] * 5]
    assert ranking.scores.tolist() == [[2, 1, 0, 0, 0], [0] * 5]


def test_what_does_not_fit_is_refused() -> None:
    documents, queries = csr_array(np.ones((2, 3))), csr_array(np.ones((1, 4)))
    index = ExactIndex(documents, ["a", "b"])
    with pytest.raises(VectorsError):
        index.search(queries)
    with pytest.raises(VectorsError):
        rescore(index.search(documents), queries, documents)
    with pytest.raises(VectorsError):
        rescore(index.search(documents), csr_array(np.ones((1, 3))), documents)
    with pytest.raises(VectorsError, match="row 1, "):
        rescore(index.search(documents), documents, csr_array(np.ones((1, 3))))
    with pytest.raises(VectorsError):
        ExactIndex(documents, ["a", "b", "c"])
    with pytest.raises(VectorsError, match=r"'a'"):
        ExactIndex(documents, ["a", "a"])
    with pytest.raises(VectorsError):
        ExactIndex(csr_array(np.array([[-1.0]])))
    for bad in ({"k": 0}, {"minimum_match": 1.1}, {"minimum_match": -0.1}, {"threads": 0}):
        with pytest.raises(ArgumentError, match=next(iter(bad))):
            index.search(documents, **bad)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        rescore(index.search(documents), documents, documents, 0)


def is_memory_mapped(array: np.ndarray) -> bool:
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap)


META = VectorsMeta("abc", "toy", "max", "document", 64, 30)


@pytest.mark.parametrize("ids", [None, [f"ü{row}" for row in range(40, 0, -1)]])
def test_a_loaded_index_gives_the_same_answers(tmp_path: Path, ids: list[str] | None) -> None:
    documents, queries = csr_array(random_vectors(40, 30, 0.3, 11)), csr_array(random_vectors(5, 30, 0.3, 12))
    index = ExactIndex(documents, ids, META)
    index.save(tmp_path / "index")
    loaded = ExactIndex.load(tmp_path / "index")
    expected = index.search(queries, 7)
    assert_same(loaded.search(queries, 7), (expected.rows, expected.scores))
    assert loaded.ids == ids
    assert (loaded.meta, loaded.shape) == (META, (40, 30))
    assert is_memory_mapped(loaded.arrays()["places"])


def test_an_empty_index_is_saved_and_loaded(tmp_path: Path) -> None:
    ExactIndex(csr_array((0, 5), dtype=np.float32), []).save(tmp_path / "index")
    loaded = ExactIndex.load(tmp_path / "index")
    assert loaded.search(csr_array(np.ones((1, 5))), 2).rows.tolist() == [[-1, -1]]
    assert loaded.ids == []


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "index"
    ExactIndex(csr_array(random_vectors(40, 30, 0.3, 13)), [str(row) for row in range(40)], META).save(file)
    whole = file.read_bytes()
    for length in range(0, len(whole), 61):
        file.write_bytes(whole[:length])
        for verify in (True, False):
            with pytest.raises(VectorsError, match="index: "):
                ExactIndex.from_arrays(*load_arrays(file, "exact", verify=verify), str(file))
    file.write_bytes(whole)
    ExactIndex.load(file)
    with pytest.raises(VectorsError):
        ExactIndex.load(tmp_path)


def test_parts_of_different_indexes_do_not_make_one() -> None:
    small, large = (
        ExactIndex(csr_array(np.ones((2, 3))), ["b", "a"]),
        ExactIndex(csr_array(np.ones((3, 3))), ["b", "a", "c"]),
    )
    for name in ("starts", "places", "weights", "order"):
        with pytest.raises(VectorsError):
            ExactIndex.from_arrays(small.arrays() | {name: large.arrays()[name]}, small.header(), "index")
        with pytest.raises(VectorsError):
            ExactIndex.from_arrays(
                {key: array for key, array in small.arrays().items() if key != name}, small.header(), "index"
            )
    with pytest.raises(VectorsError):
        ExactIndex.from_arrays(small.arrays(), {"shape": [2], "unit": 1.0}, "index")


@pytest.mark.parametrize("ids", [None, ["c", "a", "d", "b"]])
def test_the_vectors_come_back_as_they_were_given(ids):
    vectors = csr_array(
        np.array([[0.0, 1.0, 0.5], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 3.0, 0.0]], dtype=np.float32)
    )
    np.testing.assert_array_equal(ExactIndex(vectors, ids=ids).get().toarray(), vectors.toarray())


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("places", -1, 40, "a posting of a document that does not exist"),
        ("places", -1, 65_535, "a posting of a document that does not exist"),
        ("places", slice(0, 2), 0, "the documents of a posting list do not rise"),
        ("weights", 3, np.nan, "a weight is not a positive number"),
        ("weights", 3, np.inf, "a weight is not a positive number"),
        ("weights", -1, -1, "a weight is not a positive number"),
        ("weights", -1, 0, "a weight is not a positive number"),
        ("starts", 3, 10**9, "the starts of the posting lists do not rise"),
        ("starts", slice(3, 5), [2**63 - 1, -2], "the starts of the posting lists do not rise"),
        ("starts", 0, 1, "the starts of the posting lists do not rise"),
        ("starts", -1, 10**9, "do not fit together"),
        ("order", slice(None), 0, "the ids are not in order"),
        ("order", 0, 10**6, "order has a row that does not exist"),
        ("order", 0, -1, "order has a row that does not exist"),
        ("order", slice(None), np.arange(40), "the ids are not in order"),
        ("ids_bytes", slice(None), 255, "ids_bytes is not text in UTF-8"),
        ("ids_bytes", slice(None), 48, "an id is repeated"),
        ("ids_offsets", 1, 10**9, "ids_bytes is not text in UTF-8"),
        ("ids_offsets", 1, -7, "ids_bytes is not text in UTF-8"),
    ],
)
def test_no_index_leads_out_of_its_arrays(
    tmp_path: Path, name: str, place: int | slice, value: object, message: str
) -> None:
    documents = csr_array(random_vectors(40, 30, 0.3, 13))
    index = ExactIndex(documents, [f"{row:02}" for row in range(40, 0, -1)], META)
    arrays = {key: np.array(array) for key, array in index.arrays().items()}
    arrays[name][place] = value
    save_arrays(tmp_path / "index", "exact", arrays, index.header())
    with pytest.raises(VectorsError, match=f"index.*{message}"):
        ExactIndex.load(tmp_path / "index")


def test_arrays_of_another_type_and_shapes_that_are_none_are_refused(tmp_path: Path) -> None:
    index = ExactIndex(csr_array(np.ones((2, 3))), ["b", "a"])
    for name, array in index.arrays().items():
        for other in (array.astype(np.float64), array.reshape(1, -1)):
            with pytest.raises(VectorsError, match=rf"^place: .*{name}"):
                ExactIndex.from_arrays(index.arrays() | {name: other}, index.header(), "place")
    for shape in ([10**9, 3], [2, 2], [-1, 3], [2.0, 3], ["2", 3], [True, 3]):
        with pytest.raises(VectorsError):
            ExactIndex.from_arrays(index.arrays(), index.header() | {"shape": shape}, "folder")
    arrays = {name: array for name, array in index.arrays().items() if not name.startswith("ids")}
    with pytest.raises(VectorsError):  # without ids there is no order
        ExactIndex.from_arrays(arrays, index.header(), "folder")


def test_a_matrix_that_leads_out_of_itself_is_refused() -> None:
    good = csr_array(np.ones((2, 3), dtype=np.float32))
    bad = csr_array(np.ones((1, 3), dtype=np.float32))
    bad.indices[2] = 10**6
    with pytest.raises(VectorsError):
        ExactIndex(good).search(bad)
    with pytest.raises(VectorsError):
        ExactIndex(bad)
