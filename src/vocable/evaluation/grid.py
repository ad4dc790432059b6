"""Search one encoded dataset with many settings: pruned vectors, a minimum share of matching terms, rescoring.

Kim et al. 2026 show such searches in table 2, figure 1 and appendix J.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Unpack

import numpy as np
from annotated_types import Ge, Le
from scipy.sparse import csr_array

from vocable.collection.plan import Depths, EncodedQueries, SearchPlan
from vocable.core.figures import Panel, Point, draw_panels
from vocable.core.progress import progress
from vocable.core.tables import NONE, Table, Tabular
from vocable.data.texts import as_texts
from vocable.encoding.pruning import prune
from vocable.errors import ArgumentError, require_extra
from vocable.evaluation.cost import Cost, active_terms, flops, rerank_costs
from vocable.evaluation.encoded import Encoded
from vocable.evaluation.measures import Measures, parse_measures
from vocable.evaluation.quality import DEFAULT_DEPTH, Evaluation, evaluate_run, notes
from vocable.evaluation.retrievers import TIMED_HITS, DatasetRetriever, SpaceIndex, judged_queries
from vocable.indexes.exact_index import ExactIndex, rescore
from vocable.indexes.ranking import Ranking
from vocable.options import CountOrZero, RerankOptions, SearchOptions, Share, check, check_fields

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID_MEASURES = ("RR@10", "R@10")  # the measures of the paper
SETTING_COLUMNS = {
    "query_max_terms": "qk",
    "query_mass": "q mass",
    "query_min_weight": "q min",
    "document_max_terms": "dk",
    "document_mass": "d mass",
    "document_min_weight": "d min",
    "minimum_match": "match",
    "rescore": "rescore",
    "rerank": "rerank",
}


@dataclass(frozen=True)
class Setting:
    """Settings of a search: the limits of `vocable.prune`, where max_terms=0 and mass=1 mean no limit.

    `minimum_match` is the share of a query's terms that a document must contain to be scored. With `rescore`, a search
    has two steps: the pruned vectors find `rescore` candidates, and the whole vectors order them. With `rerank`, a
    cross encoder finally reranks the first `rerank` hits.
    """

    query_max_terms: CountOrZero = 0
    query_mass: Share = 1.0
    query_min_weight: Annotated[float, Ge(0)] = 0.0
    document_max_terms: CountOrZero = 0
    document_mass: Share = 1.0
    document_min_weight: Annotated[float, Ge(0)] = 0.0
    minimum_match: Annotated[float, Ge(0), Le(1)] = 0.0
    rescore: Annotated[int, Ge(0), Le(100_000)] = 0
    rerank: Annotated[int, Ge(0), Le(100_000)] = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def limits(self, role: str) -> tuple[int | None, float, float | None]:
        """Return max_terms, min_weight and mass for pruning the role's vectors with `vocable.prune`."""
        max_terms = getattr(self, f"{role}_max_terms")
        mass = getattr(self, f"{role}_mass")
        return max_terms or None, getattr(self, f"{role}_min_weight"), None if mass == 1 else mass

    def plan(self, k: int, reranking: RerankOptions) -> SearchPlan:
        """Return the plan of a search for k documents by pruned sparse vectors."""
        max_terms, min_weight, mass = self.limits("query")
        options: dict[str, object] = {
            "max_terms": max_terms,
            "min_weight": min_weight,
            "mass": mass,
            "minimum_match": self.minimum_match,
        }
        if self.rerank:
            options |= {**reranking, "rerank_depth": self.rerank}
        complete = check(SearchOptions, options)
        return SearchPlan.of(Depths.of(k, complete, 1), {"sparse": 1.0}, complete)

    def changed(self) -> dict[str, float]:
        """Return the values that differ from the defaults."""
        return {name: value for name, value in vars(self).items() if value != getattr(Setting, name)}

    def __str__(self) -> str:
        """Return the values that differ from the defaults, in the format of `parse_grid`.

        >>> str(Setting(query_max_terms=5, document_mass=0.5))
        'query_max_terms=5 document_mass=0.5'
        """
        return " ".join(f"{name}={value}" for name, value in self.changed().items())


class GridPoint(NamedTuple):
    """The evaluation of a system with one setting; `setting` is None for a system without vectors to prune."""

    system: str
    setting: Setting | None
    evaluation: Evaluation

    def to_json(self) -> dict[str, object]:
        """Return the point as JSON values, without the values of single queries."""
        evaluation = self.evaluation.to_json()
        setting = None if self.setting is None else vars(self.setting)
        del evaluation["name"], evaluation["per_query"]
        return {"system": self.system, "setting": setting, **evaluation}


def parse_grid(texts: Sequence[str]) -> list[Setting]:
    """Return all combinations of the values in each text, such as "query_max_terms=5,10 document_max_terms=20".

    >>> settings = parse_grid(["query_max_terms=0", "query_max_terms=5,7 document_max_terms=20"])
    >>> [setting.query_max_terms for setting in settings]
    [0, 5, 7]
    """
    combinations = (dict(pairs) for text in as_texts(texts) for pairs in product(*map(_values, text.split())))
    return list(dict.fromkeys(Setting(**values) for values in combinations))


def _values(word: str) -> Iterator[tuple[str, Any]]:
    """Yield the pairs of name and value in "name=value,value"."""
    kinds = {name: type(value) for name, value in vars(Setting()).items()}
    name, equals, values = word.partition("=")
    if not equals:
        raise ArgumentError(f"grid: {word!r} has no value: write name=value, as in query_max_terms=5,10")
    if name not in kinds:
        raise ArgumentError(f"grid: unknown name in {word!r}: it must be one of {', '.join(kinds)}")
    for value in values.split(","):
        try:
            number = kinds[name](value)
        except ValueError as error:
            expected = "a whole number" if kinds[name] is int else "a number"
            raise ArgumentError(f"grid: {word}: {value!r} is not {expected}") from error
        if number < 0:
            raise ArgumentError(f"grid: {word}: {value} is below 0")
        yield name, number


def search_grid(
    name: str,
    encoded: Encoded,
    settings: Sequence[Setting],
    measures: Measures = GRID_MEASURES,
    *,
    k: int = DEFAULT_DEPTH,
    device: str | None = None,
    rerank_times: dict[Setting, np.ndarray] | None = None,
    **reranking: Unpack[RerankOptions],
) -> list[GridPoint]:
    """Search an encoded dataset with each of the settings, and measure quality and cost.

    FLOPS counts the search of the pruned vectors only (Kim et al. 2026, eq. 1); rescoring also reads `rescore` whole
    documents per query. `k` is the number of results; no measure may look deeper. `reranking` is for settings with
    `rerank`; the milliseconds of each query [q] are put into `rerank_times`.
    """
    # Settings with the same pruned documents share an index.
    check_depth(settings, measures, k)
    points: dict[Setting, GridPoint] = {}
    k = encoded.dataset.search_depth(k)
    with progress("search", total=len(settings)) as advance:
        for limits in dict.fromkeys(setting.limits("document") for setting in settings):
            documents = prune(encoded.documents, *limits)
            index = ExactIndex(documents, encoded.document_ids)
            for setting in (each for each in settings if each.limits("document") == limits):
                # Search as everywhere, by a plan.
                search = SpaceIndex(partial(_searched, index, encoded, setting), Cost())
                plan = setting.plan(k, reranking)
                retriever = DatasetRetriever(name, encoded.dataset, {"sparse": search}, device)
                ranking = plan.page(retriever.rank(judged_queries(encoded.dataset, encoded.queries), plan))
                # What the search costs is counted, not timed.
                queries = prune(encoded.queries, *setting.limits("query"))
                matches = index.matched(queries, minimum_match=setting.minimum_match)
                cost = Cost(
                    query_terms=active_terms(queries),
                    document_terms=active_terms(documents),
                    flops=flops(queries, documents),
                    bytes_per_document=index.nbytes / max(1, len(index)),
                    matched=float(matches.mean() / max(1, len(index))),
                    **({} if ranking.rerank_ms is None else rerank_costs(ranking.rerank_ms)),
                )
                if rerank_times is not None and ranking.rerank_ms is not None:
                    rerank_times[setting] = ranking.rerank_ms
                label = f"{name} {setting}".strip()
                evaluation = evaluate_run(
                    label, ranking, encoded.dataset, measures, cost=cost, query_idf=encoded.query_idf
                )
                points[setting] = GridPoint(name, setting, evaluation)
                advance(1)
    return [points[setting] for setting in settings]


def _searched(
    index: ExactIndex, encoded: Encoded, setting: Setting, queries: EncodedQueries, plan: SearchPlan
) -> Ranking:
    """Search pruned vectors; with `rescore`, the whole vectors order the candidates."""
    pruned, k = prune(queries.vectors.sparse, **plan.pruning), plan.depths.depth
    ranking = index.search(pruned, min(setting.rescore, len(index)) or k, **plan.matching)
    return rescore(ranking, encoded.queries, encoded.documents, k) if setting.rescore else ranking


def single_searches(encoded: Encoded, settings: Sequence[Setting]) -> list[Callable[[csr_array], Ranking]]:
    """Return for each setting a function that prunes and searches one query on one thread, without rescoring.

    The pruned indexes stay in memory.
    """
    limits = dict.fromkeys(setting.limits("document") for setting in settings)
    indexes = {each: ExactIndex(prune(encoded.documents, *each), encoded.document_ids) for each in limits}
    return [partial(_search_one, indexes[setting.limits("document")], setting) for setting in settings]


def _search_one(index: ExactIndex, setting: Setting, query: csr_array) -> Ranking:
    pruned = prune(query, *setting.limits("query"))
    return index.search(pruned, max(TIMED_HITS, setting.rerank), minimum_match=setting.minimum_match, threads=1)


def check_depth(settings: Sequence[Setting], measures: Measures, k: int) -> None:
    """Raise `ArgumentError` for an unknown measure, or for a measure that looks deeper than the results."""
    deepest = max(measure.cutoff for measure in parse_measures(measures).values())
    shortest = min([k, *(setting.rescore for setting in settings if setting.rescore)])
    if deepest > shortest:
        raise ArgumentError(f"a measure looks at {deepest} results, but a search returns {shortest}")


@dataclass(frozen=True)
class SearchGrid(Tabular):
    """Systems searched with many settings."""

    points: list[GridPoint]

    @property
    def evaluations(self) -> list[Evaluation]:
        """Return the evaluation of each point."""
        return [point.evaluation for point in self.points]

    def to_json(self) -> list[dict[str, object]]:
        """Return the points as JSON values."""
        return [point.to_json() for point in self.points]

    def table(self) -> Table:
        """Return a table of the settings that vary, mean numbers of terms, FLOPS, matched documents and measures."""
        shown, first = swept(self.points), self.points[0].evaluation
        several = len({point.system for point in self.points}) > 1
        header, rows = ["system"] * several + [SETTING_COLUMNS[name] for name in shown], []
        for point in self.points:
            cost = point.evaluation.cost or Cost()
            setting = [NONE if point.setting is None else f"{getattr(point.setting, name):g}" for name in shown]
            costs = [cost.query_terms, cost.document_terms, cost.flops, cost.matched]
            cells = [NONE if value is None else f"{value:.4g}" for value in costs]
            values = [point.evaluation.cell(measure) for measure in first.measures]
            rows.append([point.system] * several + setting + cells + values)
        header += ["L0_q", "L0_d", "FLOPS", "matched", *first.measures]
        return Table(f"{first.dataset}, {first.queries} queries", header, rows, notes=grid_notes(self.points))


def grid_notes(points: Sequence[GridPoint]) -> list[str]:
    """Return the lines under a table of settings; all points of a system go by the name of the system."""
    return notes([replace(point.evaluation, name=point.system) for point in points])


def swept(points: Sequence[GridPoint]) -> list[str]:
    """Return the names of the settings that any point changes; both max_terms if no point changes any."""
    changed = set[str]().union(*(point.setting.changed() for point in points if point.setting is not None))
    return [name for name in SETTING_COLUMNS if name in changed] or ["query_max_terms", "document_max_terms"]


def flops_figure(points: Sequence[GridPoint]) -> Figure:
    """Draw each measure against FLOPS, one curve per system and one point per pruning (Kim et al. 2026, figure 1).

    Each minimum match and each rescoring has its own curve. A curve joins its points by increasing FLOPS, and omits
    points without FLOPS. Raises `ArgumentError` if no point remains.
    """
    require_extra("matplotlib", "figures")
    variants = ("minimum_match", "rescore")
    shown = [name for name in swept(points) if name not in variants]
    panels = []
    for measure in points[0].evaluation.values:
        curves: dict[str, list[Point]] = defaultdict(list)
        for system, setting, evaluation in points:
            flops = evaluation.cost.flops if evaluation.cost is not None else None
            if flops and measure in evaluation.values:
                label = "" if setting is None else "/".join(f"{getattr(setting, name):g}" for name in shown)
                used = [(name, getattr(setting, name, 0)) for name in variants]
                curve = ", ".join([system, *(f"{name}={value}" for name, value in used if value)])
                curves[curve].append(Point(flops, evaluation.values[measure], label))
        ordered = {curve: sorted(on_curve) for curve, on_curve in curves.items()}
        panels.append(Panel(points[0].evaluation.dataset, measure, ordered))
    if not any(panel.curves for panel in panels):
        raise ArgumentError("nothing to draw: no search reads a posting")
    return draw_panels(panels, "/".join(SETTING_COLUMNS[name] for name in shown))
