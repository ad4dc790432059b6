"""The outcome of a search: its form as a TREC run, and one ranking out of several by rank or by score.

Shapes: q queries, k results, n documents. Rankings that are fused are of the same queries and documents: row r is the
same document in each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ir_measures import ScoredDoc

from vocable.data.schemas import decimal, decode
from vocable.data.sources import file_lines, numbered
from vocable.errors import ArgumentError, DataError
from vocable.storage import replacing


@dataclass(frozen=True, eq=False)
class Ranking:
    """The k best documents of q queries, best first.

    `rows` int32 [q, k] are row numbers of documents, -1 where there is no k-th hit; `scores` float32 [q, k] are 0
    there. `ids` are the n document ids by row, where the index has them.
    """

    rows: np.ndarray
    scores: np.ndarray
    ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.rows.shape != self.scores.shape:
            raise ArgumentError(f"rows {self.rows.shape} and scores {self.scores.shape} must have one shape [q, k]")

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Ranking({len(self)} quer{'y' if len(self) == 1 else 'ies'}, k={self.rows.shape[1]})"

    def hits(self, query: int) -> list[tuple[str, float]]:
        """The (document id, score) pairs of one query, best first; without ids the documents' numbers."""
        pairs = zip(self.rows[query].tolist(), self.scores[query].tolist(), strict=True)
        return [(str(row) if self.ids is None else self.ids[row], score) for row, score in pairs if row >= 0]

    __getitem__ = hits

    def to_run(self, query_ids: Sequence[str]) -> list[ScoredDoc]:
        """The hits as ir_measures records, with the q `query_ids` by row."""
        return [ScoredDoc(query, *hit) for query, hits in self._by_query(query_ids) for hit in hits]

    def _by_query(self, query_ids: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, float]]]]:
        if len(query_ids) != len(self.rows):
            raise ArgumentError(f"{len(query_ids)} query ids for a ranking of {len(self.rows)} queries")
        return ((query_id, self.hits(query)) for query, query_id in enumerate(query_ids))

    def write_trec(self, path: str | os.PathLike[str], query_ids: Sequence[str], tag: str = "vocable") -> None:
        """Write the hits as a TREC run: `query Q0 document rank score tag`, ranks from 1.

        Scores are written so that reading them gives the same float32. Raises `DataError` for an id that is empty or
        has white space, which the format cannot hold.
        """
        ranked = self._by_query(query_ids)
        with replacing(path) as file:
            for query, hits in ranked:
                for rank, (document, score) in enumerate(hits, start=1):
                    line = f"{query} Q0 {document} {rank} {np.float32(score)!s} {tag}"
                    if len(line.split()) != 6:
                        message = f"query {query!r}, document {document!r}: a TREC run cannot hold white space"
                        raise DataError(message, source=str(path))
                    file.write(f"{line}\n".encode())

    @classmethod
    def from_run(cls, run: Iterable[ScoredDoc], query_ids: Sequence[str], ids: Sequence[str]) -> Ranking:
        """The ranking that `run` is, for the queries `query_ids` over the documents `ids`.

        k is the largest number of hits that a query has; ties are put in the order of the ids. A query without hits
        gets a row of -1. Raises `DataError` for a query or document that is not among the ids.
        """
        queries = {query_id: row for row, query_id in enumerate(query_ids)}
        documents = {document_id: row for row, document_id in enumerate(ids)}
        hits: list[list[tuple[int, float]]] = [[] for _ in query_ids]
        for hit in run:
            if hit.query_id not in queries or hit.doc_id not in documents:
                raise DataError(f"the run has query {hit.query_id!r}, document {hit.doc_id!r}: one is not known here")
            hits[queries[hit.query_id]].append((documents[hit.doc_id], hit.score))
        k = max(map(len, hits), default=0)
        padded = np.array([some + [(-1, 0.0)] * (k - len(some)) for some in hits]).reshape(len(hits), k, 2)
        return best(padded[:, :, 0].astype(np.int32), padded[:, :, 1], k, ids)


def ranking_of(hits: Sequence[Sequence[tuple[str, float]]], k: int) -> Ranking:
    """The ranking that (document id, score) pairs of q queries are; its ids are those of the hits, in their order.

    Ties go in the order of the ids, and what scores nothing is no hit.

    >>> ranking_of([[("b", 1.0), ("a", 1.0)], [("c", 0.0)]], k=2).rows.tolist()
    [[0, 1], [-1, -1]]
    """
    ids = sorted({identifier for some in hits for identifier, _ in some})
    rows = {identifier: row for row, identifier in enumerate(ids)}
    c = max(map(len, hits), default=0)
    padded = [[(rows[i], s) if s > 0 else (-1, 0.0) for i, s in some] + [(-1, 0.0)] * (c - len(some)) for some in hits]
    candidates = np.array(padded, dtype=np.float64).reshape(len(hits), c, 2)
    return best(candidates[:, :, 0].astype(np.int32), candidates[:, :, 1].astype(np.float32), k, ids)


def aligned(rankings: Sequence[Ranking]) -> list[Ranking]:
    """The rankings with one list of ids, so that they can be fused; those of one index have it already.

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


def best(rows: np.ndarray, scores: np.ndarray, k: int, ids: Sequence[str] | None) -> Ranking:
    """The k best of the candidates `rows` [q, c] (-1 for none) by `scores` [q, c]; ties in the order of the ids.

    Without ids, ties are in the order of the rows.

    >>> best(np.array([[4, 2, -1, 7]]), np.array([[1.0, 1.0, 0.0, 3.0]]), 2, None).rows.tolist()
    [[7, 2]]
    """
    if k < 0:
        raise ArgumentError(f"k must not be negative, not {k}")
    none = rows < 0
    order = np.lexsort((_tie_order(rows, ids), np.where(none, np.inf, -scores)), axis=-1)[:, :k]
    top_rows = np.full((len(rows), k), -1, dtype=np.int32)
    top_scores = np.zeros((len(rows), k), dtype=np.float32)
    width = order.shape[1]
    top_rows[:, :width] = np.take_along_axis(rows, order, axis=1)
    top_scores[:, :width] = np.take_along_axis(np.where(none, 0, scores), order, axis=1)
    return Ranking(top_rows, top_scores, ids)


def _tie_order(rows: np.ndarray, ids: Sequence[str] | None) -> np.ndarray:
    """Numbers [q, c] that order the candidates as their ids do."""
    if ids is None:
        return rows
    distinct, position = np.unique(rows, return_inverse=True)
    names = np.array(["" if row < 0 else ids[row] for row in distinct.tolist()], dtype=object)
    _, ranks = np.unique(names, return_inverse=True)
    order: np.ndarray = ranks[position.reshape(rows.shape)]
    return order


def read_trec(path: str | os.PathLike[str]) -> list[ScoredDoc]:
    """Read a TREC run: one `query Q0 document rank score tag` a line, in any order.

    Blank lines are passed over. Raises `DataError`, with the line's number, for a line of another shape, a score that
    is not a finite number, and a document that a query already has; and for a file without any line.
    """
    run: dict[tuple[str, str], ScoredDoc] = {}
    for number, line in numbered(lambda: file_lines(Path(path)), str(path))():
        try:
            fields = decode(number, line).split()
            if not fields:
                continue
            if len(fields) != 6:
                raise ValueError(f"expected six fields (query Q0 document rank score tag), found {len(fields)}")
            query, _, document, _, text, _ = fields
            if (query, document) in run:
                raise ValueError(f"query {query!r} already has document {document!r}")
            with suppress(ValueError):
                if np.isfinite(score := decimal(text)):
                    run[query, document] = ScoredDoc(query, document, score)
                    continue
            raise ValueError(f"the score {text!r} is not a finite number")
        except ValueError as error:
            raise DataError(str(error), source=str(path), line=number) from error
    if not run:
        raise DataError("an empty run: no query has a result", source=str(path))
    return list(run.values())


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
