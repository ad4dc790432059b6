"""The units that a collection stores: whole documents, or passages (`passages.py`).

Letters: m documents, v output vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from scipy.sparse import csr_array

from vocable.data import Document
from vocable.engines.base import Hits, Store, Vectors
from vocable.engines.protocols import Space


class UnitChange(NamedTuple):
    """Units to write, and the stored units that they replace."""

    added: Sequence[Document]
    removed: Sequence[Document]


class Units(Protocol):
    """The documents of a store, and the units that it holds; `whole` if a unit is a document."""

    whole: bool

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id."""

    def ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents, in any order."""

    def __len__(self) -> int:
        """Return the number of documents."""

    def changes(self, documents: Sequence[Document], replaced: Sequence[Document]) -> Iterator[UnitChange]:
        """Iterate, in order, over the changes that write documents and delete the rest of `replaced`."""

    def shown(self, documents: Sequence[Document], query: Callable[[], csr_array]) -> list[Document]:
        """Return the unit to display of each hit, with the id of its vectors; `query` returns the query [1, v]."""

    def vectors(self, ids: Sequence[str], space: Space) -> Vectors:
        """Return one stored vector [m, columns] of each document; `ArgumentError` for an unknown id."""

    def hits(self, hits: Hits) -> Hits:
        """Return the documents of hits of the store, best first, each once."""


class WholeDocuments:
    """Documents that are stored as they are."""

    whole = True

    def __init__(self, store: Store) -> None:
        self._store = store

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id."""
        return self._store.documents(ids)

    def ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents, in any order."""
        return self._store.ids()

    def __len__(self) -> int:
        return len(self._store)

    def changes(self, documents: Sequence[Document], replaced: Sequence[Document]) -> Iterator[UnitChange]:
        """Yield a single change, which writes documents and deletes the rest of `replaced`."""
        yield UnitChange(documents, replaced)

    def shown(self, documents: Sequence[Document], query: Callable[[], csr_array]) -> list[Document]:
        """Return the documents."""
        return list(documents)

    def vectors(self, ids: Sequence[str], space: Space) -> Vectors:
        """Return the stored vectors [m, columns]; `ArgumentError` for an unknown id."""
        return self._store.vectors(ids, space)

    def hits(self, hits: Hits) -> Hits:
        """Return the hits."""
        return hits
