"""The Seismic engine: exact scores, its promised recall, and what it answers by exact search."""

from __future__ import annotations

import shutil
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from tests.indexes.test_exact_index import brute_force
from vocable.data import Document
from vocable.engines import seismic
from vocable.engines.filters import parse_filter
from vocable.engines.seismic import CLUSTERS_FILE, EFFORTS, SeismicIndex, SeismicStore
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.exact_index import ExactIndex

pytest.importorskip("seismic")

V = 300


def topics(count: int, seed: int, terms: int = 30) -> csr_array:
    """Vectors [count, V] of twenty topics, with so much noise that little effort misses some."""
    random = np.random.default_rng(seed)
    weights = np.random.default_rng(0).gamma(0.3, size=(20, V)).astype(np.float32)
    found = (weights[random.integers(20, size=count)] + 1) * random.gamma(0.5, size=(count, V)).astype(np.float32)
    found[found < np.sort(found, axis=1)[:, [-terms]]] = 0
    return csr_array(found)


@pytest.fixture(scope="module")
def index() -> SeismicIndex:
    return SeismicIndex(topics(3000, 1), [f"d{7 * row % 3000:04d}" for row in range(3000)])


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 30), k=st.integers(1, 40), seed=st.integers(0, 99), density=st.floats(0, 0.6), named=st.booleans()
)
def test_hits_are_documents_with_their_exact_scores(n: int, k: int, seed: int, density: float, named: bool) -> None:
    random = np.random.default_rng(seed)
    documents, queries = (
        np.float32(np.ceil(2 * random_array((rows, 12), density=density, rng=random).toarray())) for rows in (n, 4)
    )
    names = [f"d{n - row:02d}" for row in range(n)] if named else None
    rows, scores = brute_force(queries, documents, k, names)
    found = SeismicIndex(csr_array(documents), names, recall=1).search(csr_array(queries), k)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.scores, scores)
    index = SeismicIndex(csr_array(documents), names, recall=0.5)
    found = index.search(csr_array(queries), k)
    place = dict(zip(range(n), np.argsort(np.argsort(names)) if names else range(n), strict=True))
    for query, hits in enumerate(found.rows):
        some = hits[hits >= 0]
        np.testing.assert_array_equal(found.scores[query, : len(some)], documents[some] @ queries[query])
        assert len(set(some)) == len(some)
        assert (found.scores[query, : len(some)] > 0).all()
        order = [(-score, place[row]) for row, score in zip(some, found.scores[query], strict=False)]
        assert order == sorted(order)
        assert not found.scores[query, len(some) :].any()
    allowed = random.random(n) < 0.5
    found = index.search(csr_array(queries), k, allowed=allowed)
    rows, scores = brute_force(queries, documents * np.float32(allowed)[:, None], k, names)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.scores, scores)


@pytest.mark.parametrize("recall", [0.9, 0.95, 0.99, 1])
def test_the_promised_recall_is_kept(index: SeismicIndex, recall: float) -> None:
    index.recall, queries = recall, topics(300, 2, terms=15)
    wanted, found = ExactIndex.search(index, queries, 10), index.search(queries, 10)
    kept = np.mean([np.isin(one, other).mean() for one, other in zip(wanted.rows, found.rows, strict=True)])
    assert kept >= recall - 0.005
    if recall == 1:
        np.testing.assert_array_equal(found.rows, wanted.rows)


def test_more_effort_finds_more(index: SeismicIndex) -> None:
    assert [(one.terms, one.factor) for one in index.efforts] == list(EFFORTS[: len(index.efforts)])
    assert index.efforts[0].recall < index.efforts[-1].recall <= 1
    chosen = SeismicIndex(topics(300, 1), recall=0.9)
    assert chosen.recall == 0.9


def test_a_recall_that_no_effort_had_is_exact_search(index: SeismicIndex) -> None:
    index.recall, efforts, queries = 0.99, index.efforts, topics(50, 3)
    index.efforts = [efforts[0]._replace(recall=0.98)]
    np.testing.assert_array_equal(index.search(queries, 100).rows, ExactIndex.search(index, queries, 100).rows)
    index.efforts = efforts


def test_filtered_searches_are_exact(index: SeismicIndex) -> None:
    index.recall, queries = 0.5, topics(50, 4)
    allowed = np.random.default_rng(0).random(len(index)) < 0.1
    for options in ({"allowed": allowed}, {"minimum_match": 0.5}):
        found = index.search(queries, 20, **options)  # type: ignore[arg-type]
        np.testing.assert_array_equal(found.rows, ExactIndex.search(index, queries, 20, **options).rows)  # type: ignore[arg-type]


HEADER = {"recall": 0.9, "efforts": [[5, 1.0, 0.8], [10, 0.8, 0.95]]}


def test_a_stored_index_keeps_its_promise(index: SeismicIndex) -> None:
    index.recall, queries = 0.9, topics(50, 5)
    header = {"recall": index.recall, "efforts": index.efforts}
    loaded = SeismicIndex.stored(index.postings, index.clusters(), header, "place")
    assert (loaded.recall, loaded.efforts) == (0.9, index.efforts)
    order = np.argsort(np.array(index.ids))  # the postings are in the order of the ids
    np.testing.assert_array_equal(order[loaded.search(queries, 20).rows], index.search(queries, 20).rows)
    np.testing.assert_array_equal(loaded.search(queries, 20).scores, index.search(queries, 20).scores)


@pytest.mark.parametrize(("name", "value"), [("recall", "high"), ("efforts", [[10]]), ("efforts", None)])
def test_an_index_without_a_promise_is_refused(index: SeismicIndex, name: str, value: object) -> None:
    with pytest.raises(VectorsError):
        SeismicIndex.stored(index.postings, index.clusters(), HEADER | {name: value}, "place")


def test_clusters_that_are_damaged_or_of_more_documents_are_refused(index: SeismicIndex) -> None:
    with pytest.raises(VectorsError):
        SeismicIndex.stored(index.postings, index.clusters()[:100], HEADER, "place")
    few = SeismicIndex(topics(30, 1))
    with pytest.raises(VectorsError):
        SeismicIndex.stored(few.postings, index.clusters(), HEADER, "place")


N, QUERIES = 600, topics(20, 7)
IDS = [f"d{7 * row % N:03d}" for row in range(N)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store in a folder, filled in three parts."""
    settings = {"engine_options": {"recall": 0.9}, "bm25": True, "language": "english", "whole": True}
    store = SeismicStore.create(str(tmp_path / "store"), {"sparse": V}, settings)
    for part in (slice(0, 100), slice(100, 350), slice(350, N)):
        documents = [Document(name, f"word{name}", "", {"even": int(name[1:]) % 2 == 0}) for name in IDS[part]]
        store.upsert(documents, {"sparse": topics(N, 1)[part]})
    store.optimize()
    store.close()
    return tmp_path / "store"


def test_a_folder_answers_as_the_index_of_its_documents(folder: Path) -> None:
    index = SeismicIndex(topics(N, 1), IDS, recall=0.9)
    store = SeismicStore.open(str(folder))
    for queries in (QUERIES, QUERIES[:1]):
        ranking, expected = store.search(queries, 10), index.search(queries, 10)
        assert [ranking.hits(query) for query in range(len(ranking))] == [*map(expected.hits, range(len(expected)))]
    even = np.array([int(name[1:]) % 2 == 0 for name in IDS])
    filtered = ExactIndex.search(index, QUERIES, 10, allowed=even)
    assert store.search(QUERIES, 10, filter=parse_filter("even=true")).hits(3) == filtered.hits(3)
    assert [name for name, _ in store.search(store.query_vectors(["wordd007"]), 3, space="bm25").hits(0)] == ["d007"]
    np.testing.assert_array_equal(store.vectors(IDS[:9]).toarray(), topics(N, 1)[:9].toarray())
    assert len([*folder.glob("*.segment")]) == 1
    store.close()


def test_a_folder_whose_clusters_are_missing_or_of_other_documents_is_refused(folder: Path, tmp_path: Path) -> None:
    other = SeismicStore.create(str(tmp_path / "other"), {"sparse": V}, {"whole": True})
    other.upsert([Document("a", "x"), Document("b", "y")], {"sparse": topics(2, 3)})
    other.optimize()
    other.close()
    shutil.copy(tmp_path / "other" / CLUSTERS_FILE, folder / CLUSTERS_FILE)
    with pytest.raises(VectorsError, match=rf"{CLUSTERS_FILE}: belongs to other documents"):
        SeismicStore.open(str(folder)).search(QUERIES, 10)
    (folder / CLUSTERS_FILE).unlink()
    with pytest.raises(VectorsError):
        SeismicStore.open(str(folder)).search(QUERIES, 10)


def test_the_option_of_the_engine_is_checked() -> None:
    assert SeismicStore.parse_options("recall=0.9") == {"recall": 0.9}
    assert SeismicStore.parse_options(None) == {"recall": 0.99}
    for wrong in ("recall=0", "recall=1.5", "recall=most"):
        with pytest.raises(ArgumentError):
            SeismicStore.parse_options(wrong)


def test_a_long_building_is_another_process_and_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    documents, queries = topics(400, 3), topics(8, 4, 6)
    here = SeismicIndex(documents)
    monkeypatch.setattr(seismic, "FEW_POSTINGS", 0)
    with caplog.at_level("INFO", "vocable"):
        there = SeismicIndex(documents)
    [line] = [record.getMessage() for record in caplog.records if record.name.endswith("seismic")]
    assert line.startswith("clusters of 400 documents: about 1 minute and 0.0 GB")
    assert there.efforts == here.efforts
    np.testing.assert_array_equal(there.search(queries, 5).rows, here.search(queries, 5).rows)


def test_an_interrupt_ends_a_building_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(active_children())
    monkeypatch.setattr(seismic, "FEW_POSTINGS", 0)

    def interrupted(*given: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(seismic, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SeismicIndex(topics(400, 3))
    assert set(active_children()) == before
