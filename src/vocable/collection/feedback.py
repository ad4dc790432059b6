"""Feedback: queries with the terms of their first hits, for a second search (Rocchio 1971).

Letters: q queries, v terms, m hits of all queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vocable.encoding.pruning import prune
from vocable.encoding.vectors import as_vectors

HIT_WEIGHT = 0.3  # of the mean of a query's first hits, all vectors having the length of the query's
HIT_TERMS = 64  # largest weights of a hit


def fed_back(
    queries: csr_array, hits: Sequence[Sequence[str]], vectors_of: Callable[[list[str]], csr_array]
) -> csr_array:
    """Return query vectors [q, v] with the mean of the vectors of each query's `hits`, whose ids `vectors_of` reads."""
    distinct = [*dict.fromkeys(name for names in hits for name in names)]
    if not distinct:
        return queries
    stored = prune(vectors_of(distinct), max_terms=HIT_TERMS)  # [m, v]
    row_of = {name: row for row, name in enumerate(distinct)}
    columns = [row_of[name] for names in hits for name in names]
    counts = np.array([len(names) for names in hits])
    # The share [q, m] of each hit in its query.
    shares = np.repeat(HIT_WEIGHT * _lengths(queries) / np.maximum(counts, 1), counts) / _lengths(stored)[columns]
    mean = csr_array((shares, columns, np.r_[0, counts.cumsum()]), shape=(len(hits), len(distinct)))
    return as_vectors(queries + mean @ stored)


def _lengths(vectors: csr_array) -> NDArray[np.float64]:
    """Return the length of each vector, 1 of an empty one."""
    squares = np.asarray(vectors.multiply(vectors).sum(axis=1), dtype=np.float64).ravel()
    return np.where(squares > 0, np.sqrt(squares), 1.0)
