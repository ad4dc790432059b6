"""An index searched by each of its spaces and by their fusions, with weights chosen on judgments.

Letters: q queries, k results, g weightings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product

import numpy as np

from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.quality import Evaluation, JudgedMeasures, depth, evaluate_run, parse_measures
from vocable.progress import track
from vocable.search.collection import FUSED_DEPTH, Collection
from vocable.search.fusion import fused, parse_weights
from vocable.search.index import Space
from vocable.search.ranking import Ranking

DEPTH = 1000  # results for a measure that has no cutoff
STEPS = 10  # weights are tried in tenths


def evaluate_index(
    collection: Collection,
    dataset: Dataset,
    measures: Sequence[str],
    *,
    hybrid: bool = False,
    weights: str | Mapping[Space, float] | None = None,
    folds: int | None = None,
) -> list[Evaluation]:
    """Evaluate each space of an index, the best by the first measure coming first, and fusions of them.

    A fusion is that of `Collection.search`, with as many results as the measures look at: one with `weights`; and with
    `hybrid` those of each pair of spaces and of all, by reciprocal rank, with equal weights and, with `folds`, with
    tuned ones (`tuned`). Its name begins with the weights.

    Raises:
        ArgumentError: weights of what the index has not, or more folds than queries.
        DataError: no relevant document is in the index.
    """
    judged, parsed, spaces = dataset.judged(), parse_measures(measures), list(collection.spaces)
    asked = None if weights is None else parse_weights(weights, spaces)
    if folds is not None and folds > len(judged.queries):
        raise ArgumentError(f"folds must be at most the {len(judged.queries)} judged queries, not {folds}")
    relevant = {judgment.doc_id for judgment in judged.judgments if judgment.relevance > 0}
    if not any(collection.documents(sorted(relevant))):
        raise DataError(f"none of the {len(relevant)} relevant documents is in {collection.place}", source=judged.name)
    ids, k = [query.id for query in judged.queries], max(depth(measure) or DEPTH for measure in parsed.values())
    k = judged.deep(k)
    found = collection.rankings([query.text for query in judged.queries], max(k, FUSED_DEPTH), spaces)
    rankings = dict(found)
    if asked is not None:
        rankings[_name(asked)] = fused(found, asked, "weighted", k)
    for size in range(2, len(spaces) + 1) if hybrid else ():
        for some in combinations(spaces, size):
            equal = dict.fromkeys(some, 1.0)
            rankings[f"{','.join(some)} by reciprocal rank"] = fused(found, equal, "reciprocal-rank", k)
            rankings[_name(equal)] = fused(found, equal, "weighted", k)
            if folds is not None:
                chosen, held_out = tuned(found, some, judged, measures[0], folds, k)
                rankings[f"{_name(chosen)} tuned in {folds} folds"] = held_out
    done = [evaluate_run(name, ranking.to_run(ids), judged, measures) for name, ranking in rankings.items()]
    alone = sorted(done[: len(spaces)], key=lambda one: -one.values[str(measures[0]).strip()])
    return alone + done[len(spaces) :]


def tuned(
    rankings: Mapping[Space, Ranking], spaces: Sequence[Space], judged: Dataset, measure: str, folds: int, k: int
) -> tuple[dict[Space, float], Ranking]:
    """The weights of `spaces` with the highest mean of a measure, and a ranking that knows no judgment of its queries.

    In the ranking, the queries of each fold (every so many-th) are fused with the weights that are best for the others.
    All weights in tenths that add up to 1 are tried; of equally good ones, the most even are taken.
    """
    tenths = [some for some in product(range(STEPS + 1), repeat=len(spaces)) if sum(some) == STEPS]
    tried = [
        {space: part / STEPS for space, part in zip(spaces, some, strict=True)} for some in sorted(tenths, key=np.var)
    ]
    measured, ids = JudgedMeasures(parse_measures([measure]), judged), [query.id for query in judged.queries]
    candidates, values = [], np.zeros((len(tried), len(ids)))  # values [g, q]
    for row, weights in enumerate(track(tried, "tune")):
        candidates.append(fused(rankings, weights, "weighted", k))
        answers = {query: dict(candidates[-1].hits(number)) for number, query in enumerate(ids)}
        [per_query] = measured.per_query(answers).values()
        values[row] = [per_query[query] for query in ids]
    fold = np.arange(len(ids)) % folds
    best = np.array([_best(values[:, fold != number]) for number in range(folds)])[fold]  # [q]
    held_out = Ranking(
        np.stack([candidates[choice].rows[query] for query, choice in enumerate(best)]),
        np.stack([candidates[choice].scores[query] for query, choice in enumerate(best)]),
        candidates[0].ids,
    )
    return tried[_best(values)], held_out


def _best(values: np.ndarray) -> int:
    """The first row of `values` [g, q] with the highest mean, up to what the order of an addition changes."""
    return int(values.mean(axis=1).round(9).argmax())


def _name(weights: Mapping[Space, float]) -> str:
    """The weights as `parse_weights` reads them."""
    return ",".join(f"{space}={weight:g}" for space, weight in weights.items())
