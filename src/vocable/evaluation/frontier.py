"""Compare settings of models: the Pareto frontier of quality and cost, and the best setting within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from vocable.core.figures import MARKERS, add_legend, empty_panels
from vocable.core.tables import NONE, Table, Tabled, p_value, short
from vocable.errors import require_extra
from vocable.evaluation.cost import Cost, cost_columns
from vocable.evaluation.grid import SETTING_COLUMNS, GridPoint, grid_notes, swept
from vocable.evaluation.retrievers import TIMED_HITS
from vocable.evaluation.significance import compare, mean_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The costs that a budget can limit: the mark of Pareto-optimal settings, and the label of an axis.
COSTS = {
    "bytes_per_document": ("bytes", "bytes of the index per document"),
    "answer_p95_ms": ("p95", "95th percentile of an answer, from text to hits (ms)"),
}
COST_COLUMNS = {
    "query_terms": "q terms",
    "document_terms": "d terms",
    "bytes_per_document": "bytes/ doc",
    "answer_p95_ms": "p95 ms",
}


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
class ModelSelection(Tabled):
    """Models measured by `vocable.select` on one dataset with many settings.

    Attributes:
        source: source of the dataset.
        models: each model's requirements.
        points: the settings of each model, whole vectors first; the first measure is the quality.
        answers: timed answers of each setting.
        fusions: dense vectors, BM25, and their fusions with whole vectors; the budget does not apply to them.
        budget: the highest allowed cost of a setting, by the names of `Cost`.
    """

    source: str
    models: dict[str, Deployment]
    points: list[GridPoint]
    answers: int
    fusions: list[GridPoint] = field(default_factory=list)
    budget: dict[str, float] = field(default_factory=dict)

    @property
    def measure(self) -> str:
        """Return the name of the measure of quality."""
        return self.points[0].evaluation.measures[0]

    def quality(self, point: GridPoint) -> float:
        """Return the quality of a setting."""
        return point.evaluation.value(self.measure)

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
        within = [point for point in self.points if self.within_budget(point)]
        return min(within, key=self._order) if within and self.budget else None

    def within_budget(self, point: GridPoint) -> bool:
        """Return whether no cost of a setting is above its limit."""
        return all(cost_of(point, name) <= limit for name, limit in self.budget.items())

    def table(self) -> list[Table | str]:
        """Return tables of whole vectors, of requirements and of all settings, and a line on the times."""
        timed = f"answer: a text to its {TIMED_HITS} hits, one at a time; {self.answers} of each setting, in turns"
        unmet = ["no setting is within the budget"] if self.budget and self.recommended() is None else []
        return [self._models(), self._deployments(), self._settings(), timed, *unmet]

    def markdown(self) -> str:
        """Return the tables and lines as markdown."""
        return "\n\n".join(part.markdown() if isinstance(part, Table) else part for part in self.table())

    def to_json(self) -> dict[str, object]:
        """Return all settings as JSON values; the recommended setting is marked."""
        frontiers = {name: self.frontier(name) for name in COSTS}
        recommended = self.recommended()
        settings = []
        for point in self.points:
            row = _with_intervals(point)
            row["pareto_optimal"] = [name for name, optimal in frontiers.items() if point in optimal]
            row |= {"within_budget": self.within_budget(point), "recommended": point is recommended}
            settings.append(row)
        models = {name: model._asdict() for name, model in self.models.items()}
        about = {"dataset": self.source, "models": models, "answers": self.answers, "budget": self.budget}
        return about | {"settings": settings, "fusions": [_with_intervals(point) for point in self.fusions]}

    def _models(self) -> Table:
        # Whole vectors, reranked or not, and fusions. The p-values compare with the first.
        shown = [point for point in self.points if point.setting and {*point.setting.changed()} <= {"rerank"}]
        shown += self.fusions
        whole = [point.evaluation for point in shown]
        header, rows, groups = ["model"], [[f"{point.system} {point.setting or ''}".strip()] for point in shown], []
        p_values = [None, *compare(whole).p_values]
        # Three columns a measure: value, interval over queries, p.
        for measure in whole[0].measures:
            header += [measure, "95%", "p"]
            groups.append(3)
            for row, evaluation, p in zip(rows, whole, p_values, strict=True):
                of_queries = evaluation.per_query.get(measure)
                low, high = _interval(of_queries) if of_queries else (0.0, 0.0)
                row += [evaluation.cell(measure), f"{low:.3f}–{high:.3f}" if of_queries else NONE]
                row.append(NONE if p is None or measure not in p else p_value(p[measure]))
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

    def _settings(self) -> Table:
        shown, recommended = swept(self.points), self.recommended()
        # The Pareto-optimal points by the mark that they get, a mark for each cost.
        frontiers = {mark: self.frontier(cost) for cost, (mark, _) in COSTS.items()}
        limits = [SETTING_COLUMNS[name] for name in shown]
        header, rows = ["model", *limits, *self.points[0].evaluation.values, *COST_COLUMNS.values(), "optimal"], []
        for point in self.points:
            changed = [f"{getattr(point.setting, name):g}" for name in shown]
            values = [f"{value:.4f}" for value in point.evaluation.values.values()]
            costs = [short(cost_of(point, name)) for name in COST_COLUMNS]
            marks = [mark for mark, optimal in frontiers.items() if point in optimal] + ["*"] * (point is recommended)
            rows.append([point.system, *changed, *values, *costs, " ".join(marks)])
        note = "optimal: no cheaper setting is as good, by bytes or by p95"
        return Table("", header, rows, notes=[note + (" (*: the best within the budget)" if recommended else "")])

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


def frontier_figure(selection: ModelSelection) -> Figure:
    """Draw the quality of all settings against each cost; a line joins the Pareto-optimal settings."""
    require_extra("matplotlib", "figures")
    figure = empty_panels(len(COSTS), len(COSTS))
    for axes, (cost, (_, label)) in zip(figure.axes, COSTS.items(), strict=True):
        for number, model in enumerate(selection.models):
            points = [
                (cost_of(each, cost), selection.quality(each)) for each in selection.points if each.system == model
            ]
            axes.plot(*zip(*points, strict=True), MARKERS[number % len(MARKERS)], color=f"C{number}", label=model)
        optimal = [(cost_of(each, cost), selection.quality(each)) for each in selection.frontier(cost)]
        axes.plot(*zip(*optimal, strict=True), color="0.3", linewidth=1, zorder=1, label="Pareto-optimal")
        axes.set(xscale="log", xlabel=label, ylabel=selection.measure)
    add_legend(figure, *figure.axes[0].get_legend_handles_labels())
    return figure
