"""Tables, figure and page of an ablation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from vocable.core.figures import ACROSS, add_legend, empty_panels, save_figure
from vocable.core.storage import read_record
from vocable.errors import ArgumentError
from vocable.wackiness.ablation_report import (
    WACKY_COLOR,
    AblatedSearch,
    AblationReport,
    DatasetAblation,
    ThresholdResult,
    ablation_figure,
    ablation_tables,
    write_ablation,
)


def test_a_table_says_what_each_removal_did() -> None:
    first, second = ablation_tables(removed("toy"))
    assert first.title == "toy, 7 queries, query expansions"
    whole = ["0", "0", "0.0%", "0.0%", "0.8000", "–", "–", "–"]
    inside = ["5", "5", "50.0%", "50.0%", "0.5500", "0.500", "0.6000"]
    below = ["1,000", "5", "50.0%", "50.0%", "0.2000", "0.500", "0.6000"]
    assert first.rows[0] == whole
    assert [row[:-1] for row in first.rows[1:]] == [inside, below]
    assert [row[-1].split()[0] for row in first.rows] == ["–", "-0.0500", "-0.4000"]
    assert (first.header[4], second.header[4]) == ("RR@10", "R@10")
    assert [next(iter(point.measures.values())).differs for point in removed("toy").points] == [False, True]


def test_what_comes_from_data_is_shown_and_not_read(tmp_path: Path) -> None:
    found = [removed("<script>a|b"), removed("b")]
    report = AblationReport({"model": "<b>"}, found)
    write_ablation(tmp_path, report)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;a|b" in page
    assert "<td>&lt;b&gt;</td>" in page
    assert read_record(tmp_path / "results.json", AblationReport) == report
    assert (tmp_path / "ablation.md").read_text(encoding="utf-8").count("| removed |") == 4


def outcome(value: float) -> AblatedSearch:
    values = {"RR@10": value, "R@10": value / 2}
    per_query = {name: {"q": one} for name, one in values.items()}
    return AblatedSearch(5, 0.5, 3, values, {"RR@10": 0.5, "R@10": 0.5}, per_query)


def removed(dataset: str) -> DatasetAblation:
    random, full = tuple(map(outcome, (0.5, 0.6, 0.7))), {"RR@10": 0.8, "R@10": 0.4}
    points = ThresholdResult.of(5, outcome(0.55), random, full), ThresholdResult.of(1000, outcome(0.2), random, full)
    return DatasetAblation(dataset, "query", 7, full, points)


def test_there_is_a_panel_for_each_dataset_and_measure() -> None:
    figure = ablation_figure([removed("a"), removed("b")])
    assert [(axes.get_title(), axes.get_ylabel()) for axes in figure.axes] == [
        ("a", "RR@10"),
        ("a", "R@10"),
        ("b", "RR@10"),
        ("b", "R@10"),
    ]
    for axes, share in zip(figure.axes, [1, 0.5, 1, 0.5], strict=True):
        whole, mean, wacky, inside, outside = (np.asarray(line.get_xydata()) for line in axes.get_lines())
        assert whole[:, 1].tolist() == [0.8 * share] * 2
        np.testing.assert_allclose(mean, [[5, 0.6 * share], [1000, 0.6 * share]])
        assert wacky.tolist() == [[5, 0.55 * share], [1000, 0.2 * share]] == [*inside.tolist(), *outside.tolist()]
        faces = [to_rgba(line.get_markerfacecolor()) for line in axes.get_lines()[3:]]
        assert faces == [to_rgba("white"), to_rgba(WACKY_COLOR)]
        band = axes.collections[0].get_paths()[0].get_extents()
        np.testing.assert_allclose([band.y0, band.y1], [0.4 * share, 0.8 * share])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "1,000\n(5 here)"]


def test_the_file_is_the_same_every_time(tmp_path: Path, drawn: None) -> None:
    for name in ("one.svg", "two.svg"):
        save_figure(ablation_figure([removed("a $x$ <b>")]), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    with pytest.raises(ArgumentError):
        ablation_figure([])


@pytest.mark.parametrize(
    "names", [["nothing removed", "random terms, ± 2 std over draws"] * 2, ["a long name of a system " * 5] * 3]
)
def test_a_legend_fits_a_single_panel(names: list[str], drawn: None) -> None:
    figure = empty_panels(1, ACROSS)
    lines = [figure.axes[0].plot([0, 1], label=name)[0] for name in names]
    add_legend(figure, lines, names, title="labels: qk/dk")
    figure.draw_without_rendering()
    [legend] = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert [text.get_text() for text in legend.get_texts()] == names
