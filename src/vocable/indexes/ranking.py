"""Rankings of documents, and TREC runs.

Shapes: q queries, c candidates, k results, n documents.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from vocable.core.storage import replacing
from vocable.data import ScoredDoc, read_run
from vocable.errors import ArgumentError, DataError

Ties: TypeAlias = Literal["search", "trec_eval"]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The k best documents of q queries, best first; equal scores are in the order of the ids.

    `rows` int32 [q, k] are row numbers of documents, and -1 with score 0 if a query has fewer hits; `scores` are
    float32 [q, k]. `ids` are the n document ids by row, if the index has ids. `offset` is the number of better
    documents that were skipped. After a reranking, `first_scores` are the scores before it, `reranked` [q] the number
    of hits that it scored, and `rerank_ms` [q] the milliseconds that it took. `parts` are rankings by kind of vectors:
    the scores of a document in them sum up to its score before a reranking, and a missing document counts 0. `missing`
    names the part of the collection that was not searched.
    """

    rows: np.ndarray
    scores: np.ndarray
    ids: Sequence[str] | None = None
    offset: int = 0
    first_scores: np.ndarray | None = None
    parts: Mapping[str, Ranking] | None = None
    missing: str | None = None
    rerank_ms: np.ndarray | None = None
    reranked: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.rows.shape != self.scores.shape:
            raise ArgumentError(f"rows {self.rows.shape} and scores {self.scores.shape} must have one shape [q, k]")

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Ranking({len(self)} quer{'y' if len(self) == 1 else 'ies'}, k={self.rows.shape[1]})"

    def hits(self, query: int) -> list[tuple[str, float]]:
        """Return the (document id, score) pairs of one query, best first; row numbers replace missing ids."""
        pairs = zip(self.rows[query].tolist(), self.scores[query].tolist(), strict=True)
        return [(str(row) if self.ids is None else self.ids[row], score) for row, score in pairs if row >= 0]

    __getitem__ = hits

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the ranking with the ids of its hits alone."""
        # The rows of all hits, sorted. A row becomes its place among them.
        rankings = [self, *(self.parts or {}).values()]
        rows = np.unique(np.concatenate([ranking.rows.ravel() for ranking in rankings]))
        rows = rows[rows >= 0]
        ids = None if self.ids is None else [self.ids[row] for row in rows.tolist()]

        def moved(ranking: Ranking) -> np.ndarray:
            places = np.searchsorted(rows, ranking.rows).astype(np.int32)
            return ranking.rows if ids is None else np.where(ranking.rows < 0, np.int32(-1), places)

        kinds = self.parts and {name: replace(part, rows=moved(part), ids=ids) for name, part in self.parts.items()}
        values = self.scores, ids, self.offset, self.first_scores, kinds, self.missing, self.rerank_ms, self.reranked
        return Ranking, (moved(self), *values)

    def first(self, k: int) -> Ranking:
        """Return the ranking of the k best documents."""
        return self._columns(slice(k))

    def after(self, offset: int, min_score: float | None = None) -> Ranking:
        """Return the ranking after its `offset` best documents, without documents that score less than `min_score`.

        >>> ranking_of([[("a", 3.0), ("b", 2.0), ("c", 1.0)]], k=3).after(1, min_score=2).hits(0)
        [('b', 2.0)]
        """
        left = replace(self._columns(slice(offset, None)), offset=offset)
        if min_score is None:
            return left
        enough = left.scores >= np.float32(min_score)
        rows, scores = np.where(enough, left.rows, np.int32(-1)), np.where(enough, left.scores, np.float32(0))
        return replace(left, rows=rows, scores=scores)

    def _columns(self, columns: slice) -> Ranking:
        first = None if self.first_scores is None else self.first_scores[:, columns]
        return replace(self, rows=self.rows[:, columns], scores=self.scores[:, columns], first_scores=first)

    def without(self, ids: Sequence[str]) -> Ranking:
        """Return the ranking without one document of each query, if it is a hit.

        >>> ranking_of([[("a", 3.0), ("b", 2.0)], [("a", 1.0)]], k=2).without(["a", "b"]).rows.tolist()
        [[1, -1], [0, -1]]
        """
        rows, scores = self.rows.copy(), self.scores.copy()
        for query, left_out in enumerate(ids):
            for place, (name, _) in enumerate(self.hits(query)):
                if name == left_out:
                    rows[query, place:] = [*rows[query, place + 1 :], -1]
                    scores[query, place:] = [*scores[query, place + 1 :], 0]
        return Ranking(rows, scores, self.ids, missing=self.missing)

    def to_run(self, query_ids: Sequence[str]) -> list[ScoredDoc]:
        """Return the hits as records, with the q `query_ids` by row."""
        return [ScoredDoc(query, *hit) for query, hits in self._by_query(query_ids) for hit in hits]

    def _by_query(self, query_ids: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, float]]]]:
        if len(query_ids) != len(self.rows):
            raise ArgumentError(f"{len(query_ids)} query ids for a ranking of {len(self.rows)} queries")
        return ((query_id, self.hits(query)) for query, query_id in enumerate(query_ids))

    def write_trec(self, path: str | os.PathLike[str], query_ids: Sequence[str], tag: str = "vocable") -> None:
        """Write the hits as a TREC run: `query Q0 document rank score tag`, ranks from `offset` + 1.

        Programs that read a run sort it by score and break ties differently. Therefore equal scores of a query are
        written as falling scores: the next smaller float32 after the previous line. Any other score is read back as the
        same float32. Raises `DataError` for an id that is empty or has white space, which the format cannot hold.
        """
        ranked = self._by_query(query_ids)
        with replacing(path) as file:
            for query, hits in ranked:
                scores = falling([score for _, score in hits])
                for rank, ((document, _), score) in enumerate(zip(hits, scores, strict=True), start=self.offset + 1):
                    line = f"{query} Q0 {document} {rank} {score!s} {tag}"
                    if len(line.split()) != 6:
                        message = f"query {query!r}, document {document!r}: a TREC run cannot hold white space"
                        raise DataError(message, source=str(path))
                    file.write(f"{line}\n".encode())

    @classmethod
    def from_run(cls, run: Iterable[ScoredDoc], query_ids: Sequence[str], ids: Sequence[str]) -> Ranking:
        """Return the ranking of a run, for the queries `query_ids` and the documents `ids`.

        k is the largest number of hits of a query; ties are in the order of the ids. A query without hits has a row of
        -1. Raises `DataError` for a query or document that is not among the ids.
        """
        queries = {query_id: row for row, query_id in enumerate(query_ids)}
        documents = {document_id: row for row, document_id in enumerate(ids)}
        hits: list[list[tuple[int, float]]] = [[] for _ in query_ids]
        for hit in run:
            if hit.query_id not in queries or hit.doc_id not in documents:
                raise DataError(
                    f"the run has query {hit.query_id!r}, document {hit.doc_id!r}: one of the ids is unknown"
                )
            hits[queries[hit.query_id]].append((documents[hit.doc_id], hit.score))
        k = max(map(len, hits), default=0)
        # Rows and scores [q, k, 2]; a missing hit is (-1, 0).
        padded = np.array([pairs + [(-1, 0.0)] * (k - len(pairs)) for pairs in hits]).reshape(len(hits), k, 2)
        return best(padded[:, :, 0].astype(np.int32), padded[:, :, 1], k, ids)


def falling(scores: Sequence[float]) -> list[np.float32]:
    """Return descending scores as strictly descending float32, each as close to its score as possible.

    >>> [float(score) for score in falling([2.0, 1.0, 1.0, 0.5])]
    [2.0, 1.0, 0.9999999403953552, 0.5]
    """
    result: list[np.float32] = []
    below = np.float32(np.inf)
    for score in scores:
        result.append(min(np.float32(score), below))
        below = np.nextafter(result[-1], np.float32(-np.inf))
    return result


def in_order(hits: Mapping[str, float], ties: Ties = "search") -> list[str]:
    """Return the documents of {document id: score} by descending score, with ties broken by `ties`.

    "search" breaks ties in the order of the ids, as every `Ranking` does. "trec_eval" breaks ties in the reverse order
    and compares scores as float32, as trec_eval does.

    >>> in_order({"a": 0.5, "b": 0.5, "c": 0.75}), in_order({"a": 0.5, "b": 0.5, "c": 0.75}, "trec_eval")
    (['c', 'a', 'b'], ['c', 'b', 'a'])
    """
    ids = sorted(hits, reverse=ties == "trec_eval")
    scores = np.array([-hits[identifier] for identifier in ids], dtype=np.float64)
    if ties == "trec_eval":
        scores = scores.astype(np.float32)
    return [ids[place] for place in np.argsort(scores, kind="stable").tolist()]


def ranking_of(hits: Sequence[Sequence[tuple[str, float]]], k: int) -> Ranking:
    """Return the ranking of (document id, score) pairs of q queries; its ids are the ids of the hits, sorted.

    Ties are in the order of the ids; a document with score 0 is not a hit.

    >>> ranking_of([[("b", 1.0), ("a", 1.0)], [("c", 0.0)]], k=2).rows.tolist()
    [[0, 1], [-1, -1]]
    """
    ids = sorted({identifier for pairs in hits for identifier, _ in pairs})
    rows = {identifier: row for row, identifier in enumerate(ids)}
    c = max(map(len, hits), default=0)
    scored = [[(rows[identifier], score) for identifier, score in pairs if score > 0] for pairs in hits]
    padded = [pairs + [(-1, 0.0)] * (c - len(pairs)) for pairs in scored]
    candidates = np.array(padded, dtype=np.float64).reshape(len(hits), c, 2)
    return best(candidates[:, :, 0].astype(np.int32), candidates[:, :, 1].astype(np.float32), k, ids)


def best(rows: np.ndarray, scores: np.ndarray, k: int, ids: Sequence[str] | None) -> Ranking:
    """Return the k best of the candidates `rows` [q, c] (-1: no candidate) by `scores` [q, c], compared as float32.

    Ties are in the order of the ids; without ids, in the order of the rows.

    >>> best(np.array([[4, 2, -1, 7]]), np.array([[1.0, 1.0, 0.0, 3.0]]), 2, None).rows.tolist()
    [[7, 2]]
    """
    if k < 0:
        raise ArgumentError(f"k must not be negative, not {k}")
    none, scores = rows < 0, scores.astype(np.float32)
    # Places of the best candidates [q, k], by score, then by id. Places without a candidate come last.
    order = np.lexsort((_tie_order(rows, scores, ids), np.where(none, np.inf, -scores)), axis=-1)[:, :k]
    top_rows = np.full((len(rows), k), -1, dtype=np.int32)
    top_scores = np.zeros((len(rows), k), dtype=np.float32)
    width = order.shape[1]
    queries = np.arange(len(rows))[:, None]
    top_rows[:, :width] = rows[queries, order]
    top_scores[:, :width] = np.where(none, 0, scores)[queries, order]
    return Ranking(top_rows, top_scores, ids)


def _tie_order(rows: np.ndarray, scores: np.ndarray, ids: Sequence[str] | None) -> np.ndarray:
    """Return numbers [q, c] that have the order of the ids of those candidates whose scores are equal."""
    if ids is None:
        return rows
    ordered = np.sort(np.where(rows < 0, np.float32(-1), scores), axis=-1)
    equal = ordered[:, 1:][(ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)]
    if not len(equal):
        return rows
    equal = np.sort(equal)  # not np.isin, which imports all of numpy.ma
    tied = (equal[np.minimum(np.searchsorted(equal, scores), len(equal) - 1)] == scores) & (rows >= 0)
    distinct, position = np.unique(rows[tied], return_inverse=True)
    names = np.array([ids[row] for row in distinct.tolist()], dtype=object)
    _, ranks = np.unique(names, return_inverse=True)
    order = np.zeros(rows.shape, dtype=np.int64)
    order[tied] = ranks[position.reshape(-1)] if len(distinct) else 0
    return order


def read_trec(path: str | os.PathLike[str]) -> list[ScoredDoc]:
    """Read a TREC run: lines of `query Q0 document rank score tag` in any order.

    Blank lines, lines that begin with # and words after the tag are ignored. Raises `DataError`, with the number of
    the line, for another format, a score that is not finite, and a document that a query has twice with different
    scores. Raises it for an empty file, too.
    """
    if not (run := list(read_run(path))):
        raise DataError("an empty run: no query has a result", source=str(path))
    return run
