"""The verb `evaluate`: compare models, runs, stored vectors, indexes and lexical baselines on one dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, Unpack, cast

from vocable.collection.collection import Collection, open_index
from vocable.collection.rerank import load_reranker
from vocable.core.figures import check_figure, save_figure
from vocable.core.storage import check_file, replacing
from vocable.core.tables import masked
from vocable.data import ScoredDoc
from vocable.data.bad_lines import tolerant
from vocable.encoding.dense_models import load_dense_beside
from vocable.encoding.hub import check_length
from vocable.encoding.load import load_encoder
from vocable.encoding.models import Model, is_model, model_name
from vocable.encoding.vectors import holds_vectors
from vocable.engines.protocols import Space, holds_index
from vocable.errors import ArgumentError, UnwrittenError
from vocable.evaluation.cost import TIMED_ANSWERS
from vocable.evaluation.dataset import Dataset, load_dataset, load_files
from vocable.evaluation.encoded import Encoded, encode_dataset, stored_dataset
from vocable.evaluation.expanders import BM25, is_lexical, lexical_search
from vocable.evaluation.grid import (
    GRID_MEASURES,
    GridPoint,
    SearchGrid,
    Setting,
    check_depth,
    flops_figure,
    parse_grid,
    search_grid,
)
from vocable.evaluation.measures import parse_measures
from vocable.evaluation.plans import Judged, evaluate_fusions, evaluate_index, evaluate_words
from vocable.evaluation.quality import DEFAULT_DEPTH, DEFAULT_MEASURES, Evaluation, evaluate_run
from vocable.evaluation.retrievers import (
    DatasetRetriever,
    SpaceIndex,
    dense_index,
    judged_queries,
    lexical_index,
    run_index,
    sparse_index,
)
from vocable.evaluation.significance import ComparedEvaluations, compare
from vocable.indexes.ranking import Ranking, read_trec
from vocable.options import CountOrZero, EvaluationOptions, RerankOptions, SearchOptions, changed, checked, select

ModelOrName: TypeAlias = Model | str | os.PathLike[str]
System: TypeAlias = ModelOrName | Collection
SystemKind: TypeAlias = Literal["model", "vectors", "index", "run", "lexical"]
S = TypeVar("S", bound=System)


@tolerant
@checked
def evaluate(
    systems: System | Sequence[System] | Mapping[str, System],
    dataset: str | os.PathLike[str] | Dataset | None = None,
    measures: Sequence[str] | None = None,
    *,
    bm25: bool = False,
    grid: Sequence[str] | None = None,
    figure: str | os.PathLike[str] | None = None,
    per_query: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    time_queries: CountOrZero = TIMED_ANSWERS,
    skip_bad: CountOrZero = 0,
    **options: Unpack[EvaluationOptions],
) -> ComparedEvaluations | SearchGrid:
    """Measure the quality and cost of models and indexes.

    Each system is tested against the first (paired t-test). An index is measured by what its search returns, and by
    each kind of its vectors. With `grid` a model encodes once and is searched with many settings (docs/evaluate.md).
    With `hybrid` all fusions are measured; `folds` tunes the weights of an index, and `keep_weights` stores them. A run
    needs only `judgments`.

    Args:
        systems: models, TREC run files, folders of document vectors from `vocable encode`, indexes, bm25, or an
            expander for BM25: bm25+rm3, query2doc:MODEL or doct5query:MODEL; in Python also models from `vocable.load`,
            and a mapping of labels to systems.
        dataset: a source such as beir:DIR, ir_datasets:NAME or pydocs:#test; in Python also a `Dataset`.
        measures: names of measures (docs/evaluate.md); by default nDCG@10, R@1000 and RR@10.
        bm25: also evaluate BM25.
        grid: settings for searches of one encoding, such as "query_max_terms=5,10 rescore=100".
        figure: with `grid`: file for quality against FLOPS, .png or .svg.
        per_query: tab-separated file for the values of each query.
        output: JSON file for `vocable compare`.
        time_queries: number of timed answers of each model, from a query's text to its hits.
        skip_bad: number of malformed lines to skip; one more is an error.
        options: the fields of `vocable.options.EvaluationOptions`.

    Raises:
        ArgumentError: a measure is unknown, or arguments exclude each other.
        DataError: the dataset or a run cannot be read, or they have no query in common.
        ModelError: there is no such model.
        UnwrittenError: a file cannot be written; the error has the result.
    """
    named = named_systems(systems)
    kinds = {name: _kind(system) for name, system in named.items()}
    _check_systems(named, kinds, options)
    # Check everything that can be checked before the first model encodes.
    if grid is None and figure is not None:
        raise ArgumentError("`figure` needs `grid`")
    if grid is not None and (options["hybrid"] or per_query is not None or {"run", "lexical"} & {*kinds.values()}):
        raise ArgumentError("grid needs models, and excludes `hybrid` and `per_query`")
    measures = list(measures or (DEFAULT_MEASURES if grid is None else GRID_MEASURES))
    parse_measures(measures)
    settings = None if grid is None else _settings(grid, measures, kinds, options)
    if reranker := options["rerank"]:
        load_reranker(reranker, options["device"])  # before the first model encodes
    if figure is not None:
        check_figure(Path(figure))
    for file in (per_query, output):
        if file is not None:
            check_file(file)
    # Compare the systems, or search each with all settings of the grid.
    judged = _judged(dataset, named, kinds, options, bm25=bm25)
    result: ComparedEvaluations | SearchGrid
    if settings is None:
        result = compare(_evaluations(named, kinds, judged, measures, options, bm25=bm25, time_queries=time_queries))
    else:
        points: list[GridPoint] = []
        for name, system in named.items():
            points += search_grid(name, _encoded(system, judged, name, options), settings, measures)
        if bm25:
            words = lexical_index(judged, time_queries=time_queries, language=options["language"])
            points.append(GridPoint("BM25", None, evaluate_words(words, judged, measures)))
        result = SearchGrid(points)
    # A table without a value has a reason for each measure.
    if not any(evaluation.values for evaluation in result.evaluations):
        raise ArgumentError(f"{judged.name}: {'; '.join(result.evaluations[0].uncomputed.values())}")
    # A file that cannot be written loses no result: the error has it.
    try:
        if figure is not None and isinstance(result, SearchGrid):
            save_figure(flops_figure(result.points), Path(figure))
        if per_query is not None:
            _write(per_query, "\n".join(["system\tmeasure\tquery\tvalue", *_per_query_rows(result.evaluations)]))
        if output is not None:
            _write(output, json.dumps([evaluation.to_json() for evaluation in result.evaluations], indent=1))
    except OSError as error:
        raise UnwrittenError(error, result) from error
    return result


def named_systems(systems: S | Sequence[S] | Mapping[str, S]) -> dict[str, S]:
    """Return systems by name, which is the last part of a path; a repeated name gets an apostrophe."""
    if isinstance(systems, Mapping):
        return dict(systems)
    single = is_model(systems) or isinstance(systems, Collection | str | os.PathLike)
    several: list[Any] = [systems] if single else list(cast(Sequence[S], systems))
    if not several:
        raise ArgumentError("there is no system to evaluate")
    named: dict[str, S] = {}
    for system in several:
        place: Any = system.place if isinstance(system, Collection) else system
        path = Path(model_name(place) if is_model(place) else masked(os.fspath(place)))
        kind = _kind(system)
        name = path.stem if kind == "run" else path.name
        if kind == "lexical":
            prefix, colon, model = str(place).partition(":")
            name = prefix + colon + Path(model).name
        while name in named:
            name += "'"
        named[name] = system
    return named


def _kind(system: System) -> SystemKind:
    if is_model(system):
        return "model"
    if isinstance(system, str) and is_lexical(system):
        return "lexical"
    if isinstance(system, Collection) or holds_index(system):
        return "index"
    return "vectors" if holds_vectors(system) else "run" if Path(system).is_file() else "model"


def _check_systems(named: Mapping[str, System], kinds: Mapping[str, SystemKind], options: EvaluationOptions) -> None:
    max_length, long_documents = options["max_length"], options["long_documents"]
    if "index" not in kinds.values():
        if options["weights"] is not None or options["folds"] is not None:
            raise ArgumentError("`weights` and `folds` need an index, whose spaces they fuse")
        if options["feedback"]:
            raise ArgumentError("feedback needs an index, whose search it is an option of")
    elif max_length is not None or long_documents != "truncate":
        raise ArgumentError("an index is already encoded: omit `max_length` and `long_documents`")
    for name, system in named.items():
        if kinds[name] == "vectors" and long_documents != "truncate":
            raise ArgumentError(f"the vectors in {system} are already encoded: omit `long_documents`")
        if kinds[name] == "model":
            check_length(system, max_length)  # before the first model encodes


def _settings(
    grid: Sequence[str], measures: Sequence[str], kinds: Mapping[str, SystemKind], options: EvaluationOptions
) -> list[Setting]:
    """Return the settings of a grid that this verb can measure."""
    if options["rerank"]:
        raise ArgumentError("`rerank` and `grid` exclude each other: `vocable select` measures both")
    if "index" in kinds.values():
        raise ArgumentError("grid needs models: an index cannot be pruned")
    settings = parse_grid(grid)
    check_depth(settings, measures, DEFAULT_DEPTH)
    if any(setting.rerank for setting in settings):
        raise ArgumentError("grid: rerank is a setting of `vocable select`")
    return settings


def _judged(
    dataset: str | os.PathLike[str] | Dataset | None,
    named: Mapping[str, System],
    kinds: Mapping[str, SystemKind],
    options: EvaluationOptions,
    *,
    bm25: bool,
) -> Dataset:
    """Return the given dataset, or read it, or read its separate files; read only the parts that the systems need."""
    # BM25 of the dataset is needed for all systems but indexes, which have their own.
    lexical = bm25 or (bool(options["hybrid"] or options["rerank"]) and {*kinds.values()} != {"index"})
    if "language" in changed(EvaluationOptions, options):
        expanders = [name for name, kind in kinds.items() if kind == "lexical" and named[name] != BM25]
        if expanders or not (lexical or "lexical" in kinds.values()):
            raise ArgumentError("language needs plain BM25: `bm25`, `hybrid` or the system bm25")
    # Read no more than the systems need: a run has its hits, an index its documents.
    judgments, queries, corpus = options["judgments"], options["queries"], options["corpus"]
    needs_queries = lexical or any(kind != "run" for kind in kinds.values())
    needs_documents = lexical or any(kind not in ("run", "index") for kind in kinds.values())
    if (dataset is None) == (judgments is None):
        raise ArgumentError("either `dataset` or `judgments` is required")
    if isinstance(dataset, Dataset):
        judged = dataset.judged()
    elif dataset is not None:
        judged = load_dataset(dataset, documents=needs_documents)
    else:
        assert judgments is not None
        if needs_queries and queries is None:
            raise ArgumentError("judgments alone suffice only for runs: `queries` is required, too")
        if needs_documents and corpus is None:
            raise ArgumentError("documents are searched: `corpus` is required, too")
        judged = load_files(judgments, queries, corpus if needs_documents else None)
    # The caller's convention goes before the collection's.
    convention, ties = options["convention"] or judged.convention, options["ties"] or judged.ties
    return replace(judged, convention=convention, ties=ties)


def _of_index(system: System, dataset: Dataset, measures: list[str], options: EvaluationOptions) -> list[Evaluation]:
    """Evaluate an index; if it is not open, open it and close it again."""
    if not isinstance(system, Collection):
        assert not is_model(system)
        with closing(open_index(system, device=options["device"])) as opened:
            return _of_index(opened, dataset, measures, options)
    system.check_whole("evaluate")
    return evaluate_index(
        system,
        dataset,
        measures,
        hybrid=options["hybrid"],
        folds=options["folds"],
        keep_weights=options["keep_weights"],
        **select(SearchOptions, options),
    )


def _encoded(system: System, dataset: Dataset, name: str, options: EvaluationOptions) -> Encoded:
    assert not isinstance(system, Collection)
    dtype, max_length, query_idf = options["dtype"], options["max_length"], options["query_idf"]
    device = options["device"]
    if not is_model(system):
        if holds_vectors(system):
            return stored_dataset(
                system, dataset, dtype=dtype, max_length=max_length, query_idf=query_idf, device=device
            )
        system = load_encoder(os.fspath(system), device, options["runtime"], dtype)
    return encode_dataset(
        system,
        dataset,
        title=name,
        dtype=dtype,
        max_length=max_length,
        long_documents=options["long_documents"],
        query_idf=query_idf,
    )


def _evaluations(
    named: Mapping[str, System],
    kinds: Mapping[str, SystemKind],
    dataset: Dataset,
    measures: list[str],
    options: EvaluationOptions,
    *,
    bm25: bool,
    time_queries: int,
) -> list[Evaluation]:
    """Evaluate every system, followed by its reranked hits and its fusions, and finally BM25.

    Indexes are measured first, before anything is encoded; the results are in the order of the systems.
    """
    hybrid = options["hybrid"]
    reranking = select(RerankOptions, options)
    results: dict[str, list[Evaluation]] = {name: [] for name in named}
    # BM25 of the dataset, indexed once for all systems that are fused with it.
    index_words = partial(lexical_index, dataset, time_queries=time_queries, language=options["language"])
    words = index_words() if bm25 or (hybrid and {*kinds.values()} != {"index"}) else None
    for name, kind in sorted(kinds.items(), key=lambda named_kind: named_kind[1] != "index"):
        system = named[name]
        evaluations = results[name]
        indexes = dict[Space, SpaceIndex]()
        # An index ranks by itself, in each of its spaces.
        if kind == "index":
            of_index = _of_index(system, dataset, measures, options)
            several = len(named) > 1
            evaluations += [replace(each, name=f"{name}: {each.name}") if several else each for each in of_index]
            continue
        # The spaces of a system that is no index: its ranking, dense vectors, words.
        queries, power = judged_queries(dataset), None
        if kind == "run":
            assert isinstance(system, str | os.PathLike)
            run = read_trec(system)
            evaluations.append(evaluate_run(name, run, dataset, measures))  # all of its hits
            if not (hybrid or reranking["rerank"]):
                continue
            indexes["sparse"] = run_index(_ranking_of_run(run, dataset))
        elif kind == "lexical":
            indexes["sparse"] = index_words(make=lexical_search(str(system), options["device"]))
        else:
            encoded = _encoded(system, dataset, name, options)
            queries, power = judged_queries(dataset, encoded.queries), encoded.query_idf
            indexes["sparse"] = sparse_index(encoded, time_queries=time_queries)
            if hybrid:
                encoder = encoded.encoder if kind == "model" else None
                other = None if encoder is None else load_dense_beside(encoder.model)
                dense = dense_index(encoded, other, time_queries=time_queries)
                indexes |= {} if dense is None else {"dense": dense}
        if words is not None:
            indexes["bm25"] = words
        # The system itself, reranked, and fused.
        retriever = DatasetRetriever(name, dataset, indexes, options["device"])
        judged = Judged(retriever, queries, dataset, measures, query_idf=power)
        cost = indexes["sparse"].cost
        if kind != "run":
            evaluations.append(judged.evaluate(name, {"sparse": 1.0}, cost=cost))
        if reranking["rerank"]:
            evaluations.append(judged.evaluate(f"{name} reranked", {"sparse": 1.0}, cost=cost, **reranking))
        if hybrid:
            evaluations += evaluate_fusions(judged, retriever)
    of_words = [evaluate_words(words, dataset, measures)] if bm25 and words is not None else []
    return [*chain(*results.values()), *of_words]


def _ranking_of_run(run: Sequence[ScoredDoc], dataset: Dataset) -> Ranking:
    """Return the hits of a run for the judged queries of a dataset."""
    ids = [query.id for query in dataset.queries]
    judged = {*ids}
    hits = [hit for hit in run if hit.query_id in judged]
    return Ranking.from_run(hits, ids, [document.id for document in dataset.documents])


def _per_query_rows(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    for evaluation in evaluations:
        for measure, values in evaluation.per_query.items():
            for query, value in values.items():
                yield f"{evaluation.name}\t{measure}\t{query}\t{value:.6g}"


def _write(path: str | os.PathLike[str], text: str) -> None:
    with replacing(path) as file:
        file.write(f"{text}\n".encode())
