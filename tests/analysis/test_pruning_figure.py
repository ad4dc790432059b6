from __future__ import annotations

import numpy as np
import pytest

from vocable.analysis.report import pruning_against_flops
from vocable.errors import ArgumentError
from vocable.evaluation.cost import Cost
from vocable.evaluation.grid import GridPoint, Setting
from vocable.evaluation.quality import Evaluation


def point(system: str, setting: Setting | None, flops: float, value: float) -> GridPoint:
    per_query = {"RR@10": {"q": value}, "R@10": {"q": value / 2}}
    values = {"RR@10": value, "R@10": value / 2}
    return GridPoint(
        system,
        setting,
        Evaluation(system, "toy", values, per_query, Cost(flops=flops), convention="trec_eval", ties="search"),
    )


def test_each_measure_is_drawn_against_flops_with_a_curve_a_system() -> None:
    points = [
        point("a", Setting(), 2.0, 0.5),
        point("a", Setting(query_max_terms=5, document_max_terms=20), 0.5, 0.4),
        point("b", Setting(), 3.0, 0.6),
        point("b", Setting(query_max_terms=5, document_max_terms=20), 0.0, 0.0),  # has no place on a logarithmic axis
        point("b", Setting(query_max_terms=5, document_max_terms=20, rescore=100), 0.5, 0.7),
        point("BM25", None, 1.0, 0.3),
    ]
    figure = pruning_against_flops(points)
    assert [axes.get_ylabel() for axes in figure.axes] == ["RR@10", "R@10"]
    for axes, share in zip(figure.axes, (1, 0.5), strict=True):
        drawn = {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in axes.get_lines()}
        curve = [[0.5, 0.4 * share], [2.0, 0.5 * share]]
        others = {"b": [[3.0, 0.6 * share]], "b, rescore=100": [[0.5, 0.7 * share]], "BM25": [[1.0, 0.3 * share]]}
        assert drawn == {"a": curve, **others}
        assert [text.get_text() for text in axes.texts] == ["5/20", "0/0", "0/0", "5/20", ""]
        assert axes.get_xscale() == "log"
    assert figure.legends[0].get_title().get_text() == "labels: qk/dk"
    with pytest.raises(ArgumentError, match="nothing to draw"):
        pruning_against_flops([point("a", Setting(), 0.0, 0.5)])
