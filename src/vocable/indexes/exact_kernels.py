"""Compiled loops of exact search: term-at-a-time accumulation, selection of the k best, and rescoring.

A sparse matrix is the tuple (starts, columns, weights) of its CSR arrays. `postings` has a list for each term and
window of consecutive documents: list `term * w + window` has the positions within the window (two bytes each) of the
documents with the term. All functions run without the interpreter's lock and write only to arrays in their arguments,
so threads can share the work.

Shapes: n documents, w windows of documents, q queries, v output terms, k results, c candidates, m chosen documents.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from threading import local
from typing import TypeVar, cast

import numba
import numpy as np
from numpy.ma import MaskedArray  # noqa: F401  # numba reads it in threads: a lazy module must be loaded before

from vocable.indexes.exact_numpy import WINDOW_SIZE, Sparse

# Documents whose scores are compared with the threshold at once; LLVM vectorizes this loop, but not a loop of 64.
BLOCK = 128
LOW = 0xFFFFFFFF  # mask of the half of a key that holds the document

Function = TypeVar("Function", bound=Callable[..., object])
_kept = local()


def compiled(function: Function) -> Function:
    """Compile at the first call, and cache the machine code for later processes if the cache is writable."""
    try:
        return cast(Function, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no writable cache, neither next to the source nor in the home folder
        return cast(Function, numba.njit(nogil=True)(function))


@compiled
def _windows_of(n: int) -> int:
    return max(1, (n + WINDOW_SIZE - 1) // WINDOW_SIZE)


def search(
    postings: Sparse,
    n: int,
    queries: Sparse,
    needed: np.ndarray,
    allowed: np.ndarray,
    rows: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Fill `rows` [q, k] with the best documents of each query, best first, and `scores` [q, k] with their scores.

    `rows` initially are -1, `scores` 0. Positions ascend within a list. Equal scores are ordered by document,
    ascending. `needed` [q] is the number of query terms that a hit must have. `allowed` [n] is True for documents that
    may be hits, or empty if all may. A score is the float32 sum over the query's terms in their order.
    """
    window = _window(-(-min(n, WINDOW_SIZE) // BLOCK) * BLOCK)
    try:
        _search(postings, n, queries, needed, allowed, window, rows, scores)
    except BaseException:  # no memory for the hits: the next search must not see the scores of this search
        window[:] = 0
        raise


def _window(room: int) -> np.ndarray:
    """Return zeros for the scores of a window, float32 [room]; each thread keeps them, and a search resets them.

    New memory would cost a sixth of a query over 100,000 documents: the system hands it out page by page.
    """
    window = np.asarray(getattr(_kept, "window", ()), np.float32)
    if len(window) < room:
        _kept.window = window = np.zeros(room, np.float32)
    return window[:room]


@compiled
def _search(
    postings: Sparse,
    n: int,
    queries: Sparse,
    needed: np.ndarray,
    allowed: np.ndarray,
    window: np.ndarray,
    rows: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Carry out `search`; `window` is a buffer of scores, which are 0 before and after."""
    starts, places, weights = postings
    query_starts, query_terms, query_weights = queries
    windows, k = _windows_of(n), rows.shape[1]
    blocks = window.view(np.int32).reshape(-1, BLOCK)
    matched = np.zeros(len(window) if needed.size and needed.max() > 1 else 0, np.int32)
    for q in range(len(query_starts) - 1):
        terms = query_terms[query_starts[q] : query_starts[q + 1]]
        term_weights = query_weights[query_starts[q] : query_starts[q + 1]]
        heap = [np.int64(0)]
        heap.clear()
        for number in range(windows):
            base = number * WINDOW_SIZE
            width = min(WINDOW_SIZE, n - base)
            for j in range(len(terms)):
                weight, here = term_weights[j], terms[j] * windows + number
                for p in range(starts[here], starts[here + 1]):
                    window[places[p]] += weight * np.float32(weights[p])
                if needed[q] > 1:
                    for p in range(starts[here], starts[here + 1]):
                        matched[places[p]] += 1
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
        for position in range(len(heap) - 1, -1, -1):  # the heap yields the worst first
            key = heappop(heap)
            scores[q, position] = np.int32(key >> 32).view(np.float32)
            rows[q, position] = LOW - (key & LOW)


@compiled
def in_order(matrix: Sparse, size: int) -> bool:
    """Return True if columns ascend within rows and weights are positive, as `vectors.as_vectors` ensures."""
    starts, columns, weights = matrix
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(columns) or len(columns) != len(weights):
        return False
    for row in range(len(starts) - 1):
        start, end = starts[row], starts[row + 1]
        if not 0 <= start <= end <= len(columns):
            return False
        previous = -1
        for p in range(start, end):
            if not (previous < columns[p] < size and 0 < weights[p] < np.inf):
                return False
            previous = columns[p]
    return True


@compiled
def count_matches(postings: Sparse, n: int, queries: Sparse, needed: np.ndarray, counts: np.ndarray) -> None:
    """Fill `counts` [q] with the number of documents that have at least max(1, `needed` [q]) terms of a query."""
    starts, places, _ = postings
    query_starts, query_terms, _ = queries
    windows, shared = _windows_of(n), np.zeros(min(n, WINDOW_SIZE), np.int32)
    for q in range(len(query_starts) - 1):
        terms, enough = query_terms[query_starts[q] : query_starts[q + 1]], max(1, needed[q])
        for number in range(windows):
            for term in terms:
                for p in range(starts[term * windows + number], starts[term * windows + number + 1]):
                    shared[places[p]] += 1
                    if shared[places[p]] == enough:
                        counts[q] += 1
            shared[:] = 0


@compiled
def find_postings(postings: Sparse, n: int, chosen: np.ndarray, entries: np.ndarray) -> None:
    """Fill `entries` [m, v], initially -1, with the index of each posting of the `chosen` [m] documents."""
    starts, places, _ = postings
    windows = _windows_of(n)
    for m in range(len(chosen)):
        number, place = divmod(chosen[m], WINDOW_SIZE)
        for t in range(entries.shape[1]):
            start, end = starts[t * windows + number], starts[t * windows + number + 1]
            p = start + np.searchsorted(places[start:end], place)
            if p < end and places[p] == place:
                entries[m, t] = p


@compiled
def score_candidates(postings: Sparse, n: int, queries: Sparse, candidates: np.ndarray, scores: np.ndarray) -> None:
    """Fill `scores` [q, c] with the dot products of each query and its `candidates` [q, c] (-1: no candidate).

    It looks up the postings, and sums in the order of the terms, as `search` does.
    """
    starts, places, weights = postings
    query_starts, query_terms, query_weights = queries
    windows = _windows_of(n)
    for q in range(len(query_starts) - 1):
        for c in range(candidates.shape[1]):
            score = np.float32(0)
            if candidates[q, c] >= 0:
                number, place = divmod(candidates[q, c], WINDOW_SIZE)
                for j in range(query_starts[q], query_starts[q + 1]):
                    here = query_terms[j] * windows + number
                    p, end = starts[here], starts[here + 1]
                    p += np.searchsorted(places[p:end], place)
                    if p < end and places[p] == place:
                        score += query_weights[j] * np.float32(weights[p])
            scores[q, c] = score


@compiled
def rescore(documents: Sparse, v: int, queries: Sparse, rows: np.ndarray, scores: np.ndarray) -> None:
    """Fill `scores` [q, c] with the dot products of each query and its candidates `rows` [q, c] (-1: no candidate).

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
    """Push scores that beat the worst of the k best into the `heap`, a min-heap, and reset the `blocks` to 0.

    `blocks` [b, BLOCK] are the bits of the scores of the documents from `base` on, as integers. These integers have the
    order of the scores, because scores are not negative. A key is these bits followed by LOW - document, so that with
    equal scores the lower document is better. Documents come in ascending order, so a score never replaces an equal
    score.
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
        for i in range(BLOCK):  # while the block is in the CPU cache
            blocks[b, i] = 0
