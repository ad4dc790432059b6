"""The curves of quality and latency against terms, for made-up settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vocable.core.tables import Table
from vocable.evaluation.cost import Cost
from vocable.evaluation.grid import GridPoint, Setting
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.term_curves import term_curve, term_tables, terms_figure


def point(system: str, quality: float, milliseconds: float, terms: float, **setting: Any) -> GridPoint:
    cost = Cost(query_terms=terms, document_terms=100 - terms, bytes_per_document=6 * terms, search_p50_ms=milliseconds)
    evaluation = Evaluation(
        system, "toy", {"nDCG@10": quality}, {"nDCG@10": {"q": quality}}, cost, convention="trec_eval", ties="search"
    )
    return GridPoint(system, Setting(**setting), evaluation)


POINTS = [
    point("a", 0.5, 0.8, 40),
    point("a", 0.3, 0.1, 5, query_max_terms=5),
    point("a", 0.4, 0.3, 20, query_max_terms=20),
    point("a", 0.1, 0.1, 5, query_max_terms=5, document_max_terms=16),
    point("b", 0.2, 0.7, 30),
]


def test_a_curve_goes_from_whole_vectors_to_the_fewest_terms() -> None:
    [(system, curve)] = term_curve(POINTS, "query_max_terms").items()
    assert (system, [each.evaluation.values["nDCG@10"] for each in curve]) == ("a", [0.5, 0.4, 0.3])


def test_settings_that_change_more_than_the_limit_have_no_curve() -> None:
    assert not term_curve(POINTS, "document_max_terms")
    assert not term_tables(POINTS[3:])
    assert terms_figure(POINTS[3:]) is None


def test_the_table_has_quality_terms_and_latency_of_each_limit() -> None:
    [table] = term_tables(POINTS)
    assert isinstance(table, Table)
    assert [row[:3] for row in table.rows] == [["a", "all", "0.5000"], ["a", "20", "0.4000"], ["a", "5", "0.3000"]]
    shown = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [(row["q terms"], row["search ms"], row["p95 ms"]) for row in shown] == [
        ("40.0", "0.80", "–"), ("20.0", "0.30", "–"), ("5.00", "0.10", "–"),
    ]  # fmt: skip


def test_the_figure_draws_quality_and_latency_against_terms() -> None:
    pytest.importorskip("matplotlib")
    figure = terms_figure(POINTS)
    assert figure is not None
    quality, times = figure.axes
    [drawn], [dashed] = quality.get_lines(), times.get_lines()
    np.testing.assert_array_equal(drawn.get_xydata(), [[40, 0.5], [20, 0.4], [5, 0.3]])
    np.testing.assert_array_equal(dashed.get_xydata(), [[40, 0.8], [20, 0.3], [5, 0.1]])
