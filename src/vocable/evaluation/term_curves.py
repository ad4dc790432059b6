"""Curves of quality and latency against the largest number of terms of queries and of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vocable.core.figures import MARKERS, add_legend, empty_panels
from vocable.core.tables import NONE, Table, short
from vocable.evaluation.cost import Cost
from vocable.evaluation.grid import SETTING_COLUMNS, GridPoint, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIMITS = {"query_max_terms": "query_terms", "document_max_terms": "document_terms"}  # each with its field of `Cost`
CURVE_COLUMNS = {
    "query_terms": "q terms",
    "document_terms": "d terms",
    "bytes_per_document": "bytes/ doc",
    "search_p50_ms": "search ms",
    "answer_p95_ms": "p95 ms",
}


def term_curve(points: Sequence[GridPoint], limit: str) -> dict[str, list[GridPoint]]:
    """Return the settings that change `limit` alone by system, whole vectors first, then fewer and fewer terms.

    A system without at least two such settings has no curve.
    """
    curves: dict[str, list[GridPoint]] = {}
    for point in points:
        if point.setting is not None and {*point.setting.changed()} <= {limit}:
            curves.setdefault(point.system, []).append(point)
    most = {0: float("inf")}  # 0 is no limit
    return {
        system: sorted(curve, key=lambda point: -most.get(value := getattr(point.setting, limit), value))
        for system, curve in curves.items()
        if len(curve) > 1
    }


def term_tables(points: Sequence[GridPoint]) -> list[Table]:
    """Return a table of quality, size and latency for each limit that `points` have a curve of."""
    tables = []
    for limit, terms in LIMITS.items():
        rows = []
        for system, curve in term_curve(points, limit).items():
            for point in curve:
                values = [f"{value:.4f}" for value in point.evaluation.values.values()]
                costs = [getattr(point.evaluation.cost, name) for name in CURVE_COLUMNS]
                cells = [NONE if cost is None else short(cost) for cost in costs]
                rows.append([system, f"{getattr(point.setting or Setting(), limit) or 'all'}", *values, *cells])
        if rows:
            title = f"Fewer {terms.replace('_', ' ')}, all else whole"
            tables.append(
                Table(
                    title,
                    ["model", SETTING_COLUMNS[limit], *points[0].evaluation.values, *CURVE_COLUMNS.values()],
                    rows,
                )
            )
    return tables


def terms_figure(points: Sequence[GridPoint]) -> Figure | None:
    """Draw each curve: quality in solid lines, the median search in dashed lines; None without a curve."""
    curves = {limit: by_system for limit in LIMITS if (by_system := term_curve(points, limit))}
    if not curves:
        return None
    figure, measure = empty_panels(len(curves), len(curves)), next(iter(points[0].evaluation.values))
    for axes, (limit, by_system) in zip(list(figure.axes), curves.items(), strict=True):
        times = axes.twinx()
        for number, (system, curve) in enumerate(by_system.items()):
            costs = [point.evaluation.cost or Cost() for point in curve]
            terms = [getattr(cost, LIMITS[limit]) for cost in costs]
            style: dict[str, Any] = {"marker": MARKERS[number % len(MARKERS)], "color": f"C{number}", "markersize": 5}
            axes.plot(terms, [point.evaluation.values[measure] for point in curve], label=system, **style)
            times.plot(terms, [cost.search_p50_ms or 0.0 for cost in costs], linestyle="--", linewidth=1, **style)
        axes.set(xlabel=f"mean {LIMITS[limit].replace('_', ' ')}", ylabel=measure)
        times.set_ylabel("median search, dashed (ms, one thread)")
        times.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    add_legend(figure, *figure.axes[0].get_legend_handles_labels())
    return figure
