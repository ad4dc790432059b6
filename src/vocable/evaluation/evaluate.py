"""The verb `evaluate`: models, runs, stored vectors, indexes and the lexical baselines on one dataset, side by side."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from annotated_types import Ge
from sentence_transformers import SparseEncoder

from vocable.analysis.report import pruning_against_flops
from vocable.data.bad_lines import tolerant
from vocable.encoder.hub import check_length
from vocable.encoder.load import load
from vocable.encoder.provenance import model_name
from vocable.errors import ArgumentError, UnwrittenError
from vocable.evaluation.cost import ANSWERS
from vocable.evaluation.dataset import Convention, Dataset, load_dataset, load_files
from vocable.evaluation.expanders import is_lexical, lexical_search
from vocable.evaluation.grid import MEASURES, GridPoint, SearchGrid, check_depth, parse_grid, search_grid
from vocable.evaluation.hybrid import evaluate_fusion, evaluate_index
from vocable.evaluation.quality import DEFAULT_MEASURES, DEPTH, Evaluation, depth, evaluate_run, parse_measures
from vocable.evaluation.retrieval import Encoded, encode_dataset, retrieve, retrieve_lexically, stored_dataset
from vocable.evaluation.significance import Comparison, compare
from vocable.figures import check_figure, save_figure
from vocable.options import Count, CountOrZero, DType, LongDocuments, checked
from vocable.retrieval.collection import Collection
from vocable.retrieval.fusion import fused
from vocable.retrieval.protocols import Space
from vocable.retrieval.ranking import Ranking, Ties, read_trec
from vocable.retrieval.verbs import holds_index, open_index
from vocable.storage import check_file, replacing
from vocable.tables import masked
from vocable.vectors import holds_vectors

System: TypeAlias = SparseEncoder | str | os.PathLike[str]
Searched: TypeAlias = System | Collection
T = TypeVar("T", bound=Searched)


@checked
@tolerant
def evaluate(
    systems: Searched | Sequence[Searched] | Mapping[str, Searched],
    dataset: str | os.PathLike[str] | Dataset | None = None,
    measures: Sequence[str] | None = None,
    *,
    judgments: str | os.PathLike[str] | None = None,
    queries: str | os.PathLike[str] | None = None,
    corpus: str | os.PathLike[str] | None = None,
    bm25: bool = False,
    hybrid: bool = False,
    weights: str | Mapping[Space, float] | None = None,
    folds: Annotated[int, Ge(2)] | None = None,
    grid: Sequence[str] | None = None,
    figure: str | os.PathLike[str] | None = None,
    per_query: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    dtype: DType = "auto",
    max_length: Count | None = None,
    long_documents: LongDocuments = "truncate",
    query_idf: Annotated[float, Ge(0)] | None = None,
    convention: Convention | None = None,
    ties: Ties | None = None,
    time_queries: CountOrZero = ANSWERS,
    device: str | None = None,
    skip_bad: CountOrZero = 0,
) -> Comparison | SearchGrid:
    """Measure the quality and cost of models, runs and indexes; each is tested against the first (paired t-test).

    Args:
        systems: one or several, or several by the names to call them: a model from `vocable.load` or its name, the path
            of a TREC run, the folder of document vectors that `vocable encode` wrote (the model that they name
            encodes the queries), an index, each of whose spaces is searched, "bm25", or an expander around BM25:
            "bm25+rm3", "query2doc:MODEL" or "doct5query:MODEL".
        dataset: a source such as "beir:DIR" or "pydocs:#test", or a `Dataset`.
        measures: names of ir_measures; by default nDCG@10, R@1000 and RR@10.
        judgments: in place of a dataset, source of the judgments alone, as a file of TREC or BEIR; enough for runs.
        queries: with `judgments`, source of the queries, as TREC topics; enough for an index.
        corpus: with `judgments` and `queries`, source of the documents.
        bm25: also evaluate BM25.
        hybrid: also evaluate each system fused with BM25, and the spaces of an index fused with each other. A figure is
            that of `vocable.search` for as many results as the measure looks at.
        weights: of an index, also evaluate the fusion with these weights. As in `vocable.search`.
        folds: with `hybrid`, also tune the weights of an index by cross-validation, on so many parts of the queries.
        grid: ways to search with one encoding, as "query_max_terms=5,10 rescore=100" (`vocable.evaluation.grid`).
        figure: with `grid`, a file for quality against FLOPS, .png or .svg.
        per_query: a file for every query's values, tab-separated.
        output: a JSON file for `vocable.compare`.
        dtype: "auto" computes in bfloat16 where the device has it natively.
        max_length: tokens per text, in place of a model's own length.
        long_documents: what becomes of longer documents: "truncate" loses their ends, "maxpool" reads them in windows,
            as in `encode`.
        query_idf: multiply a query's weights by the IDF of its terms to this power, in place of the model's own. The
            IDF is that of the dataset, for an index that of the index.
        convention: "trec_eval" counts every hit, "beir" none with the id of its query, as ArguAna needs it; by default
            BEIR's for its collections.
        ties: order of equal scores in all measures: "search", the default, by id as a search has them; "trec_eval" by
            descending id.
        time_queries: answers of each model to time, from a query's text to its hits; 0 for none.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.
        skip_bad: bad lines in the dataset or the runs that are tolerated, and left out.

    Raises:
        ArgumentError: an unknown measure, or arguments that exclude each other.
        DataError: the dataset or a run cannot be read, or they have no query in common.
        ModelError: no such model.
        UnwrittenError: a file cannot be written; it has the result.
    """
    named = named_systems(systems)
    kinds = {name: _kind(system) for name, system in named.items()}
    indexed, runs, lexicals = ([name for name in named if kinds[name] == kind] for kind in ("index", "run", "lexical"))
    if folds is not None and not hybrid:
        raise ArgumentError("--folds goes with --hybrid")
    if (weights is not None or folds is not None) and not indexed:
        raise ArgumentError("--weights and --folds are for an index, whose spaces they fuse")
    if indexed and (grid is not None or max_length is not None or long_documents != "truncate"):
        raise ArgumentError("an index is searched as it was made: leave out --grid, --max-length and --long-documents")
    if grid is None and figure is not None:
        raise ArgumentError("--figure goes with --grid")
    if grid is not None and (hybrid or per_query is not None or runs or lexicals):
        raise ArgumentError("--grid goes with models, and without --hybrid and --per-query")
    chosen = list(measures or (DEFAULT_MEASURES if grid is None else MEASURES))
    parsed = parse_measures(chosen)  # a mistyped one is known before anything slow begins
    k = max(DEPTH, *(depth(measure) for measure in parsed.values()))
    settings = None if grid is None else parse_grid(grid)
    if settings is not None:
        check_depth(settings, chosen, DEPTH)
    if figure is not None:
        check_figure(Path(figure))
    for file in (per_query, output):
        if file is not None:
            check_file(file)
    others = {name: one for name, one in named.items() if kinds[name] != "index" and not isinstance(one, Collection)}
    for name, system in others.items():
        if kinds[name] == "vectors" and long_documents != "truncate":
            raise ArgumentError(f"long_documents is for encoding: the vectors in {system} are encoded already")
        if kinds[name] == "model":
            check_length(system, max_length)  # of the last model, too, before the first one encodes
    lexical = bm25 or (hybrid and len(indexed) < len(named))
    searched = lexical or len(runs) + len(indexed) < len(named)
    asked = lexical or len(runs) < len(named)  # the text of queries is needed
    judged = _judged(dataset, judgments, queries, corpus, asked=asked, searched=searched)
    collection = replace(judged, convention=convention or judged.convention, ties=ties or judged.ties)
    options: dict[str, Any] = {
        "dtype": dtype,
        "max_length": max_length,
        "long_documents": long_documents,
        "query_idf": query_idf,
    }
    options["device"] = device
    if settings is not None:
        points: list[GridPoint] = []
        for name, system in others.items():
            points += search_grid(name, _encoded(system, collection, name, **options), settings, chosen, k=DEPTH)
        if bm25:
            baseline = retrieve_lexically(collection, time_queries=time_queries)
            points.append(GridPoint("BM25", None, evaluate_run("BM25", baseline, collection, chosen)))
        evaluations = [point.evaluation for point in points]
    else:
        evaluations = []
        for name in indexed:
            fusions: dict[str, Any] = {"hybrid": hybrid, "weights": weights, "folds": folds}
            of_index = _of_index(named[name], collection, chosen, device, query_idf=query_idf, **fusions)
            several = len(named) > 1
            evaluations += [replace(one, name=f"{name}: {one.name}") if several else one for one in of_index]
        searching: dict[str, Any] = {"k": k, "time_queries": time_queries}
        evaluations += _one_by_one(others, collection, chosen, bm25, hybrid, options, searching)
    found = compare(evaluations) if settings is None else SearchGrid(points)
    try:
        if figure is not None:
            save_figure(pruning_against_flops(points), Path(figure))
        _write_values(evaluations, per_query, output)
    except OSError as error:
        raise UnwrittenError(error, found) from error
    return found


def _judged(
    dataset: str | os.PathLike[str] | Dataset | None,
    judgments: str | os.PathLike[str] | None,
    queries: str | os.PathLike[str] | None,
    corpus: str | os.PathLike[str] | None,
    *,
    asked: bool,
    searched: bool,
) -> Dataset:
    """The dataset, or what the files give that stand in place of one; `asked` needs queries, `searched` documents."""
    if (dataset is None) == (judgments is None):
        raise ArgumentError("give `dataset`, or `judgments` in its place")
    if isinstance(dataset, Dataset):
        return dataset.judged()
    if dataset is not None:
        if queries is not None or corpus is not None:
            raise ArgumentError("`queries` and `corpus` go with `judgments`: a dataset has its own")
        return load_dataset(dataset, documents=searched)
    assert judgments is not None
    if asked and queries is None:
        raise ArgumentError("judgments alone are for runs: give `queries`, too")
    if searched and corpus is None:
        raise ArgumentError("documents are searched: give `corpus`, too")
    return load_files(judgments, queries, corpus if searched else None)


def _write_values(
    evaluations: list[Evaluation], per_query: str | os.PathLike[str] | None, output: str | os.PathLike[str] | None
) -> None:
    if per_query is not None:
        lines = (
            f"{evaluation.name}\t{measure}\t{query}\t{value:.6g}"
            for evaluation in evaluations
            for measure, values in evaluation.per_query.items()
            for query, value in values.items()
        )
        _write(per_query, "\n".join(["system\tmeasure\tquery\tvalue", *lines]))
    if output is not None:
        _write(output, json.dumps([evaluation.to_json() for evaluation in evaluations], indent=1))


def named_systems(systems: T | Sequence[T] | Mapping[str, T]) -> dict[str, T]:
    """Systems by what to call them: the end of a path, with ' where it comes again."""
    if isinstance(systems, Mapping):
        return dict(systems)
    several = [systems] if isinstance(systems, SparseEncoder | Collection | str | os.PathLike) else list(systems)
    if not several:
        raise ArgumentError("there is no system to evaluate")
    named: dict[str, T] = {}
    for system in several:
        place: Any = system.place if isinstance(system, Collection) else system
        path = Path(model_name(place) if isinstance(place, SparseEncoder) else masked(os.fspath(place)))
        kind = _kind(system)
        name = path.stem if kind == "run" else path.name
        if kind == "lexical":
            prefix, colon, of = str(place).partition(":")
            name = prefix + colon + Path(of).name
        while name in named:
            name += "'"
        named[name] = system
    return named


def _kind(system: Searched) -> Literal["model", "vectors", "index", "run", "lexical"]:
    if isinstance(system, SparseEncoder):
        return "model"
    if isinstance(system, str) and is_lexical(system):
        return "lexical"
    if isinstance(system, Collection) or holds_index(system):
        return "index"
    return "vectors" if holds_vectors(system) else "run" if Path(system).is_file() else "model"


def _of_index(
    system: Searched, dataset: Dataset, measures: list[str], device: str | None, **options: Any
) -> list[Evaluation]:
    """The evaluations of an index, which is closed if it was not open."""
    if isinstance(system, Collection):
        return evaluate_index(system, dataset, measures, **options)
    assert not isinstance(system, SparseEncoder)
    with closing(open_index(system, device=device)) as opened:
        return evaluate_index(opened, dataset, measures, **options)


def _encoded(
    system: System, dataset: Dataset, name: str, *, device: str | None, long_documents: LongDocuments, **options: Any
) -> Encoded:
    if not isinstance(system, SparseEncoder):
        if holds_vectors(system):
            return stored_dataset(system, dataset, device=device, **options)
        system = load(os.fspath(system), device=device)
    return encode_dataset(system, dataset, title=name, long_documents=long_documents, **options)


def _one_by_one(
    named: Mapping[str, System],
    dataset: Dataset,
    measures: list[str],
    bm25: bool,
    hybrid: bool,
    options: dict[str, Any],
    searching: dict[str, Any],
) -> list[Evaluation]:
    """Evaluate every system, each followed by its hybrid, and BM25 last."""
    lexical = retrieve_lexically(dataset, **searching) if bm25 or (hybrid and named) else None
    ids, evaluations = [query.id for query in dataset.queries], []
    for name, system in named.items():
        if not isinstance(system, SparseEncoder) and _kind(system) == "run":
            run = read_trec(system)
            evaluations.append(evaluate_run(name, run, dataset, measures))
            if hybrid:
                judged = set(ids)
                hits = [hit for hit in run if hit.query_id in judged]
                ranking = Ranking.from_run(hits, ids, [document.id for document in dataset.documents])
        else:
            if _kind(system) == "lexical":
                make = lexical_search(str(system), options["device"])
                found = retrieve_lexically(dataset, make=make, **searching)
            else:
                found = retrieve(_encoded(system, dataset, name, **options), **searching)
            evaluations.append(evaluate_run(name, found, dataset, measures))
            ranking = found.ranking
        if hybrid and lexical is not None:
            sides, equal = {"system": ranking, "bm25": lexical.ranking}, {"system": 1.0, "bm25": 1.0}
            both = evaluate_fusion(f"{name} + BM25", partial(fused, sides, equal, "weighted"), dataset, measures)
            evaluations.append(replace(both, query_idf=evaluations[-1].query_idf))
    if bm25 and lexical is not None:
        evaluations.append(evaluate_run("BM25", lexical, dataset, measures))
    return evaluations


def _write(path: str | os.PathLike[str], text: str) -> None:
    with replacing(path) as file:
        file.write(f"{text}\n".encode())
