"""A collection of documents that are searched by their passages: a document scores as its best passage (Dai and Callan
2019).

The store has a document for each passage, whose id is "DOCUMENT<tab>NUMBER" (no document of a corpus has a tab in its
id), and whose fields are those of the whole document. The first passage also has the whole text and title in a field.
It is written after the others and deleted after them, so that a document that is there has all its passages.

Letters: m documents, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.collection import Collection
from vocable.collection.records import Passage
from vocable.collection.settings import SPAN_FIELD
from vocable.data import Document
from vocable.encoding.protocol import EncodedTexts
from vocable.encoding.stream import StreamProgress
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.windows import maximum, mean_of_windows
from vocable.engines.base import Vectors
from vocable.engines.filters import Comparison
from vocable.engines.protocols import Space

WHOLE_FIELD = "whole document"  # field of a first passage: the document's title, text and number of passages
IS_FIRST = Comparison(f"{WHOLE_FIELD}.passages", ">=", 1)
LIKELY = 8  # passages of a document that are looked up at once


def passages_of(document: Document, encoder: TextEncoder) -> list[Document]:
    """Return the passages of a document to store; each is encoded after the title, cut to half a window."""
    title = document.title[slice(*encoder.windows(document.title, share=0.5)[0])]
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


def _is_first(stored: Document) -> bool:
    return WHOLE_FIELD in stored.fields


class PassageCollection(Collection):
    """Documents that are found by the vectors of their passages."""

    _count: tuple[object, int] | None = None  # number of documents, with their version

    def __len__(self) -> int:
        version = self.store.version()
        if version is None or self._count is None or self._count[0] != version:
            self._count = version, self.store.count(IS_FIRST)
        return self._count[1]

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id and for a passage."""
        firsts = iter(self.store.documents([_passage_id(name, 0) for name in ids if "\t" not in name]))
        stored = [None if "\t" in name else next(firsts) for name in ids]
        return [None if first is None else whole_document(first) for first in stored]

    @cached_property
    def document_encoder(self) -> TextEncoder:
        """The encoder of passages, which are never truncated."""
        return TextEncoder(self.loaded_model, "document", **asdict(self.limits) | {"long_documents": "truncate"})

    def document_vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        """Return one vector of each document: each term's largest weight in a passage, or the mean of dense vectors."""
        self.texts(ids)  # raises for an unknown id
        passages = [self._passages([name]) for name in ids]
        vectors = self.store.vectors([stored.id for several in passages for stored in several], space)
        counts = [len(several) for several in passages]
        return mean_of_windows(vectors, counts) if isinstance(vectors, np.ndarray) else maximum(vectors, counts)

    def shown(self, documents: Sequence[Document], query: Callable[[], csr_array]) -> list[Document]:
        """Return the passage of each document with the best score by the sparse vectors."""
        stored = self._passages([document.id for document in documents])
        scores = (self.vectors([passage.id for passage in stored]) @ query().T).toarray().ravel()
        best: dict[str, Document] = {}
        for row in np.argsort(-scores, kind="stable").tolist():
            best.setdefault(document_of(stored[row].id), stored[row])
        return [best[document.id] for document in documents]

    def _passages(self, ids: Sequence[str]) -> list[Document]:
        """Return all stored passages of documents, including passages left over by an interrupted change."""
        found, start, until = list[Document](), dict.fromkeys(ids, 0), dict.fromkeys(ids, LIKELY)
        while names := [_passage_id(name, number) for name in until for number in range(start[name], until[name])]:
            start = dict(until)
            for stored in filter(None, self.store.documents(names)):
                found.append(stored)
                name = document_of(stored.id)
                until[name] = max(until[name], stored.fields[SPAN_FIELD][2])
        return found

    def _documents_of(self, hits: list[tuple[str, float]]) -> list[tuple[str, float]]:
        documents: dict[str, float] = {}
        for identifier, score in hits:
            documents.setdefault(document_of(identifier), score)
        return list(documents.items())

    def ids(self) -> Iterator[str]:
        return (document_of(identifier) for identifier in self.store.ids() if identifier.endswith("\t0"))

    def _put(
        self,
        documents: Sequence[Document],
        replaced: Sequence[Document],
        stored: EncodedTexts | None = None,
        advance: Callable[[int], object] = lambda done: None,
    ) -> StreamProgress:
        passages = [passage for document in documents for passage in passages_of(document, self.document_encoder)]
        before = self._passages([document.id for document in documents])
        counts = StreamProgress(windows=len(passages))
        for first in (False, True):  # a first passage vouches for the others
            new, old = ([one for one in some if _is_first(one) == first] for some in (passages, before))
            if new:
                part = super()._put(new, old)
                counts.truncated, counts.empty = counts.truncated + part.truncated, counts.empty + part.empty
                counts.unknown += part.unknown
            elif old:
                super()._remove(old)
        advance(len(documents))
        return counts

    def _remove(self, documents: Sequence[Document]) -> None:
        stored = self._passages([document.id for document in documents])
        for first in (False, True):
            if some := [passage for passage in stored if _is_first(passage) == first]:
                super()._remove(some)
