"""Figures with matplotlib (`pip install 'vocable[figures]'`): panels, curves against FLOPS, and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from vocable.core.storage import check_file, replacing
from vocable.errors import ArgumentError, require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
ACROSS = 3  # panels in a row
PANEL = (5.0, 4.0)  # inches
MARGIN = 0.1  # inches on each side of a legend
LEGEND_COLUMNS = 4  # at most
LAYOUT: Literal["constrained"] | None = "constrained"  # nothing covers another part of a figure
MARKERS = "osD^vPX*"


class Point(NamedTuple):
    """A point of a curve: a run or a search."""

    flops: float
    value: float
    label: str


class Panel(NamedTuple):
    """A plot of a measure against FLOPS, with the points of each curve; the title names the dataset."""

    title: str
    measure: str
    curves: Mapping[str, Sequence[Point]]


def check_figure(path: str | Path) -> None:
    """Check before any work that a figure can be written to `path`.

    Raises:
        ArgumentError: the name does not end in .png or .svg, or the file cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ArgumentError(f"{path}: the name of a figure must end in {' or '.join(FORMATS)}")
    require_extra("matplotlib", "figures")
    if Path(path).parent.is_dir():
        check_file(path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG or SVG; equal figures give equal files."""
    from matplotlib import rc_context

    ending = Path(path).suffix.lower()
    metadata = {"Date": None} if ending == ".svg" else {"Software": None}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "vocable", "svg.fonttype": "none"}), replacing(path) as file:
        figure.savefig(file, format=ending[1:], dpi=150, metadata=metadata)


def draw_panels(panels: Sequence[Panel], labels: str) -> Figure:
    """Draw the panels in rows; `labels` explains the labels of the points in the legend."""
    figure = empty_panels(len(panels), ACROSS)
    for axes, panel in zip(figure.axes, panels, strict=True):
        _draw(axes, panel)
    handles, names = figure.axes[0].get_legend_handles_labels()
    add_legend(figure, handles, names, title=f"labels: {labels}")
    return figure


def add_legend(figure: Figure, handles: Sequence[Any], names: Sequence[str], **options: Any) -> None:
    """Add a legend below the panels in up to `LEGEND_COLUMNS` columns; widen a figure that is too narrow for it."""
    for columns in range(min(LEGEND_COLUMNS, len(names)), 0, -1):
        legend = figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, **options)
        width = legend.get_window_extent().width + 2 * MARGIN * figure.dpi
        if width <= figure.bbox.width:
            return
        if columns > 1:
            legend.remove()
    figure.set_figwidth(width / figure.dpi)


def _draw(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for number, (curve, points) in enumerate(panel.curves.items()):
        marker, color = MARKERS[number % len(MARKERS)], f"C{number}"
        axes.plot([p.flops for p in points], [p.value for p in points], marker=marker, color=color, label=curve)
        for point in points:
            text = axes.annotate(point.label, point[:2], xytext=(5, -9), textcoords="offset points")
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


def empty_panels(count: int, columns: int) -> Figure:
    """Return a figure with `count` empty panels, at most `columns` in a row."""
    from matplotlib.figure import Figure

    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout=LAYOUT)
    for number in range(1, count + 1):
        figure.add_subplot(rows, columns, number)
    return figure
