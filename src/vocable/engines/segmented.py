"""The engine of an index in a folder and in memory: immutable segments, and commits of whole changes.

A search takes one commit, a `Snapshot`, and no lock. A change is a transaction (`changing`): it adds documents as a new
segment, marks replaced and deleted documents of other segments as gone, and merges small segments.

Letters: m documents, q queries, t terms, v output vocabulary, k results.
"""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, RLock, get_ident
from typing import Any, Literal, Self
from weakref import WeakSet

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.engines.base import Vectors
from vocable.engines.filters import Filter
from vocable.engines.numbered_words import NumberedWords, WordNumbers
from vocable.engines.protocols import About, Space
from vocable.engines.segment import Segment, SegmentSettings, merged
from vocable.engines.snapshot import BM25Counts, LiveSegment, Snapshot
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.ranking import Ranking
from vocable.language.languages import ENGLISH
from vocable.options import Matching

RATIO = 2  # a segment is merged with smaller ones if it has at most this many times their documents
GONE_SHARE = 1 / 3  # share of a segment's documents that may be gone before it is written anew
MOST_SEGMENTS = 64  # of a kind, while an index is made
LARGEST = 1 << 27  # postings of a merged segment: 3.2 GB while it is made, 0.8 GB on disk


@dataclass(frozen=True)
class SegmentedOptions:
    """Options of an index in a folder.

    `weight_bits` rounds the weights of documents. A posting takes 6 bytes without rounding, 4 bytes with 16 bits, and 3
    bytes with 8 bits. The error of a weight is below 2/65,535 (16 bits) or 2/255 (8 bits) of the largest weight.
    """

    weight_bits: Literal[8, 16] | None = None


_stores: WeakSet[SegmentedStore] = WeakSet()  # of this process


def _after_fork() -> None:
    for store in _stores:
        store._unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Draft:
    """A change that is not yet committed: the parts as they will be, new segments among them, and the settings."""

    def __init__(self, snapshot: Snapshot, settings: dict[str, Any]) -> None:
        self.previous, self.parts, self.settings = snapshot, list(snapshot.parts), settings

    def remove(self, ids: Sequence[str]) -> int:
        """Mark documents as gone, and return how many of them existed."""
        removed = 0
        for number, part in enumerate(self.parts):
            rows = part.find(ids)
            rows = rows[rows >= 0]
            self.parts[number] = part.without(rows)
            removed += len(rows)
        return removed

    def merge(self, settings: SegmentSettings, largest: int = LARGEST, few: int = 1) -> None:
        """Drop segments without documents, and merge the segments that are due, of each kind of vectors.

        Up to a `few` segments of a kind are left as they are.
        """
        self.parts = [part for part in self.parts if part.live]
        for spaces in dict.fromkeys(part.segment.spaces for part in self.parts):
            alike = [part for part in self.parts if part.segment.spaces == spaces]
            self._replace(_due(alike, largest) if len(alike) > few else [], settings)
        for part in [part for part in self.parts if part.live <= (1 - GONE_SHARE) * len(part.segment)]:
            self._replace([part], settings)

    def merge_all(self, settings: SegmentSettings, largest: int = LARGEST) -> None:
        """Merge all segments of each kind of vectors into segments of at most `largest` postings."""
        self.parts = [part for part in self.parts if part.live]
        for spaces in dict.fromkeys(part.segment.spaces for part in self.parts):
            group, size = list[LiveSegment](), 0
            for part in [part for part in self.parts if part.segment.spaces == spaces]:
                if group and size + _size(part) > largest:
                    self._replace(group, settings)
                    group, size = [], 0
                group.append(part)
                size += _size(part)
            self._replace(group, settings)

    def _replace(self, parts: Sequence[LiveSegment], settings: SegmentSettings) -> None:
        if len(parts) > 1 or (parts and parts[0].gone is not None):
            whole = LiveSegment(merged([(part.segment, part.rows()) for part in parts], settings))
            self.parts = [part for part in self.parts if part not in parts] + [whole]


class SegmentedStore(NumberedWords):
    """Documents in segments, with their words if the settings say `bm25`, searched exactly."""

    about = About(
        "segmented",
        exact=True,
        durable=True,
        filters=True,
        matching=("minimum_match",),
        cheap_reads=True,
        knows_fields=True,
        words_first=True,
        spaces=("sparse", "bm25", "dense"),
        options=SegmentedOptions,
    )
    largest = LARGEST
    _writer = 0  # the thread of the draft

    def __init__(self, place: str, spaces: dict[Space, int], settings: dict[str, Any]) -> None:
        self.place, self.spaces, self.settings = place, spaces, settings
        self._snapshot = Snapshot([])
        self._pinned = self._closed = False
        self._numbers = WordNumbers()
        self._draft: Draft | None
        self._is_alone: bool
        self._unlock()
        _stores.add(self)

    def _unlock(self) -> None:
        """Make new locks: another thread of the parent of a forked process may have held the old ones."""
        self._change_lock, self._look_lock, self._draft, self._is_alone = RLock(), Lock(), None, False

    @abstractmethod
    def _look(self) -> None:
        """Take a newer commit, if there is one, as `_snapshot` and `settings`."""

    @abstractmethod
    @contextmanager
    def _keep_out(self) -> Iterator[None]:
        """Keep writers of other processes out during the block."""

    @abstractmethod
    def _save(self, draft: Draft) -> Snapshot:
        """Store what is new in a draft, and return the snapshot of the new commit."""

    def now(self) -> Snapshot:
        """Return the newest commit; the same one for a view that `pinned` returned."""
        if self._closed:
            raise VectorsError(f"{self.place}: the index is closed")
        if not self._pinned:
            with self._look_lock:
                if self._closed:  # by another thread, just now
                    raise VectorsError(f"{self.place}: the index is closed")
                self._look()
        return self._snapshot

    def pinned(self) -> Self:
        """Return a view of the newest commit, which does not follow changes and needs no closing."""
        if self._pinned:
            return self
        self.now()
        view = copy.copy(self)
        view._pinned = True
        return view

    def counted_with(self, counts: BM25Counts) -> Self:
        """Return a view of the newest commit where BM25 weighs words by the counts of more documents than its own."""
        view = copy.copy(self.pinned())
        view._snapshot = Snapshot(view._snapshot.parts, view._snapshot.number, counts)
        return view

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Make one commit of all changes in the block, or none after an error; other writers wait."""
        with self.alone():
            if self._draft is not None:
                yield
                return
            draft = self._draft = Draft(self.now(), dict(self.settings))
            self._writer = get_ident()
            try:
                yield
                # While an index is made, its last commit merges: merging again and again would take longer.
                few = 1 if draft.settings.get("whole", True) else MOST_SEGMENTS
                draft.merge(self._made_with(draft.settings), self.largest, few)
                self._commit(draft)
            finally:
                self._draft = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._change_lock:
            if self._closed:
                raise VectorsError(f"{self.place}: the index is closed")
            if self._pinned:
                raise ArgumentError(f"{self.place}: a view of one commit cannot change")
            if self._is_alone:
                yield
                return
            with self._keep_out():
                self._is_alone = True
                try:
                    yield
                finally:
                    self._is_alone = False

    def _commit(self, draft: Draft) -> None:
        if draft.parts != draft.previous.parts or draft.settings != self.settings:
            snapshot = self._save(draft)
            with self._look_lock:
                self._snapshot, self.settings = snapshot, draft.settings

    def _made_with(self, settings: Mapping[str, Any]) -> SegmentSettings:
        language = str(settings.get("language", ENGLISH)) if settings.get("bm25") else None
        bits = (settings.get("engine_options") or {}).get("weight_bits")
        return SegmentSettings(language, int(settings.get("title_weight", 1)), bits)

    def configure(self, settings: dict[str, object]) -> None:
        with self.changing():
            assert self._draft is not None
            self._draft.settings = settings

    def settings_now(self) -> Mapping[str, Any]:
        if self._draft is not None and self._writer == get_ident():
            return self._draft.settings
        self.now()
        return self.settings

    def version(self) -> object:
        return self.now().number

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        """Add documents with their vectors as one segment; without any vectors, only their words are counted."""
        documents, vectors = self._checked(documents, vectors)
        with self.changing():
            assert self._draft is not None
            if documents:
                segment = Segment.of(documents, vectors, self._made_with(self._draft.settings))
                self._draft.remove([document.id for document in documents])
                self._draft.parts.append(LiveSegment(segment))

    def _checked(
        self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]
    ) -> tuple[list[Document], dict[Space, Vectors]]:
        if vectors:
            return super()._checked(documents, vectors)
        self.check_documents(documents)
        return list({document.id: document for document in documents}.values()), {}

    def delete(self, ids: Sequence[str]) -> int:
        with self.changing():
            assert self._draft is not None
            return self._draft.remove(list(dict.fromkeys(ids)))

    def optimize(self) -> None:
        """Merge all segments, up to the largest that are merged."""
        with self.changing():
            assert self._draft is not None
            self._draft.merge_all(self._made_with(self._draft.settings), self.largest)

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        return self.now().documents(ids)

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        snapshot, columns = self.now(), self._columns(space)
        rows = snapshot.rows(ids)
        if rows.min(initial=0) < 0:
            raise ArgumentError(f"{self.place}: there is no document {ids[int(rows.argmin())]!r}")
        vectors: Vectors = snapshot.vectors(rows, space, columns)
        return vectors

    def ids(self) -> Iterator[str]:
        return self.now().live_ids()

    def _search(self, queries: Vectors, k: int, space: Space, filter: Filter | None, matching: Matching) -> Ranking:
        snapshot = self.now()
        if space == "bm25" and self.settings.get("bm25"):
            return snapshot.search_words(csr_array(queries), self._numbers.words, k, filter)
        columns = self._columns(space)
        if queries.ndim != 2 or queries.shape[1] != columns:
            raise VectorsError(f"the queries have {queries.shape[-1]} columns, the documents {columns}")
        if space == "dense":
            return snapshot.search_dense(np.asarray(queries), k, filter)
        sparse = queries if isinstance(queries, csr_array) else csr_array(queries)
        return snapshot.search(sparse, k, filter, minimum_match=matching.get("minimum_match", 0.0))

    def _columns(self, space: Space) -> int:
        if space not in self.spaces:
            known = [*self.spaces, *["bm25"] * bool(self.settings.get("bm25"))]
            raise ArgumentError(f"space must be one of {', '.join(known)}, not {space!r}")
        return self.spaces[space]

    def count(self, filter: Filter) -> int:
        return self.now().count(filter)

    def count_terms(
        self, columns: np.ndarray, space: Space = "sparse", filter: Filter | None = None
    ) -> tuple[np.ndarray, int]:
        snapshot = self.now()
        documents = len(snapshot) if filter is None else snapshot.count(filter)
        if space != "bm25":
            return snapshot.count_terms(columns, filter), documents
        return snapshot.count_words(self._numbers.spelled(columns), filter), documents

    def count_words(self, words: Sequence[str], filter: Filter | None = None) -> np.ndarray:
        return self.now().count_words(words, filter)

    def words_like(self, initials: str, shortest: int, longest: int) -> list[tuple[str, int]]:
        """Return words of these lengths that begin with a letter of `initials`, with their document frequencies."""
        return self.now().words_like(initials, shortest, longest)

    def mean_lengths(self) -> tuple[float | None, float]:
        """Return the mean length of the documents in words twice: weights follow it."""
        return (self.now().mean_length,) * 2

    @property
    def searchable(self) -> bool:
        return bool(self.settings.get("whole")) or len(self) > 0

    def without_vectors(self) -> Iterator[Document]:
        """Iterate over the documents that have no sparse vectors yet."""
        for part in self.now().parts:
            if "sparse" not in part.segment.spaces:
                yield from map(part.segment.document, part.rows().tolist())

    def lack_vectors(self, rows: np.ndarray) -> np.ndarray:
        snapshot = self.now()
        lack = np.array([*("sparse" not in part.segment.spaces for part in snapshot.parts), False])
        numbers = np.searchsorted(snapshot.ids.firsts, rows, side="right") - 1  # -1: no hit
        return np.asarray(lack[numbers])

    @property
    def encoded_share(self) -> float:
        snapshot = self.now()
        return snapshot.with_vectors / len(snapshot) if len(snapshot) else 1.0

    def close(self) -> None:
        with self._look_lock:
            self._closed = True

    def __len__(self) -> int:
        return len(self.now())


def _size(part: LiveSegment) -> int:
    """Return the number of postings, of words if there are no vectors, and at least the number of documents."""
    postings, words = part.segment.postings, part.segment.words
    held = postings or (None if words is None else words.postings)
    return max(part.live, 0 if held is None else held.count)


def _due(parts: Sequence[LiveSegment], largest: int) -> list[LiveSegment]:
    """Return the parts to merge: the smallest, up to a part that is more than `RATIO` times as large as all smaller."""
    due, size = list[LiveSegment](), 0
    for part in sorted(parts, key=_size):
        if due and (_size(part) > RATIO * size or size + _size(part) > largest):
            break
        due.append(part)
        size += _size(part)
    return due if len(due) > 1 else []
