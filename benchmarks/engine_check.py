"""Compare searches of an engine with exact search, within the precision that it declares.

Letters: n documents, q queries, k results.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.core.tables import masked
from vocable.data import Document
from vocable.engines.base import Store
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.ranking import Ranking

# Largest relative error of a stored weight; sums of float32 products in another order add `SLACK`.
PRECISIONS = {"float32": 0.0, "float16": 2.0**-11, "9 bits": 2.0**-8}
SLACK = 2e-6


@dataclass(frozen=True)
class EngineCheck:
    """The outcome of a check; errors are relative to the scores of exact search."""

    place: str
    engine: str
    exact: bool
    precision: str
    documents: int
    queries: int
    k: int
    seconds: float  # time to write all documents
    bytes: int | None  # size that the engine reports
    milliseconds: float  # median of the queries
    p95: float  # milliseconds
    p99: float
    score_error: float  # largest
    allowed_error: float  # bound of the declared precision
    rank_agreement: float  # share of ranks with exact search's document, or a document of the same score
    recall: float  # share of exact search's hits that are found; others with the same score also count
    lost_terms: int  # terms of the vectors that the engine did not store

    @property
    def as_declared(self) -> bool:
        """Return whether the engine has its declared precision and, if it is declared exact, all hits in order."""
        kept = self.score_error <= self.allowed_error and not self.lost_terms
        return kept and (not self.exact or self.recall == self.rank_agreement == 1)


def compare_with_exact(
    engine: type[Store],
    address: str,
    place: str,
    documents: Sequence[Document],
    vectors: csr_array,
    queries: csr_array,
    depths: Sequence[int],
) -> list[EngineCheck]:
    """Write documents with vectors [n, v] to an engine, compare searches [q, v] with exact search, and remove them.

    There is one check for each of the `depths`, the numbers of hits.
    """
    about = engine.about
    ids = [document.id for document in documents]
    exact = ExactIndex(vectors, ids)
    started = time.perf_counter()
    store = engine.create(address, {"sparse": vectors.shape[1]}, {})
    try:
        store.upsert(documents, {"sparse": vectors})
        if not about.changes:
            store.optimize()  # makes the index
        seconds, size = time.perf_counter() - started, store.nbytes
        searched = [_searched(store, queries, k) for k in depths]
        stored = csr_array(store.vectors(ids))
    finally:
        store.drop()
        with suppress(Exception):
            store.close()
    allowed = PRECISIONS[about.precision] + SLACK
    kept = int(csr_array(stored).astype(bool).multiply(vectors.astype(bool)).nnz)
    checks = []
    for k, (answers, times) in zip(depths, searched, strict=True):
        error, agreement, recall = _compared(exact.search(queries, k), answers, exact, queries, allowed)
        check = EngineCheck(
            place=masked(place),
            engine=about.engine,
            exact=about.exact,
            precision=about.precision,
            documents=len(documents),
            queries=queries.shape[0],
            k=k,
            seconds=seconds,
            bytes=size,
            milliseconds=1000 * float(np.median(times)),
            p95=1000 * float(np.quantile(times, 0.95)),
            p99=1000 * float(np.quantile(times, 0.99)),
            score_error=error,
            allowed_error=allowed,
            rank_agreement=agreement,
            recall=recall,
            lost_terms=vectors.nnz - kept,
        )
        checks.append(check)
    return checks


def _searched(store: Any, queries: csr_array, k: int) -> tuple[list[list[tuple[str, float]]], list[float]]:
    """Return the hits of each query, searched alone, and its seconds."""
    store.search(queries[[0]], k)  # not timed: the first call compiles or loads
    answers, times = [], []
    for row in range(queries.shape[0]):
        started = time.perf_counter()
        answers.append(store.search(queries[[row]], k).hits(0))
        times.append(time.perf_counter() - started)
    return answers, times


def _compared(
    wanted: Ranking,
    answers: Sequence[Sequence[tuple[str, float]]],
    exact: ExactIndex,
    queries: csr_array,
    allowed: float,
) -> tuple[float, float, float]:
    """Return the largest relative error of a score, the rank agreement, and the recall.

    Documents whose exact scores differ by no more than the allowed error count as the same.
    """
    rows = {identifier: row for row, identifier in enumerate(exact.ids or ())}
    error, placed, recalled, total = 0.0, 0, 0, 0
    for query, hits in enumerate(answers):
        best = wanted.hits(query)
        products = exact.get([rows[name] for name, _ in hits]) @ queries[[query]].T
        truth = products.toarray()[:, 0] if hits else np.empty(0)
        scores = np.array([score for _, score in hits])
        error = max(error, float(np.max(np.abs(scores - truth) / truth, initial=0)))
        ideal = np.array([score for _, score in best])
        total += len(best)
        slack = 2 * allowed  # both scores may be off
        shared = min(len(ideal), len(truth))
        placed += int((np.abs(truth[:shared] - ideal[:shared]) <= slack * ideal[:shared]).sum())
        recalled += int((truth[: len(best)] >= ideal[-1] * (1 - slack)).sum()) if len(best) else 0
    return error, placed / max(1, total), recalled / max(1, total)
