"""Measure the costs of a retriever: active terms, FLOPS, bytes and times.

Shapes: q queries, n documents, v output vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from time import perf_counter
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vocable.core.progress import progress, track
from vocable.core.tables import NONE, short
from vocable.errors import ArgumentError, VectorsError

TIMED_ANSWERS = 200  # answers of each system; ten are slower than the 95th percentile
TURN = 16  # consecutive queries for the same system
TIMED_TEXTS, ENCODING_ROUNDS = 128, 5  # texts in a round of encoding, and number of rounds


def _column(title: str, text: Callable[[float], str] = short, *kinds: str) -> Any:
    """Return a field of `Cost` with the title of its column, the format of its values and its kinds for `without`."""
    return field(default=None, metadata={"title": title, "text": text, "kinds": kinds})


@dataclass(frozen=True)
class Cost:
    """The cost of a retriever; None for a cost that was not measured or does not apply."""

    query_terms: float | None = _column("query terms")  # mean number of active terms
    document_terms: float | None = _column("doc terms")
    flops: float | None = _column("FLOPS")  # mean number of terms that a query and a document share
    index_bytes: int | None = _column("index MB", lambda count: short(count / 1e6))
    bytes_per_document: float | None = _column("bytes/ doc", "{:,.0f}".format)
    documents_per_second: float | None = _column("docs/s", "{:.0f}".format)  # texts encoded per second
    search_p50_ms: float | None = _column("p50 ms")  # search for one encoded query, on one thread
    search_p95_ms: float | None = _column("p95 ms", short, "tail")
    answer_p50_ms: float | None = _column("answer p50 ms", short, "answer")  # one query, from its text to its hits
    answer_p95_ms: float | None = _column("answer p95 ms", short, "answer", "tail")
    rerank_p50_ms: float | None = _column("rerank p50 ms")  # reranking of the hits of one query
    rerank_p95_ms: float | None = _column("rerank p95 ms", short, "tail")
    # Share of the documents that have enough terms of a query to be scored, averaged over queries.
    matched: float | None = _column("matched", "{:.3g}".format)

    def without(self, kind: str) -> Cost:
        """Return the cost without one kind: `answer`, the times of whole answers, or `tail`, all 95th percentiles."""
        return replace(self, **{column.name: None for column in fields(self) if kind in column.metadata["kinds"]})


def cost_columns(costs: Sequence[Cost | None]) -> tuple[list[str], list[list[str]]]:
    """Return a table's header, and a row for each of `costs`; columns without any value are omitted."""
    header: list[str] = []
    rows: list[list[str]] = [[] for _ in costs]
    for column in fields(Cost):
        values = [getattr(cost, column.name, None) for cost in costs]
        if any(value is not None for value in values):
            header.append(column.metadata["title"])
            for row, value in zip(rows, values, strict=True):
                row.append(NONE if value is None else column.metadata["text"](value))
    return header, rows


def active_terms(vectors: csr_array) -> float:
    """Return the mean number of terms of `vectors` [n, v]; 0 without vectors.

    >>> active_terms(csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]])))
    1.5
    """
    return float(vectors.count_nonzero() / max(1, vectors.shape[0]))


def flops(queries: csr_array, documents: csr_array) -> float:
    """Return the mean number of terms that a query and a document share, over all pairs of [q, v] and [n, v].

    This is `sum_t p_q(t) p_d(t)`, where p(t) is the share of vectors with an active term t (Formal et al. 2021).

    >>> queries = csr_array(np.array([[1.0, 1.0, 0.0]]))
    >>> flops(queries, csr_array(np.array([[1.0, 2.0, 0.0], [0.0, 5.0, 7.0]])))
    1.5
    """
    if queries.shape[1] != documents.shape[1]:
        raise VectorsError(f"the queries have {queries.shape[1]} terms, the documents {documents.shape[1]}")
    return flops_of_rates(activation_rates(queries), activation_rates(documents))


def flops_of_rates(queries: NDArray[np.float64], documents: NDArray[np.float64]) -> float:
    """Return FLOPS by the activation rates [v] of queries and of documents."""
    return float((queries * documents).sum())  # the last digit of `np.dot` depends on the number of threads


def activation_rates(vectors: csr_array) -> NDArray[np.float64]:
    """Return for each term the share of `vectors` [n, v] that activate it, float64 [v]."""
    counts = np.bincount(vectors.indices[vectors.data != 0], minlength=vectors.shape[1])
    return np.asarray(counts / max(1, vectors.shape[0]))


class TimedSystem(NamedTuple):
    """A system to time: `encode` maps a query's text to its vector, and each of `searches` maps the vector to hits."""

    encode: Callable[[str], Any]
    searches: Sequence[Callable[[Any], object]]


def answer_times(
    systems: Sequence[TimedSystem], queries: Sequence[str], *, answers: int = TIMED_ANSWERS
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the milliseconds of encoding [t] and of each search [searches, t] by system, for one query at a time.

    All searches of a query run in random order right after its encoding. Systems take turns of `TURN` queries, so that
    other load on the machine affects all systems. Each turn answers its first query once more at the start, untimed.
    Queries are repeated until t is `answers`; if there are more queries, an even sample of `answers` queries is timed.
    """
    if not queries:
        raise ArgumentError("no queries to time answers to")
    # Seconds by system: encoding [t], searches [searches, t].
    repeated = [queries[row] for row in timed_rows(len(queries), answers)]
    rng = np.random.default_rng(0)
    times = [(np.empty(len(repeated)), np.empty((len(system.searches), len(repeated)))) for system in systems]
    with progress("time answers", len(repeated) * len(systems)) as advance:
        for first in range(0, len(repeated), TURN):
            turn = range(first, min(first + TURN, len(repeated)))
            for system, (encoding, searching) in zip(systems, times, strict=True):
                for number in (turn[0], *turn):  # the first query runs twice, and the second time counts
                    start = perf_counter()
                    vector = system.encode(repeated[number])
                    encoding[number] = perf_counter() - start
                    for search in rng.permutation(len(system.searches)):
                        start = perf_counter()
                        system.searches[search](vector)
                        searching[search, number] = perf_counter() - start
                advance(len(turn))
    return [(encoding * 1000, searching * 1000) for encoding, searching in times]


class AnswerTimes(TypedDict, total=False):
    """Fields of `Cost`: percentiles of the times of search and of the whole answer, in milliseconds."""

    search_p50_ms: float
    search_p95_ms: float
    answer_p50_ms: float
    answer_p95_ms: float


def answer_costs(encoding: NDArray[np.float64], searching: NDArray[np.float64]) -> AnswerTimes:
    """Return percentiles of the milliseconds of encoding and searching [t].

    >>> answer_costs(np.array([4.0]), np.array([1.0]))["answer_p50_ms"]
    5.0
    """
    search, answer = (np.percentile(times, [50, 95]) for times in (searching, encoding + searching))
    return {
        "search_p50_ms": float(search[0]),
        "search_p95_ms": float(search[1]),
        "answer_p50_ms": float(answer[0]),
        "answer_p95_ms": float(answer[1]),
    }


class RerankTimes(TypedDict, total=False):
    """Fields of `Cost`: percentiles of the time of reranking, in milliseconds."""

    rerank_p50_ms: float
    rerank_p95_ms: float


def rerank_costs(times: NDArray[np.float64]) -> RerankTimes:
    """Return percentiles of the milliseconds of reranking the hits of each query [q]."""
    p50, p95 = np.percentile(times, [50, 95])
    return {"rerank_p50_ms": float(p50), "rerank_p95_ms": float(p95)}


def timed_rows(count: int, answers: int = TIMED_ANSWERS) -> list[int]:
    """Return which of `count` queries are timed, as numbers in order, with repetitions if there are few queries."""
    return spread(count, answers) * -(-answers // count)


def encoding_rates(encoders: Sequence[Callable[[list[str]], object]], texts: Sequence[str]) -> list[float]:
    """Return the texts per second of each of `encoders`: the median of `ENCODING_ROUNDS` rounds.

    In each round, the encoders take turns with the same `TIMED_TEXTS` texts, an even sample. A further first round does
    not count.
    """
    sample = [texts[row] for row in spread(len(texts), TIMED_TEXTS)]
    seconds = np.empty((ENCODING_ROUNDS + 1, len(encoders)))
    for turn, number in track([*product(range(ENCODING_ROUNDS + 1), range(len(encoders)))], "time encoding"):
        start = perf_counter()
        encoders[number](sample)
        seconds[turn, number] = perf_counter() - start
    return [len(sample) / float(median) for median in np.median(seconds[1:], axis=0)]


def spread(count: int, limit: int) -> list[int]:
    """Return all numbers below `count`, or `limit` evenly spread numbers if `count` is larger.

    >>> spread(3, limit=4), spread(10, limit=4)
    ([0, 1, 2], [0, 2, 5, 7])
    """
    return list(range(count)) if count <= limit else [number * count // limit for number in range(limit)]
