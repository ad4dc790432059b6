"""Indexes in memory: the same tests for each kind, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.indexes.test_exact_index import brute_force
from vocable.engines.folder import FolderStore
from vocable.engines.protocols import engine_of, engines
from vocable.engines.seismic import SeismicIndex, SeismicStore
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.exact_index import ExactIndex

N, V = 40, 13


def vectors(count: int, seed: int) -> np.ndarray:
    """Few distinct weights, so that equal scores are common; the first vector is empty."""
    weights = np.random.default_rng(seed).choice(np.float32([0, 0, 0.5, 1, 2]), size=(count, V))
    weights[0] = 0
    return weights


def ids(count: int) -> list[str]:
    """Ids in another order than the rows."""
    return [f"d{17 * row % count:03d}" for row in range(count)]


def bm25(documents: np.ndarray, names: list[str] | None) -> BM25Index:
    words = [
        " ".join(f"w{term}" * 1 for term in np.flatnonzero(row) for _ in range(int(2 * row[term]))) for row in documents
    ]
    return BM25Index(words, names)


MAKE: dict[str, Callable[[np.ndarray, list[str] | None], ExactIndex]] = {
    "exact": lambda documents, names: ExactIndex(csr_array(documents), names),
    "bm25": bm25,
    "seismic": lambda documents, names: SeismicIndex(csr_array(documents), names),
}


def test_every_engine_of_an_index_is_tested() -> None:
    assert {name for name, engine in engines().items() if not engine.about.changes} == MAKE.keys() - {"exact", "bm25"}


@pytest.fixture(params=list(MAKE))
def make(request: pytest.FixtureRequest) -> Callable[[np.ndarray, list[str] | None], ExactIndex]:
    return MAKE[request.param]


def test_an_index_has_its_documents(make: Callable[..., ExactIndex]) -> None:
    index = make(vectors(N, 1), ids(N))
    assert (len(index), list(index.ids or ())) == (N, ids(N))
    assert index.nbytes > 0
    assert f"{N} documents" in repr(index)


@pytest.mark.parametrize("names", [None, ids(N)])
@pytest.mark.parametrize(("k", "minimum_match"), [(1, 0.0), (7, 0.0), (N + 5, 0.0), (7, 0.4), (7, 1.0)])
def test_a_search_is_that_of_numpy(
    make: Callable[..., ExactIndex], names: list[str] | None, k: int, minimum_match: float
) -> None:
    index = make(vectors(N, 2), names)
    stored = index.get().toarray()
    queries = np.random.default_rng(3).choice(np.float32([0, 0, 1, 2]), size=(6, stored.shape[1]))
    queries[0] = 0
    found = index.search(csr_array(queries), k, minimum_match=minimum_match)
    assert (found.rows.shape, found.rows.dtype, found.scores.dtype) == ((6, k), np.int32, np.float32)
    rows, scores = brute_force(queries, stored, k, names, minimum_match)
    if minimum_match or not isinstance(index, SeismicIndex):
        np.testing.assert_array_equal(found.rows, rows)
        np.testing.assert_array_equal(found.scores, scores)
    one = index.search(csr_array(queries), k, minimum_match=minimum_match, threads=1)
    np.testing.assert_array_equal(one.rows, found.rows)


def test_get_gives_the_vectors_that_were_put_in(make: Callable[..., ExactIndex]) -> None:
    index = make(vectors(N, 4), ids(N))
    whole = index.get()
    assert whole.has_sorted_indices
    assert (whole.dtype, whole.shape[0]) == (np.float32, N)
    np.testing.assert_array_equal(index.document_frequency, (whole.toarray() > 0).sum(axis=0))
    if not isinstance(index, BM25Index):
        np.testing.assert_array_equal(whole.toarray(), vectors(N, 4))
    for rows in ([], [5], [3, 3, 0], range(N)):
        np.testing.assert_array_equal(index.get(rows).toarray(), whole.toarray()[list(rows)])
    with pytest.raises(ArgumentError):
        index.get([N])


def test_some_documents_of_many_are_looked_up(make: Callable[..., ExactIndex]) -> None:
    documents = np.tile(vectors(N, 5), (100, 1))
    index = make(documents, ids(100 * N))
    whole = index.get().toarray()
    np.testing.assert_array_equal(index.get([3999, 0, 77]).toarray(), whole[[3999, 0, 77]])


@pytest.mark.parametrize("kind", ["exact", "bm25"])
def test_the_postings_of_any_saved_index_are_read(kind: str, tmp_path: Path) -> None:
    index = MAKE[kind](vectors(N, 7), ids(N))
    index.save(tmp_path / "index")
    loaded = ExactIndex.load(tmp_path / "index")
    np.testing.assert_array_equal(loaded.get().toarray(), index.get().toarray())


def test_a_folder_and_an_index_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VectorsError):
        ExactIndex.load(tmp_path)
    MAKE["exact"](vectors(N, 7), ids(N)).save(tmp_path / "index")
    with pytest.raises(VectorsError):
        BM25Index.load(tmp_path / "index")


def test_a_place_names_its_engine() -> None:
    assert engine_of("seismic:some/folder") == (SeismicStore, "some/folder")
    assert engine_of("folder:some/folder") == (FolderStore, "some/folder")
    for path in ("some/folder", "C:/folder", "bm25:folder", "./seismic:folder", "exact:folder"):
        assert engine_of(path) == (FolderStore, path)
    for place in ("nobody://host:1234/name", "nobody+http://host:1234/name", "bm25+https://host"):
        with pytest.raises(ArgumentError):
            engine_of(place)
    service = r"^http://localhost:8000: a service is searched by its address, .*--explain.* needs the index itself"
    with pytest.raises(ArgumentError, match=service):
        engine_of("http://localhost:8000")
