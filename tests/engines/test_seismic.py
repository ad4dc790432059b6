"""The Seismic engine: exact scores, its promised recall, and what it answers by exact search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from tests.indexes.test_exact_index import brute_force
from vocable.engines.seismic import EFFORTS, SeismicIndex, SeismicStore
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


def test_a_saved_index_keeps_its_promise(index: SeismicIndex, tmp_path: Path) -> None:
    index.recall, queries = 0.9, topics(50, 5)
    index.save(tmp_path / "index")
    loaded = SeismicIndex.load(tmp_path / "index")
    assert (loaded.recall, loaded.efforts) == (0.9, index.efforts)
    np.testing.assert_array_equal(loaded.search(queries, 20).rows, index.search(queries, 20).rows)


@pytest.mark.parametrize(("name", "value"), [("recall", "high"), ("efforts", [[10]]), ("efforts", None)])
def test_an_index_without_a_promise_is_refused(index: SeismicIndex, name: str, value: object) -> None:
    with pytest.raises(VectorsError):
        SeismicIndex.from_arrays(index.arrays(), index.header() | {name: value}, "here")


def test_the_option_of_the_engine_is_checked() -> None:
    assert SeismicStore.parse_options("recall=0.9") == {"recall": 0.9}
    assert SeismicStore.parse_options(None) == {"recall": 0.99}
    for wrong in ("recall=0", "recall=1.5", "recall=most"):
        with pytest.raises(ArgumentError):
            SeismicStore.parse_options(wrong)
