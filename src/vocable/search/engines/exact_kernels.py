"""The loops of exact search, compiled: term-at-a-time accumulation, selection of the best, and rescoring.

A sparse matrix is the tuple (starts, columns, weights) of its CSR arrays; `postings` are the documents by term (CSC).
All run without the interpreter's lock and write only to the arrays they are given, so that threads can share the work.

Shapes: n documents, q queries, v output vocabulary, k results, c candidates, m chosen documents.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import Any, TypeVar, cast

import numba
import numpy as np

WINDOW = 65_536  # documents: 256 KiB of scores
BLOCK = 128  # documents whose scores are compared with the threshold at once: LLVM makes vectors of it, not of 64
LOW = 0xFFFFFFFF  # the half of a key that is the document

Function = TypeVar("Function", bound=Callable[..., Any])
Sparse = tuple[np.ndarray, np.ndarray, np.ndarray]


def compiled(function: Function) -> Function:
    """Compile at the first call and keep the machine code on disk for the next process."""
    return cast(Function, numba.njit(nogil=True, cache=True)(function))


@compiled
def search(
    postings: Sparse,
    n: int,
    queries: Sparse,
    needed: np.ndarray,
    allowed: np.ndarray,
    rows: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Fill `rows` [q, k] with the best documents of each query, best first, and `scores` [q, k]; both arrive empty.

    The postings of a term are in ascending order of the document. Of equal scores the lower document is better.
    `needed` [q] is the number of query terms that a document must have; `allowed` [n] says which documents may be hits,
    all of them if it is empty. A document's score is the sum over the query's
    terms in their order, in float32.
    """
    starts, documents, weights = postings
    query_starts, query_terms, query_weights = queries
    k = rows.shape[1]
    length = -(-min(n, WINDOW) // BLOCK) * BLOCK
    window = np.zeros(length, np.float32)
    blocks = window.view(np.int32).reshape(-1, BLOCK)
    matched = np.zeros(length if needed.size and needed.max() > 1 else 0, np.int32)
    for q in range(len(query_starts) - 1):
        terms = query_terms[query_starts[q] : query_starts[q + 1]]
        term_weights = query_weights[query_starts[q] : query_starts[q + 1]]
        cursors = starts[terms]
        heap = [np.int64(0)]
        heap.clear()
        for base in range(0, n, WINDOW):
            limit = min(base + WINDOW, n)
            for j in range(len(terms)):
                weight, start, end = term_weights[j], cursors[j], starts[terms[j] + 1]
                if limit < n:
                    end = start + np.searchsorted(documents[start:end], limit)
                for p in range(start, end):  # a place that cannot be negative is not looked at twice
                    window[np.uint32(documents[p] - base)] += weight * weights[p]
                if needed[q] > 1:
                    for p in range(start, end):
                        matched[documents[p] - base] += 1
                cursors[j] = end
            width = limit - base
            if needed[q] > 1:
                for i in range(width):
                    if matched[i] < needed[q]:
                        window[i] = 0
                    matched[i] = 0
            if allowed.size:
                for i in range(width):
                    if not allowed[base + i]:
                        window[i] = 0
            _collect(blocks[: -(-width // BLOCK)], base, heap, k)
        for position in range(len(heap) - 1, -1, -1):  # the worst comes first
            key = heappop(heap)
            scores[q, position] = np.int32(key >> 32).view(np.float32)
            rows[q, position] = LOW - (key & LOW)


@compiled
def count_matches(postings: Sparse, n: int, queries: Sparse, needed: np.ndarray, counts: np.ndarray) -> None:
    """Fill `counts` [q] with the number of documents that have `needed` [q] terms of a query, one at least."""
    starts, documents, _ = postings
    query_starts, query_terms, _ = queries
    shared = np.zeros(n, np.int32)
    for q in range(len(query_starts) - 1):
        terms, enough = query_terms[query_starts[q] : query_starts[q + 1]], max(1, needed[q])
        for term in terms:
            for p in range(starts[term], starts[term + 1]):
                shared[documents[p]] += 1
                if shared[documents[p]] == enough:
                    counts[q] += 1
        for term in terms:
            for p in range(starts[term], starts[term + 1]):
                shared[documents[p]] = 0


@compiled
def find_postings(postings: Sparse, chosen: np.ndarray, found: np.ndarray) -> None:
    """Fill `found` [m, v], which arrives as -1, with the place of each `chosen` [m] document in each posting list."""
    starts, documents, _ = postings
    for m in range(len(chosen)):
        for t in range(len(starts) - 1):
            p = starts[t] + np.searchsorted(documents[starts[t] : starts[t + 1]], chosen[m])
            if p < starts[t + 1] and documents[p] == chosen[m]:
                found[m, t] = p


@compiled
def rescore(documents: Sparse, v: int, queries: Sparse, rows: np.ndarray, scores: np.ndarray) -> None:
    """Fill `scores` [q, c] with the dot products of each query and its candidates `rows` [q, c] (-1: none).

    `documents` are [n, v]. The sum runs in the order of the terms, as in `search`.
    """
    starts, terms, weights = documents
    query_starts, query_terms, query_weights = queries
    dense = np.zeros(v, np.float32)
    for q in range(len(query_starts) - 1):
        for j in range(query_starts[q], query_starts[q + 1]):
            dense[query_terms[j]] = query_weights[j]
        for c in range(rows.shape[1]):
            score = np.float32(0)
            if rows[q, c] >= 0:
                for p in range(starts[rows[q, c]], starts[rows[q, c] + 1]):
                    score += dense[terms[p]] * weights[p]
            scores[q, c] = score
        for j in range(query_starts[q], query_starts[q + 1]):
            dense[query_terms[j]] = 0


@compiled
def _collect(blocks: np.ndarray, base: int, heap: list[np.int64], k: int) -> None:
    """Take what beats the worst of the k best into the `heap`, which has the worst in front, and leave 0 behind.

    `blocks` [b, BLOCK] are the scores of the documents from `base` on as the integers of their bits, which are in the
    order of the scores where none is below 0. A key is these bits, then the bits of LOW - document: of equal scores
    the lower document is the better. Documents come in ascending order, so an equal score never beats.
    """
    threshold = np.int32(heap[0] >> 32) if len(heap) == k else np.int32(0)
    for b in range(len(blocks)):
        highest = np.int32(0)
        for i in range(BLOCK):  # no branch: many comparisons in one instruction
            highest = max(highest, blocks[b, i])
        if highest > threshold:
            for i in range(BLOCK):
                if blocks[b, i] > threshold:
                    key = (np.int64(blocks[b, i]) << 32) | np.int64(LOW - (base + b * BLOCK + i))
                    if len(heap) < k:
                        heappush(heap, key)
                    else:
                        heapreplace(heap, key)
                    if len(heap) == k:
                        threshold = np.int32(heap[0] >> 32)
        for i in range(BLOCK):  # while it is in the cache
            blocks[b, i] = 0
