"""One ranking out of several, by rank or by score.

Shapes: q queries, k results. Rankings that are fused are of the same queries and documents: row r is the same document
in each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vocable.errors import ArgumentError
from vocable.search.ranking import Ranking, best


def aligned(rankings: Sequence[Ranking]) -> list[Ranking]:
    """The rankings with one list of ids, so that they can be fused; those of one index have it already.

    >>> from vocable.search.ranking import ranking_of
    >>> one, other = ranking_of([[("b", 1.0)]], k=1), ranking_of([[("a", 2.0)]], k=1)
    >>> [ranking.rows.tolist() for ranking in aligned([one, other])]
    [[[1]], [[0]]]
    """
    if all(_same_ids(ranking.ids, rankings[0].ids) for ranking in rankings):
        return list(rankings)
    ids = sorted({identifier for ranking in rankings for identifier in ranking.ids or ()})
    rows = {identifier: row for row, identifier in enumerate(ids)}
    moved = []
    for ranking in rankings:
        places = np.array([*(rows[identifier] for identifier in ranking.ids or ()), -1], dtype=np.int32)  # -1: the last
        moved.append(Ranking(places[ranking.rows], ranking.scores, ids))
    return moved


def reciprocal_rank(rankings: Sequence[Ranking], k: int = 60, depth: int | None = None) -> Ranking:
    """Reciprocal rank fusion (Cormack et al. 2009): a document's score is the sum of 1 / (k + rank), ranks from 1.

    `depth` is the number of results kept for each query; unless given, that of the longest ranking.

    >>> lexical = Ranking(np.array([[0, 1, 2]]), np.array([[9.0, 8.0, 7.0]]))
    >>> learned = Ranking(np.array([[2, 0, -1]]), np.array([[0.5, 0.4, 0.0]]))
    >>> reciprocal_rank([lexical, learned], k=1).hits(0)
    [('0', 0.8333333134651184), ('2', 0.75), ('1', 0.3333333432674408)]
    """
    if k < 0:
        raise ArgumentError(f"k must not be negative, not {k}")
    parts = [np.broadcast_to(1 / (k + 1 + np.arange(r.rows.shape[1])), r.rows.shape) for r in rankings]
    return _fused(rankings, parts, depth)


def weighted(rankings: Sequence[Ranking], weights: Sequence[float], depth: int | None = None) -> Ranking:
    """The weighted sum of scores that run, for each query and ranking, from 0 (its last hit) to 1 (its first).

    A document that a ranking does not have counts 0 there; where all hits of a query score the same, each counts 1.
    `depth` is as in `reciprocal_rank`.

    >>> lexical = Ranking(np.array([[0, 1, 2]]), np.array([[9.0, 8.0, 7.0]]))
    >>> learned = Ranking(np.array([[2, 0, -1]]), np.array([[0.5, 0.4, 0.0]]))
    >>> weighted([lexical, learned], [1, 2]).hits(0)
    [('2', 2.0), ('0', 1.0), ('1', 0.5)]
    """
    if len(weights) != len(rankings):
        raise ArgumentError(f"{len(weights)} weights for {len(rankings)} rankings")
    if not all(0 <= weight < np.inf for weight in weights):
        raise ArgumentError(f"weights must be finite and not negative, not {list(weights)}")
    return _fused(rankings, [weight * _normalized(r) for weight, r in zip(weights, rankings, strict=True)], depth)


def _same_ids(one: Sequence[str] | None, other: Sequence[str] | None) -> bool:
    if one is None or other is None or one is other:
        return one is other
    return len(one) == len(other) and (one == other or list(one) == list(other))


def _normalized(ranking: Ranking) -> np.ndarray:
    """Scores [q, k] from 0 to 1 over the hits of each query."""
    hit, scores = ranking.rows >= 0, ranking.scores.astype(np.float64)
    lowest = np.where(hit, scores, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    highest = np.where(hit, scores, -np.inf).max(axis=1, initial=-np.inf, keepdims=True)
    spread = highest - lowest
    result: np.ndarray = np.where(spread > 0, (scores - lowest) / np.where(spread > 0, spread, 1), 1.0)
    return result


def _fused(rankings: Sequence[Ranking], parts: Sequence[np.ndarray], depth: int | None) -> Ranking:
    """Sum the `parts` [q, k] of each document over the rankings and keep the `depth` best."""
    if not rankings:
        raise ArgumentError("no rankings to fuse")
    first = rankings[0]
    for other in rankings[1:]:
        if len(other.rows) != len(first.rows):
            raise ArgumentError(f"rankings of {len(first.rows)} and of {len(other.rows)} queries cannot be fused")
        if not _same_ids(first.ids, other.ids):
            raise ArgumentError("rankings of different documents cannot be fused: their ids differ")
    if depth is not None and depth < 1:
        raise ArgumentError(f"depth must be at least 1, not {depth}")
    rows = np.concatenate([ranking.rows for ranking in rankings], axis=1).astype(np.int64)
    # Bring the entries of a document together: sorted by row (the sort is stable, so sums have one order), then summed
    # into the place of its first entry; the others become "none".
    order = np.argsort(rows, axis=1, kind="stable")
    rows, values = (
        np.take_along_axis(rows, order, axis=1),
        np.take_along_axis(np.concatenate(parts, axis=1), order, axis=1),
    )
    fresh = np.ones(rows.shape, dtype=bool)
    fresh[:, 1:] = rows[:, 1:] != rows[:, :-1]
    group = np.cumsum(fresh.ravel()) - 1
    sums = np.bincount(group, weights=values.ravel())[group].reshape(rows.shape) if rows.size else values
    width = depth if depth is not None else max(ranking.rows.shape[1] for ranking in rankings)
    # In the precision of a score: what differs in the order of its additions alone is a tie, and goes by id.
    return best(np.where(fresh, rows, -1).astype(np.int32), sums.astype(np.float32), width, first.ids)
