"""Many ways to search with one encoding: pruned queries and documents, a threshold on the terms that match, two steps.

Kim et al. 2026 tabulate and draw them (table 2, figure 1, appendix J).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Annotated, Any, NamedTuple

from annotated_types import Ge, Le
from scipy.sparse import csr_array

from vocable.data.texts import as_texts
from vocable.errors import ArgumentError
from vocable.evaluation.cost import Cost, active_terms, flops
from vocable.evaluation.quality import DEPTH, Evaluation, Measures, depth, evaluate_run, notes, parse_measures
from vocable.evaluation.retrieval import SHOWN, Encoded
from vocable.options import Pruning, check, check_fields
from vocable.progress import progress
from vocable.retrieval.exact_index import ExactIndex, rescore
from vocable.retrieval.ranking import Ranking
from vocable.tables import NONE, Table, Tabular
from vocable.vectors import prune

CANDIDATES = 100_000  # of a query, at most
MEASURES = ("RR@10", "R@10")  # those of the paper
COLUMNS = {
    "query_max_terms": "qk",
    "query_mass": "q mass",
    "query_min_weight": "q min",
    "document_max_terms": "dk",
    "document_mass": "d mass",
    "document_min_weight": "d min",
    "minimum_match": "match",
    "rescore": "rescore",
}


@dataclass(frozen=True)
class Setting:
    """Settings of a search. Limits are those of `vocable.prune`, with 0 for no max_terms and 1 for all of the mass.

    `minimum_match` is the share of a query's terms that a document must have to be scored. With `rescore` a search is
    two steps: so many candidates are found with the pruned vectors, and ordered by the whole ones.
    """

    query_max_terms: int = 0
    query_mass: float = 1.0
    query_min_weight: float = 0.0
    document_max_terms: int = 0
    document_mass: float = 1.0
    document_min_weight: float = 0.0
    minimum_match: Annotated[float, Ge(0), Le(1)] = 0.0
    rescore: int = 0

    def __post_init__(self) -> None:
        for role in ("query", "document"):
            max_terms, min_weight, mass = self.limits(role)
            check(Pruning, {"max_terms": max_terms, "min_weight": min_weight, "mass": mass})
        check_fields(self)
        if self.rescore > CANDIDATES:
            raise ArgumentError(f"rescore must be at most {CANDIDATES:,} candidates, not {self.rescore:,}")

    def limits(self, role: str) -> tuple[int | None, float, float | None]:
        """Return max_terms, min_weight and mass for `vocable.prune` of the role's vectors."""
        max_terms, mass = getattr(self, f"{role}_max_terms"), getattr(self, f"{role}_mass")
        return max_terms or None, getattr(self, f"{role}_min_weight"), None if mass == 1 else mass

    def changed(self) -> dict[str, float]:
        """Return the values that differ from those of a plain search."""
        return {name: value for name, value in vars(self).items() if value != getattr(Setting, name)}

    def __str__(self) -> str:
        """Return what differs from a plain search, as `parse_grid` reads it.

        >>> str(Setting(query_max_terms=5, document_mass=0.5))
        'query_max_terms=5 document_mass=0.5'
        """
        return " ".join(f"{name}={value}" for name, value in self.changed().items())


class GridPoint(NamedTuple):
    """A system searched in one way; `setting` is None for one that cannot be pruned."""

    system: str
    setting: Setting | None
    evaluation: Evaluation

    def to_json(self) -> dict[str, Any]:
        """Return the point as JSON values, without the single queries."""
        evaluation, setting = self.evaluation.to_json(), None if self.setting is None else vars(self.setting)
        del evaluation["name"], evaluation["per_query"]
        return {"system": self.system, "setting": setting, **evaluation}


def parse_grid(texts: Sequence[str]) -> list[Setting]:
    """The settings that texts such as "query_max_terms=5,10 document_max_terms=20" name: all combinations of each text.

    >>> found = parse_grid(["query_max_terms=0", "query_max_terms=5,7 document_max_terms=20"])
    >>> [setting.query_max_terms for setting in found]
    [0, 5, 7]
    """
    chosen = (dict(pairs) for text in as_texts(texts) for pairs in product(*map(_choices, text.split())))
    return list(dict.fromkeys(Setting(**values) for values in chosen))


def search_grid(
    name: str, encoded: Encoded, settings: Sequence[Setting], measures: Measures = MEASURES, *, k: int = DEPTH
) -> list[GridPoint]:
    """Search an encoded dataset in each of the ways, and measure quality and cost.

    FLOPS is that of the vectors which are searched (Kim et al. 2026, eq. 1), in two steps those of the first: the
    second reads `rescore` whole documents per query. `k` is the number of results; no measure may look deeper.
    """
    check_depth(settings, measures, k)
    points: dict[Setting, GridPoint] = {}
    k = encoded.dataset.deep(k)
    with progress("search", total=len(settings)) as advance:
        for limits in dict.fromkeys(setting.limits("document") for setting in settings):
            documents = prune(encoded.documents, *limits)
            index = ExactIndex(documents, encoded.document_ids)
            for setting in (one for one in settings if one.limits("document") == limits):
                queries = prune(encoded.queries, *setting.limits("query"))
                ranking = index.search(
                    queries, min(setting.rescore, len(index)) or k, minimum_match=setting.minimum_match
                )
                if setting.rescore:
                    ranking = rescore(ranking, encoded.queries, encoded.documents, k)
                matches = index.matched(queries, minimum_match=setting.minimum_match)
                cost = Cost(
                    query_terms=active_terms(queries),
                    document_terms=active_terms(documents),
                    flops=flops(queries, documents),
                    bytes_per_document=index.nbytes / max(1, len(index)),
                    matched=float(matches.mean() / max(1, len(index))),
                )
                label, run = f"{name} {setting}".strip(), ranking.to_run(encoded.query_ids)
                evaluation = evaluate_run(label, run, encoded.dataset, measures, cost=cost, query_idf=encoded.query_idf)
                points[setting] = GridPoint(name, setting, evaluation)
                advance(1)
    return [points[setting] for setting in settings]


def single_searches(encoded: Encoded, settings: Sequence[Setting]) -> list[Callable[[csr_array], Ranking]]:
    """A search for each of the settings, without a second step: of one query's vector, which it prunes, on one thread.

    The pruned indexes are held in memory.
    """
    limits = dict.fromkeys(setting.limits("document") for setting in settings)
    indexes = {one: ExactIndex(prune(encoded.documents, *one), encoded.document_ids) for one in limits}
    return [partial(_search_one, indexes[setting.limits("document")], setting) for setting in settings]


def _search_one(index: ExactIndex, setting: Setting, query: csr_array) -> Ranking:
    pruned = prune(query, *setting.limits("query"))
    return index.search(pruned, SHOWN, minimum_match=setting.minimum_match, threads=1)


def check_depth(settings: Sequence[Setting], measures: Measures, k: int) -> None:
    """Raise `ArgumentError` for an unknown measure, or one that looks deeper than a search gives results."""
    deepest = max(depth(measure) for measure in parse_measures(measures).values())
    shortest = min([k, *(setting.rescore for setting in settings if setting.rescore)])
    if deepest > shortest:
        raise ArgumentError(f"a measure looks at {deepest} results, where a search gives {shortest}")


@dataclass(frozen=True)
class SearchGrid(Tabular):
    """Systems searched in many ways."""

    points: list[GridPoint]

    def to_json(self) -> list[dict[str, Any]]:
        """The points as JSON values."""
        return [point.to_json() for point in self.points]

    def table(self) -> Table:
        """What is swept, mean numbers of terms, FLOPS, matched documents and the measures."""
        shown, first = swept(self.points), self.points[0].evaluation
        several = len({point.system for point in self.points}) > 1
        header, rows = ["system"] * several + [COLUMNS[name] for name in shown], []
        for point in self.points:
            cost = point.evaluation.cost or Cost()
            setting = [NONE if point.setting is None else f"{getattr(point.setting, name):g}" for name in shown]
            costs = [cost.query_terms, cost.document_terms, cost.flops, cost.matched]
            cells = [NONE if value is None else f"{value:.4g}" for value in costs]
            values = [f"{value:.4f}" for value in point.evaluation.values.values()]
            rows.append([point.system] * several + setting + cells + values)
        header += ["L0_q", "L0_d", "FLOPS", "matched", *first.values]
        return Table(f"{first.dataset}, {first.queries} queries", header, rows, notes=grid_notes(self.points))


def grid_notes(points: Sequence[GridPoint]) -> list[str]:
    """Return the lines under a table of settings, in which all of a system go by its name."""
    return notes([replace(point.evaluation, name=point.system) for point in points])


def swept(points: Sequence[GridPoint]) -> list[str]:
    """The names of what any of the settings has another value for than a plain search; max_terms if there is none."""
    changed = set[str]().union(*(point.setting.changed() for point in points if point.setting is not None))
    return [name for name in COLUMNS if name in changed] or ["query_max_terms", "document_max_terms"]


def _choices(word: str) -> Iterator[tuple[str, Any]]:
    """The pairs of name and value in "name=value,value"."""
    kinds = {name: type(value) for name, value in vars(Setting()).items()}
    name, equals, values = word.partition("=")
    if not equals:
        raise ArgumentError(f"--grid: {word!r} has no value: write name=value, as in query_max_terms=5,10")
    if name not in kinds:
        raise ArgumentError(f"--grid: unknown name in {word!r}: it is one of {', '.join(kinds)}")
    for value in values.split(","):
        try:
            number = kinds[name](value)
        except ValueError as error:
            what = "a whole number" if kinds[name] is int else "a number"
            raise ArgumentError(f"--grid: {word}: {value!r} is not {what}") from error
        if number < 0:
            raise ArgumentError(f"--grid: {word}: {value} is below 0")
        yield name, number
