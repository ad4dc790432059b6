"""The plan of a search: its depths, its steps beside a brute force, and rankings that several plans share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from vocable.collection.plan import SPARE_HITS, Depths, EncodedQueries, SearchPlan
from vocable.data import Document
from vocable.encoding.protocol import EncodedTexts
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError
from vocable.indexes.ranking import Ranking, best
from vocable.options import Fusion, SearchOptions, check

N, Q = 30, 3
IDS = [f"d{row:02}" for row in range(N)]
SPACES: tuple[Space, ...] = ("sparse", "bm25", "dense")
EXAMPLE: SearchOptions = {"offset": 20, "rerank": "cross", "rerank_depth": 50}


def depths_of(k: int, options: SearchOptions, spaces: int, **others: Any) -> Depths:
    return Depths.of(k, check(SearchOptions, options), spaces, **others)


def test_the_worked_example_of_depths() -> None:
    assert depths_of(10, EXAMPLE, 2) == Depths(k=10, offset=20, depth=100, first=50, kept=30)


def test_depths_of_one_space_and_of_few_documents() -> None:
    assert depths_of(10, {}, 1) == Depths(10, 0, depth=10, first=10, kept=10)
    assert depths_of(150, {}, 3) == Depths(150, 0, depth=150, first=150, kept=150)
    assert depths_of(150, {}, 3, reachable=lambda k: min(k, 7)) == Depths(150, 0, depth=100, first=7, kept=150)


def test_spare_candidates_do_not_change_what_is_fused() -> None:
    assert depths_of(10, {}, 1, spare=2) == Depths(10, 0, depth=100, first=100, kept=SPARE_HITS)
    assert depths_of(200, {}, 2, spare=2) == Depths(200, 0, depth=200, first=400, kept=400)
    assert depths_of(10, {}, 1, spare=2, most=40) == Depths(10, 0, depth=40, first=40, kept=40)
    assert depths_of(60, {}, 1, spare=2, most=40) == Depths(60, 0, depth=60, first=60, kept=60)


def test_sorted_pages_are_of_the_same_hits() -> None:
    first, later = (depths_of(10, {"sort": "year", "offset": offset}, 2, spare=2) for offset in (0, 300))
    assert (first.kept, first.first, first.depth) == (later.kept, later.first, later.depth) == (100, 100, 100)
    assert depths_of(10, {"sort": "-year", "sort_hits": 300}, 2).kept == 300


def test_a_fused_page_beyond_what_is_fused_is_refused() -> None:
    assert depths_of(10, {"offset": 90}, 2).first == 100
    with pytest.raises(ArgumentError) as raised:
        depths_of(10, {"offset": 91}, 2)
    assert "offset + k must be at most 100 in a fused search, not 101" in str(raised.value)
    assert depths_of(10, {"offset": 91}, 1).first == 101
    assert depths_of(10, {"offset": 91}, 2, reachable=lambda k: min(k, 50)).first == 50
    assert depths_of(10, {**EXAMPLE, "offset": 150, "rerank_depth": 160}, 2).first == 160
    with pytest.raises(ArgumentError):
        depths_of(10, {**EXAMPLE, "offset": 151, "rerank_depth": 160}, 2)


def ranking_of(scores: np.ndarray, depth: int) -> Ranking:
    """The best documents of scores [q, n], where 0 is no hit."""
    rows = np.where(scores > 0, np.arange(N, dtype=np.int32), np.int32(-1))
    return best(rows, scores, depth, IDS)


def fused_by_hand(
    scores: Mapping[Space, np.ndarray], weights: Mapping[Space, float], fusion: Fusion, depth: int, like: str | None
) -> dict[int, dict[str, float]]:
    """{query: {id: score}} by the definition: the `depth` best of each space, scaled to 0 to 1, or 1 / (60 + rank)."""
    sums: dict[int, dict[str, float]] = {query: {} for query in range(Q)}
    for query, totals in sums.items():
        for space, weight in weights.items():
            hits = sorted((-scores[space][query, row], IDS[row]) for row in range(N) if scores[space][query, row] > 0)
            hits = [hit for hit in hits if query or hit[1] != like][:depth]  # a search like a document has one query
            values = [-score for score, _ in hits]
            for rank, (value, (_, name)) in enumerate(zip(values, hits, strict=True), start=1):
                spread = values[0] - values[-1]
                scaled = (value - values[-1]) / spread if spread else 1.0
                part = 1 / (60 + rank) if fusion == "reciprocal-rank" else scaled
                totals[name] = totals.get(name, 0.0) + (weight * part if len(weights) > 1 else value)
    return sums


@given(
    seed=st.integers(0, 10_000),
    weights=st.dictionaries(st.sampled_from(SPACES), st.sampled_from([0.25, 1.0, 2.0]), min_size=1),
    fusion=st.sampled_from(["weighted", "reciprocal-rank"]),
    k=st.integers(1, 12),
    like=st.sampled_from([None, "d03"]),
    least=st.sampled_from([None, 0.0201, 0.7123]),
    order=st.sampled_from([None, "year", "-year"]),
)
def test_a_plan_is_carried_out_as_by_brute_force(
    seed: int,
    weights: dict[Space, float],
    fusion: Fusion,
    k: int,
    like: str | None,
    least: float | None,
    order: str | None,
) -> None:
    generator = np.random.default_rng(seed)
    shape = (Q, N)
    scores = {
        space: (generator.permuted(np.tile(np.arange(1, N + 1), (Q, 1)), axis=1) * generator.integers(0, 2, shape))
        .astype(np.float32)
        .astype(np.float64)
        for space in SPACES
    }
    years = {name: int(year) for name, year in zip(IDS, generator.integers(2000, 2004, N), strict=True)}
    options: SearchOptions = {"fusion": fusion, "like": like, "min_score": least}
    options |= {} if order is None else {"sort": order, "sort_hits": k}
    depth = 6  # of each space, as if a fusion took six hits at least
    plan = SearchPlan.of(Depths(k, 0, depth if len(weights) > 1 else k, k, k), weights, check(SearchOptions, options))
    searched = {space: ranking_of(scores[space], plan.depths.depth + 1) for space in weights}
    if like is None:
        searched = {space: ranking.first(plan.depths.depth) for space, ranking in searched.items()}

    def documents_of(ids: Sequence[str]) -> list[Document]:
        return [Document(name, "", "", {"year": years[name]}) for name in ids]

    def never(ranking: Ranking) -> Ranking:
        raise AssertionError("the plan does not rerank")

    found = plan.carry_out(searched, never, documents_of)
    expected = fused_by_hand(scores, weights, fusion, plan.depths.depth, like)
    for query in range(Q):
        hits = found.hits(query)
        truths = {name: np.float32(score) for name, score in expected[query].items()}
        ranked = sorted(truths, key=lambda name: (-truths[name], name))[:k]
        kept = [name for name in ranked if least is None or truths[name] >= np.float32(least)]
        if order is not None:
            sign = -1 if order.startswith("-") else 1
            kept.sort(key=lambda name: sign * years[name])
        truth = [float(truths[name]) for name in kept]
        assert sorted(score for _, score in hits) == pytest.approx(sorted(truth), rel=1e-5)
        if len({f"{score:.5g}" for score in truths.values()}) == len(truths):  # without ties, which rounding may break
            assert [name for name, _ in hits] == kept


def test_each_space_is_searched_once_for_equal_conditions() -> None:
    encodings, searches = list[int](), list[tuple[Space, int]]()

    def encode() -> EncodedTexts:
        encodings.append(1)
        return EncodedTexts(csr_array((Q, 1), dtype=np.float32))

    queries = EncodedQueries(["a"] * Q, encode)
    scores = np.random.default_rng(0).permuted(np.tile(np.arange(1.0, N + 1), (Q, 1)), axis=1)

    def carried_out(k: int, weights: Mapping[Space, float], options: SearchOptions) -> Ranking:
        plan = SearchPlan.of(depths_of(k, options, len(weights)), weights, check(SearchOptions, options))

        def search(spaces: Sequence[Space]) -> dict[Space, Ranking]:
            _ = queries.vectors
            searches.extend((space, plan.depths.depth) for space in spaces)
            return {space: ranking_of(scores, plan.depths.depth) for space in spaces}

        def documents_of(ids: Sequence[str]) -> list[Document]:
            return [Document(name, "another text") for name in ids]

        return plan.carry_out(plan.rankings(queries, search, documents_of), lambda ranking: ranking, documents_of)

    equal: dict[Space, float] = {"sparse": 1.0, "bm25": 1.0}
    whole = carried_out(10, equal, {})
    for weights in (equal, {"bm25": 0.5, "sparse": 2.0}, {"bm25": 1.0, "sparse": 1.0}):
        again = carried_out(20, weights, {})  # type: ignore[arg-type]
    carried_out(10, equal, {"fusion": "reciprocal-rank", "min_score": 0.1})
    assert searches == [("sparse", 100), ("bm25", 100)]
    assert again.first(10).hits(0) == whole.hits(0)
    carried_out(100, {"dense": 1.0, "bm25": 1.0}, {})
    assert searches[2:] == [("dense", 100)]
    changed: list[tuple[int, SearchOptions]] = [(150, {}), (10, {"filter": "year>=2000"}), (10, {"minimum_match": 0.5})]
    for k, options in [*changed, *changed]:
        carried_out(k, equal, {**options})
    assert len(searches) == 3 + 2 * len(changed)
    assert encodings == [1]


def test_known_vectors_are_not_encoded() -> None:
    sparse, dense = csr_array(np.eye(2, dtype=np.float32)), np.ones((2, 4), dtype=np.float32)
    queries = EncodedQueries.of(["a", "b"], sparse, dense)
    assert (len(queries), queries.vectors.sparse is sparse, queries.vectors.dense is dense) == (2, True, True)
