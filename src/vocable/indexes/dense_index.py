"""Exact search of dense vectors in 8 bits: one product over all documents.

Each vector has a unit, and its numbers are multiples of the unit from -127 to 127. Sums of products of whole numbers
below 2^24 are exact in float32, so that equal vectors have equal scores on any processor and with any number of
threads.

Letters: n documents, d dimensions, q queries, k results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from vocable.core.storage import StrPath
from vocable.errors import VectorsError
from vocable.indexes.ranking import Ranking, best

LARGEST_INT8 = 127
FLOAT32_EXACT = 2**24  # smaller whole numbers are exact in float32
BLOCK_SCORES, BLOCK_DOCUMENTS = 1 << 24, 1 << 14  # scores and documents that are held at once


def rounded(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors [n, d] as int8, and their units, float32 [n].

    >>> numbers, units = rounded(np.array([[1.0, -0.5], [0.0, 0.0]]))
    >>> numbers.tolist(), np.allclose(numbers * units[:, None], [[1.0, -64 / 127], [0.0, 0.0]])
    ([[127, -64], [0, 0]], True)
    """
    units = (np.abs(vectors).max(axis=1, initial=0) / LARGEST_INT8).astype(np.float32)
    return np.rint(vectors / np.where(units > 0, units, 1)[:, None]).astype(np.int8), units


class DenseIndex:
    """Dense vectors of n documents, searched exhaustively by the dot product; ties are broken by id."""

    def __init__(self, numbers: np.ndarray, units: np.ndarray, ids: Sequence[str] | None = None) -> None:
        """Take the result of `rounded`."""
        self.numbers, self.units, self.ids = numbers, units, ids

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self.numbers.nbytes + self.units.nbytes)

    def get(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors of documents by row, float32 [m, d]."""
        return self.numbers[rows] * self.units[rows][:, None]

    def search(self, queries: np.ndarray, k: int = 10, *, allowed: np.ndarray | None = None) -> Ranking:
        """Return the k documents with the highest positive dot product for each of `queries` [q, d].

        `allowed`, bool [n], marks the documents that may be hits. Raises `VectorsError` for queries with another d.

        >>> index = DenseIndex(*rounded(np.array([[1.0, 0.0], [0.6, 0.8]])), ids=["a", "b"])
        >>> [(name, round(score, 2)) for name, score in index.search(np.array([[1.0, 0.0]])).hits(0)]
        [('a', 1.0), ('b', 0.6)]
        """
        n, d = self.numbers.shape
        if queries.shape[1:] != (d,):
            raise VectorsError(f"dense queries {list(queries.shape)}: the index has {d} dimensions")
        # Integers of 8 bits [q, d] and their units [q]. Their products have exact sums in float32 if d is small.
        given, scales = rounded(np.asarray(queries, dtype=np.float32))
        exact = given.astype(np.float32 if d * LARGEST_INT8**2 < FLOAT32_EXACT else np.float64)
        rankings = []
        step = max(1, BLOCK_SCORES // max(1, n))
        for start in range(0, len(exact), step):
            # [queries of a block, n]
            scores = np.empty((len(exact[start : start + step]), n), dtype=np.float32)
            for first in range(0, n, BLOCK_DOCUMENTS):
                part = slice(first, first + BLOCK_DOCUMENTS)
                products = exact[start : start + step] @ self.numbers[part].T.astype(exact.dtype)
                scores[:, part] = products * self.units[part]
            if allowed is not None:
                scores[:, ~allowed] = 0
            rankings += [self._best(row, k) for row in scores]
        # [q, k]
        rows = np.array([ranking.rows[0] for ranking in rankings], dtype=np.int32).reshape(len(exact), k)
        values = np.array([ranking.scores[0] for ranking in rankings], dtype=np.float32).reshape(len(exact), k)
        return Ranking(rows, values * scales[:, None], self.ids)

    def _best(self, scores: np.ndarray, k: int) -> Ranking:
        """Return the k best documents by the scores [n] of one query; ties for the last place are broken by id."""
        least = np.partition(scores, len(scores) - k)[len(scores) - k] if k < len(scores) else 0.0
        rows = np.flatnonzero((scores >= least) & (scores > 0)).astype(np.int32)
        return best(rows[None], scores[rows][None], k, self.ids)

    @classmethod
    def stored(cls, arrays: Mapping[str, np.ndarray], place: StrPath, *, verified: bool = False) -> Self:
        """Return the vectors in the stored arrays `numbers` and `units`; raise `VectorsError` for damage.

        Contents that were `verified` before are not read again.
        """
        numbers, units = (arrays.get(name, np.empty(0)) for name in ("numbers", "units"))
        types = numbers.dtype == np.int8 and units.dtype == np.float32
        if not types or numbers.ndim != 2 or units.shape != numbers.shape[:1]:
            raise VectorsError(f"{place}: the index is damaged: not vectors in 8 bits")
        if not verified and not (np.isfinite(units).all() and (units >= 0).all()):
            raise VectorsError(f"{place}: the index is damaged: a unit is not a positive number")
        return cls(numbers, units)
