"""Counts of documents that a server has answered, and the record of a collection, kept for some seconds.

A new version of the collection empties the counts. The record, which has the version, is read again after
`RECORD_SECONDS`. Other programs can change documents without a new version, so that counts are kept only for
`KEPT_SECONDS`.

Letters: t terms.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from vocable.core.locks import thread_lock
from vocable.engines.filters import Filter
from vocable.engines.hashed_words import HashedWords
from vocable.engines.patience import requests
from vocable.engines.protocols import Space
from vocable.engines.row_store import RowStore

KEPT_SECONDS = 60.0  # during which counts are kept
KEPT_SETS = 64  # sets of documents whose counts are kept
RECORD_SECONDS = 5.0  # during which the record is kept


class Counts(NamedTuple):
    """Numbers of documents: `of` terms by column, with the times of their counts, and `documents` at a time."""

    of: dict[int, tuple[int, float]]
    documents: int = 0
    time: float = -float("inf")


class Asked(NamedTuple):
    """Terms to count: the documents that pass a filter and have the terms with these columns, and all that pass."""

    columns: Sequence[int]
    space: Space
    filter: Filter | None = None

    @property
    def key(self) -> Hashable:
        """The set of documents and the kind of terms."""
        return self.space, self.filter


Counted: TypeAlias = tuple[Mapping[int, int], int]  # documents by column, and all documents


class KeptCounts:
    """Counts of sets of documents, such as the documents that pass a filter; several threads may count."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, Counts] = {}
        self._version: object = None
        self._lock = thread_lock()

    def count(
        self, asked: Sequence[Asked], version: object, ask: Callable[[Sequence[Asked]], Sequence[Counted]]
    ) -> list[tuple[np.ndarray, int]]:
        """Return the number of documents with each of t terms, int64 [t], and of all documents, for all that is asked.

        `ask` counts the documents of terms that are not kept.
        """
        now = time.monotonic()
        with self._lock:
            if version is None or version != self._version or len(self._counts) > KEPT_SETS:
                self._counts, self._version = {}, version
            counts = {one.key: self._counts.get(one.key, Counts({})) for one in asked}
        lacking = [one for one in (_lacking(one, counts[one.key], now) for one in asked) if one is not None]
        for new, (of, documents) in zip(lacking, ask(lacking) if lacking else (), strict=True):
            known = counts[new.key].of | {column: (of.get(column, 0), now) for column in new.columns}
            counts[new.key] = Counts(known, documents, now)
        with self._lock:
            if version == self._version:
                self._counts |= {one.key: counts[one.key] for one in lacking}
        return [_numbers(one.columns, counts[one.key]) for one in asked]


def _numbers(columns: Sequence[int], counts: Counts) -> tuple[np.ndarray, int]:
    return np.array([counts.of[column][0] for column in columns], dtype=np.int64), counts.documents


def _lacking(asked: Asked, counts: Counts, now: float) -> Asked | None:
    """Return what is to be counted anew; None if all is kept."""
    columns = [column for column in asked.columns if now - counts.of.get(column, (0, -KEPT_SECONDS))[1] >= KEPT_SECONDS]
    return asked._replace(columns=columns) if columns or now - counts.time >= KEPT_SECONDS else None


class CountingStore(RowStore):
    """A store on a server, which keeps the record of the collection and counts."""

    @property
    @abstractmethod
    def _words(self) -> HashedWords:
        """The words of a collection with BM25."""

    @abstractmethod
    def _read_record(self) -> Mapping[str, Any]:
        """Return the record of the collection; without one, raise `KeyError`, `TypeError` or `ValueError`."""

    @abstractmethod
    def _count_terms(self, columns: Sequence[int], space: Space, filter: Filter | None) -> Counted:
        """Count the documents that pass a filter and have each term, by column, and all that pass, without caching."""

    def _count_all(self, asked: Sequence[Asked]) -> Sequence[Counted]:
        """Count as `_count_terms` does, in one request if the engine can."""
        return [self._count_terms(*one) for one in asked]

    def _forget(self) -> None:
        """Keep nothing from the last look."""
        self._kept_counts, self._kept_record = KeptCounts(), (dict[str, Any](), -RECORD_SECONDS)

    def _record_now(self) -> Mapping[str, Any]:
        """Return the record, read anew after some seconds; meanwhile, other threads have the last one."""
        record, read = self._kept_record
        now = time.monotonic()
        if now - read >= RECORD_SECONDS:
            if record:
                self._kept_record = record, now
            with requests(kind="record"):
                record = dict(self._read_record())
            self._kept_record = record, now
        return record

    def version(self) -> object:
        with requests(kind="record"):
            return self._read_record().get("version")

    def count_terms(
        self, columns: np.ndarray, space: Space = "sparse", filter: Filter | None = None
    ) -> tuple[np.ndarray, int]:
        """Count documents as any store does; counts are kept for some seconds."""
        asked = [Asked(columns.tolist(), space, filter)]
        with requests(kind="count"):
            return self._kept_counts.count(asked, self._record_now().get("version"), self._count_all)[0]

    def count_ahead(self, texts: Sequence[str], terms: np.ndarray, filter: Filter | None = None) -> None:
        asked = [Asked(np.unique(terms).tolist(), "sparse", filter)] if len(terms) else []
        if self.settings.get("bm25") and (words := self._words.columns(texts)):
            asked += [Asked(words, "bm25", one) for one in dict.fromkeys([None, filter])]
        if (version := self._record_now().get("version")) is not None:
            with requests(kind="count"):
                self._kept_counts.count(asked, version, self._count_all)
