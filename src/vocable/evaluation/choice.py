"""The choice of a model and a pruning: settings measured alike, the best of them within a budget, how to use it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from textwrap import fill
from typing import Any, NamedTuple

from vocable.errors import ArgumentError
from vocable.evaluation.cost import Cost, cost_columns
from vocable.evaluation.grid import COLUMNS, GridPoint, Setting, grid_notes, swept
from vocable.evaluation.retrieval import SHOWN
from vocable.evaluation.significance import compare, mean_interval, paired_t_test
from vocable.tables import NONE, Table, Tabled, p_value, short, text_width

TIMES = {"us": 0.001, "ms": 1.0, "s": 1000.0}
SIZES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "kib": 1024.0, "mib": 1024.0**2}
TITLES = {
    "query_terms": "q terms",
    "document_terms": "d terms",
    "bytes_per_document": "bytes/ doc",
    "answer_p95_ms": "p95 ms",
}
COSTS = {"bytes_per_document": "bytes a document", "answer_p95_ms": "ms at p95"}  # what can be limited, and its unit


class Deployment(NamedTuple):
    """What it takes to use a model, which is at a `place`; without inference its queries are looked up, not encoded.

    The `licence` is what its card states, None where it states none. The parameters of an exported model are not known:
    None. A length of None is no limit.
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
    """The most that a setting may cost, by the names of `Cost`; None is no limit."""

    bytes_per_document: float | None = None
    answer_p95_ms: float | None = None

    def limits(self) -> dict[str, float]:
        """The limits that there are."""
        return {name: limit for name, limit in asdict(self).items() if limit is not None}

    def share(self, point: GridPoint) -> float:
        """The share of the scarcest limit that a setting takes, more than 1 beyond it; 0 without limits."""
        return max((cost_of(point, name) / limit for name, limit in self.limits().items()), default=0.0)


def parse_budget(max_p95: str | float | None, max_bytes_per_document: str | float | None) -> Budget:
    """Read the limits, a number being of milliseconds and of bytes.

    >>> parse_budget("0.02s", "1.5kB")
    Budget(bytes_per_document=1500.0, answer_p95_ms=20.0)
    """
    size = _quantity("max_bytes_per_document", max_bytes_per_document, SIZES, "bytes, as 600 or 1.5kB")
    return Budget(size, _quantity("max_p95", max_p95, TIMES, "a time with its unit, as 20ms or 0.5s"))


def _quantity(name: str, given: str | float | None, units: Mapping[str, float], what: str) -> float | None:
    if given is None:
        return None
    value = math.nan
    if not isinstance(given, str):
        value = float(given)
    elif found := re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+) ?([a-z]*)", given.strip().casefold()):
        value = float(found[1]) * units.get(found[2], math.nan)
    if not 0 < value < math.inf:
        raise ArgumentError(f"{name} must be {what}, not {given!r}")
    return value


@dataclass(frozen=True)
class Choice(Tabled):
    """Models searched in many ways on the dataset of a `source`, as `vocable.compare` measured them.

    Attributes:
        source: of the dataset, whose documents are the corpus of the commands.
        models: what it takes to use each.
        points: the settings, of each model first whole vectors; the first of their measures is the quality.
        answers: how often each was timed.
        options: of encoding, where they are not the defaults.
        budget: what a setting may cost.
    """

    source: str
    models: dict[str, Deployment]
    points: list[GridPoint]
    answers: int
    options: dict[str, Any] = field(default_factory=dict)
    budget: Budget = Budget()

    @property
    def measure(self) -> str:
        """The measure that is the quality."""
        return next(iter(self.points[0].evaluation.values))

    def quality(self, point: GridPoint) -> float:
        """The quality of a setting."""
        return point.evaluation.values[self.measure]

    def frontier(self, cost: str) -> list[GridPoint]:
        """The Pareto-optimal settings by quality and a field of `Cost`, from the cheapest on.

        Every other setting costs more than one that is as good. Times count to two digits: the rest is noise.
        """
        digits = 2 if cost.endswith("_ms") else 15
        found: list[GridPoint] = []
        for point in sorted(self.points, key=lambda one: (_rounded(cost_of(one, cost), digits), *self._order(one))):
            if not found or self.quality(point) > self.quality(found[-1]):
                found.append(point)
        return found

    def recommended(self) -> GridPoint | None:
        """The setting of the best quality within the budget; None without a budget, or where nothing is within it."""
        within = [point for point in self.points if self.budget.share(point) <= 1]
        return min(within, key=self._order) if within and self.budget.limits() else None

    def closest(self) -> GridPoint:
        """The setting that goes beyond the budget the least, in proportion to its limits and to two digits."""
        return min(self.points, key=lambda one: (_rounded(self.budget.share(one), 2), *self._order(one)))

    def commands(self, point: GridPoint) -> list[str]:
        """The commands that use a setting: `index`, and `search` where queries are pruned, too."""
        setting = point.setting or Setting()
        index = ["vocable", "index", self.models[point.system].place, self.source, *_limits(setting, "document")]
        index += [*_flags(self.options), "-o", "exact:my-index"]
        asked = [*_limits(setting, "query"), *_flags({"minimum_match": setting.minimum_match})]
        search = ["vocable", "search", "my-index", "your question", *asked]
        return [shlex.join(one) for one in ([index, search] if asked else [index])]

    def sentence(self) -> str:
        """What to take within the budget, or what comes closest to it; "" without a budget."""
        limits, count = self.budget.limits(), len(self.points)
        if not limits:
            return ""
        asked = " and ".join(f"{limit:,.4g} {COSTS[name]}" for name, limit in limits.items())
        taken, best = self.recommended(), min(self.points, key=self._order)
        if taken is None:
            return f"None of the {count} settings is within {asked}; the closest is {self._named(self.closest())}:"
        rank = f"the best of all {count} settings"
        if taken is not best:
            p = paired_t_test(*(one.evaluation.per_query[self.measure] for one in (best, taken)))
            rank = f"{rank} has {self.quality(best):.4f}, p = {p_value(p)}"
        return f"Within {asked} the best is {self._named(taken)}; {rank}:"

    def table(self) -> list[Table | str]:
        """The models with whole vectors, what it takes to use them, the Pareto-optimal settings, and what to take."""
        tables = [self._models(), self._deployments(), self._frontiers()]
        timed = f"answer: a text to its {SHOWN} hits, one at a time; {self.answers} of each setting, in turns"
        if not self.budget.limits():
            return [*tables, timed]
        commands = [f"    {line}" for line in self.commands(self.recommended() or self.closest())]
        return [*tables, timed, "", fill(self.sentence(), text_width()), *commands]

    def markdown(self) -> str:
        """The same in markdown."""
        return "\n\n".join(part.markdown() if isinstance(part, Table) else part for part in self.table())

    def to_json(self) -> dict[str, Any]:
        """All settings as JSON values, and which of them is recommended."""
        frontiers, taken = {name: self.frontier(name) for name in COSTS}, self.recommended()
        settings = []
        for point in self.points:
            row = point.to_json()
            row["intervals"] = {name: mean_interval(one) for name, one in point.evaluation.per_query.items()}
            row["pareto_optimal"] = [name for name, found in frontiers.items() if point in found]
            row |= {"within_budget": self.budget.share(point) <= 1, "recommended": point is taken}
            settings.append(row | {"commands": self.commands(point)})
        models = {name: model._asdict() for name, model in self.models.items()}
        about = {"dataset": self.source, "models": models, "answers": self.answers, "budget": self.budget.limits()}
        return about | {"says": self.sentence(), "settings": settings}

    def _models(self) -> Table:
        whole = [point.evaluation for point in self.points if point.setting == Setting()]
        header, rows, groups = ["model"], [[one.system] for one in self.points if one.setting == Setting()], []
        p_values = [None, *compare(whole).p_values]
        for measure in whole[0].values:
            header += [measure, "95%", "p"]
            groups.append(3)
            for row, evaluation, p in zip(rows, whole, p_values, strict=True):
                low, high = mean_interval(evaluation.per_query[measure])
                row += [f"{evaluation.values[measure]:.4f}", f"{low:.3f}–{high:.3f}"]
                row.append(NONE if p is None else p_value(p[measure]))
        names, costs = cost_columns([replace(one.cost or Cost(), matched=None) for one in whole])
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
        shown, taken = swept(self.points), self.recommended()
        optimal = self.frontier("bytes_per_document")
        optimal += [point for point in self.frontier("answer_p95_ms") if point not in optimal]
        header = ["model", *(COLUMNS[name] for name in shown), *optimal[0].evaluation.values, *TITLES.values()]
        rows = []
        for point in optimal:
            limits = [f"{getattr(point.setting, name):g}" for name in shown]
            values = [f"{value:.4f}" for value in point.evaluation.values.values()]
            costs = [short(cost_of(point, name)) for name in TITLES]
            rows.append([f"{point.system} *" if point is taken else point.system, *limits, *values, *costs])
        title = f"Pareto-optimal of {len(self.points)} settings, by bytes or by p95"
        return Table(title + (" (*: to take)" if taken else ""), header, rows)

    def _named(self, point: GridPoint) -> str:
        """A setting, its quality and its costs in words."""
        costs = [f"{cost_of(point, name):,.4g} {unit}" for name, unit in COSTS.items()]
        pruned = str(point.setting) or "whole vectors"
        return f"{point.system} with {pruned} ({', '.join([f'{self.measure} {self.quality(point):.4f}', *costs])})"

    def _order(self, point: GridPoint) -> tuple[float, ...]:
        """What is less for the better of two settings: of equal quality, the smaller, the plainer, the faster one."""
        changed = 0 if point.setting is None else len(point.setting.changed())
        return -self.quality(point), cost_of(point, "bytes_per_document"), changed, cost_of(point, "answer_p95_ms")


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def cost_of(point: GridPoint, name: str) -> float:
    """A field of the cost of a setting, which has been measured."""
    return float(getattr(point.evaluation.cost, name))


def _limits(setting: Setting, role: str) -> list[str]:
    """The options that prune the vectors of a role."""
    return _flags(dict(zip(("max_terms", "min_weight", "mass"), setting.limits(role), strict=True)))


def _flags(options: Mapping[str, Any]) -> list[str]:
    return [word for name, value in options.items() if value for word in (f"--{name.replace('_', '-')}", str(value))]
