from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.core.arrays import Strings
from vocable.errors import ArgumentError
from vocable.indexes.fusion import fused, parse_weights, reciprocal_rank, weighted
from vocable.indexes.ranking import Ranking

IDS = ["d", "b", "c", "a", "f", "e"]


@st.composite
def rankings(draw: st.DrawFn) -> list[Ranking]:
    queries = draw(st.integers(0, 3))
    result = []
    for _ in range(draw(st.integers(1, 3))):
        k = draw(st.integers(0, 6))
        rows, scores = np.full((queries, k), -1, np.int32), np.zeros((queries, k), np.float32)
        for query in range(queries):
            found = draw(st.lists(st.integers(0, 5), unique=True, max_size=k))
            values = draw(st.lists(st.integers(1, 8), min_size=len(found), max_size=len(found)))
            rows[query, : len(found)], scores[query, : len(found)] = found, sorted(values, reverse=True)
        result.append(Ranking(rows, scores, IDS))
    return result


def expected(parts: list[dict[int, float]], depth: int) -> list[tuple[int, float]]:
    sums: dict[int, float] = defaultdict(float)
    for part in parts:
        for row, value in part.items():
            sums[row] += value
    return sorted(sums.items(), key=lambda item: (-np.float32(f"{item[1]:.12g}"), IDS[item[0]]))[:depth]


def assert_fused(fused: Ranking, given_: list[Ranking], parts: list[list[dict[int, float]]], depth: int) -> None:
    assert fused.rows.shape == (len(given_[0]), depth)
    for query in range(len(given_[0])):
        wanted = expected([part[query] for part in parts], depth)
        found = fused.rows[query] >= 0
        np.testing.assert_allclose(fused.scores[query][found], [score for _, score in wanted], rtol=1e-6)
        assert fused.rows[query][found].tolist() == [row for row, _ in wanted]


def hits(ranking: Ranking, query: int) -> list[tuple[int, float]]:
    pairs = zip(ranking.rows[query].tolist(), ranking.scores[query].tolist(), strict=True)
    return [(row, score) for row, score in pairs if row >= 0]


WEIGHTS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=3, max_size=3)


@given(rankings(), st.sampled_from([0, 3, 60]), st.none() | st.integers(1, 9), st.none() | WEIGHTS)
def test_reciprocal_rank_by_its_definition(
    given_: list[Ranking], k: int, depth: int | None, weights: list[float] | None
) -> None:
    factors = [1.0] * len(given_) if weights is None else weights[: len(given_)]
    parts = [
        [{row: factor / (k + rank) for rank, (row, _) in enumerate(hits(one, query), 1)} for query in range(len(one))]
        for one, factor in zip(given_, factors, strict=True)
    ]
    width = depth or max(one.rows.shape[1] for one in given_)
    assert_fused(reciprocal_rank(given_, k, depth, weights and factors), given_, parts, width)


def normalized(pairs: list[tuple[int, float]], weight: float) -> dict[int, float]:
    scores = [score for _, score in pairs]
    spread = max(scores, default=0) - min(scores, default=0)
    return {row: weight * ((score - min(scores)) / spread if spread else 1.0) for row, score in pairs}


@given(rankings(), WEIGHTS)
def test_weighted_by_its_definition(given_: list[Ranking], weights: list[float]) -> None:
    used = weights[: len(given_)]
    parts = [
        [normalized(hits(one, query), weight) for query in range(len(one))]
        for one, weight in zip(given_, used, strict=True)
    ]
    assert_fused(weighted(given_, used), given_, parts, max(one.rows.shape[1] for one in given_))


def test_ties_are_in_the_order_of_the_ids() -> None:
    one = Ranking(np.array([[0, 1]]), np.array([[2.0, 1.0]]), IDS)
    other = Ranking(np.array([[1, 0]]), np.array([[2.0, 1.0]]), Strings(IDS))  # the same ids, held otherwise
    assert reciprocal_rank([one, other]).hits(0)[0][0] == "b"
    assert weighted([one, other], [1, 1]).hits(0) == [("b", 1.0), ("d", 1.0)]


def test_rankings_and_weights_that_do_not_fit_are_refused() -> None:
    one = Ranking(np.array([[0, 1]]), np.array([[2.0, 1.0]]), IDS)
    with pytest.raises(ArgumentError):
        reciprocal_rank([])
    with pytest.raises(ArgumentError):
        reciprocal_rank([one, Ranking(np.zeros((2, 1), np.int32), np.ones((2, 1), np.float32), IDS)])
    for ids in (None, IDS[::-1], IDS[:-1]):
        with pytest.raises(ArgumentError):
            weighted([one, Ranking(one.rows, one.scores, ids)], [1, 1])
    with pytest.raises(ArgumentError):
        weighted([one, one], [1.0])
    for weight in (-1.0, float("nan"), float("inf"), 1e308, 1e-300):
        with pytest.raises(ArgumentError):
            weighted([one, one], [1.0, weight])
    with pytest.raises(ArgumentError):
        reciprocal_rank([one], weights=[1, 1])
    with pytest.raises(ArgumentError):
        fused({"sparse": one}, {"sparse": 1}, "sum", 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        reciprocal_rank([one], k=-1)
    with pytest.raises(ArgumentError):
        reciprocal_rank([one], depth=0)


@pytest.mark.parametrize(
    "text",
    [
        "words=1",
        "words",
        "sparse=1,sparse=2",
        "sparse=-1",
        "sparse=nan",
        "sparse=inf",
        "sparse=1e308,bm25=1e308",
        "sparse=1,bm25=1e-300",
        "sparse=0",
    ],
)
def test_weights_of_a_fusion_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_weights(text, ["sparse", "bm25"])
