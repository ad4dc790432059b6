"""The verb `select`: measure models, whole and pruned, on one dataset, and mark the best within a budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias, Unpack, get_args

import numpy as np
from annotated_types import Gt
from scipy.sparse import csr_array

from vocable.collection.rerank import RERANK_DEPTH, load_reranker
from vocable.core.figures import save_figure
from vocable.core.fingerprint import settings_of
from vocable.core.html import RESULTS
from vocable.core.storage import finish, finished, read_record, resumable, write_record
from vocable.data.bad_lines import tolerant
from vocable.encoding.dense_models import dense_fingerprint
from vocable.encoding.hub import check_length, licence
from vocable.encoding.load import load_encoder
from vocable.encoding.models import is_model, model_digest, model_name
from vocable.encoding.protocol import EncodingModel, Role
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, require_extra
from vocable.evaluation.cost import (
    TIMED_ANSWERS,
    Cost,
    TimedSystem,
    answer_costs,
    answer_times,
    encoding_rates,
    timed_rows,
)
from vocable.evaluation.dataset import Convention, Dataset, load_dataset
from vocable.evaluation.encoded import Encoded, encode_dataset
from vocable.evaluation.evaluate import ModelOrName, named_systems
from vocable.evaluation.expanders import is_lexical
from vocable.evaluation.frontier import Deployment, ModelSelection, frontier_figure
from vocable.evaluation.grid import GridPoint, Setting, check_depth, parse_grid, search_grid, single_searches
from vocable.evaluation.plans import Judged, evaluate_fusions, evaluate_words
from vocable.evaluation.quality import DEFAULT_DEPTH, Evaluation
from vocable.evaluation.retrievers import (
    DatasetRetriever,
    SpaceIndex,
    dense_index,
    judged_queries,
    lexical_index,
    sparse_index,
)
from vocable.options import CountOrZero, RerankOptions, SelectionOptions, checked
from vocable.options import select as select_options

Limit: TypeAlias = Annotated[float | None, Gt(0)]
SELECTION_MEASURES = ("nDCG@10", "R@100")
SELECTION_GRID = (
    "document_max_terms=0,128,64,32,16 document_min_weight=0,0.5,1 query_max_terms=0,20",
    "query_max_terms=48,30,10,5",
)


@tolerant
@checked
def select(
    systems: ModelOrName | Sequence[ModelOrName] | Mapping[str, ModelOrName],
    dataset: str | os.PathLike[str] | Dataset,
    measures: Sequence[str] | None = None,
    *,
    grid: Sequence[str] | None = None,
    max_p95: Limit = None,
    max_bytes_per_document: Limit = None,
    output: str | os.PathLike[str] | None = None,
    convention: Convention | None = None,
    skip_bad: CountOrZero = 0,
    **options: Unpack[SelectionOptions],
) -> ModelSelection:
    """Choose a model and its pruning under a budget.

    Each model encodes the dataset once, and its vectors are searched with each setting of the grid. The figures are
    quality, active terms, bytes, texts encoded per second, and the time from a query's text to its hits. The settings
    without a cheaper one of the same quality are marked, and so is the best within the budget, `max_p95` and
    `max_bytes_per_document`. With `output`, an interrupted run resumes when repeated, and with another budget nothing
    is measured again.

    Args:
        systems: folders or Hub ids of models; in Python also models from `vocable.load`, and a mapping of labels to
            models.
        dataset: a source such as beir:DIR, ir_datasets:NAME or pydocs:#test; in Python also a `Dataset`.
        measures: names of measures, nDCG@10 and R@100 by default; the first is the quality.
        grid: settings of searches, such as "document_max_terms=0,64 document_min_weight=0,0.5"; by default 34 settings.
        max_p95: longest answer at the 95th percentile, in milliseconds.
        max_bytes_per_document: largest size of the exact index per document, in bytes.
        output: folder for the figure, all settings and the vectors (written atomically).
        convention: trec_eval counts every hit, beir drops the query's own id; by default beir for BEIR's collections.
        skip_bad: number of malformed lines to skip; one more is an error.
        options: the fields of `vocable.options.SelectionOptions`. With `rerank`, the hits of whole vectors are also
            reranked, in addition to the settings of the grid (rerank=20 in the grid is such a setting, too). With
            `hybrid`, whole vectors are also fused with BM25 and with the model's dense vectors, outside the budget.

    Raises:
        ArgumentError: a grid or measure cannot be read, a system is not a model, or something else exists at
            `output`.
        DataError: the dataset cannot be read.
        ModelError: there is no such model.
        MissingExtraError: `output` is given, and matplotlib or pyarrow is not installed.
    """
    arguments, limits = locals(), {"bytes_per_document": max_bytes_per_document, "answer_p95_ms": max_p95}
    budget = {name: limit for name, limit in limits.items() if limit is not None}
    # The settings to measure: the grid, whole vectors, and whole vectors reranked.
    named = named_systems(systems)
    measures = list(measures or SELECTION_MEASURES)
    settings = list(dict.fromkeys([Setting(), *parse_grid(grid or SELECTION_GRID)]))
    reranking = select_options(RerankOptions, options)
    device, dtype, max_length = options["device"], options["dtype"], options["max_length"]
    if reranker := options["rerank"]:
        load_reranker(reranker, device)  # before the first model encodes
        settings = list(dict.fromkeys([*settings, Setting(rerank=options["rerank_depth"] or RERANK_DEPTH)]))
    # Check everything that can be checked before the first model encodes.
    if any(setting.rescore for setting in settings):
        raise ArgumentError("grid: no index rescores by itself: leave rescore out")
    if reranker is None and any(setting.rerank for setting in settings):
        raise ArgumentError("grid: rerank needs a cross encoder: `rerank=MODEL`")
    check_depth(settings, measures, DEFAULT_DEPTH)
    if output is not None:
        for module in ("matplotlib", "pyarrow"):
            require_extra(module, "figures,parquet")
    for system in named.values():
        if not is_model(system) and Path(system).is_file():
            raise ArgumentError(f"{system}: not a model (`compare` sets files of evaluations side by side)")
        if isinstance(system, str) and is_lexical(system):
            raise ArgumentError(f"{system} is not a model with vectors to prune: measure it with evaluate")
        check_length(system, max_length)
    # Load the dataset and the models.
    judged = dataset.judged() if isinstance(dataset, Dataset) else load_dataset(dataset)
    judged = replace(judged, convention=convention or judged.convention)
    places = {name: model_name(system) for name, system in named.items()}
    loading = device, options["runtime"], dtype
    models = {name: load_encoder(system, *(() if is_model(system) else loading)) for name, system in named.items()}
    measure = partial(_measure, models, places, judged, settings, measures, options)
    # Without a folder nothing is kept.
    if output is None:
        return replace(measure(), budget=budget)
    # What decides the result; a budget only marks settings, so that a new budget measures nothing again.
    others: dict[str, object] = {"systems": places, "digests": [model_digest(model) for model in models.values()]}
    others |= {"measures": measures, "grid": list(map(str, settings)), "convention": judged.convention}
    others |= {"dtype": dtype, "max_length": max_length, "device": device, **reranking}
    if reranker is not None:
        others["reranker"] = dense_fingerprint(load_reranker(reranker, device))
    arguments["dataset"] = judged.name
    made_from = settings_of(select, arguments, others, without=("max_p95", "max_bytes_per_document"))
    if not finished(output, made_from):
        with resumable(output, made_from) as work:
            selection = measure(keep=work / "vectors")
            write_record(work / RESULTS, selection)
            save_figure(frontier_figure(selection), work / "frontier.svg")
            finish(work, output, work)
    return replace(read_record(Path(output) / RESULTS, ModelSelection), budget=budget)


def _measure(
    models: Mapping[str, EncodingModel],
    places: Mapping[str, str],
    dataset: Dataset,
    settings: Sequence[Setting],
    measures: Sequence[str],
    options: SelectionOptions,
    *,
    keep: Path | None = None,
) -> ModelSelection:
    """Encode a dataset with each model, search it with all settings, and time the answers; keep vectors in a folder."""
    dtype, max_length, device = options["dtype"], options["max_length"], options["device"]
    how = select_options(RerankOptions, options)
    points = list[GridPoint]()
    reranking = dict[str, dict[Setting, np.ndarray]]()
    systems, encoders = list[TimedSystem](), list[Callable[[list[str]], object]]()
    deployments, fusions = dict[str, Deployment](), list[GridPoint]()
    words = lexical_index(dataset, time_queries=TIMED_ANSWERS) if options["hybrid"] else None
    # Quality of each model with each setting; times come later, so that systems take turns.
    for name, model in models.items():
        folder = None if keep is None else keep / name
        encoded = encode_dataset(
            model, dataset, keep=folder, name=places[name], title=name, dtype=dtype, max_length=max_length
        )
        reranking[name] = {}
        points += search_grid(name, encoded, settings, measures, device=device, rerank_times=reranking[name], **how)
        if words is not None:
            fusions += _fusions(name, encoded, words, measures)
        # What the timing needs of the model, and what the report says of it.
        queries, documents = (TextEncoder(model, role, dtype=dtype, max_length=max_length) for role in get_args(Role))
        systems.append(TimedSystem(partial(_encode_one, queries), single_searches(encoded, settings)))
        encoders.append(documents.encode)
        sizes = len(model.terms), model.parameters, queries.max_length, documents.max_length
        deployments[name] = Deployment(places[name], queries.looked_up, licence(places[name]), *sizes)
    if words is not None:
        fusions.append(_per_document(evaluate_words(words, dataset, measures), len(dataset.documents)))
    # Time all models, then join each time to its point, which are in the same order.
    rates = encoding_rates(encoders, [document.full for document in dataset.documents])
    times = answer_times(systems, [query.text for query in dataset.queries])
    each = (
        (rate, encoding, search) for rate, (encoding, searches) in zip(rates, times, strict=True) for search in searches
    )
    timed, rows = [], timed_rows(len(dataset.queries), len(times[0][0]))
    for point, (rate, encoding, searching) in zip(points, each, strict=True):
        # The milliseconds of reranking were measured for all queries: take the timed ones [t].
        extra = reranking[point.system].get(point.setting or Setting())
        timed.append(_timed(point, rate, encoding, searching if extra is None else searching + extra[rows]))
    return ModelSelection(source=dataset.name, models=deployments, points=timed, answers=len(rows), fusions=fusions)


def _fusions(name: str, encoded: Encoded, words: SpaceIndex, measures: Sequence[str]) -> list[GridPoint]:
    """Evaluate a model's dense vectors, if it has any, and fusions of its whole vectors, as `evaluate` does."""
    dense = dense_index(encoded, time_queries=TIMED_ANSWERS)
    indexes: dict[Space, SpaceIndex] = {"sparse": sparse_index(encoded)}
    indexes |= {"bm25": words} if dense is None else {"dense": dense, "bm25": words}
    retriever = DatasetRetriever(name, encoded.dataset, indexes)
    queries = judged_queries(encoded.dataset, encoded.queries)
    judged = Judged(retriever, queries, encoded.dataset, measures, query_idf=encoded.query_idf)
    fusions = evaluate_fusions(judged, retriever)
    return [_per_document(evaluation, len(encoded.dataset.documents)) for evaluation in fusions]


def _per_document(evaluation: Evaluation, documents: int) -> GridPoint:
    """Return an evaluation as a point, with bytes per document as a setting has.

    The point has no texts per second: the encoders of these systems did not take turns when they were timed.
    """
    cost = evaluation.cost or Cost()
    size = None if cost.index_bytes is None else cost.index_bytes / documents
    cost = replace(cost, index_bytes=None, bytes_per_document=size, documents_per_second=None)
    return GridPoint(evaluation.name, None, replace(evaluation, cost=cost))


def _encode_one(encoder: TextEncoder, text: str) -> csr_array:
    return encoder.encode([text])


def _timed(point: GridPoint, rate: float, encoding: np.ndarray, searching: np.ndarray) -> GridPoint:
    """Add times to the cost of a setting: texts per second, and percentiles of the milliseconds of answers."""
    times = answer_costs(encoding, searching)
    cost = replace(point.evaluation.cost or Cost(), documents_per_second=rate, **times)
    return point._replace(evaluation=replace(point.evaluation, cost=cost))
