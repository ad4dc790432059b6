"""Compare settings of models: the Pareto frontier of quality and cost, and the best setting within a budget."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vocable.core.figures import MARKERS, add_legend, empty_panels
from vocable.core.tables import NONE, Table, Tabled, p_value, short, text_width
from vocable.errors import ArgumentError, require_extra
from vocable.evaluation.cost import Cost, cost_columns
from vocable.evaluation.grid import SETTING_COLUMNS, GridPoint, Setting, grid_notes, swept
from vocable.evaluation.retrievers import TIMED_HITS
from vocable.evaluation.significance import compare, mean_interval, paired_t_test
from vocable.evaluation.term_curves import term_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIME_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
SIZE_UNITS = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "kib": 1024.0, "mib": 1024.0**2}
TITLES = {
    "query_terms": "q terms",
    "document_terms": "d terms",
    "bytes_per_document": "bytes/ doc",
    "answer_p95_ms": "p95 ms",
}
# The costs that a budget can limit, and their units.
COSTS = {"bytes_per_document": "bytes a document", "answer_p95_ms": "ms at p95"}
AXES = {
    "bytes_per_document": "bytes of the index per document",
    "answer_p95_ms": "95th percentile of an answer, from text to hits (ms)",
}
LABEL_PLACES = [  # offset of a label from its point, and the label's alignment; nearest first
    ((x * step, y * step), ("right", "center", "left")[x + 1], ("top", "center", "bottom")[y + 1])
    for step in (7, 14)
    for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
]


class Deployment(NamedTuple):
    """A model's requirements; with `inference_free`, queries are looked up rather than encoded.

    `place` is the model's folder or name. `licence` is the licence that its card states, or None. `parameters` is None
    for an exported model, whose weights cannot be counted. A length of None means no limit.
    """

    place: str
    inference_free: bool
    licence: str | None
    terms: int
    parameters: int | None
    query_length: int | None
    document_length: int | None


@dataclass(frozen=True)
class Budget:
    """The highest allowed cost of a setting, with the names of `Cost`; None means no limit."""

    bytes_per_document: float | None = None
    answer_p95_ms: float | None = None

    def limits(self) -> dict[str, float]:
        """Return the limits that are not None."""
        return {name: limit for name, limit in asdict(self).items() if limit is not None}

    def share(self, point: GridPoint) -> float:
        """Return how much of its tightest limit a setting uses: above 1 beyond the budget, 0 without limits."""
        return max((cost_of(point, name) / limit for name, limit in self.limits().items()), default=0.0)


def parse_budget(max_p95: str | float | None, max_bytes_per_document: str | float | None) -> Budget:
    """Parse a budget; plain numbers are milliseconds and bytes.

    >>> parse_budget("0.02s", "1.5kB")
    Budget(bytes_per_document=1500.0, answer_p95_ms=20.0)
    """
    size = _quantity("max_bytes_per_document", max_bytes_per_document, SIZE_UNITS, "bytes, as 600 or 1.5kB")
    return Budget(size, _quantity("max_p95", max_p95, TIME_UNITS, "a time with its unit, as 20ms or 0.5s"))


def _quantity(name: str, limit: str | float | None, units: Mapping[str, float], expected: str) -> float | None:
    if limit is None:
        return None
    value = math.nan
    if not isinstance(limit, str):
        value = float(limit)
    elif match := re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+) ?([a-z]*)", limit.strip().casefold()):
        value = float(match[1]) * units.get(match[2], math.nan)
    if not 0 < value < math.inf:
        raise ArgumentError(f"{name} must be {expected}, not {limit!r}")
    return value


@dataclass(frozen=True)
class ModelSelection(Tabled):
    """Models measured by `vocable.select` on one dataset with many settings.

    Attributes:
        source: source of the dataset; its documents are the corpus of the commands.
        models: each model's requirements.
        points: the settings of each model, whole vectors first; the first measure is the quality.
        answers: timed answers of each setting.
        options: options of encoding that differ from the defaults.
        budget: the highest allowed cost of a setting.
        reranker: the cross encoder of settings that rerank.
        fusions: dense vectors, BM25, and their fusions with whole vectors; the budget does not apply to them.
    """

    source: str
    models: dict[str, Deployment]
    points: list[GridPoint]
    answers: int
    options: dict[str, str | int] = field(default_factory=dict)
    budget: Budget = Budget()
    reranker: str = ""
    fusions: list[GridPoint] = field(default_factory=list)

    @property
    def measure(self) -> str:
        """Return the name of the measure of quality."""
        return next(iter(self.points[0].evaluation.values))

    def quality(self, point: GridPoint) -> float:
        """Return the quality of a setting."""
        return point.evaluation.values[self.measure]

    def frontier(self, cost: str) -> list[GridPoint]:
        """Return the Pareto-optimal settings for quality and a field of `Cost`, by increasing cost.

        Each omitted setting has a cheaper alternative of the same or better quality. Times are compared to two digits:
        further digits are noise.
        """
        digits = 2 if cost.endswith("_ms") else 15
        optimal: list[GridPoint] = []
        for point in sorted(self.points, key=lambda each: (_rounded(cost_of(each, cost), digits), *self._order(each))):
            if not optimal or self.quality(point) > self.quality(optimal[-1]):
                optimal.append(point)
        return optimal

    def recommended(self) -> GridPoint | None:
        """Return the best setting within the budget; None without a budget, or if no setting fits."""
        within = [point for point in self.points if self.budget.share(point) <= 1]
        return min(within, key=self._order) if within and self.budget.limits() else None

    def closest(self) -> GridPoint:
        """Return the setting that exceeds the budget least, relative to the limits, compared to two digits."""
        return min(self.points, key=lambda point: (_rounded(self.budget.share(point), 2), *self._order(point)))

    def commands(self, point: GridPoint) -> list[str]:
        """Return the commands that use a setting: `index`, and `search` if queries are pruned."""
        setting = point.setting or Setting()
        index = ["vocable", "index", self.models[point.system].place, self.source, *_pruning_flags(setting, "document")]
        index += [*_flags(self.options), "-o", "my-index"]
        pruned = [*_pruning_flags(setting, "query"), *_flags({"minimum_match": setting.minimum_match})]
        if setting.rerank:
            pruned += _flags({"rerank": self.reranker, "rerank_depth": setting.rerank})
        search = ["vocable", "search", "my-index", "your question", *pruned]
        return [shlex.join(command) for command in ([index, search] if pruned else [index])]

    def sentence(self) -> str:
        """Describe the best setting within the budget, or the closest setting; "" without a budget."""
        limits, count = self.budget.limits(), len(self.points)
        if not limits:
            return ""
        budget = " and ".join(f"{limit:,.4g} {COSTS[name]}" for name, limit in limits.items())
        recommended, best = self.recommended(), min(self.points, key=self._order)
        if recommended is None:
            return f"None of the {count} settings is within {budget}; the closest is {self._described(self.closest())}:"
        rank = f"the best of all {count} settings"
        if recommended is not best:
            p = paired_t_test(*(point.evaluation.per_query[self.measure] for point in (best, recommended)))
            rank = f"{rank} has {self.quality(best):.4f}, p = {p_value(p)}"
        return f"Within {budget} the best is {self._described(recommended)}; {rank}:"

    def table(self) -> list[Table | str]:
        """Return tables of whole vectors, requirements, fewer terms and the frontier, then the advice."""
        tables = [self._models(), self._deployments(), *term_tables(self.points), self._frontiers()]
        timed = f"answer: a text to its {TIMED_HITS} hits, one at a time; {self.answers} of each setting, in turns"
        if not self.budget.limits():
            return [*tables, timed]
        commands = [f"    {line}" for line in self.commands(self.recommended() or self.closest())]
        return [*tables, timed, "", fill(self.sentence(), text_width()), *commands]

    def markdown(self) -> str:
        """Return the tables and lines as markdown."""
        return "\n\n".join(part.markdown() if isinstance(part, Table) else part for part in self.table())

    def to_json(self) -> dict[str, object]:
        """Return all settings as JSON values; the recommended setting is marked."""
        frontiers, recommended = {name: self.frontier(name) for name in COSTS}, self.recommended()
        settings = []
        for point in self.points:
            row = _with_intervals(point)
            row["pareto_optimal"] = [name for name, optimal in frontiers.items() if point in optimal]
            row |= {"within_budget": self.budget.share(point) <= 1, "recommended": point is recommended}
            settings.append(row | {"commands": self.commands(point)})
        models = {name: model._asdict() for name, model in self.models.items()}
        about = {"dataset": self.source, "models": models, "answers": self.answers, "budget": self.budget.limits()}
        fusions = [_with_intervals(point) for point in self.fusions]
        return about | {"summary": self.sentence(), "settings": settings, "fusions": fusions}

    def _models(self) -> Table:
        shown = [point for point in self.points if point.setting and {*point.setting.changed()} <= {"rerank"}]
        shown += self.fusions
        whole = [point.evaluation for point in shown]
        header, rows, groups = ["model"], [[f"{point.system} {point.setting or ''}".strip()] for point in shown], []
        p_values = [None, *compare(whole).p_values]
        for measure in whole[0].values:
            header += [measure, "95%", "p"]
            groups.append(3)
            for row, evaluation, p in zip(rows, whole, p_values, strict=True):
                low, high = _interval(evaluation.per_query[measure])
                row += [f"{evaluation.values[measure]:.4f}", f"{low:.3f}–{high:.3f}"]
                row.append(NONE if p is None else p_value(p[measure]))
        names, costs = cost_columns([replace(each.cost or Cost(), matched=None) for each in whole])
        title = f"{whole[0].dataset}, {whole[0].queries} queries, whole vectors"
        rows = [row + more for row, more in zip(rows, costs, strict=True)]
        return Table(title, header + names, rows, [*groups, len(names)], grid_notes(self.points))

    def _deployments(self) -> Table:
        header, rows = ["model", "queries", "licence", "terms", "parameters", "query length", "doc length"], []
        for name, model in self.models.items():
            counts = [model.terms, model.parameters, model.query_length, model.document_length]
            queries = "looked up" if model.inference_free else "encoded"
            cells = [NONE if count is None else f"{count:,}" for count in counts]
            rows.append([name, queries, model.licence or NONE, *cells])
        return Table("", header, rows)

    def _frontiers(self) -> Table:
        shown, recommended = swept(self.points), self.recommended()
        optimal = self.frontier("bytes_per_document")
        optimal += [point for point in self.frontier("answer_p95_ms") if point not in optimal]
        header = ["model", *(SETTING_COLUMNS[name] for name in shown), *optimal[0].evaluation.values, *TITLES.values()]
        rows = []
        for point in optimal:
            limits = [f"{getattr(point.setting, name):g}" for name in shown]
            values = [f"{value:.4f}" for value in point.evaluation.values.values()]
            costs = [short(cost_of(point, name)) for name in TITLES]
            rows.append([f"{point.system} *" if point is recommended else point.system, *limits, *values, *costs])
        title = f"Pareto-optimal of {len(self.points)} settings, by bytes or by p95"
        return Table(title + (" (*: recommended)" if recommended else ""), header, rows)

    def _described(self, point: GridPoint) -> str:
        costs = [f"{cost_of(point, name):,.4g} {unit}" for name, unit in COSTS.items()]
        pruned = str(point.setting) or "whole vectors"
        return f"{point.system} with {pruned} ({', '.join([f'{self.measure} {self.quality(point):.4f}', *costs])})"

    def _order(self, point: GridPoint) -> tuple[float, ...]:
        """Return a sort key, best first: by quality; at equal quality the smaller, simpler and faster setting first."""
        changed = 0 if point.setting is None else len(point.setting.changed())
        return -self.quality(point), cost_of(point, "bytes_per_document"), changed, cost_of(point, "answer_p95_ms")


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _with_intervals(point: GridPoint) -> dict[str, object]:
    return point.to_json() | {
        "intervals": {name: _interval(values) for name, values in point.evaluation.per_query.items()}
    }


def _interval(values: Mapping[str, float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of a measure, which ends at 0 and 1 if all values lie there."""
    low, high = mean_interval(values)
    return (max(low, 0.0), min(high, 1.0)) if all(0 <= value <= 1 for value in values.values()) else (low, high)


def cost_of(point: GridPoint, name: str) -> float:
    """Return a field of a setting's cost."""
    return float(getattr(point.evaluation.cost, name))


def _pruning_flags(setting: Setting, role: str) -> list[str]:
    return _flags(dict(zip(("max_terms", "min_weight", "mass"), setting.limits(role), strict=True)))


def _flags(options: Mapping[str, object]) -> list[str]:
    return [word for name, value in options.items() if value for word in (f"--{name.replace('_', '-')}", str(value))]


def frontier_figure(selection: ModelSelection) -> Figure:
    """Draw the quality of all settings against bytes per document and against the time of an answer.

    A line joins the Pareto-optimal settings, which have labels where there is room; the recommended setting is marked.
    """
    require_extra("matplotlib", "figures")
    figure = empty_panels(len(AXES), len(AXES))
    for axes, (cost, label) in zip(figure.axes, AXES.items(), strict=True):
        _draw_frontier(axes, selection, cost)
        axes.set_xlabel(label)
        axes.set_ylabel(selection.measure)
    entries = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes]
    drawn = {name: handle for pairs in entries for handle, name in pairs}
    labels = ", ".join(f"{SETTING_COLUMNS[name]}: {name}" for name in swept(selection.points))
    add_legend(figure, list(drawn.values()), list(drawn), title=f"labels: {labels}")
    title = f"{Path(selection.source).name}, {selection.points[0].evaluation.queries} queries"
    figure.suptitle(title, parse_math=False)
    figure.draw_without_rendering()  # labels are placed around the drawn lines and points
    for axes, cost in zip(figure.axes, AXES, strict=True):
        _label_points(axes, selection, cost)
    return figure


def _draw_frontier(axes: Axes, selection: ModelSelection, cost: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    def coordinates(points: Sequence[GridPoint]) -> tuple[list[float], list[float]]:
        return [cost_of(point, cost) for point in points], [selection.quality(point) for point in points]

    for number, model in enumerate(selection.models):
        of_model = [point for point in selection.points if point.system == model]
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(*coordinates(of_model), marker, color=f"C{number}", alpha=0.6, markersize=5, label=model)
    axes.plot(*coordinates(selection.frontier(cost)), color="0.3", linewidth=1, zorder=1, label="Pareto-optimal")
    if (limit := selection.budget.limits().get(cost)) is not None:
        axes.axvline(limit, color="C3", linestyle="--", linewidth=1, label="budget")
    if (best := selection.recommended()) is not None:
        axes.scatter(
            *coordinates([best]), s=160, facecolors="none", edgecolors="C3", label="the best within the budget"
        )
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 8 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(0.15)
    axes.grid(alpha=0.3)


def _label_points(axes: Axes, selection: ModelSelection, cost: str) -> None:
    """Label Pareto-optimal points with their pruning where space is free, beginning with the recommended point."""
    from matplotlib.transforms import Bbox

    recommended, frontier = selection.recommended(), selection.frontier(cost)
    ordered = sorted(frontier, key=lambda point: (point is not recommended, -selection.quality(point)))
    if recommended is not None and recommended not in frontier:
        ordered.insert(0, recommended)
    inside, spots = axes.get_window_extent(), [line.get_transform().transform(line.get_xydata()) for line in axes.lines]
    count = len(selection.models)
    joined = [np.linspace(start, end, 50) for line in spots[count:] for start, end in pairwise(line)]
    used = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in np.concatenate(spots[:count])]
    used += [Bbox.from_bounds(x - 1, y - 1, 2, 2) for x, y in np.concatenate([np.empty((0, 2)), *joined])]
    for point in ordered:
        place = cost_of(point, cost), selection.quality(point)
        changed = {} if point.setting is None else point.setting.changed()
        label = ", ".join(f"{SETTING_COLUMNS[name]} {value:g}" for name, value in changed.items()) or "whole"
        for (x, y), side, end in LABEL_PLACES:
            text = axes.annotate(label, place, (x, y), textcoords="offset points", ha=side, va=end)
            text.set_fontsize("x-small")
            box = text.get_window_extent()
            free = not any(box.overlaps(other) for other in used)
            if free and inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1):
                used.append(box)
                break
            text.remove()
