"""Removals as tables, and as a folder of files.

FOLDER/index.html           everything on one page
FOLDER/results.json         every figure, each draw's included
FOLDER/removal.md           the tables
FOLDER/removal.png, .svg    the figure
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vocable.analysis.figures import save_figure
from vocable.analysis.removal import Point, Removal
from vocable.analysis.removal_figure import removal_figure
from vocable.analysis.report import Drawing, Section, page, settings_section
from vocable.evaluation.tables import NONE, Grid, p_value
from vocable.storage import replacing
from vocable.unfinished import write_json

RESULTS, PAGE, FIGURE = "results.json", "index.html", "removal"

EXPLANATION = (
    "Of the wackiest terms, those that expand a text of the dataset are removed wherever they do (terms), never where "
    "they stand in the text itself; entries is the share of all expansions that goes with them. p is of the paired "
    "t-test of the queries' values against those with nothing removed. random is the mean over draws of as many of the "
    "dataset's expansion terms, and the interval mean ± 2 standard deviations; the last column says where the value "
    "without the wackiest terms lies. In the figure a filled marker lies outside."
)


def removal_tables(found: Removal) -> list[Grid]:
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
    write_json(folder / RESULTS, {"settings": dict(settings), "datasets": [one.to_json() for one in removals]})
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


def _table(found: Removal, measure: str) -> Grid:
    header = ["removed", "terms", "entries", "random entries", measure, "p", "random", "interval", "wacky is"]
    whole = ["0", "0", "0.0%", "0.0%", f"{found.full[measure]:.4f}", *[NONE] * 4]
    title = f"{found.dataset}, {found.queries} queries, {found.side} expansions"
    return Grid(title, header, [whole, *(_row(point, measure) for point in found.points)])


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
