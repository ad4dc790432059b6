"""Counts of documents that a server has answered, kept for a few seconds.

Other programs can change documents without a new version of the collection, so that counts are kept only for
`KEPT_SECONDS`. A new version empties the cache at once.

Letters: t terms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

KEPT_SECONDS = 5.0  # during which counts are kept
KEPT_SETS = 64  # sets of documents whose counts are kept


class Counts(NamedTuple):
    """Numbers of documents: `of` terms by column, with the times of their counts, and `documents` at a time."""

    of: dict[int, tuple[int, float]]
    documents: int = 0
    time: float = -float("inf")


class KeptCounts:
    """Counts of sets of documents, each with a key, such as the documents that pass a filter."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, Counts] = {}
        self._version: object = None

    def count(
        self,
        key: Hashable,
        columns: np.ndarray,
        version: object,
        ask: Callable[[Sequence[int]], tuple[Mapping[int, int], int]],
    ) -> tuple[np.ndarray, int]:
        """Return the number of documents with each of t terms, int64 [t], and of all documents.

        `ask` counts the documents of terms that are not kept, by column, and all documents.
        """
        now = time.monotonic()
        if version is None or version != self._version or len(self._counts) > KEPT_SETS:
            self._counts, self._version = {}, version
        numbers, counts = columns.tolist(), self._counts.get(key, Counts({}))
        asked = [column for column in numbers if column not in counts.of or now - counts.of[column][1] >= KEPT_SECONDS]
        if asked or now - counts.time >= KEPT_SECONDS:
            of, documents = ask(asked)
            counts = Counts(counts.of | {column: (of.get(column, 0), now) for column in asked}, documents, now)
            self._counts[key] = counts
        return np.array([counts.of[column][0] for column in numbers], dtype=np.int64), counts.documents
