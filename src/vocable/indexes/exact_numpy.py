"""The loops of exact search in NumPy, for installations without the compiled loops, whose bits they give.

A sparse matrix is the tuple (starts, columns, weights) of its CSR arrays. `postings` has a list for each term and
window of consecutive documents: list `term * w + window` has the positions within the window (two bytes each) of the
documents with the term. Positions ascend within a list.

Shapes: n documents, w windows of documents, q queries, v output terms, k results, c candidates, m chosen documents.
"""

from __future__ import annotations

import numpy as np

from vocable.core.arrays import wrong_entries

Sparse = tuple[np.ndarray, np.ndarray, np.ndarray]
WINDOW_SIZE = 65_536  # documents: positions of 16 bits


def windows_of(n: int) -> int:
    """Return the number of windows, at least 1."""
    return max(1, (n + WINDOW_SIZE - 1) // WINDOW_SIZE)


def in_order(matrix: Sparse, size: int) -> bool:
    """Return True if columns ascend within rows and weights are positive, as `vectors.as_vectors` ensures."""
    starts, columns, weights = matrix
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(columns) or len(columns) != len(weights):
        return False
    return bool((starts[1:] >= starts[:-1]).all()) and not wrong_entries((weights, columns, starts), size)


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

    `rows` initially are -1, `scores` 0. Equal scores are ordered by document, ascending. `needed` [q] is the number of
    query terms that a hit must have. `allowed` [n] is True for documents that may be hits, or empty if all may. A score
    is the float32 sum over the query's terms in their order.
    """
    query_starts, query_terms, query_weights = queries
    accumulated = np.zeros(n, np.float32)
    for q in range(len(query_starts) - 1):
        # Scores [n], and the number of terms that each document shares with the query [n].
        here = slice(query_starts[q], query_starts[q + 1])
        accumulated[:] = 0
        matched = np.zeros(n, np.int32) if needed[q] > 1 else None
        _accumulate(postings, n, query_terms[here], query_weights[here], accumulated, matched)
        if matched is not None:
            accumulated[matched < needed[q]] = 0
        if allowed.size:
            accumulated[~allowed] = 0
        hits = _best(accumulated, rows.shape[1])
        rows[q, : len(hits)], scores[q, : len(hits)] = hits, accumulated[hits]


def _accumulate(
    postings: Sparse,
    n: int,
    terms: np.ndarray,
    weights: np.ndarray,
    accumulated: np.ndarray,
    matched: np.ndarray | None,
) -> None:
    """Add weight times weight to the score of each document [n], term by term in float32, and count the terms."""
    starts, places, values = postings
    windows = windows_of(n)
    # The list of each term in each window of documents, with its first posting and its end.
    lists = (terms.astype(np.int64)[:, None] * windows + np.arange(windows)).ravel()
    first, end = starts[lists].tolist(), starts[lists + 1].tolist()
    for number, weight in enumerate(weights):
        for window in range(windows):
            at = number * windows + window
            if first[at] == end[at]:
                continue
            # Scores of the documents in the window.
            part = accumulated[window * WINDOW_SIZE : (window + 1) * WINDOW_SIZE]
            documents = places[first[at] : end[at]]
            part[documents] += weight * values[first[at] : end[at]].astype(np.float32, copy=False)
            if matched is not None:
                matched[window * WINDOW_SIZE : (window + 1) * WINDOW_SIZE][documents] += 1


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the rows of the k highest scores [n] above 0, best first; the lower row of equal scores is better."""
    rows = np.flatnonzero(scores > 0)
    if len(rows) > k:
        values = scores[rows]
        least = np.partition(values, len(values) - k)[len(values) - k]
        above, equal = rows[values > least], rows[values == least]
        rows = np.concatenate([above, equal[: k - len(above)]])
    return rows[np.lexsort((rows, -scores[rows]))]


def count_matches(postings: Sparse, n: int, queries: Sparse, needed: np.ndarray, counts: np.ndarray) -> None:
    """Fill `counts` [q] with the number of documents that have at least max(1, `needed` [q]) terms of a query."""
    query_starts, query_terms, query_weights = queries
    for q in range(len(query_starts) - 1):
        here = slice(query_starts[q], query_starts[q + 1])
        matched = np.zeros(n, np.int32)
        _accumulate(postings, n, query_terms[here], query_weights[here], np.zeros(n, np.float32), matched)
        counts[q] = int((matched >= max(1, needed[q])).sum())


def find_postings(postings: Sparse, n: int, chosen: np.ndarray, entries: np.ndarray) -> None:
    """Fill `entries` [m, v], initially -1, with the index of each posting of the `chosen` [m] documents."""
    starts, places, _ = postings
    windows = windows_of(n)
    for m, document in enumerate(chosen.tolist()):
        number, place = divmod(document, WINDOW_SIZE)
        postings_here = np.flatnonzero(places == place)
        lists = np.searchsorted(starts, postings_here, side="right") - 1
        in_window = lists % windows == number
        entries[m, lists[in_window] // windows] = postings_here[in_window]


def score_candidates(postings: Sparse, n: int, queries: Sparse, candidates: np.ndarray, scores: np.ndarray) -> None:
    """Fill `scores` [q, c] with the dot products of each query and its `candidates` [q, c] (-1: no candidate)."""
    query_starts, query_terms, query_weights = queries
    for q in range(len(query_starts) - 1):
        here = slice(query_starts[q], query_starts[q + 1])
        accumulated = np.zeros(n + 1, np.float32)
        _accumulate(postings, n, query_terms[here], query_weights[here], accumulated, None)
        scores[q] = accumulated[candidates[q]]  # the last, for no candidate, is 0


def rescore(documents: Sparse, v: int, queries: Sparse, rows: np.ndarray, scores: np.ndarray) -> None:
    """Fill `scores` [q, c] with the dot products of each query and its candidates `rows` [q, c] (-1: no candidate).

    `documents` are [n, v]. The sum runs in the order of the terms, as in `search`.
    """
    starts, terms, weights = documents
    query_starts, query_terms, query_weights = queries
    for q in range(len(query_starts) - 1):
        here = slice(query_starts[q], query_starts[q + 1])
        dense = np.zeros(v, np.float32)
        dense[query_terms[here]] = query_weights[here]
        scores[q] = 0
        for c in np.flatnonzero(rows[q] >= 0):
            entries = slice(starts[rows[q, c]], starts[rows[q, c] + 1])
            # A cumulative sum adds one by one; `sum` would add in pairs.
            scores[q, c] = np.cumsum(dense[terms[entries]] * weights[entries], dtype=np.float32)[-1:].sum()
