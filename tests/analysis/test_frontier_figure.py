from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.evaluation.test_choice import POINTS, choice
from vocable.analysis.report import frontier_figure
from vocable.figures import save_figure

pytest.importorskip("matplotlib")


def test_settings_frontier_budget_and_what_is_taken_are_drawn() -> None:
    figure = frontier_figure(choice(600, 50))
    sizes, times = figure.axes
    assert [axes.get_xlabel().split()[0] for axes in figure.axes] == ["bytes", "95th"]
    drawn = {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in sizes.get_lines()}
    assert drawn["a"] == [[1000, pytest.approx(0.5)], [400, pytest.approx(1.4 / 3)]]
    assert drawn["Pareto-optimal"] == [
        [300, pytest.approx(0.2)],
        [400, pytest.approx(1.4 / 3)],
        [1000, pytest.approx(0.5)],
    ]
    assert drawn["budget"] == [[600, 0], [600, 1]]
    [ring] = times.collections
    assert np.asarray(ring.get_offsets()).tolist() == [[11, pytest.approx(1.4 / 3)]]
    assert "dk 32, d min 0.5" in [text.get_text() for text in sizes.texts]
    assert "whole" in [text.get_text() for text in sizes.texts]
    free = frontier_figure(choice())
    assert not any(axes.collections for axes in free.axes)
    assert "budget" not in [text.get_text() for text in free.legends[0].get_texts()]


def test_labels_meet_neither_each_other_nor_the_edge(tmp_path: object) -> None:
    rng = np.random.default_rng(0)
    points = []
    for number in range(60):  # a frontier of many settings, close together
        size = 100 + 5 * number
        one = POINTS[number % 2]
        cost = replace(one.evaluation.cost, bytes_per_document=size, answer_p95_ms=5 + rng.random())  # type: ignore[type-var]
        value = 0.3 + number / 300
        changed = replace(one.evaluation, cost=cost, values={"nDCG@10": value})
        points.append(one._replace(evaluation=changed))
    figure = frontier_figure(choice(250, None, points))
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        assert boxes
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        inside = axes.get_window_extent()
        assert all(inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1) for box in boxes)
    save_figure(figure, f"{tmp_path}/frontier.svg")
