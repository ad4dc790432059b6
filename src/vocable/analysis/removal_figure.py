"""The figure of removals: what is left of a measure without the wackiest terms, and without random ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vocable.analysis.figures import ACROSS, PANEL
from vocable.analysis.removal import Point, Removal
from vocable.errors import ArgumentError, require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WACKY, RANDOM, WHOLE = "C3", "C0", "0.3"  # colours


def removal_figure(removals: Sequence[Removal]) -> Figure:
    """Draw each measure against the number of removed terms, a panel for each dataset and measure ("Understanding Wacky
    Weights: A Dissection of SPLADE's Learned Term Importance", figures 2 and 3).

    The line is without the wackiest terms, its marker filled where the value lies outside the band: mean and 95 %
    interval without as many random terms.

    Args:
        removals: from `vocable.analysis.removal.removal`, with one list of measures.

    Raises:
        ArgumentError: there are none.
        MissingExtraError: matplotlib is not installed.
    """
    require_extra("matplotlib", "figures")
    if not removals:
        raise ArgumentError("nothing to draw: there is no removal")
    from matplotlib.figure import Figure

    measures = list(removals[0].full)
    panels = [(one, measure) for one in removals for measure in measures]
    columns = len(measures) if 1 < len(measures) <= ACROSS else min(ACROSS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
    for number, (one, measure) in enumerate(panels, start=1):
        _draw(figure.add_subplot(rows, columns, number), one, measure)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw(axes: Axes, found: Removal, measure: str) -> None:
    from matplotlib.ticker import NullLocator

    thresholds = [point.threshold for point in found.points]
    bands = [point.band(measure) for point in found.points]
    values = [point.wacky.values[measure] for point in found.points]
    axes.axhline(found.full[measure], color=WHOLE, linestyle=":", label="nothing removed")
    lows, highs = [band.low for band in bands], [band.high for band in bands]
    axes.fill_between(thresholds, lows, highs, color=RANDOM, alpha=0.2, linewidth=0, label="95 % of random removals")
    axes.plot(thresholds, [band.mean for band in bands], color=RANDOM, linestyle="--", label="random terms, mean")
    axes.plot(thresholds, values, color=WACKY, label="wackiest terms (filled: outside the 95 %)")
    for threshold, value, band in zip(thresholds, values, bands, strict=True):
        face = "white" if band.side_of(value) == "inside" else WACKY
        axes.plot([threshold], [value], marker="o", color=WACKY, markerfacecolor=face)
    axes.set_xscale("log")
    axes.set_xticks(thresholds, [_tick(point) for point in found.points])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"terms removed from {found.side} expansions")
    axes.set_ylabel(measure)
    axes.set_title(Path(found.dataset).name, parse_math=False)
    axes.grid(alpha=0.3)


def _tick(point: Point) -> str:
    """The threshold, and how many terms that is where the dataset has no more."""
    removed = point.wacky.terms
    return f"{point.threshold:,}" + ("" if removed == point.threshold else f"\n({removed:,} here)")
