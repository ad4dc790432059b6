"""What the retrievers of all frameworks share: an opened collection, and how it is searched."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, TypedDict, Unpack
from weakref import WeakKeyDictionary

from vocable.errors import ArgumentError
from vocable.options import Count, checked
from vocable.retrieval.answers import Answers, search
from vocable.retrieval.collection import Collection
from vocable.retrieval.fusion import Fusion
from vocable.retrieval.protocols import Space
from vocable.retrieval.ranking import Ranking
from vocable.retrieval.records import Hit
from vocable.retrieval.verbs import open_index

LOCKS: WeakKeyDictionary[Collection, Lock] = WeakKeyDictionary()  # frameworks call from many threads


class SearchOptions(TypedDict, total=False):
    """The arguments of `vocable.search` that a retriever takes beside `k`."""

    hybrid: bool
    weights: str | Mapping[Space, float] | None
    fusion: Fusion
    filter: str | None
    minimum_match: float


class Searcher:
    """A collection, or the place of one, and the number of hits `k` and options that it is searched with.

    One search of a collection is done at a time.
    """

    def __init__(
        self, index: str | os.PathLike[str] | Collection, k: int = 10, **options: Unpack[SearchOptions]
    ) -> None:
        _check(k, options)
        self.collection = index if isinstance(index, Collection) else open_index(index)
        self.k, self.options = k, options
        self._lock = LOCKS.setdefault(self.collection, Lock())

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"Searcher({self.collection.place!r}, k={self.k}{options})"

    def hits(self, query: str, k: int | None = None, **options: Any) -> tuple[Hit, ...]:
        """The hits of one query; what is given here goes before what the searcher was made with."""
        with self._lock:
            hits: tuple[Hit, ...] = self._answers([query], k, options)[0].hits
            return hits

    def ranking(self, queries: Sequence[str]) -> Ranking:
        """The ranking [q, k] of q queries, of which no document is read."""
        with self._lock:
            return self._answers(queries, None, {}).ranking

    def _answers(self, queries: Sequence[str], k: int | None, options: Mapping[str, Any]) -> Answers:
        k = self.k if k is None else k
        _check(k, options)
        return search(self.collection, queries, k, **{**self.options, **options})


def content(hit: Hit) -> str:
    """The text of a hit: of a document that is searched by passages, the best passage."""
    return (hit.passage or hit.document).text


def metadata(hit: Hit) -> dict[str, Any]:
    """The title and further fields of a hit, and which characters of the document the passage is, if it is one."""
    passage = {} if hit.passage is None else {"passage": [hit.passage.start, hit.passage.end]}
    return {**hit.document.fields, "title": hit.document.title, **passage}


@checked
def _check(k: Count, options: Mapping[str, Any]) -> None:
    known = SearchOptions.__annotations__
    if unknown := next((name for name in options if name not in known), None):
        raise ArgumentError(f"{unknown}: a retriever takes k, the number of documents, and {', '.join(known)}")
