"""Measure the quality of rankings, and make tables of quality and cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vocable.core.storage import StrPath
from vocable.core.tables import NONE, Table, Tabular, counted, p_value
from vocable.data.records import ScoredDoc
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import Cost, cost_columns
from vocable.evaluation.dataset import Convention, Dataset, Identical, load_dataset
from vocable.evaluation.measures import JudgedMeasures, Measures, parse_measures
from vocable.indexes.ranking import Ranking, Ties, read_trec

DEFAULT_DEPTH = 1000  # results of a query for measures without a cutoff
DEFAULT_MEASURES = ("nDCG@10", "R@1000", "RR@10")


Run = StrPath | Iterable[ScoredDoc] | Ranking  # a ranking is of the judged queries


@dataclass(frozen=True)
class Evaluation(Tabular):
    """The quality of one system on one dataset.

    Attributes:
        values: means over all judged queries; an unanswered query counts as the measure's default, usually 0.
        per_query: {measure: {query id: value}}.
        uncomputed: {measure: a line} of measures that could not be computed, and are in neither of the two.
        unjudged: number of queries without a judgment, which are left out. For a run that is evaluated with judgments
            alone, these are the unjudged queries in the run.
        convention: the convention of the `Dataset`.
        ties: the order of ties of the `Dataset`.
        relevant_from: by measure, the lowest judgment that counts as relevant; graded measures are missing.
        dropped: number of hits with the id of their query.
        identical: counts of documents of the same text; None if they were not counted.
        query_idf: query weights were multiplied by this power of the IDF; None for a system without such weights.
        unanswered: number of judged queries without a hit, which count as 0.
        note: a line to show under a table.
    """

    name: str
    dataset: str
    values: Mapping[str, float]
    per_query: Mapping[str, Mapping[str, float]]
    cost: Cost | None = None
    unjudged: int = 0
    uncomputed: Mapping[str, str] = field(kw_only=True, default_factory=dict)
    convention: Convention = field(kw_only=True)
    ties: Ties = field(kw_only=True)
    relevant_from: Mapping[str, int] = field(kw_only=True, default_factory=dict)
    dropped: int = field(kw_only=True, default=0)
    identical: Identical | None = field(kw_only=True, default=None)
    query_idf: float | None = field(kw_only=True, default=None)
    unanswered: int = field(kw_only=True, default=0)
    note: str = field(kw_only=True, default="")

    def value(self, measure: str) -> float:
        """Return the value of a measure; raise `ArgumentError` if it could not be computed."""
        if measure in self.uncomputed:
            raise ArgumentError(f"{self.name} on {self.dataset}: {self.uncomputed[measure]}")
        return self.values[measure]

    def cell(self, measure: str) -> str:
        """Return the value of a measure for a table, or a dash."""
        return NONE if measure in self.uncomputed else f"{self.values[measure]:.4f}"

    @property
    def measures(self) -> list[str]:
        """The names of the measures, those that could not be computed last."""
        return [*self.values, *self.uncomputed]

    @property
    def queries(self) -> int:
        """Return the number of judged queries."""
        return len(next(iter(self.per_query.values()), ()))

    def to_json(self) -> dict[str, object]:
        """Return the evaluation as JSON values."""
        return asdict(self) | {"queries": self.queries}

    def table(self) -> Table:
        """Return a table of quality and cost with one row."""
        return quality_table([self])


def evaluate_run(
    name: str,
    run: Run,
    dataset: StrPath | Dataset,
    measures: Measures = DEFAULT_MEASURES,
    *,
    cost: Cost | None = None,
    query_idf: float | None = None,
) -> Evaluation:
    """Evaluate a run: the path of a TREC run, hits, or a ranking of the dataset's judged queries.

    Unjudged queries are left out. All measures see equal scores in the dataset's order of ties.
    """
    parsed = parse_measures(measures)
    judged = (dataset if isinstance(dataset, Dataset) else load_dataset(dataset, documents=False)).judged()
    answers, unjudged = _answers(name, run, judged)
    judged_measures = JudgedMeasures(parsed, judged)
    uncomputed = dict[str, str]()
    per_query = judged_measures.per_query(answers, uncomputed)
    return Evaluation(
        name=name,
        dataset=judged.name,
        values=judged_measures.aggregated(per_query),
        per_query=per_query,
        uncomputed=uncomputed,
        cost=cost,
        unjudged=judged.unjudged or unjudged,
        convention=judged.convention,
        ties=judged.ties,
        relevant_from={name: level for name, measure in parsed.items() if (level := measure.level)},
        dropped=sum(query in hits for query, hits in answers.items()) if judged.convention == "beir" else 0,
        identical=judged.identical,
        query_idf=query_idf,
        unanswered=sum(not hits for hits in answers.values()),
    )


def quality_table(evaluations: Sequence[Evaluation], p_values: Sequence[Mapping[str, float]] = ()) -> Table:
    """Return a table with a row for each evaluation, and columns for costs and for the first evaluation's measures.

    `p_values` has {measure: p} for each evaluation but the first; it adds a second column for each measure.
    """
    first = evaluations[0]
    header, rows = ["system"], [[evaluation.name] for evaluation in evaluations]
    for measure in first.measures:
        header.append(measure)
        for row, evaluation in zip(rows, evaluations, strict=True):
            row.append(evaluation.cell(measure))
        if p_values:
            header.append("p")
            for row, p in zip(rows, [{}, *p_values], strict=True):
                row.append(p_value(p[measure]) if measure in p else NONE)
    names, costs = cost_columns([_shown(evaluation.cost) for evaluation in evaluations])
    title = f"{first.dataset}, {first.queries} queries"
    groups = [2 if p_values else 1] * len(first.measures) + ([len(names)] if names else [])
    rows = [row + cells for row, cells in zip(rows, costs, strict=True)]
    return Table(title, header + names, rows, groups, notes(evaluations))


TIES = {"search": "equal scores by id", "trec_eval": "equal scores by descending id"}


def notes(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the lines under a table of evaluations: their conventions, and counts of omitted queries and hits."""
    lines = _agreed(evaluations, _conventions)
    if dropped := [evaluation.dropped for evaluation in evaluations if evaluation.convention == "beir"]:
        least, most = min(dropped), max(dropped)
        count = counted(most, "hit") if least == most else f"{least:,} to {most:,} hits"
        lines.append(f"{count} with the id of their query left out; convention trec_eval keeps them")
    weighed = [evaluation for evaluation in evaluations if evaluation.query_idf is not None]
    if any(evaluation.query_idf for evaluation in weighed):
        lines += _agreed(weighed, lambda evaluation: f"query weights times IDF to the power {evaluation.query_idf:g}")
    lines += [line for say in (_unjudged, _unanswered, _identical, _uncomputed) for line in _agreed(evaluations, say)]
    return lines + [evaluation.note for evaluation in evaluations if evaluation.note]


def _agreed(evaluations: Sequence[Evaluation], say: Callable[[Evaluation], str]) -> list[str]:
    """Return the distinct texts about evaluations; if texts differ, each begins with the names of its systems."""
    names: dict[str, dict[str, None]] = {}
    for evaluation in evaluations:
        names.setdefault(say(evaluation), {})[evaluation.name] = None
    prefix = len(names) > 1
    return [f"{', '.join(systems)}: {text}" if prefix else text for text, systems in names.items() if text]


def _conventions(evaluation: Evaluation) -> str:
    levels = evaluation.relevant_from
    if len(set(levels.values())) > 1:
        relevant = ", ".join(f"{level} or more for {name}" for name, level in levels.items())
    else:
        relevant = "".join(f"{level} or more" for level in set(levels.values()))
    level = f"; relevant: judged {relevant}" if relevant else ""
    return f"convention {evaluation.convention}; {TIES[evaluation.ties]}{level}"


def _unjudged(evaluation: Evaluation) -> str:
    count = counted(evaluation.unjudged, "query", "queries")
    return f"{count} without a judgment left out" if evaluation.unjudged else ""


def _unanswered(evaluation: Evaluation) -> str:
    count = counted(evaluation.unanswered, "judged query", "judged queries")
    return f"{count} without a hit, as 0" if evaluation.unanswered else ""


def _uncomputed(evaluation: Evaluation) -> str:
    return "; ".join(evaluation.uncomputed.values())


def _identical(evaluation: Evaluation) -> str:
    if evaluation.identical is None or not evaluation.identical.groups:
        return ""
    groups = counted(evaluation.identical.groups, "group")
    return f"{evaluation.identical.documents:,} documents in {groups} of identical texts, which have equal scores"


def _shown(cost: Cost | None) -> Cost | None:
    """Return the cost without 95th percentiles of times: they would make the table wider than 80 columns."""
    if cost is None or (cost.answer_p50_ms is None and cost.rerank_p50_ms is None):
        return cost
    return cost.without("tail")


def _answers(name: str, run: Run, judged: Dataset) -> tuple[dict[str, dict[str, float]], int]:
    """Return {query id: {document id: score}} for judged queries, and the number of unjudged queries in the run."""
    if isinstance(run, Ranking):
        run = run.to_run([query.id for query in judged.queries])
    answers: dict[str, dict[str, float]] = {query.id: {} for query in judged.queries}
    if isinstance(run, str | os.PathLike):
        if not Path(run).is_file():
            raise DataError("no such run file (a model is passed as vocable.load(name))", source=os.fspath(run))
        run = read_trec(run)
    hits = list(run)
    for query, document, score in (hit for hit in hits if hit.query_id in answers):
        if document in answers[query]:
            raise DataError(f"{name}: duplicate document {document!r} for query {query!r}", source=judged.name)
        answers[query][document] = float(score)
    if hits and not any(answers.values()):
        raise DataError(f"{name}: the run has none of the {len(answers)} judged queries", source=judged.name)
    return answers, len({hit.query_id for hit in hits} - answers.keys())
