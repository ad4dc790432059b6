"""Fusion of rankings, by rank or by score.

Shapes: q queries, k results. The rankings have the same queries and documents: row r is the same document in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vocable.errors import ArgumentError
from vocable.indexes.ranking import Ranking, best
from vocable.options import Count, CountOrZero, Fusion, checked

MAX_FUSION_WEIGHT = 1_000_000  # the smallest weight above 0 is its reciprocal

# The least number of hits of each ranking that enter a fusion. Scores are scaled over them, so searches and evaluations
# need the same number. With 1,000 hits nDCG@10 differs by noise only (docs/benchmarks.md), but a store reads ten times
# as many documents.
MIN_DEPTH = 100
RANK_CONSTANT = 60  # k of a fusion by rank


@dataclass(frozen=True)
class ScoreParts:
    """The parts that sum up to a score, by kind of vectors, and the `words` of the query that BM25 found."""

    kinds: dict[str, float]
    words: tuple[str, ...] | None = None

    @property
    def several(self) -> bool:
        """Return whether the score is fused of several kinds, or of words, which an explanation does not show."""
        return self.kinds.keys() != {"sparse"}

    def __str__(self) -> str:
        words = "" if self.words is None else f" (words: {', '.join(self.words) or 'none'})"
        return " + ".join(f"{kind} {part:.4g}{words if kind == 'bm25' else ''}" for kind, part in self.kinds.items())


def fusion_depth(k: int) -> int:
    """Return the number of hits of each ranking that enter a fusion of k results."""
    return max(k, MIN_DEPTH)


def parse_weights(weights: str | Mapping[str, float], spaces: Sequence[str]) -> dict[str, float]:
    """Return the weights of `spaces`, given as a mapping or a text "sparse=0.6,bm25=0.4", without weights of 0.

    A name alone has the weight 1. Raises `ArgumentError` for an unknown or repeated name, and for an invalid weight.

    >>> parse_weights("sparse=0.6, bm25=0.4, dense=0", ["sparse", "bm25", "dense"])
    {'sparse': 0.6, 'bm25': 0.4}
    >>> parse_weights("sparse", ["sparse", "bm25"])
    {'sparse': 1.0}
    """
    pairs: Iterable[tuple[str, str | float]]
    if isinstance(weights, str):
        given = [part if "=" in part else f"{part}=1" for part in weights.split(",")]
        pairs = [part.partition("=")[::2] for part in given]
    else:
        pairs = weights.items()
    parsed: dict[str, float] = {}
    for given_name, value in pairs:
        name = given_name.strip()
        if name not in spaces:
            raise ArgumentError(f"weights: there is no space {name!r}: the index has {', '.join(spaces)}")
        if name in parsed:
            raise ArgumentError(f"weights: duplicate name {name!r}")
        try:
            parsed[name] = float(value)
        except ValueError as error:
            raise ArgumentError(f"weights: {name}={value} is not a number: write {name}=0.5") from error
    check_weights(list(parsed.values()), len(parsed))
    if not any(parsed.values()):
        raise ArgumentError("weights: at least one must be above 0")
    return {name: weight for name, weight in parsed.items() if weight}


def name_weights(weights: Mapping[Any, float]) -> str:
    """Return weights in the format that `parse_weights` reads."""
    return ",".join(f"{space}={weight:g}" for space, weight in weights.items())


def fused(
    rankings: Mapping[str, Ranking],
    weights: Mapping[str, float],
    fusion: Fusion,
    k: int,
    factors: Mapping[str, np.ndarray] | None = None,
) -> Ranking:
    """Return the k best documents by a fusion of the first `fusion_depth(k)` hits of each ranking with a weight.

    Its `parts` are the weighted rankings. Any `factors` [q, k] multiply the scaled scores of a ranking.
    """
    first = [rankings[name].first(fusion_depth(k)) for name in weights]
    if fusion not in ("weighted", "reciprocal-rank"):
        raise ArgumentError(f"fusion must be one of weighted, reciprocal-rank, not {fusion!r}")
    parts = (_scaled if fusion == "weighted" else _reciprocal)(first, list(weights.values()))
    for number, name in enumerate(weights):
        if factors is not None and name in factors:  # [q, k] of the ranking
            parts[number] = parts[number] * factors[name][:, : parts[number].shape[1]]
    by_name = {name: replace(hits, scores=part) for name, hits, part in zip(weights, first, parts, strict=True)}
    return replace(_fused(first, parts, k), parts=by_name)


def aligned(rankings: Sequence[Ranking]) -> list[Ranking]:
    """Return the rankings with a common list of ids, so that they can be fused; rankings of one index share theirs.

    >>> from vocable.indexes.ranking import ranking_of
    >>> lexical, sparse = ranking_of([[("b", 1.0)]], k=1), ranking_of([[("a", 2.0)]], k=1)
    >>> [ranking.rows.tolist() for ranking in aligned([lexical, sparse])]
    [[[1]], [[0]]]
    """
    if all(_same_ids(ranking.ids, rankings[0].ids) for ranking in rankings):
        return list(rankings)
    ids = sorted({identifier for ranking in rankings for identifier in ranking.ids or ()})
    rows = {identifier: row for row, identifier in enumerate(ids)}
    moved = []
    for ranking in rankings:
        places = np.array([*(rows[identifier] for identifier in ranking.ids or ()), -1], dtype=np.int32)  # -1: the last
        moved.append(replace(ranking, rows=places[ranking.rows], ids=ids))
    return moved


@checked
def reciprocal_rank(
    rankings: Sequence[Ranking],
    k: CountOrZero = RANK_CONSTANT,
    depth: Count | None = None,
    weights: Sequence[float] | None = None,
) -> Ranking:
    """Fuse by reciprocal rank (Cormack et al. 2009): a document scores the sum of 1 / (k + rank), ranks from 1.

    `weights` multiply the summands of each ranking. `depth` is the number of results per query, by default the length
    of the longest ranking.

    >>> lexical = Ranking(np.array([[0, 1, 2]]), np.array([[9.0, 8.0, 7.0]]))
    >>> sparse = Ranking(np.array([[2, 0, -1]]), np.array([[0.5, 0.4, 0.0]]))
    >>> reciprocal_rank([lexical, sparse], k=1).hits(0)
    [('0', 0.8333333134651184), ('2', 0.75), ('1', 0.3333333432674408)]
    """
    return _fused(rankings, _reciprocal(rankings, [1] * len(rankings) if weights is None else weights, k), depth)


def _reciprocal(rankings: Sequence[Ranking], weights: Sequence[float], k: int = RANK_CONSTANT) -> list[np.ndarray]:
    """Return the summands [q, k] of each ranking."""
    factors = check_weights(weights, len(rankings))
    return [
        np.broadcast_to(weight / (k + 1 + np.arange(r.rows.shape[1])), r.rows.shape)
        for weight, r in zip(factors, rankings, strict=True)
    ]


@checked
def weighted(rankings: Sequence[Ranking], weights: Sequence[float], depth: Count | None = None) -> Ranking:
    """Fuse by the weighted sum of scores, scaled for each query and ranking from 0 (last hit) to 1 (first hit).

    A document gets 0 from a ranking that does not have it. If all hits of a query have the same score, each gets 1.
    `depth` is as in `reciprocal_rank`.

    >>> lexical = Ranking(np.array([[0, 1, 2]]), np.array([[9.0, 8.0, 7.0]]))
    >>> sparse = Ranking(np.array([[2, 0, -1]]), np.array([[0.5, 0.4, 0.0]]))
    >>> weighted([lexical, sparse], [1, 2]).hits(0)
    [('2', 2.0), ('0', 1.0), ('1', 0.5)]
    """
    return _fused(rankings, _scaled(rankings, weights), depth)


def _scaled(rankings: Sequence[Ranking], weights: Sequence[float]) -> list[np.ndarray]:
    """Return the summands [q, k] of each ranking."""
    factors = check_weights(weights, len(rankings))
    return [weight * _normalized(r) for weight, r in zip(factors, rankings, strict=True)]


def check_weights(weights: Sequence[float], count: int) -> Sequence[float]:
    """Return the weights of `count` rankings; raise `ArgumentError` for another number of weights or invalid weights.

    A weight is 0 or within limits that keep sums of weighted scores finite and in order in float32.
    """
    if len(weights) != count:
        raise ArgumentError(f"{len(weights)} weights for {count} rankings")
    if not all(weight == 0 or 1 / MAX_FUSION_WEIGHT <= weight <= MAX_FUSION_WEIGHT for weight in weights):
        raise ArgumentError(
            f"weights must be 0, or between {1 / MAX_FUSION_WEIGHT:g} and {MAX_FUSION_WEIGHT:,}, not {list(weights)}"
        )
    return weights


def _same_ids(first: Sequence[str] | None, second: Sequence[str] | None) -> bool:
    if first is None or second is None or first is second:
        return first is second
    return len(first) == len(second) and (first == second or list(first) == list(second))


def _normalized(ranking: Ranking) -> np.ndarray:
    """Return scores [q, k] from 0 to 1 over the hits of each query."""
    hit, scores = ranking.rows >= 0, ranking.scores.astype(np.float64)
    lowest = np.where(hit, scores, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    highest = np.where(hit, scores, -np.inf).max(axis=1, initial=-np.inf, keepdims=True)
    spread = highest - lowest
    return np.where(spread > 0, (scores - lowest) / np.where(spread > 0, spread, 1), 1.0)


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
    rows = np.concatenate([ranking.rows for ranking in rankings], axis=1).astype(np.int64)
    # Entries are sorted by document (the sort is stable, so that sums have a fixed order). The first entry of a
    # document gets the sum, and its other entries become -1.
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
    # Rounded to the precision of a score: sums that differ only by the order of additions are ties, ordered by id.
    return best(np.where(fresh, rows, -1).astype(np.int32), sums.astype(np.float32), width, first.ids)
