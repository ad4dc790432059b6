"""How good a ranking is, by measures with their ir_measures names; what it cost stands beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, NamedTuple, TypeAlias

import ir_measures
from ir_measures import Measure, Qrel, ScoredDoc
from ir_measures.measures import registry

from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import Cost, cost_columns
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.search.ranking import Ranking, read_trec
from vocable.storage import StrPath
from vocable.tables import NONE, Table, Tabular, p_value

Measures: TypeAlias = Sequence[str | Measure]


def parse_measures(names: Measures) -> dict[str, Measure]:
    """The ir_measures measures under the names they were asked by.

    >>> {name: str(measure) for name, measure in parse_measures(["nDCG@10", "MRR@10"]).items()}
    {'nDCG@10': 'nDCG@10', 'MRR@10': 'RR@10'}
    """
    if isinstance(names, str) or not names:
        raise ArgumentError(f"measures must be a list of names such as nDCG@10, not {names!r}")
    return {str(name).strip(): _parse(str(name).strip()) for name in names}


def depth(measure: Measure) -> int:
    """The number of results that `measure` looks at; 0 where it has no cutoff."""
    cutoff = measure.params.get("cutoff")
    return cutoff if isinstance(cutoff, int) else 0


def _parse(name: str) -> Measure:
    try:
        measure = ir_measures.parse_measure(name)
        cutoff = measure.params.get("cutoff", 1)
        if type(cutoff) is not int or cutoff < 1:  # trec_eval ends the whole process at a cutoff of 0
            raise ValueError(f"the cutoff must be a whole number of at least 1, not {cutoff!r}")
        ir_measures.evaluator([measure], [Qrel("q", "d", 1)])  # finds the software, and validates the parameters
    except NameError as error:
        base, at, depth = name.partition("@")
        by_lower = {known.lower(): known for known in reversed(registry)}  # the first of two: ir_measures documents it
        near = get_close_matches(re.sub(r"[\W\d]+$", "", base).lower(), by_lower, n=4, cutoff=0.4)
        names = [by_lower[word] for word in near] or ["nDCG", "R", "RR", "AP"]
        meant = ", ".join(f"{known}{at}{depth}" for known in names)
        raise ArgumentError(f"unknown measure {name!r}: did you mean {meant}?") from error
    except KeyError as error:
        raise ArgumentError(f"measure {name!r}: it has no parameter {error}") from error
    except (AssertionError, TypeError, ValueError) as error:
        lacking = "cutoff=<object" in str(error)
        reason = "it needs a cutoff, as in R@1000" if lacking else " ".join(str(error).split())
        raise ArgumentError(f"measure {name!r}: {reason}") from error
    return measure


class JudgedMeasures:
    """What `measures` {name: measure} make of answers to the queries of a dataset that `Dataset.judged` gave."""

    def __init__(self, measures: Mapping[str, Measure], judged: Dataset) -> None:
        self.measures, self._dataset = measures, judged
        try:
            self._evaluator = ir_measures.evaluator(list(dict.fromkeys(measures.values())), list(judged.judgments))
        except (ArithmeticError, OSError, SubprocessError, ValueError) as error:
            raise self._impossible(error) from error

    def per_query(self, answers: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """{measure: {query id: value}} of the queries in `answers` {query id: {document id: score}}.

        A query without an answer has the measure's default, 0 for most. By BEIR's convention (`Dataset`) an answer has
        no document with the id of its query.

        >>> from ir_measures import Qrel, nDCG
        >>> from vocable.data import Query
        >>> toy = Dataset("toy", [], [Query("q1", "lists"), Query("q2", "sets")], [Qrel("q1", "d", 1)])
        >>> JudgedMeasures({"nDCG@10": nDCG @ 10}, toy).per_query({"q1": {"d": 2.0}, "q2": {}})
        {'nDCG@10': {'q1': 1.0, 'q2': 0.0}}
        """
        if self._dataset.convention == "beir":
            answers = {
                query: {document: score for document, score in hits.items() if document != query}
                for query, hits in answers.items()
            }
        values: dict[Measure, dict[str, float]] = {measure: {} for measure in self.measures.values()}
        try:
            for metric in self._evaluator.iter_calc(answers):
                values[metric.measure][metric.query_id] = float(metric.value)
        except (ArithmeticError, OSError, SubprocessError, ValueError) as error:
            raise self._impossible(error) from error
        return {
            name: {query: values[measure].get(query, measure.DEFAULT) for query in answers}
            for name, measure in self.measures.items()
        }

    def aggregated(self, per_query: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """The one figure of each measure for all the queries that `per_query` gives it, for most their mean."""
        figures = {}
        for name, values in per_query.items():
            aggregator = self.measures[name].aggregator()
            for value in values.values():
                aggregator.add(value)
            figures[name] = float(aggregator.result())
        return figures

    def _impossible(self, error: Exception) -> ArgumentError:
        return ArgumentError(f"{', '.join(self.measures)} cannot be computed for {self._dataset.name}: {error}")


DEFAULT_MEASURES = ("nDCG@10", "R@1000", "RR@10")


class Retrieval(NamedTuple):
    """A `ranking` [q, k] of the judged queries `query_ids`, and what it cost."""

    ranking: Ranking
    query_ids: list[str]
    cost: Cost

    def to_run(self) -> list[ScoredDoc]:
        """Return the hits as ir_measures records."""
        return self.ranking.to_run(self.query_ids)


Run = StrPath | Iterable[ScoredDoc] | Retrieval


@dataclass(frozen=True)
class Evaluation(Tabular):
    """The quality of one system on one dataset.

    `values` are means over all judged queries, one that was not answered counting as its measure's default (0);
    `per_query` is {measure: {query id: value}}.
    """

    name: str
    dataset: str
    values: Mapping[str, float]
    per_query: Mapping[str, Mapping[str, float]]
    cost: Cost | None = None
    unjudged: int = 0

    @property
    def queries(self) -> int:
        """The number of judged queries."""
        return len(next(iter(self.per_query.values()), ()))

    def to_json(self) -> dict[str, Any]:
        """The evaluation as JSON values."""
        return asdict(self) | {"queries": self.queries}

    def table(self) -> Table:
        """Quality and cost in one row."""
        return side_by_side([self])


def evaluate_run(
    name: str, run: Run, dataset: StrPath | Dataset, measures: Measures = DEFAULT_MEASURES, *, cost: Cost | None = None
) -> Evaluation:
    """Evaluate a run: the path of a TREC run, its hits, or a `Retrieval`, whose cost is taken over.

    Queries that are not judged are left out. Equal scores are ordered as the software behind the measure does it:
    trec_eval, which computes most, by descending document id.
    """
    parsed = parse_measures(measures)
    if isinstance(run, Retrieval):
        cost = run.cost
    judged = (dataset if isinstance(dataset, Dataset) else load_dataset(dataset, documents=False)).judged()
    answers = _answers(name, run, judged)
    judged_measures = JudgedMeasures(parsed, judged)
    per_query = judged_measures.per_query(answers)
    return Evaluation(name, judged.name, judged_measures.aggregated(per_query), per_query, cost, judged.unjudged)


def side_by_side(evaluations: Sequence[Evaluation], p_values: Sequence[Mapping[str, float]] = ()) -> Table:
    """The one table of quality and cost: a row for each evaluation, the measures being those of the first.

    `p_values` {measure: p} are of all but the first evaluation; with them every measure gets a second column.
    """
    first = evaluations[0]
    header, rows = ["system"], [[evaluation.name] for evaluation in evaluations]
    for measure in first.values:
        header.append(measure)
        for row, evaluation in zip(rows, evaluations, strict=True):
            row.append(f"{evaluation.values[measure]:.4f}")
        if p_values:
            header.append("p")
            for row, cell in zip(rows, [NONE, *(p_value(p[measure]) for p in p_values)], strict=True):
                row.append(cell)
    names, costs = cost_columns([_shown(evaluation.cost) for evaluation in evaluations])
    title = f"{first.dataset}, {first.queries} queries"
    groups = [2 if p_values else 1] * len(first.values) + ([len(names)] if names else [])
    return Table(title, header + names, [row + cells for row, cells in zip(rows, costs, strict=True)], groups)


def _shown(cost: Cost | None) -> Cost | None:
    """The cost without the 95th percentiles of answers: with them the table is wider than 80 columns."""
    if cost is None or cost.answer_p50_ms is None:
        return cost
    return replace(cost, search_p95_ms=None, answer_p95_ms=None)


def _answers(name: str, run: Run, judged: Dataset) -> dict[str, dict[str, float]]:
    """{query id: {document id: score}} of the judged queries."""
    if isinstance(run, Retrieval):
        run = run.to_run()
    answers: dict[str, dict[str, float]] = {query.id: {} for query in judged.queries}
    if isinstance(run, str | os.PathLike):
        if not Path(run).is_file():
            raise DataError("no such run file (a model is given as vocable.load(name))", source=os.fspath(run))
        run = read_trec(run)
    hits = list(run)
    for query, document, score in (hit for hit in hits if hit.query_id in answers):
        if document in answers[query]:
            raise DataError(f"{name}: the run has document {document!r} twice for query {query!r}", source=judged.name)
        answers[query][document] = float(score)
    if hits and not any(answers.values()):
        raise DataError(f"{name}: the run has none of the {len(answers)} judged queries", source=judged.name)
    return answers
