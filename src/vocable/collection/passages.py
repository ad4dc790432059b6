"""Passages as the units of a collection: a document scores as its best passage (Dai and Callan 2019).

The store has a document for each passage. Its id is "DOCUMENT<tab>NUMBER", since no document of a corpus has a tab in
its id, and its fields are the document's. Fields of passages alone have names that begin with a tab: the place in the
text, and in the first passage the whole title and text. The first passage is written after the other passages and
deleted after them, so that a document that exists has all its passages.

Letters: m documents, v output vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.models import CollectionModels
from vocable.collection.records import Passage
from vocable.collection.settings import SPAN_FIELD
from vocable.data import Document
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.windows import maximum, mean_of_windows
from vocable.engines.base import Hits, Store, Vectors
from vocable.engines.filters import Comparison
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError


class UnitChange(NamedTuple):
    """Units to write, and the stored units that they replace."""

    added: Sequence[Document]
    removed: Sequence[Document]


class Units(Protocol):
    """The documents of a store, and the units that it holds; `are_documents` if a unit is a whole document."""

    are_documents: bool

    def of(self, store: Store) -> Units:
        """Return the units of another view of the store."""

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

    are_documents = True

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, store: Store) -> Units:
        """Return the documents of another view of the store."""
        return WholeDocuments(store)

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


WHOLE_FIELD = "\twhole document"  # field of a first passage: the document's title, text and number of passages
IS_FIRST = Comparison(f"{WHOLE_FIELD}.passages", ">=", 1)
LIKELY = 8  # passages of a document that are looked up at once


def passages_of(document: Document, encoder: TextEncoder) -> list[Document]:
    """Return the passages of a document to store; each is encoded after the heading, cut to half a window."""
    heading = document.heading
    title = heading[slice(*encoder.windows(heading, share=0.5)[0])]
    spans = encoder.windows(document.text, f"{title} " if title else "")
    whole = {WHOLE_FIELD: {"title": document.title, "text": document.text, "passages": len(spans)}}
    return [
        Document(
            _passage_id(document.id, number),
            document.text[start:end],
            title,
            {**document.fields, SPAN_FIELD: [start, end, len(spans)], **(whole if number == 0 else {})},
        )
        for number, (start, end) in enumerate(spans)
    ]


def whole_document(first: Document) -> Document:
    """Return the document whose first passage is stored."""
    whole: Any = first.fields[WHOLE_FIELD]
    fields = {name: value for name, value in first.fields.items() if name not in (SPAN_FIELD, WHOLE_FIELD)}
    return Document(document_of(first.id), whole["text"], whole["title"], fields)


def passage(stored: Document) -> Passage:
    """Return a stored passage as a record."""
    start, end, _ = stored.fields[SPAN_FIELD]
    return Passage(start, end, stored.text)


def document_of(identifier: str) -> str:
    """Return the id of the document of a passage; the id of a document is returned unchanged."""
    return identifier.partition("\t")[0]


def _passage_id(document: str, number: int) -> str:
    return f"{document}\t{number}"


class Passages:
    """Documents that are stored as passages."""

    are_documents = False

    def __init__(self, store: Store, models: CollectionModels, counted: dict[object, int] | None = None) -> None:
        """Take a store of passages; `counted` has the number of documents of the last version that was counted."""
        self._store, self._models, self._counted = store, models, {} if counted is None else counted

    def of(self, store: Store) -> Units:
        """Return the documents of another view of the store."""
        return Passages(store, self._models, self._counted)

    def __len__(self) -> int:
        version = self._store.version()
        if version is None or (count := self._counted.get(version)) is None:
            count = sum(1 for _ in self.ids()) if self._store.about.cheap_reads else self._store.count(IS_FIRST)
            self._counted.clear()
            self._counted[version] = count
        return count

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id and for a passage."""
        firsts = iter(self._store.documents([_passage_id(name, 0) for name in ids if "\t" not in name]))
        stored = [None if "\t" in name else next(firsts) for name in ids]
        return [None if first is None else whole_document(first) for first in stored]

    def ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents, in any order."""
        return (document_of(identifier) for identifier in self._store.ids() if identifier.endswith("\t0"))

    def changes(self, documents: Sequence[Document], replaced: Sequence[Document]) -> Iterator[UnitChange]:
        """Iterate over the changes of passages: first passages are last, since each vouches for the others."""
        passages = [passage for document in documents for passage in passages_of(document, self._models.documents)]
        stored = self._stored(list(dict.fromkeys(document.id for document in (*documents, *replaced))))
        for first in (False, True):
            added, removed = (
                [part for part in parts if (WHOLE_FIELD in part.fields) == first] for parts in (passages, stored)
            )
            if added or removed:
                yield UnitChange(added, removed)

    def shown(self, documents: Sequence[Document], query: Callable[[], csr_array]) -> list[Document]:
        """Return the passage of each document with the best score by the sparse vectors."""
        stored = self._stored([document.id for document in documents])
        vectors = csr_array(self._store.vectors([passage.id for passage in stored]))
        best: dict[str, Document] = {}
        for row in np.argsort(-(vectors @ query().T).toarray().ravel(), kind="stable").tolist():
            best.setdefault(document_of(stored[row].id), stored[row])
        return [best[document.id] for document in documents]

    def vectors(self, ids: Sequence[str], space: Space) -> Vectors:
        """Return one vector of each document: each term's largest weight in a passage, or the mean of dense vectors."""
        passages = [self._stored([name]) for name in ids]
        if missing := [name for name, stored in zip(ids, passages, strict=True) if not stored]:
            raise ArgumentError(f"{self._store.place}: there is no document {missing[0]!r}")
        vectors = self._store.vectors([stored.id for several in passages for stored in several], space)
        counts = [len(several) for several in passages]
        return mean_of_windows(vectors, counts) if isinstance(vectors, np.ndarray) else maximum(vectors, counts)

    def hits(self, hits: Hits) -> Hits:
        """Return the documents of passages, best first, each once."""
        documents: dict[str, float] = {}
        for identifier, score in hits:
            documents.setdefault(document_of(identifier), score)
        return list(documents.items())

    def _stored(self, ids: Sequence[str]) -> list[Document]:
        """Return all stored passages of documents, including passages left over by an interrupted change."""
        passages = list[Document]()
        start = dict.fromkeys(ids, 0)
        until = dict.fromkeys(ids, LIKELY)
        while names := [_passage_id(name, number) for name in until for number in range(start[name], until[name])]:
            start = dict(until)
            for stored in filter(None, self._store.documents(names)):
                passages.append(stored)
                name = document_of(stored.id)
                until[name] = max(until[name], stored.fields[SPAN_FIELD][2])
        return passages
