"""Figures, drawn with matplotlib (`pip install 'vocable[figures]'`): quality against FLOPS, Normalized Wackiness
Curves, and what is left without the wackiest terms. A function that draws returns a matplotlib `Figure`, which
`save_figure` writes to a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vocable.errors import ArgumentError, require_extra
from vocable.evaluation.grid import COLUMNS, GridPoint, Setting, swept
from vocable.storage import replacing
from vocable.training.variants import FLOPS, RunResult, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vocable.analysis.removal import Removal
    from vocable.analysis.wackiness import Finding

FORMATS = (".png", ".svg")
ACROSS = 3  # panels beside each other
PANEL = (5.0, 4.0)  # inches
MARKERS = "osD^vPX*"
VARIANTS = ("minimum_match", "rescore")  # settings that are no pruning
SIZE = (7.0, 4.5)  # inches
STYLES = ("-", "--", "-.", ":")
WACKY, RANDOM, WHOLE = "C3", "C0", "0.3"  # colours


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
    """Draw each measure against FLOPS, one curve a variant and one point a swept value (Jang et al. 2026, figure 2).

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
    """Draw each measure against FLOPS, one curve per system and one point per pruning (Kim et al. 2026, figure 1).

    A threshold on matches, or a second step, makes another curve. Points of a curve are joined by FLOPS.

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
    """Return the points of each curve of a panel, in the order of the results."""
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
    figure = _panels_figure(len(panels), ACROSS)
    for axes, (panel, found) in zip(figure.axes, panels, strict=True):
        _draw(axes, panel, found)
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


def wackiness_curves(findings: Sequence[Finding]) -> Figure:
    """Draw the curve of each expander, the least wacky first in the legend (Polyakov et al. 2026, figure 4).

    Args:
        findings: from `vocable.analysis.wackiness.find`; one that expands nothing has no place.

    Raises:
        ArgumentError: there is nothing to draw.
        MissingExtraError: matplotlib is not installed.
    """
    require_extra("matplotlib", "figures")
    from matplotlib.figure import Figure

    shown = [one for one in findings if not np.isnan(one.w_auc)]
    if not shown:
        raise ArgumentError("nothing to draw: no term is an expansion")
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for number, one in enumerate(sorted(shown, key=lambda one: one.w_auc)):
        places = np.linspace(0, 100, len(one.curve)) if len(one.curve) > 1 else np.array([50.0])
        style, marker = STYLES[number // 10 % len(STYLES)], "" if len(one.curve) > 1 else "o"
        axes.plot(places, one.curve, style, marker=marker, color=f"C{number}", label=f"{one.name} ({one.w_auc:.3f})")
    axes.set_xlabel("terms that are expansions, wackiest first (%)")
    axes.set_ylabel("mean Wackiness Score")
    axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    axes.legend(title="W-AUC", frameon=False, loc="lower left")
    return figure


def removal_figure(removals: Sequence[Removal]) -> Figure:
    """Draw each measure against the number of removed terms (Polyakov et al. 2026, figures 2 and 3).

    Each dataset and measure has a panel. The line is without the wackiest terms, its marker filled where the value lies
    outside the band: mean and 95 % interval without as many random terms.

    Args:
        removals: from `vocable.analysis.removal.remove_wackiest`, with one list of measures.

    Raises:
        ArgumentError: there are none.
        MissingExtraError: matplotlib is not installed.
    """
    require_extra("matplotlib", "figures")
    from matplotlib.ticker import NullLocator

    if not removals:
        raise ArgumentError("nothing to draw: there is no removal")
    measures = list(removals[0].full)
    panels = [(one, measure) for one in removals for measure in measures]
    columns = len(measures) if 1 < len(measures) <= ACROSS else ACROSS
    figure = _panels_figure(len(panels), columns)
    for axes, (removal, measure) in zip(figure.axes, panels, strict=True):
        thresholds = [point.threshold for point in removal.points]
        found = [point.measures[measure] for point in removal.points]
        bands, values = [one.random for one in found], [one.wacky for one in found]
        lows, highs = [band.low for band in bands], [band.high for band in bands]
        axes.axhline(removal.full[measure], color=WHOLE, linestyle=":", label="nothing removed")
        axes.fill_between(
            thresholds, lows, highs, color=RANDOM, alpha=0.2, linewidth=0, label="95 % of random removals"
        )
        axes.plot(thresholds, [band.mean for band in bands], color=RANDOM, linestyle="--", label="random terms, mean")
        axes.plot(thresholds, values, color=WACKY, label="wackiest terms (filled: outside the 95 %)")
        for threshold, one in zip(thresholds, found, strict=True):
            face = "white" if one.wacky_is == "inside" else WACKY
            axes.plot([threshold], [one.wacky], marker="o", color=WACKY, markerfacecolor=face)
        axes.set_xscale("log")
        removed = [(point.threshold, point.wacky.terms) for point in removal.points]  # a dataset may have fewer
        ticks = [f"{most:,}" + ("" if terms == most else f"\n({terms:,} here)") for most, terms in removed]
        axes.set_xticks(thresholds, ticks)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(f"terms removed from {removal.role} expansions")
        axes.set_ylabel(measure)
        axes.set_title(Path(removal.dataset).name, parse_math=False)
        axes.grid(alpha=0.3)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _panels_figure(count: int, columns: int) -> Figure:
    """A figure with `count` empty panels, `columns` of them beside each other at most."""
    from matplotlib.figure import Figure

    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
    for number in range(1, count + 1):
        figure.add_subplot(rows, columns, number)
    return figure
