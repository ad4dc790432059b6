"""Figures of analyses; each function returns a matplotlib `Figure` for `vocable.figures.save_figure`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vocable.errors import ArgumentError, require_extra
from vocable.evaluation.choice import cost_of
from vocable.evaluation.grid import COLUMNS, GridPoint, Setting, swept
from vocable.figures import ACROSS, MARKERS, Panel, Point, add_legend, draw_panels, empty_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vocable.evaluation.choice import Choice
    from vocable.wackiness.ablate import Removal
    from vocable.wackiness.measure import Finding

VARIANTS = ("minimum_match", "rescore")  # settings that are no pruning
SIZE = (7.0, 4.5)  # inches
STYLES = ("-", "--", "-.", ":")
PRICES = {  # fields of a cost
    "bytes_per_document": "bytes of the index per document",
    "answer_p95_ms": "95th percentile of an answer, from text to hits (ms)",
}
LABELS = [  # where a label may stand, the near places first: the offset from its point, and its side that is there
    ((x * step, y * step), ("right", "center", "left")[x + 1], ("top", "center", "bottom")[y + 1])
    for step in (7, 14)
    for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
]
WACKY, RANDOM, WHOLE = "C3", "C0", "0.3"  # colours


def pruning_against_flops(points: Sequence[GridPoint]) -> Figure:
    """Draw each measure against FLOPS, one curve per system and one point per pruning (Kim et al. 2026, figure 1).

    A threshold on matches, or a second step, makes another curve. Points of a curve are joined by FLOPS; those without
    FLOPS have no place and are left out. Raises `ArgumentError` if there is nothing to draw.
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
        panels.append(Panel(points[0].evaluation.dataset, measure, ordered))
    if not any(panel.curves for panel in panels):
        raise ArgumentError("nothing to draw: no search reads a posting")
    return draw_panels(panels, "/".join(COLUMNS[name] for name in shown))


def _curve(system: str, setting: Setting | None) -> str:
    """A system's name and how it is searched, pruning left out."""
    used = [(name, getattr(setting, name, 0)) for name in VARIANTS]
    return ", ".join([system, *(f"{name}={value}" for name, value in used if value)])


def wackiness_curves(findings: Sequence[Finding]) -> Figure:
    """Draw the curve of each expander, in the order of the findings (Polyakov et al. 2026, figure 4).

    One that expands nothing has no place. Raises `ArgumentError` if there is nothing to draw.
    """
    require_extra("matplotlib", "figures")
    from matplotlib.figure import Figure

    shown = [one for one in findings if not np.isnan(one.w_auc)]
    if not shown:
        raise ArgumentError("nothing to draw: no term is an expansion")
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for number, one in enumerate(shown):
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
    outside the band: mean and 95 % interval without as many random terms. Raises `ArgumentError` if there are none.
    """
    require_extra("matplotlib", "figures")
    from matplotlib.ticker import NullLocator

    if not removals:
        raise ArgumentError("nothing to draw: there is no removal")
    measures = list(removals[0].full)
    panels = [(one, measure) for one in removals for measure in measures]
    columns = len(measures) if 1 < len(measures) <= ACROSS else ACROSS
    figure = empty_panels(len(panels), columns)
    for axes, (removal, measure) in zip(figure.axes, panels, strict=True):
        thresholds = [point.threshold for point in removal.points]
        found = [point.measures[measure] for point in removal.points]
        low, mean, high = ([one.random[name] for one in found] for name in ("low", "mean", "high"))
        axes.axhline(removal.full[measure], color=WHOLE, linestyle=":", label="nothing removed")
        axes.fill_between(thresholds, low, high, color=RANDOM, alpha=0.2, linewidth=0, label="95 % of random removals")
        axes.plot(thresholds, mean, color=RANDOM, linestyle="--", label="random terms, mean")
        label = "wackiest terms (filled: outside the 95 %)"
        axes.plot(thresholds, [one.wacky for one in found], color=WACKY, label=label)
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
    add_legend(figure, handles, names)
    return figure


def frontier_figure(choice: Choice) -> Figure:
    """Draw the quality of all settings against bytes a document and against the time of an answer.

    The Pareto-optimal ones are joined and labelled, as far as there is room, and the recommended one is marked.
    """
    require_extra("matplotlib", "figures")
    figure = empty_panels(len(PRICES), len(PRICES))
    for axes, (cost, label) in zip(figure.axes, PRICES.items(), strict=True):
        _draw_frontier(axes, choice, cost)
        axes.set_xlabel(label)
        axes.set_ylabel(choice.measure)
    drawn = {name: one for axes in figure.axes for one, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    labels = ", ".join(f"{COLUMNS[name]}: {name}" for name in swept(choice.points))
    add_legend(figure, list(drawn.values()), list(drawn), title=f"labels: {labels}")
    figure.suptitle(f"{Path(choice.source).name}, {choice.points[0].evaluation.queries} queries", parse_math=False)
    figure.draw_without_rendering()  # the labels are placed on what is there
    for axes, cost in zip(figure.axes, PRICES, strict=True):
        _label_points(axes, choice, cost)
    return figure


def _draw_frontier(axes: Axes, choice: Choice, cost: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    def places(points: Sequence[GridPoint]) -> tuple[list[float], list[float]]:
        return [cost_of(point, cost) for point in points], [choice.quality(point) for point in points]

    for number, model in enumerate(choice.models):
        own = [point for point in choice.points if point.system == model]
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(*places(own), marker, color=f"C{number}", alpha=0.6, markersize=5, label=model)
    axes.plot(*places(choice.frontier(cost)), color=WHOLE, linewidth=1, zorder=1, label="Pareto-optimal")
    if (limit := choice.budget.limits().get(cost)) is not None:
        axes.axvline(limit, color=WACKY, linestyle="--", linewidth=1, label="budget")
    if (taken := choice.recommended()) is not None:
        axes.scatter(*places([taken]), s=160, facecolors="none", edgecolors=WACKY, label="the best within the budget")
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 8 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(0.15)
    axes.grid(alpha=0.3)


def _label_points(axes: Axes, choice: Choice, cost: str) -> None:
    """Write at Pareto-optimal points how they are pruned, where nothing else is; the recommended one comes first."""
    from matplotlib.transforms import Bbox

    taken, frontier = choice.recommended(), choice.frontier(cost)
    ordered = sorted(frontier, key=lambda point: (point is not taken, -choice.quality(point)))
    if taken is not None and taken not in frontier:
        ordered.insert(0, taken)
    inside, spots = axes.get_window_extent(), [line.get_transform().transform(line.get_xydata()) for line in axes.lines]
    joined = [np.linspace(start, end, 50) for one in spots[len(choice.models) :] for start, end in pairwise(one)]
    used = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in np.concatenate(spots[: len(choice.models)])]
    used += [Bbox.from_bounds(x - 1, y - 1, 2, 2) for x, y in np.concatenate([np.empty((0, 2)), *joined])]
    for point in ordered:
        place = cost_of(point, cost), choice.quality(point)
        for (x, y), side, end in LABELS:
            text = axes.annotate(_pruning(point.setting), place, (x, y), textcoords="offset points", ha=side, va=end)
            text.set_fontsize("x-small")
            box = text.get_window_extent()
            free = not any(box.overlaps(other) for other in used)
            if free and inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1):
                used.append(box)
                break
            text.remove()


def _pruning(setting: Setting | None) -> str:
    """How vectors are pruned, in the words of a table's columns.

    >>> _pruning(Setting(document_max_terms=64, query_min_weight=0.5)), _pruning(Setting())
    ('q min 0.5, dk 64', 'whole')
    """
    changed = {} if setting is None else setting.changed()
    return ", ".join(f"{COLUMNS[name]} {value:g}" for name, value in changed.items()) or "whole"
