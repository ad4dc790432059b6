"""How good a ranking is, through ir_measures; what it cost stands beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ir_measures import Measure, ScoredDoc
from rich.table import Table
from sentence_transformers import SparseEncoder

from vocable.encoder.fuse import splade_modules
from vocable.encoder.precision import DType
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import Cost
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.judged_measures import JudgedMeasures
from vocable.evaluation.measures import depth, parse_measures
from vocable.evaluation.retrieval import retrieve
from vocable.evaluation.tables import NONE, Grid, cost_columns, p_value
from vocable.search.ranking import read_trec

DEFAULT_MEASURES = ("nDCG@10", "R@1000", "RR@10")
Run = str | os.PathLike[str] | Iterable[ScoredDoc]


@dataclass(frozen=True)
class Evaluation:
    """The quality of one system on one dataset.

    `values` are means over all judged queries, one that was not answered counting as its measure's default (0);
    `per_query` is {measure: {query id: value}}. `unjudged` counts the queries that were left out because they have no
    judgment.
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

    @classmethod
    def from_json(cls, values: Any) -> Evaluation:
        """The evaluation that `to_json` wrote; raises `DataError` if it is something else."""
        try:
            cost = values["cost"]
            return cls(
                name=str(values["name"]),
                dataset=str(values["dataset"]),
                values={name: float(value) for name, value in values["values"].items()},
                per_query={
                    name: {query: float(value) for query, value in found.items()}
                    for name, found in values["per_query"].items()
                },
                cost=None if cost is None else Cost(**cost),
                unjudged=int(values["unjudged"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"not an evaluation as JSON: {error!r}") from error

    def markdown(self) -> str:
        """Quality and cost as a markdown table of one row."""
        return side_by_side([self]).markdown()

    def table(self) -> Table:
        """Quality and cost as a rich table of one row."""
        return side_by_side([self]).table()


def evaluate(
    model_or_run: SparseEncoder | Run,
    dataset: str | os.PathLike[str] | Dataset,
    measures: Sequence[str | Measure] = DEFAULT_MEASURES,
    *,
    name: str | None = None,
    k: int = 1000,
    query_top_k: int | None = None,
    document_top_k: int | None = None,
    dtype: DType = "auto",
    advance: Callable[[int], object] = lambda done: None,
) -> Evaluation:
    """Evaluate a model, or a run that anything made, on a dataset.

    Args:
        model_or_run: a model from `vocable.load` (queries and documents are encoded, the search is exact, its cost is
            measured), the path of a TREC run, or its hits.
        dataset: a place such as "beir:DIR" or "pydocs:#test", or a `Dataset`.
        measures: ir_measures names.
        name: what to call the system; by default the model's or the file's name.
        k: results of a model's search; no measure may look deeper.
        query_top_k: keep only so many terms of a model's query.
        document_top_k: keep only so many terms of a model's document.
        dtype: of a model, as in `vocable.encode`.
        advance: called with the number of documents that a model has encoded, after every batch.

    Raises:
        ArgumentError: an unknown measure, or an argument out of its range.
        DataError: the dataset or the run cannot be read, or they have no query in common.
    """
    parsed = parse_measures(measures)
    if not isinstance(model_or_run, SparseEncoder):
        if query_top_k is not None or document_top_k is not None:
            raise ArgumentError("top_k belongs to the search that makes a run; a finished run cannot be pruned")
        return evaluate_run(name or _run_name(model_or_run), model_or_run, dataset, measures)
    deepest = max(parsed, key=lambda measure: depth(parsed[measure]))
    if depth(parsed[deepest]) > k:
        raise ArgumentError(f"{deepest} looks at more than the k = {k} results of the search")
    collection = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    found = retrieve(
        model_or_run,
        collection,
        k=k,
        query_top_k=query_top_k,
        document_top_k=document_top_k,
        dtype=dtype,
        advance=advance,
    )
    return evaluate_run(name or _model_name(model_or_run), found.to_run(), collection, measures, cost=found.cost)


def evaluate_run(
    name: str,
    run: Run,
    dataset: str | os.PathLike[str] | Dataset,
    measures: Sequence[str | Measure] = DEFAULT_MEASURES,
    *,
    cost: Cost | None = None,
) -> Evaluation:
    """Evaluate a run, whatever made it: `evaluate` for models, lexical baselines and hybrids alike ends here.

    Queries that are not judged are left out. Hits are ordered by their scores, equal ones as the software behind the
    measure does it: trec_eval, which computes most, by descending document id.

    Raises:
        ArgumentError: an unknown measure, or one that cannot be computed for this dataset.
        DataError: the dataset or the run cannot be read, or they have no query in common.
    """
    parsed = parse_measures(measures)
    judged = (dataset if isinstance(dataset, Dataset) else load_dataset(dataset, documents=False)).judged()
    answers = _answers(name, run, judged)
    judged_measures = JudgedMeasures(parsed, judged)
    per_query = judged_measures.per_query(answers)
    return Evaluation(name, judged.name, judged_measures.aggregated(per_query), per_query, cost, judged.unjudged)


def side_by_side(evaluations: Sequence[Evaluation], p_values: Sequence[Mapping[str, float]] = ()) -> Grid:
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
    names, costs = cost_columns([evaluation.cost for evaluation in evaluations])
    title = f"{first.dataset}, {first.queries} queries"
    return Grid(title, header + names, [row + cells for row, cells in zip(rows, costs, strict=True)])


def _hits(run: Run) -> list[ScoredDoc]:
    if not isinstance(run, str | os.PathLike):
        return list(run)
    if not Path(run).is_file():
        raise DataError("no such run file (a model is given as vocable.load(name))", place=os.fspath(run))
    return read_trec(run)


def _answers(name: str, run: Run, judged: Dataset) -> dict[str, dict[str, float]]:
    """{query id: {document id: score}} of the judged queries."""
    answers: dict[str, dict[str, float]] = {query.id: {} for query in judged.queries}
    hits = _hits(run)
    for query, document, score in hits:
        answer = answers.get(query)
        if answer is None:
            continue
        if document in answer:
            raise DataError(f"{name}: the run has document {document!r} twice for query {query!r}", place=judged.name)
        answer[document] = float(score)
    if hits and not any(answers.values()):
        raise DataError(f"{name}: the run has none of the {len(answers)} judged queries", place=judged.name)
    return answers


def _run_name(run: Run) -> str:
    return Path(run).stem if isinstance(run, str | os.PathLike) else "run"


def _model_name(model: SparseEncoder) -> str:
    names = [transformer.auto_model.name_or_path for transformer, _ in splade_modules(model)]
    return Path(names[0]).name if names and names[0] else "model"
