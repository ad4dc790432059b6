"""The shared part of all frameworks' retrievers: an opened collection and its search options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock
from typing import TypeAlias, Unpack
from weakref import WeakKeyDictionary

from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.collection.records import Hit
from vocable.core.locks import thread_lock
from vocable.indexes.ranking import Ranking
from vocable.options import Count, SearchOptions, changed, checked

Index: TypeAlias = str | os.PathLike[str] | Collection  # a place, or an opened collection
LOCKS: WeakKeyDictionary[Collection, Lock] = WeakKeyDictionary()  # since frameworks call from many threads


class Searcher:
    """A collection with the number of hits `k` and the options of its searches; searches take turns."""

    @checked
    def __init__(self, index: Index, k: Count = 10, **options: Unpack[SearchOptions]) -> None:
        self.collection = index if isinstance(index, Collection) else open_index(index)
        self.k, self.options = k, changed(SearchOptions, options)
        self._lock = LOCKS.setdefault(self.collection, thread_lock())

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the place of the index; an index in memory cannot be pickled."""
        return _reopened, (self.collection, self.k, self.options)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"Searcher({self.collection.place!r}, k={self.k}{options})"

    def hits(self, query: str, k: int | None = None, **options: Unpack[SearchOptions]) -> tuple[Hit, ...]:
        """Return the hits of a query; `k` and `options` override the searcher's."""
        with self._lock:
            return search(self.collection, [query], self.k if k is None else k, **{**self.options, **options})[0].hits

    def ranking(self, queries: Sequence[str]) -> Ranking:
        """Return the ranking [q, k] of q queries, without reading documents."""
        with self._lock:
            return self.collection.search(queries, self.k, **self.options)


def _reopened(collection: Collection, k: int, options: SearchOptions) -> Searcher:
    """Return the searcher that was pickled."""
    return Searcher(collection, k, **options)


def content(hit: Hit) -> str:
    """Return the text of a hit, or of its best passage if the collection has passages."""
    return (hit.passage or hit.document).text


def metadata(hit: Hit) -> dict[str, object]:
    """Return a hit's title, further fields and snippet, and the position of its best passage if it has passages.

    `highlights` has the start and end of each matching word in the `snippet`.
    """
    passage = {} if hit.passage is None else {"passage": [hit.passage.start, hit.passage.end]}
    marked: dict[str, object] = {}
    if (part := hit.snippet) is not None:
        marked = {"snippet": part.text, "highlights": [[mark.start, mark.end] for mark in part.marks]}
    return {**marked, **hit.document.fields, "title": hit.document.title, **passage}
