"""Figures of trained runs, drawn with matplotlib (`pip install 'vocable[figures]'`).

A function that draws returns the matplotlib `Figure`, which `save_figure` writes to a file.

The figure of Normalized Wackiness Curves, drawn with matplotlib (`pip install 'vocable[figures]'`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vocable.analysis.wackiness import area
from vocable.errors import ArgumentError, require_extra
from vocable.evaluation.grid import COLUMNS, GridPoint, Setting, swept
from vocable.storage import replacing
from vocable.training.variants import FLOPS, RunResult, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
ACROSS = 3  # panels beside each other
PANEL = (5.0, 4.0)  # inches
MARKERS = "osD^vPX*"
VARIANTS = ("minimum_match", "rescore")  # settings that are no pruning


class Panel(NamedTuple):
    """What is drawn against FLOPS: a measure, on one dataset or its mean over several."""

    datasets: tuple[str, ...]  # "" for the only one
    measure: str

    @property
    def title(self) -> str:
        """Whose figures they are."""
        return self.datasets[0] if len(self.datasets) == 1 else f"mean of {len(self.datasets)} datasets"


class Point(NamedTuple):
    """One run."""

    flops: float
    value: float
    label: str


def check_figure(path: str | Path) -> None:
    """Find out before any work is done whether a figure can be written to `path`.

    Raises:
        ArgumentError: its ending is neither .png nor .svg.
        MissingExtraError: matplotlib is not installed.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ArgumentError(f"{path}: a figure's name ends in {' or '.join(FORMATS)}")
    require_extra("matplotlib", "figures")


def effectiveness_against_flops(results: Mapping[str, RunResult]) -> Figure:
    """Draw each measure against FLOPS, one curve a variant and one point a swept value ("Rescaling MLM-Head for Neural
    Sparse Retrieval", figure 2).

    Each dataset has a panel, and their mean stands in front of several. Points of a curve are joined in the order of
    the sweep. FLOPS is logarithmic, so that a run without any shared term has no place and is left out.

    Args:
        results: what `vocable.training.variants.train_variants` gives for a sweep.

    Raises:
        ArgumentError: nothing was swept or measured.
        MissingExtraError: matplotlib is not installed.
    """
    require_extra("matplotlib", "figures")
    measured = {name: result for name, result in results.items() if result.swept}
    panels = list(_panels(measured))
    if not panels:
        raise ArgumentError("nothing to draw: no run of a sweep has been measured")
    keys = dict.fromkeys(chain.from_iterable(result.swept for result in measured.values()))
    return _figure([(panel, curves(measured, panel)) for panel in panels], ", ".join(keys))


def pruning_against_flops(points: Sequence[GridPoint]) -> Figure:
    """Draw each measure against FLOPS, one curve a system and one point a pruning ("The Pre-Training Study of
    Expanded-SPLADE Models on Web Document Titles", figure 1). A threshold on matches, or a second step, makes another
    curve. Points of a curve are joined by FLOPS.

    Args:
        points: what `vocable.evaluation.grid.search_grid` gives. Those without FLOPS have no place and are left out.

    Raises:
        ArgumentError: there is nothing to draw.
        MissingExtraError: matplotlib is not installed.
    """
    require_extra("matplotlib", "figures")
    shown = [name for name in swept(points) if name not in VARIANTS]
    panels = []
    for measure in points[0].evaluation.values:
        found: dict[str, list[Point]] = defaultdict(list)
        for system, setting, evaluation in points:
            flops = evaluation.cost.flops if evaluation.cost is not None else None
            if flops:
                text = "" if setting is None else "/".join(f"{getattr(setting, name):g}" for name in shown)
                found[_curve(system, setting)].append(Point(flops, evaluation.values[measure], text))
        # Several limits at once have no order of their own: a curve goes on from the cheaper to the dearer.
        ordered = {curve: sorted(those) for curve, those in found.items()}
        panels.append((Panel((points[0].evaluation.dataset,), measure), ordered))
    if not any(found for _, found in panels):
        raise ArgumentError("nothing to draw: no search reads a posting")
    return _figure(panels, "/".join(COLUMNS[name] for name in shown))


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG or SVG, by the ending; the same figure gives the same file."""
    from matplotlib import rc_context

    ending = Path(path).suffix.lower()
    nothing_changing = {"Date": None} if ending == ".svg" else {"Software": None}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "vocable", "svg.fonttype": "none"}), replacing(path) as file:
        figure.savefig(file, format=ending[1:], dpi=150, metadata=nothing_changing)


def curves(results: Mapping[str, RunResult], panel: Panel) -> dict[str, list[Point]]:
    """The points of each curve of a panel, in the order of the results."""
    found: dict[str, list[Point]] = defaultdict(list)
    for result in results.values():
        pairs = [(_value(result, dataset, FLOPS), _value(result, dataset, panel.measure)) for dataset in panel.datasets]
        whole = [(flops, value) for flops, value in pairs if flops is not None and value is not None]
        if len(whole) == len(pairs) and (flops := fmean(pair[0] for pair in whole)) > 0:
            text = ", ".join(label(value) for value in result.swept.values())
            found[result.curve].append(Point(flops, fmean(pair[1] for pair in whole), text))
    return dict(found)


def _panels(results: Mapping[str, RunResult]) -> Iterator[Panel]:
    """A panel for each dataset and measure, the mean of the datasets first."""
    keys = dict.fromkeys(chain.from_iterable(result.measured for result in results.values()))
    parts = [key.rpartition(" ") for key in keys]
    datasets: Sequence[str] = tuple(dict.fromkeys(dataset for dataset, _, _ in parts))
    for measure in dict.fromkeys(measure for _, _, measure in parts if measure != FLOPS):
        if len(datasets) > 1:
            yield Panel(tuple(datasets), measure)
        for dataset in datasets:
            yield Panel((dataset,), measure)


def _figure(panels: Sequence[tuple[Panel, Mapping[str, Sequence[Point]]]], labels: str) -> Figure:
    """The panels with their curves, beside and below each other; `labels` says what is written at the points."""
    from matplotlib.figure import Figure

    columns = min(ACROSS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
    for number, (panel, found) in enumerate(panels, start=1):
        _draw(figure.add_subplot(rows, columns, number), panel, found)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, title=f"labels: {labels}", loc="outside lower center", ncols=4, frameon=False)
    return figure


def _curve(system: str, setting: Setting | None) -> str:
    """A system's name and how it is searched, pruning left out."""
    used = [(name, getattr(setting, name, 0)) for name in VARIANTS]
    return ", ".join([system, *(f"{name}={value}" for name, value in used if value)])


def _value(result: RunResult, dataset: str, measure: str) -> float | None:
    return result.measured.get(f"{dataset} {measure}".lstrip())


def _draw(axes: Axes, panel: Panel, found: Mapping[str, Sequence[Point]]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for number, (curve, points) in enumerate(found.items()):
        marker, color = MARKERS[number % len(MARKERS)], f"C{number}"
        axes.plot([p.flops for p in points], [p.value for p in points], marker=marker, color=color, label=curve)
        for point in points:
            text = axes.annotate(point.label, point[:2], xytext=(4, 4), textcoords="offset points")
            text.set(fontsize="x-small", color=color)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("FLOPS: terms that a query and a document share, mean")
    axes.set_ylabel(panel.measure)
    axes.set_title(panel.title)
    axes.margins(0.12)
    axes.grid(alpha=0.3, which="both")


SIZE = (7.0, 4.5)  # inches
STYLES = ("-", "--", "-.", ":")


def wackiness_curves(curves: Mapping[str, np.ndarray]) -> Figure:
    """Draw the curve of each model ("Understanding Wacky Weights: A Dissection of SPLADE's Learned Term Importance",
    figure 4), the least wacky model first in the legend. `vocable.analysis.figures.save_figure` writes it to a file.

    Args:
        curves: by the model's name, what `vocable.analysis.wackiness.curve` gives; one of nan alone (a model
            that expands nothing) has no place.

    Raises:
        ArgumentError: there is nothing to draw.
        MissingExtraError: matplotlib is not installed.
    """
    require_extra("matplotlib", "figures")
    from matplotlib.figure import Figure

    shown = {name: heights for name, heights in curves.items() if not np.isnan(heights).any()}
    if not shown:
        raise ArgumentError("nothing to draw: no term is an expansion")
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for number, (name, heights) in enumerate(sorted(shown.items(), key=lambda pair: area(pair[1]))):
        places = np.linspace(0, 100, len(heights)) if len(heights) > 1 else np.array([50.0])
        style, marker = STYLES[number // 10 % len(STYLES)], "" if len(heights) > 1 else "o"
        axes.plot(places, heights, style, marker=marker, color=f"C{number}", label=f"{name} ({area(heights):.3f})")
    axes.set_xlabel("terms that are expansions, wackiest first (%)")
    axes.set_ylabel("mean Wackiness Score")
    axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    axes.legend(title="W-AUC", frameon=False, loc="lower left")
    return figure
