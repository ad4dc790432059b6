"""An index evaluated by each of its spaces and by their fusions, with weights chosen on judgments.

Letters: q queries, k results, g weightings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product

import numpy as np

from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.quality import (
    DEPTH,
    Evaluation,
    JudgedMeasures,
    Measures,
    depth,
    evaluate_run,
    parse_measures,
)
from vocable.progress import track
from vocable.retrieval.collection import Collection
from vocable.retrieval.fusion import fused, fusion_depth, parse_weights
from vocable.retrieval.protocols import Space
from vocable.retrieval.ranking import Ranking

STEPS = 10  # weights are tried in tenths


def evaluate_index(
    collection: Collection,
    dataset: Dataset,
    measures: Sequence[str],
    *,
    hybrid: bool = False,
    weights: str | Mapping[Space, float] | None = None,
    folds: int | None = None,
    query_idf: float | None = None,
) -> list[Evaluation]:
    """Evaluate each space of an index, the best by the first measure coming first, and fusions of them.

    The fusions are those of `Collection.search`: one with `weights`; and with `hybrid` those of each pair of spaces and
    of all, by reciprocal rank, with equal weights and, with `folds`, with tuned ones (`tuned`). Their names begin with
    the weights. `query_idf` is that of `vocable.search`.

    Raises:
        ArgumentError: weights of a space that the index does not have, or more folds than queries.
        DataError: no relevant document is in the index.
    """
    judged, parsed, spaces = dataset.judged(), parse_measures(measures), list(collection.spaces)
    asked = None if weights is None else parse_weights(weights, spaces)
    if folds is not None and folds > len(judged.queries):
        raise ArgumentError(f"folds must be at most the {len(judged.queries)} judged queries, not {folds}")
    relevant = {judgment.doc_id for judgment in judged.judgments if judgment.relevance > 0}
    if not any(collection.documents(sorted(relevant))):
        raise DataError(f"none of the {len(relevant)} relevant documents is in {collection.place}", source=judged.name)
    ids, texts = [query.id for query in judged.queries], [query.text for query in judged.queries]
    k = judged.deep(max(depth(measure) or DEPTH for measure in parsed.values()))
    encoder = collection.query_encoder(query_idf=query_idf)
    found = collection.rankings(texts, fusion_depth(k), spaces, vectors=encoder.encode(texts))

    def power(some: Sequence[Space]) -> float | None:
        return encoder.query_idf if "sparse" in some else None

    def fusion(name: str, fuse: Callable[[int], Ranking], some: Sequence[Space]) -> Evaluation:
        return replace(evaluate_fusion(name, fuse, judged, measures), query_idf=power(some))

    alone = [
        evaluate_run(space, ranking.to_run(ids), judged, measures, query_idf=power([space]))
        for space, ranking in found.items()
    ]
    alone.sort(key=lambda one: -one.values[str(measures[0]).strip()])
    fusions = []
    if asked is not None:
        fusions.append(fusion(_name(asked), partial(fused, found, asked, "weighted"), list(asked)))
    for size in range(2, len(spaces) + 1) if hybrid else ():
        for some in combinations(spaces, size):
            equal = dict.fromkeys(some, 1.0)
            ranks = partial(fused, found, equal, "reciprocal-rank")
            fusions.append(fusion(f"{','.join(some)} by reciprocal rank", ranks, some))
            fusions.append(fusion(_name(equal), partial(fused, found, equal, "weighted"), some))
            if folds is not None:
                chosen, held_out = tuned(found, some, judged, measures[0], folds)
                fusions.append(fusion(f"{_name(chosen)} tuned in {folds} folds", held_out, some))
    return alone + fusions


def evaluate_fusion(name: str, fuse: Callable[[int], Ranking], judged: Dataset, measures: Measures) -> Evaluation:
    """Evaluate the rankings that `fuse(k)` gives, each measure on that of as many results as it looks at.

    So a figure is that of a search for this number of results, whatever else is measured beside it: the scores of a
    fusion depend on the number of hits that go into it.
    """
    by_depth: dict[int, list[str]] = {}
    for measure, parsed in parse_measures(measures).items():
        by_depth.setdefault(judged.deep(depth(parsed) or DEPTH), []).append(measure)
    ids = [query.id for query in judged.queries]
    parts = [evaluate_run(name, fuse(k).to_run(ids), judged, by_depth[k]) for k in sorted(by_depth)]
    names = list(parse_measures(measures))
    return replace(
        parts[-1],
        values={measure: part.values[measure] for measure in names for part in parts if measure in part.values},
        per_query={measure: part.per_query[measure] for measure in names for part in parts if measure in part.values},
        relevant_from={measure: level for part in parts for measure, level in part.relevant_from.items()},
    )


def tuned(
    rankings: Mapping[Space, Ranking], spaces: Sequence[Space], judged: Dataset, measure: str, folds: int
) -> tuple[dict[Space, float], Callable[[int], Ranking]]:
    """Return the weights of `spaces` with the highest mean of a measure, and a fusion for `evaluate_fusion`.

    The fusion knows no judgment of the queries that it answers: those of each fold (every so many-th) are fused with
    the weights that are best for the others. All weights in tenths that add up to 1 are tried; of equally good ones,
    the most even are taken.
    """
    tenths = [some for some in product(range(STEPS + 1), repeat=len(spaces)) if sum(some) == STEPS]
    tried = [
        {space: part / STEPS for space, part in zip(spaces, some, strict=True)} for some in sorted(tenths, key=np.var)
    ]
    parsed, ids = parse_measures([measure]), [query.id for query in judged.queries]
    measured, values = JudgedMeasures(parsed, judged), np.zeros((len(tried), len(ids)))  # values [g, q]
    k = judged.deep(max(depth(one) or DEPTH for one in parsed.values()))
    for row, weights in enumerate(track(tried, "tune")):
        ranking = fused(rankings, weights, "weighted", k)
        answers = {query: dict(ranking.hits(number)) for number, query in enumerate(ids)}
        [per_query] = measured.per_query(answers).values()
        values[row] = [per_query[query] for query in ids]
    fold = np.arange(len(ids)) % folds
    best = np.array([_best(values[:, fold != number]) for number in range(folds)])[fold]  # [q]

    def held_out(k: int) -> Ranking:
        found = {choice: fused(rankings, tried[choice], "weighted", k) for choice in set(best.tolist())}
        return Ranking(
            np.stack([found[choice].rows[query] for query, choice in enumerate(best)]),
            np.stack([found[choice].scores[query] for query, choice in enumerate(best)]),
            next(iter(found.values())).ids,
        )

    return tried[_best(values)], held_out


def _best(values: np.ndarray) -> int:
    """The first row of `values` [g, q] with the highest mean, up to what the order of an addition changes."""
    return int(values.mean(axis=1).round(9).argmax())


def _name(weights: Mapping[Space, float]) -> str:
    """The weights as `parse_weights` reads them."""
    return ",".join(f"{space}={weight:g}" for space, weight in weights.items())
