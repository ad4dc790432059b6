"""The Pareto frontier, budgets and recommendations, for made-up settings."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.evaluation.cost import Cost
from vocable.evaluation.frontier import Deployment, ModelSelection, frontier_figure
from vocable.evaluation.grid import GridPoint, Setting
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.significance import mean_interval, paired_t_test

NOTES = {
    "a": Deployment("models/a", False, "mit", 30522, 1000, 64, 256),
    "b": Deployment("my b", True, None, 30522, 2000, None, 256),
}


def point(model: str, size: float, p95: float, *values: float, **setting: Any) -> GridPoint:
    per_query = {"nDCG@10": {f"q{row}": value for row, value in enumerate(values)}}
    cost = Cost(query_terms=3, document_terms=5, bytes_per_document=size, answer_p95_ms=p95)
    mean = {"nDCG@10": sum(values) / len(values)}
    return GridPoint(
        model,
        Setting(**setting),
        Evaluation(model, "toy", mean, per_query, cost, convention="trec_eval", ties="search"),
    )


WHOLE_A = point("a", 1000, 12.0, 0.6, 0.7, 0.2)
SMALL_A = point("a", 400, 11.0, 0.5, 0.6, 0.3, document_max_terms=32, document_min_weight=0.5)
WHOLE_B = point("b", 900, 2.0, 0.3, 0.4, 0.1)
SMALL_B = point(
    "b", 300, 1.5, 0.2, 0.4, 0.0, document_max_terms=32, query_max_terms=5, query_mass=0.75, minimum_match=0.25
)
POINTS = [WHOLE_A, SMALL_A, WHOLE_B, SMALL_B]


def selection(size: float | None = None, p95: float | None = None, points: list[GridPoint] = POINTS) -> ModelSelection:
    limits = {"bytes_per_document": size, "answer_p95_ms": p95}
    budget = {name: limit for name, limit in limits.items() if limit is not None}
    return ModelSelection("beir:toy", NOTES, points, 208, budget=budget)


@st.composite
def some_points(draw: st.DrawFn) -> list[GridPoint]:
    few = st.integers(1, 5)
    return [
        point("a", draw(few), draw(few), draw(few) / 5, query_max_terms=row) for row in range(draw(st.integers(1, 8)))
    ]


@given(some_points(), st.integers(1, 5), st.integers(1, 5))
def test_frontier_and_recommendation_are_those_of_brute_force(points: list[GridPoint], size: int, p95: int) -> None:
    found = selection(size, p95, points)
    costs = [(one.evaluation.cost.bytes_per_document, one.evaluation.cost.answer_p95_ms) for one in points]  # type: ignore[union-attr]
    values = [one.evaluation.values["nDCG@10"] for one in points]
    for number, name in enumerate(("bytes_per_document", "answer_p95_ms")):
        # One that no other beats in quality or cost without losing the other; of equal ones, one.
        pairs = [(cost[number], value) for cost, value in zip(costs, values, strict=True)]
        beaten = [any(o != p and o[0] <= p[0] and o[1] >= p[1] for o in pairs) for p in pairs]
        expected = sorted({pair for pair, worse in zip(pairs, beaten, strict=True) if not worse})
        frontier = found.frontier(name)
        assert [(getattr(one.evaluation.cost, name), found.quality(one)) for one in frontier] == expected
    within = [value for value, (b, p) in zip(values, costs, strict=True) if b <= size and p <= p95]
    taken = found.recommended()
    assert (None if taken is None else found.quality(taken)) == (max(within) if within else None)
    assert ("no setting is within the budget" in found.table()) == (not within)


def test_times_that_differ_by_noise_are_equal() -> None:
    points = [point("a", 9, 84.6, 0.5), point("a", 8, 85.1, 0.7), point("a", 7, 90.2, 0.6), point("a", 9, 96, 0.8)]
    assert selection(points=points).frontier("answer_p95_ms") == [points[1], points[3]]
    assert selection(p95=85, points=points).recommended() is points[0]  # a limit is one


def test_of_equal_quality_the_smaller_and_then_the_plainer_is_taken() -> None:
    same = [
        point("a", 500, 1.0, 0.5, document_max_terms=500, query_max_terms=9),
        point("a", 500, 2.0, 0.5, document_max_terms=500),
        point("a", 501, 0.5, 0.5),
    ]
    assert selection(1000, None, same).recommended() is same[1]


@pytest.mark.parametrize(
    ("values", "expected"), [((0.9, 1.0, 1.0), 1.0), ((1.0, 1.0), 1.0), ((0.0, 0.1, 0.0), 0.0), ((5.0, 1.0, 9.0), None)]
)
def test_an_interval_of_shares_ends_at_0_and_1(values: tuple[float, ...], expected: float | None) -> None:
    [row] = selection(points=[point("a", 400, 1.0, *values)]).to_json()["settings"]  # type: ignore[misc]
    low, high = row["intervals"]["nDCG@10"]
    raw = mean_interval({str(row): value for row, value in enumerate(values)})
    if expected is None:
        assert (low, high) == raw
    else:
        assert expected in (low, high)
        assert 0 <= low <= high <= 1


def test_tables_show_models_deployment_and_the_frontier() -> None:
    models, notes, settings, timed = selection(600).table()
    assert not isinstance(models, str)
    low, high = mean_interval(WHOLE_B.evaluation.per_query["nDCG@10"])
    p = paired_t_test(*(one.evaluation.per_query["nDCG@10"] for one in (WHOLE_A, WHOLE_B)))
    row = dict(zip(models.header, models.rows[1], strict=True))
    assert [row[name] for name in ("model", "nDCG@10", "95%", "p", "bytes/ doc", "answer p95 ms")] == [
        "b", "0.2667", f"{max(0, low):.3f}–{high:.3f}", f"{p:.3f}", "900", "2.00",
    ]  # fmt: skip
    assert not isinstance(notes, str)
    assert notes.rows == [
        ["a", "encoded", "mit", "30,522", "1,000", "64", "256"],
        ["b", "looked up", "–", "30,522", "2,000", "–", "256"],
    ]
    assert not isinstance(settings, str)
    assert [(row[0], row[-1]) for row in settings.rows] == [
        ("a", "bytes p95"), ("a", "bytes p95 *"), ("b", "p95"), ("b", "bytes p95"),
    ]  # fmt: skip
    shown = dict(zip(settings.header, settings.rows[1], strict=True))
    assert [shown[name] for name in ("dk", "d min", "nDCG@10", "d terms", "bytes/ doc", "p95 ms")] == [
        "32", "0.5", "0.4667", "5.00", "400.0", "11.0",
    ]  # fmt: skip
    assert "208 of each setting" in str(timed)
    assert max(map(len, str(selection(600)).splitlines())) <= 80


def test_json_has_every_setting() -> None:
    written = json.loads(json.dumps(selection(600).to_json()))
    assert written["budget"] == {"bytes_per_document": 600}
    assert written["models"]["b"]["inference_free"] is True
    rows = written["settings"]
    assert [row["recommended"] for row in rows] == [False, True, False, False]
    assert [row["within_budget"] for row in rows] == [False, True, False, True]
    assert [row["pareto_optimal"] for row in rows] == [
        ["bytes_per_document", "answer_p95_ms"],
        ["bytes_per_document", "answer_p95_ms"],
        ["answer_p95_ms"],
        ["bytes_per_document", "answer_p95_ms"],
    ]
    assert rows[1]["setting"]["document_max_terms"] == 32
    low, high = mean_interval(SMALL_A.evaluation.per_query["nDCG@10"])
    assert rows[1]["intervals"]["nDCG@10"] == [max(0, low), min(1, high)]


pytest.importorskip("matplotlib")


def test_settings_and_the_frontier_are_drawn() -> None:
    figure = frontier_figure(selection(600, 50))
    sizes, _ = figure.axes
    assert [axes.get_xlabel().split()[0] for axes in figure.axes] == ["bytes", "95th"]
    drawn = {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in sizes.get_lines()}
    assert drawn["a"] == [[1000, pytest.approx(0.5)], [400, pytest.approx(1.4 / 3)]]
    assert drawn["Pareto-optimal"] == [
        [300, pytest.approx(0.2)],
        [400, pytest.approx(1.4 / 3)],
        [1000, pytest.approx(0.5)],
    ]
