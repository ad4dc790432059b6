"""Evaluate retrievers by plans: each kind of vectors alone, fusions of them, tuned weights, and rerankings.

Letters: q queries, k results, g weightings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from typing import Unpack

import numpy as np

from vocable.collection.collection import Collection
from vocable.collection.plan import Depths, EncodedQueries, Retriever, SearchPlan, Weights
from vocable.core.progress import track
from vocable.core.storage import StrPath
from vocable.encoding.models import Model, model_name
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import Cost, rerank_costs
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.encoded import Encoded, encode_dataset
from vocable.evaluation.measures import JudgedMeasures, Measures, parse_measures
from vocable.evaluation.quality import DEFAULT_DEPTH, DEFAULT_MEASURES, Evaluation, evaluate_run
from vocable.evaluation.retrievers import DatasetRetriever, SpaceIndex, judged_queries, sparse_index
from vocable.evaluation.significance import mean_interval
from vocable.indexes.fusion import aligned, name_weights
from vocable.indexes.ranking import Ranking
from vocable.options import DType, Fusion, RerankOptions, SearchOptions, check, checked, defaults

STEPS = 10  # tuned weights are multiples of 1 / STEPS
ERRORS = 0.5  # standard errors from the best weights, within which more even weights are taken


@dataclass(frozen=True, eq=False)
class Judged:
    """A retriever with the judged queries of a dataset, and measures of its rankings."""

    retriever: Retriever
    queries: EncodedQueries
    dataset: Dataset
    measures: Sequence[str]
    options: SearchOptions = field(default_factory=lambda: check(SearchOptions, {}))
    query_idf: float | None = None  # power of the IDF in the weights of sparse queries
    spare: int | None = None  # hits searched beyond k, as a query is no hit of its own; default: the dataset decides

    def search(
        self, weights: Weights, k: int, fusion: Fusion = "weighted", **reranking: Unpack[RerankOptions]
    ) -> Ranking:
        """Return the k best documents [q, k] for the judged queries."""
        options = check(SearchOptions, {**self.options, "fusion": fusion, **reranking})
        k = self.dataset.search_depth(k) if self.spare is None else k + self.spare
        plan = SearchPlan.of(Depths.of(k, options, len(weights)), weights, options)
        return plan.page(self.retriever.rank(self.queries, plan))

    def evaluate(
        self,
        name: str,
        weights: Weights,
        fusion: Fusion = "weighted",
        cost: Cost | None = None,
        **reranking: Unpack[RerankOptions],
    ) -> Evaluation:
        """Evaluate a plan; the cost of a reranking is added."""

        def ranked(k: int) -> Ranking:
            return self.search(weights, k, fusion, **reranking)

        if len(weights) > 1:
            evaluation, ranking = self.evaluate_by_depth(name, ranked)
        else:
            deepest = max(DEFAULT_DEPTH, *(measure.cutoff for measure in parse_measures(self.measures).values()))
            ranking = ranked(deepest)
            evaluation = evaluate_run(name, ranking, self.dataset, self.measures)
        if ranking.rerank_ms is not None:
            cost = replace((cost or Cost()).without("answer"), **rerank_costs(ranking.rerank_ms))
        return replace(evaluation, cost=cost, query_idf=self.query_idf if "sparse" in weights else None)

    def evaluate_by_depth(self, name: str, ranked: Callable[[int], Ranking]) -> tuple[Evaluation, Ranking]:
        """Evaluate each measure on the ranking `ranked(k)`, where k is the number of results that the measure looks at.

        The scores of a fusion depend on the number of hits that are fused. A value thus equals the value of a search
        for k results, and does not depend on the other measures. Also returns the shallowest ranking.
        """
        # Measures by the number of results that they look at, each with a ranking.
        by_depth: dict[int, list[str]] = {}
        for measure, parsed in parse_measures(self.measures).items():
            by_depth.setdefault(parsed.cutoff or DEFAULT_DEPTH, []).append(measure)
        rankings = {k: ranked(k) for k in sorted(by_depth)}
        parts = [evaluate_run(name, ranking, self.dataset, by_depth[k]) for k, ranking in rankings.items()]
        # Put the values together in the order of the measures.
        names = list(parse_measures(self.measures))
        values = {measure: value for part in parts for measure, value in part.values.items()}
        per_query = {measure: value for part in parts for measure, value in part.per_query.items()}
        whole = replace(
            parts[-1],
            values={measure: values[measure] for measure in names if measure in values},
            per_query={measure: per_query[measure] for measure in names if measure in values},
            uncomputed={measure: line for part in parts for measure, line in part.uncomputed.items()},
            relevant_from={measure: level for part in parts for measure, level in part.relevant_from.items()},
        )
        return whole, next(iter(rankings.values()))


def evaluate_system(
    model: Model,
    dataset: StrPath | Dataset,
    measures: Measures = DEFAULT_MEASURES,
    *,
    name: str | None = None,
    k: int = DEFAULT_DEPTH,
    dtype: DType = "auto",
    further: Callable[[Model, Encoded, Ranking], Mapping[str, float]] | None = None,
) -> Evaluation:
    """Evaluate a model on a dataset; no measure may look deeper than the `k` results of the search.

    `further` computes additional values for the whole dataset that no measure here gives; they come last.
    """
    parsed = parse_measures(measures)
    deepest = max(parsed, key=lambda measure: parsed[measure].cutoff)
    if parsed[deepest].cutoff > k:
        raise ArgumentError(f"{deepest} looks at more than the k = {k} results of the search")
    encoded = encode_dataset(model, dataset if isinstance(dataset, Dataset) else load_dataset(dataset), dtype=dtype)
    title, index = name or Path(model_name(model)).name, sparse_index(encoded)
    retriever = DatasetRetriever(title, encoded.dataset, {"sparse": index})
    queries = judged_queries(encoded.dataset, encoded.queries)
    judged = Judged(retriever, queries, encoded.dataset, list(parsed), query_idf=encoded.query_idf)
    ranking = judged.search({"sparse": 1.0}, k)
    evaluation = evaluate_run(title, ranking, encoded.dataset, measures, cost=index.cost, query_idf=encoded.query_idf)
    if further is None:
        return evaluation
    return replace(evaluation, values={**evaluation.values, **further(model, encoded, ranking)})


def evaluate_words(words: SpaceIndex, dataset: Dataset, measures: Sequence[str], name: str = "BM25") -> Evaluation:
    """Evaluate an index of the words of a dataset."""
    retriever = DatasetRetriever(name, dataset, {"bm25": words})
    judged = Judged(retriever, judged_queries(dataset), dataset, measures)
    return judged.evaluate(name, {"bm25": 1.0}, cost=words.cost)


def evaluate_fusions(judged: Judged, retriever: DatasetRetriever) -> Iterator[Evaluation]:
    """Evaluate a system's dense vectors, and fusions of its ranking with them and with BM25.

    The system's own ranking is in the space sparse. The bytes of a fusion are the sum over its parts. A fusion has no
    times, since only its parts are timed.
    """
    name, costs = retriever.name, {space: index.cost for space, index in retriever.indexes.items()}
    labels = {"sparse": name, "dense": "dense", "bm25": "BM25"}
    if "dense" in costs:
        yield judged.evaluate(f"{name}: dense", {"dense": 1.0}, cost=costs["dense"])
    for chosen in _combinations(retriever.spaces):
        sizes = [costs[space].index_bytes for space in chosen]
        cost = None if None in sizes else Cost(index_bytes=sum(size or 0 for size in sizes))
        yield judged.evaluate(" + ".join(labels[space] for space in chosen), dict.fromkeys(chosen, 1.0), cost=cost)


@checked
def evaluate_index(
    collection: Collection,
    dataset: Dataset,
    measures: Sequence[str],
    *,
    hybrid: bool = False,
    folds: int | None = None,
    keep_weights: bool = False,
    **options: Unpack[SearchOptions],
) -> list[Evaluation]:
    """Evaluate what a search of an index returns with these options, and each of its spaces alone, the best first.

    `hybrid` adds fusions of each pair of spaces and of all spaces: by reciprocal rank, with equal weights and, if
    `folds` is given, with tuned weights (`tune_weights`). The name of a fusion has its weights. `keep_weights` makes
    the tuned weights of all spaces the index's own if they gain over equal weights (`_keep_better`).

    Raises:
        ArgumentError: a weight is for a space that the index does not have, or there are more folds than queries.
        DataError: the index has no relevant document.
    """
    judged = dataset.judged()
    if folds is not None and folds > len(judged.queries):
        raise ArgumentError(f"folds must be at most the {len(judged.queries)} judged queries, not {folds}")
    relevant = {judgment.doc_id for judgment in judged.judgments if judgment.relevance > 0}
    if not any(collection.documents(sorted(relevant))):
        raise DataError(f"none of the {len(relevant)} relevant documents is in {collection.place}", source=judged.name)
    weights = collection.searcher.weighting(options)
    spaces = [*dict.fromkeys([*collection.models.query_spaces, *weights])]
    plan = SearchPlan.of(Depths.of(1, options, 1), weights, {**options, "plain": True})
    queries = collection.searcher.queries(plan, [query.text for query in judged.queries])
    power = collection.models.queries(**plan.query_encoding).query_idf
    first = check(SearchOptions, {**options, **defaults(RerankOptions)})
    left_out = judged.convention == "beir" and any(collection.documents([query.id for query in judged.queries]))
    search = Judged(
        retriever=collection,
        queries=queries,
        dataset=judged,
        measures=measures,
        options=first,
        query_idf=power,
        spare=int(left_out),
    )

    # What a search returns, and its spaces alone, the best by the first measure first.
    label = f"search ({name_weights(weights)})" if len(weights) > 1 else next(iter(weights))
    evaluations = [search.evaluate(label, weights, plan.fusion)]
    if plan.reranks:
        evaluations.append(search.evaluate(f"{label} reranked", weights, plan.fusion, **plan.reranking))
    alone = [search.evaluate(space, {space: 1.0}) for space in spaces if {space} != weights.keys()]
    evaluations += sorted(alone, key=lambda evaluation: -evaluation.value(str(measures[0]).strip()))

    # Fusions of the spaces.
    for chosen in _combinations(spaces) if hybrid else ():
        equal = dict.fromkeys(chosen, 1.0)
        evaluations.append(search.evaluate(f"{','.join(chosen)} by reciprocal rank", equal, "reciprocal-rank"))
        equally = evaluations[0] if equal == weights else search.evaluate(name_weights(equal), equal)
        if equal != weights:
            evaluations.append(equally)
        if folds is None:
            continue
        tuned, held_out = tune_weights(search, chosen, folds)
        validated, _ = search.evaluate_by_depth(f"{name_weights(tuned)} tuned in {folds} folds", held_out)
        if keep_weights and len(chosen) == len(spaces):
            note = _keep_better(collection, tuned, equally, validated, str(measures[0]))
            validated = replace(validated, note=note)
        evaluations.append(replace(validated, query_idf=power if "sparse" in chosen else None))
    return evaluations


def _combinations(spaces: Sequence[Space]) -> Iterator[tuple[Space, ...]]:
    """Yield each combination of at least two spaces."""
    return (chosen for size in range(2, len(spaces) + 1) for chosen in combinations(spaces, size))


def _keep_better(
    collection: Collection, tuned: dict[Space, float], equal: Evaluation, held_out: Evaluation, measure: str
) -> str:
    """Keep tuned weights in a collection, or equal weights, and return the reason.

    Tuned weights are kept if the 95 % confidence interval of their gain in cross-validation is above 0.
    """
    values = held_out.per_query[measure]
    low, high = mean_interval({query: value - equal.per_query[measure][query] for query, value in values.items()})
    gain = f"in cross-validation {measure} changes by {low:+.3f} to {high:+.3f} (95 %)"
    collection.keep_weights(tuned if low > 0 else None)
    return f"the index keeps {name_weights(tuned) if low > 0 else 'equal weights'}: {gain} by tuned weights"


def tune_weights(
    judged: Judged, spaces: Sequence[Space], folds: int
) -> tuple[dict[Space, float], Callable[[int], Ranking]]:
    """Return the most even weights of `spaces` that are about as good as the best, and the ranking of a fusion.

    The fusion is cross-validated: query i is in fold i modulo `folds`, and each fold is fused with weights that the
    other folds choose. Equal weights and all tenths that sum to 1 are tried, by the mean of the first measure.
    """
    tenths = [parts for parts in product(range(STEPS + 1), repeat=len(spaces)) if sum(parts) == STEPS]
    uneven = sorted((parts for parts in tenths if np.var(parts) > 0), key=np.var)
    tried = [
        dict.fromkeys(spaces, 1.0),
        *({space: part / STEPS for space, part in zip(spaces, parts, strict=True) if part} for parts in uneven),
    ]
    parsed = parse_measures(judged.measures[:1])
    ids = [query.id for query in judged.dataset.queries]
    measured = JudgedMeasures(parsed, judged.dataset)
    # [g, q]
    values = np.zeros((len(tried), len(ids)))
    k = max(each.cutoff or DEFAULT_DEPTH for each in parsed.values())
    for row, weights in enumerate(track(tried, "tune")):
        ranking = judged.search(weights, k)
        answers = {query: dict(ranking.hits(number)) for number, query in enumerate(ids)}
        [per_query] = measured.per_query(answers).values()
        values[row] = [per_query[query] for query in ids]
    fold = np.arange(len(ids)) % folds
    best = np.array([_best(values[:, fold != number]) for number in range(folds)])[fold]  # [q]

    def held_out(k: int) -> Ranking:
        chosen = sorted({*best.tolist()})
        # Rankings of several spaces and of one may number their documents differently.
        by_weights = dict(zip(chosen, aligned([judged.search(tried[row], k) for row in chosen]), strict=True))
        return Ranking(
            np.stack([by_weights[row].rows[query] for query, row in enumerate(best)]),
            np.stack([by_weights[row].scores[query] for query, row in enumerate(best)]),
            by_weights[chosen[0]].ids,
        )

    return tried[_best(values)], held_out


def _best(values: np.ndarray) -> int:
    """Return the first row of `values` [g, q] whose mean is within `ERRORS` standard errors of the highest.

    The standard error is the paired difference's. Few queries choose at random among many weights that are alike.
    """
    lead = values[values.mean(axis=1).argmax()] - values  # [g, q]
    errors = lead.std(axis=1) / np.sqrt(values.shape[1])
    return int(np.flatnonzero(lead.mean(axis=1) <= ERRORS * errors + 1e-9)[0])
