"""Evaluate each space of a system or an index, and fusions of the spaces, with weights tuned on judgments.

Letters: q queries, k results, g weightings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product

import numpy as np

from vocable.collection.collection import Collection
from vocable.collection.rerank import rerank_depth
from vocable.core.progress import track
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import Cost, rerank_costs
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.quality import (
    DEFAULT_DEPTH,
    Evaluation,
    JudgedMeasures,
    Measures,
    Retrieval,
    depth,
    evaluate_run,
    parse_measures,
)
from vocable.evaluation.significance import mean_interval
from vocable.indexes.fusion import fused, fusion_depth, name_weights, parse_weights
from vocable.indexes.ranking import Ranking
from vocable.options import RerankOptions

STEPS = 10  # tuned weights are multiples of 1 / STEPS


def evaluate_index(
    collection: Collection,
    dataset: Dataset,
    measures: Sequence[str],
    *,
    hybrid: bool = False,
    weights: str | Mapping[str, float] | None = None,
    folds: int | None = None,
    keep_weights: bool = False,
    query_idf: float | None = None,
    rerank: RerankOptions | None = None,
) -> list[Evaluation]:
    """Evaluate each space of an index, the best space by the first measure first, then fusions of spaces.

    `weights` adds the fusion with these weights. `hybrid` adds fusions of each pair of spaces and of all spaces: by
    reciprocal rank, with equal weights and, if `folds` is given, with tuned weights (`tune_weights`). The name of a
    fusion begins with its weights. `keep_weights` makes the tuned weights of all spaces the index's own if they gain
    over equal weights (`_keep_better`). Fusions are computed as in `Collection.search`; `vocable.search` describes
    `query_idf`. With `rerank`, also evaluate a search with the same weights whose hits are reranked.

    Raises:
        ArgumentError: a weight is for a space that the index does not have, or there are more folds than queries.
        DataError: the index has no relevant document.
    """
    judged, parsed = dataset.judged(), parse_measures(measures)
    weights = weights or (collection.kept_weights if hybrid else None)
    fixed = None if weights is None else parse_weights(weights, collection.spaces)
    spaces = list(dict.fromkeys([*collection.models.query_spaces, *(fixed or ())]))
    if folds is not None and folds > len(judged.queries):
        raise ArgumentError(f"folds must be at most the {len(judged.queries)} judged queries, not {folds}")
    relevant = {judgment.doc_id for judgment in judged.judgments if judgment.relevance > 0}
    if not any(collection.documents(sorted(relevant))):
        raise DataError(f"none of the {len(relevant)} relevant documents is in {collection.place}", source=judged.name)
    ids, texts = [query.id for query in judged.queries], [query.text for query in judged.queries]
    k = judged.search_depth(max(depth(measure) or DEFAULT_DEPTH for measure in parsed.values()))
    encoder = collection.models.queries(query_idf=query_idf)
    vectors, dense = encoder.encode_both(texts)
    reranking = rerank or {}
    deepest = fusion_depth(max(k, rerank_depth(reranking)))
    rankings = collection.searcher.rankings(texts, deepest, spaces, vectors=vectors, dense=dense)

    def idf_power(fused_spaces: Sequence[Space]) -> float | None:
        return encoder.query_idf if "sparse" in fused_spaces else None

    def fusion(name: str, fuse: Callable[[int], Ranking], fused_spaces: Sequence[Space]) -> Evaluation:
        return replace(evaluate_fusion(name, fuse, judged, measures), query_idf=idf_power(fused_spaces))

    alone = [
        evaluate_run(space, ranking.to_run(ids), judged, measures, query_idf=idf_power([space]))
        for space, ranking in rankings.items()
    ]
    alone.sort(key=lambda evaluation: -evaluation.values[str(measures[0]).strip()])
    fusions = []
    if fixed is not None:
        fusions.append(fusion(name_weights(fixed), partial(fused, rankings, fixed, "weighted"), list(fixed)))
    for size in range(2, len(spaces) + 1) if hybrid else ():
        for chosen in combinations(spaces, size):
            equal = dict.fromkeys(chosen, 1.0)
            ranks = partial(fused, rankings, equal, "reciprocal-rank")
            fusions.append(fusion(f"{','.join(chosen)} by reciprocal rank", ranks, chosen))
            fusions.append(fusion(name_weights(equal), partial(fused, rankings, equal, "weighted"), chosen))
            if folds is not None:
                tuned, held_out = tune_weights(rankings, chosen, judged, measures[0], folds)
                fusions.append(fusion(f"{name_weights(tuned)} tuned in {folds} folds", held_out, chosen))
                if keep_weights and size == len(spaces):
                    equally, cross_validated = fusions[-2:]
                    note = _keep_better(collection, tuned, equally, cross_validated, str(measures[0]))
                    fusions[-1] = replace(cross_validated, note=note)
    if reranking.get("rerank"):
        searched = collection.searcher.weighting(hybrid, fixed)
        times: list[np.ndarray] = []

        def reranked(k: int) -> Ranking:
            depth = max(k, rerank_depth(reranking))
            if len(searched) > 1:
                first = fused(rankings, searched, "weighted", depth)
            else:
                first = rankings[next(iter(searched))].first(depth)
            ranking, milliseconds = collection.searcher.reranked(first, texts, vectors, **reranking)
            times.append(milliseconds)
            return ranking.first(k)

        label = name_weights(searched) if len(searched) > 1 else next(iter(searched))
        evaluation = fusion(f"{label} reranked", reranked, [*searched])
        fusions.append(replace(evaluation, cost=Cost(**rerank_costs(times[0]))))
    return alone + fusions


def _keep_better(
    collection: Collection, tuned: dict[Space, float], equal: Evaluation, held_out: Evaluation, measure: str
) -> str:
    """Keep tuned weights in a collection, or equal weights, and return the reason.

    Tuned weights are kept if the 95 % confidence interval of their gain in cross-validation is above 0.
    """
    before = equal.per_query[measure]
    low, high = mean_interval({query: value - before[query] for query, value in held_out.per_query[measure].items()})
    gain = f"in cross-validation {measure} changes by {low:+.3f} to {high:+.3f} (95 %)"
    collection.keep_weights(tuned if low > 0 else None)
    return f"the index keeps {name_weights(tuned) if low > 0 else 'equal weights'}: {gain} by tuned weights"


def evaluate_fusion(name: str, fuse: Callable[[int], Ranking], judged: Dataset, measures: Measures) -> Evaluation:
    """Evaluate each measure on the ranking `fuse(k)`, where k is the number of results that the measure looks at.

    The scores of a fusion depend on the number of hits that are fused. A value thus equals the value of a search for k
    results, and does not depend on the other measures.
    """
    by_depth: dict[int, list[str]] = {}
    for measure, parsed in parse_measures(measures).items():
        by_depth.setdefault(judged.search_depth(depth(parsed) or DEFAULT_DEPTH), []).append(measure)
    ids = [query.id for query in judged.queries]
    parts = [evaluate_run(name, fuse(k).to_run(ids), judged, by_depth[k]) for k in sorted(by_depth)]
    names = list(parse_measures(measures))
    return replace(
        parts[-1],
        values={measure: part.values[measure] for measure in names for part in parts if measure in part.values},
        per_query={measure: part.per_query[measure] for measure in names for part in parts if measure in part.values},
        relevant_from={measure: level for part in parts for measure, level in part.relevant_from.items()},
    )


def evaluate_fusions(
    name: str,
    sparse: Retrieval,
    dense: Retrieval | None,
    lexical: Retrieval,
    dataset: Dataset,
    measures: Measures,
    query_idf: float | None,
) -> list[Evaluation]:
    """Evaluate fusions of a system's sparse ranking, its dense ranking if it has dense vectors, and a BM25 ranking.

    The bytes of a fusion are the sum over its parts. A fusion has no times, since only its parts are timed.
    """
    labels = {"sparse": name, "dense": "dense", "bm25": "BM25"}
    retrievals = {"sparse": sparse, "dense": dense, "bm25": lexical}
    parts = {side: retrieval for side, retrieval in retrievals.items() if retrieval is not None}
    sides, evaluations = {side: part.ranking for side, part in parts.items()}, []
    if dense is not None:
        evaluations.append(evaluate_run(f"{name}: dense", dense, dataset, measures))
    for size in range(2, len(sides) + 1):
        for chosen in combinations(sides, size):
            fuse = partial(fused, sides, dict.fromkeys(chosen, 1.0), "weighted")
            evaluation = evaluate_fusion(" + ".join(labels[side] for side in chosen), fuse, dataset, measures)
            sizes = [parts[side].cost.index_bytes for side in chosen]
            cost = None if None in sizes else Cost(index_bytes=sum(size or 0 for size in sizes))
            evaluations.append(replace(evaluation, query_idf=query_idf if "sparse" in chosen else None, cost=cost))
    return evaluations


def tune_weights(
    rankings: Mapping[Space, Ranking], spaces: Sequence[Space], judged: Dataset, measure: str, folds: int
) -> tuple[dict[Space, float], Callable[[int], Ranking]]:
    """Return the weights of `spaces` with the highest mean of a measure, and a fusion for `evaluate_fusion`.

    The fusion is cross-validated: query i is in fold i modulo `folds`, and each fold is fused with the best weights of
    the other folds. All weights in tenths that sum to 1 are tried; among equally good weights, the most even weights
    win.
    """
    tenths = [parts for parts in product(range(STEPS + 1), repeat=len(spaces)) if sum(parts) == STEPS]
    tried = [
        {space: part / STEPS for space, part in zip(spaces, parts, strict=True)} for parts in sorted(tenths, key=np.var)
    ]
    parsed, ids = parse_measures([measure]), [query.id for query in judged.queries]
    measured, values = JudgedMeasures(parsed, judged), np.zeros((len(tried), len(ids)))  # values [g, q]
    k = judged.search_depth(max(depth(each) or DEFAULT_DEPTH for each in parsed.values()))
    for row, weights in enumerate(track(tried, "tune")):
        ranking = fused(rankings, weights, "weighted", k)
        answers = {query: dict(ranking.hits(number)) for number, query in enumerate(ids)}
        [per_query] = measured.per_query(answers).values()
        values[row] = [per_query[query] for query in ids]
    fold = np.arange(len(ids)) % folds
    best = np.array([_best(values[:, fold != number]) for number in range(folds)])[fold]  # [q]

    def held_out(k: int) -> Ranking:
        by_weights = {row: fused(rankings, tried[row], "weighted", k) for row in set(best.tolist())}
        return Ranking(
            np.stack([by_weights[row].rows[query] for query, row in enumerate(best)]),
            np.stack([by_weights[row].scores[query] for query, row in enumerate(best)]),
            next(iter(by_weights.values())).ids,
        )

    return tried[_best(values)], held_out


def _best(values: np.ndarray) -> int:
    """Return the first row of `values` [g, q] with the highest mean, up to rounding errors."""
    return int(values.mean(axis=1).round(9).argmax())
