"""Removals as tables, and as a folder of files.

FOLDER/index.html           everything on one page
FOLDER/results.json         every figure, each draw's included
FOLDER/removal.md           the tables
FOLDER/removal.png, .svg    the figure

The figure of removals: what is left of a measure without the wackiest terms, and without random ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vocable.analysis.figures import ACROSS, PANEL, save_figure
from vocable.analysis.removal import Point, Removal
from vocable.analysis.report import Drawing, Section, page, settings_section
from vocable.errors import ArgumentError, require_extra
from vocable.storage import replacing, write_record
from vocable.tables import NONE, Table, p_value

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


RESULTS, PAGE, FIGURE = "results.json", "index.html", "removal"

EXPLANATION = (
    "Of the wackiest terms, those that expand a text of the dataset are removed wherever they do (terms), never where "
    "they stand in the text itself; entries is the share of all expansions that goes with them. p is of the paired "
    "t-test of the queries' values against those with nothing removed. random is the mean over draws of as many of the "
    "dataset's expansion terms, and the interval mean ± 2 standard deviations; the last column says where the value "
    "without the wackiest terms lies. In the figure a filled marker lies outside."
)


def removal_tables(found: Removal) -> list[Table]:
    """A table for each measure, with a row for nothing removed and one for each threshold."""
    return [_table(found, measure) for measure in found.full]


def write_removal_report(folder: Path, removals: Sequence[Removal], settings: Mapping[str, Any]) -> None:
    """Write the files of a report into a folder that is there.

    Args:
        folder: for the files.
        removals: one for each dataset, with the same measures.
        settings: JSON values that say how they were measured.

    Raises:
        ArgumentError: there are none.
        MissingExtraError: matplotlib is not installed.
    """
    drawn = removal_figure(removals)
    for ending in ("png", "svg"):
        save_figure(drawn, folder / f"{FIGURE}.{ending}")
    write_record(folder / RESULTS, {"settings": dict(settings), "datasets": [one.to_json() for one in removals]})
    tables = [grid for one in removals for grid in removal_tables(one)]
    with replacing(folder / f"{FIGURE}.md") as file:
        file.write("\n\n".join(f"{grid.title}\n\n{grid.markdown()}" for grid in tables).encode() + b"\n")
    drawing = Drawing((folder / f"{FIGURE}.svg").read_text(encoding="utf-8"), "Measures against removed terms")
    sections = [
        Section("What the wackiest expansion terms are worth", [drawing, EXPLANATION]),
        *(Section(one.dataset, removal_tables(one)) for one in removals),
        settings_section(settings),
    ]
    with replacing(folder / PAGE) as file:
        file.write(page("Removal of expansion terms", sections).encode())


def _table(found: Removal, measure: str) -> Table:
    header = ["removed", "terms", "entries", "random entries", measure, "p", "random", "interval", "wacky is"]
    whole = ["0", "0", "0.0%", "0.0%", f"{found.full[measure]:.4f}", *[NONE] * 4]
    title = f"{found.dataset}, {found.queries} queries, {found.side} expansions"
    return Table(title, header, [whole, *(_row(point, measure) for point in found.points)])


def _row(point: Point, measure: str) -> list[str]:
    value, band = point.wacky.values[measure], point.band(measure)
    return [
        f"{point.threshold:,}",
        f"{point.wacky.terms:,}",
        f"{point.wacky.share:.1%}",
        f"{point.random_share:.1%}",
        f"{value:.4f}",
        p_value(point.wacky.p[measure]),
        f"{band.mean:.4f}",
        f"{band.low:.4f}–{band.high:.4f}",
        band.side_of(value),
    ]
