"""Figures of runs: that the points are the results, and that files come out whole and the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from vocable.errors import ArgumentError, MissingExtraError
from vocable.figures import check_figure, save_figure
from vocable.training.variants import RunResult, effectiveness_against_flops

KEY = "training.regularizers.document"


def run(curve: str, value: Any, **measured: float) -> RunResult:
    return RunResult(
        {key.replace("_", " "): figure for key, figure in measured.items()}, curve=curve, swept={KEY: value}
    )


@pytest.fixture
def results() -> dict[str, RunResult]:
    return {
        "k1-1": run("k1", 1, one_FLOPS=40.0, **{"one nDCG@10": 0.3, "two FLOPS": 20.0, "two nDCG@10": 0.5}),
        "k1-2": run("k1", 2, one_FLOPS=10.0, **{"one nDCG@10": 0.2, "two FLOPS": 30.0, "two nDCG@10": 0.1}),
        "k8-1": run("k8", 1, one_FLOPS=4.0, **{"one nDCG@10": 0.6, "two FLOPS": 8.0, "two nDCG@10": 0.7}),
        "plain": RunResult({"one nDCG@10": 0.9, "one FLOPS": 1.0}),
    }


def drawn(figure: Figure) -> dict[str, dict[str, Any]]:
    """Title -> curve -> its points [runs, 2]."""
    return {
        axes.get_title(): {str(line.get_label()): np.array(line.get_xydata()) for line in axes.get_lines()}
        for axes in figure.axes
    }


def test_the_points_are_the_results(results: dict[str, RunResult]) -> None:
    figure = effectiveness_against_flops(results)
    panels = drawn(figure)
    assert [*panels] == ["mean of 2 datasets", "one", "two"]
    expected = {
        "mean of 2 datasets": {"k1": [[30, 0.4], [20, 0.15]], "k8": [[6, 0.65]]},
        "one": {"k1": [[40, 0.3], [10, 0.2]], "k8": [[4, 0.6]]},
        "two": {"k1": [[20, 0.5], [30, 0.1]], "k8": [[8, 0.7]]},
    }
    for title, curves in expected.items():
        assert [*panels[title]] == [*curves]
        for curve, points in curves.items():
            np.testing.assert_allclose(panels[title][curve], points)
    for axes in figure.axes:
        assert (axes.get_xscale(), axes.get_ylabel()) == ("log", "nDCG@10")
        assert axes.get_xlabel().startswith("FLOPS")
        assert [text.get_text() for text in axes.texts] == ["1", "2", "1"]
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["k1", "k8"]
    assert legend.get_title().get_text() == f"labels: {KEY}"


def test_one_dataset_has_no_mean_and_each_measure_a_panel() -> None:
    results = {str(i): run("a", i, FLOPS=float(i), **{"nDCG@10": i / 10, "R@5": i / 5}) for i in (1, 2)}
    axes = effectiveness_against_flops(results).axes
    assert [panel.get_ylabel() for panel in axes] == ["nDCG@10", "R@5"]
    np.testing.assert_allclose(np.array(axes[1].get_lines()[0].get_xydata()), [[1, 0.2], [2, 0.4]])


def test_a_run_without_shared_terms_is_left_out() -> None:
    results = {str(i): run("a", i, FLOPS=float(i), **{"nDCG@10": i / 10}) for i in (0, 1)}
    [axes] = effectiveness_against_flops(results).axes
    np.testing.assert_allclose(np.array(axes.get_lines()[0].get_xydata()), [[1, 0.1]])


@pytest.mark.parametrize("results", [{}, {"plain": RunResult({"nDCG@10": 0.9, "FLOPS": 1.0})}, {"a": run("a", 1)}])
def test_nothing_to_draw(results: dict[str, RunResult]) -> None:
    with pytest.raises(ArgumentError, match="nothing to draw"):
        effectiveness_against_flops(results)


@pytest.mark.parametrize(("name", "begins"), [("figure.png", b"\x89PNG"), ("a/figure.SVG", b"<?xml")])
def test_the_same_figure_is_the_same_file(
    results: dict[str, RunResult], tmp_path: Path, name: str, begins: bytes
) -> None:
    files = []
    for folder in ("first", "second"):
        check_figure(tmp_path / folder / name)
        save_figure(effectiveness_against_flops(results), tmp_path / folder / name)
        files.append((tmp_path / folder / name).read_bytes())
    assert files[0] == files[1]
    assert files[0].startswith(begins)
    if begins == b"<?xml":
        assert b"<dc:date>" not in files[0]
        assert {"k1", "k8", "nDCG@10", "mean of 2 datasets"} <= set(re.findall(r">([^<>]+)</text>", files[0].decode()))


def test_a_format_that_is_not_drawn() -> None:
    with pytest.raises(ArgumentError, match=r"out.jpg: a figure's name ends in .png or .svg"):
        check_figure("out.jpg")


def test_matplotlib_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: str) -> Any:
        raise ImportError(module)

    monkeypatch.setattr("vocable.errors.import_module", refuse)
    with pytest.raises(MissingExtraError, match=r"matplotlib is not installed: pip install 'vocable\[figures\]'"):
        check_figure("out.png")
