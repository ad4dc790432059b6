"""Figures, drawn with matplotlib (`pip install 'vocable[figures]'`): panels, curves against FLOPS, and their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vocable.errors import ArgumentError, require_extra
from vocable.storage import check_file, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
ACROSS = 3  # panels beside each other
PANEL = (5.0, 4.0)  # inches
MARGIN = 0.1  # inches beside a legend
COLUMNS = 4  # of a legend, at most
MARKERS = "osD^vPX*"


class Point(NamedTuple):
    """One run or search."""

    flops: float
    value: float
    label: str


class Panel(NamedTuple):
    """What is drawn against FLOPS: a measure on the dataset of the title, by the points of each curve."""

    title: str
    measure: str
    curves: Mapping[str, Sequence[Point]]


def check_figure(path: str | Path) -> None:
    """Find out before any work is done whether a figure can be written to `path`.

    Raises:
        ArgumentError: its ending is neither .png nor .svg, or no file can be there.
        MissingExtraError: matplotlib is not installed.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ArgumentError(f"{path}: a figure's name ends in {' or '.join(FORMATS)}")
    require_extra("matplotlib", "figures")
    if Path(path).parent.is_dir():  # else it is made
        check_file(path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG or SVG, by the ending; the same figure gives the same file."""
    from matplotlib import rc_context

    ending = Path(path).suffix.lower()
    nothing_changing = {"Date": None} if ending == ".svg" else {"Software": None}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "vocable", "svg.fonttype": "none"}), replacing(path) as file:
        figure.savefig(file, format=ending[1:], dpi=150, metadata=nothing_changing)


def draw_panels(panels: Sequence[Panel], labels: str) -> Figure:
    """Draw the panels, beside and below each other; `labels` says what is written at the points."""
    figure = empty_panels(len(panels), ACROSS)
    for axes, panel in zip(figure.axes, panels, strict=True):
        _draw(axes, panel)
    handles, names = figure.axes[0].get_legend_handles_labels()
    add_legend(figure, handles, names, title=f"labels: {labels}")
    return figure


def add_legend(figure: Figure, handles: Sequence[Any], names: Sequence[str], **how: Any) -> None:
    """Put a legend below the panels, in as many columns as fit; a figure that is too narrow for one becomes wider."""
    for columns in range(min(COLUMNS, len(names)), 0, -1):
        legend = figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, **how)
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
    """A figure with `count` empty panels, `columns` of them beside each other at most."""
    from matplotlib.figure import Figure

    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
    for number in range(1, count + 1):
        figure.add_subplot(rows, columns, number)
    return figure
