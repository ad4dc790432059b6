"""A collection of documents that are searched by their passages: a document scores as its best passage (Dai and Callan
2019).

In the store a document has no vectors; its passages are stored as documents with vectors, whose ids are
"DOCUMENT<tab>NUMBER" (no document of a corpus has a tab in its id), and whose titles and fields are the document's. A
document is written after its passages and deleted after them, so that a stored document has all its passages.

Letters: m documents, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.encoder.protocol import EncodedTexts
from vocable.encoder.stream import StreamProgress
from vocable.encoder.text_encoder import TextEncoder
from vocable.encoder.windows import maximum, mean_of_windows
from vocable.retrieval.collection import Collection
from vocable.retrieval.engines.base import UNBOUNDED, Vectors
from vocable.retrieval.protocols import Space
from vocable.retrieval.records import Passage

SPAN_FIELD = "place in the text"  # field of a passage, which no filter can name: start, end, number of passages


def passages_of(document: Document, encoder: TextEncoder) -> list[Document]:
    """Return the passages of a document to store; each is encoded after the title, cut to half a window."""
    title = document.title[slice(*encoder.windows(document.title, share=0.5)[0])]
    spans = encoder.windows(document.text, f"{title} " if title else "")
    return [
        Document(
            f"{document.id}\t{number}",
            document.text[start:end],
            title,
            {**document.fields, SPAN_FIELD: [start, end, len(spans)]},
        )
        for number, (start, end) in enumerate(spans)
    ]


def passage(stored: Document) -> Passage:
    """Return a stored passage as a record."""
    start, end, _ = stored.fields[SPAN_FIELD]
    return Passage(start, end, stored.text)


def document_of(identifier: str) -> str:
    """Return the id of the document of a passage; the id of a document is returned unchanged."""
    return identifier.partition("\t")[0]


class PassageCollection(Collection):
    """Documents that are found by the vectors of their passages."""

    _count: tuple[object, int] | None = None  # number of documents, with their version

    def __len__(self) -> int:
        version = self.store.version()
        if self._count is None or self._count[0] != version:
            count = self.store.settings.get("documents")  # None while they change, and after a kill during a change
            if count is None:
                count = sum("\t" not in identifier for identifier in self.store.ids())
            self._count = version, count
        return self._count[1]

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id and for a passage."""
        found = iter(self.store.documents([name for name in ids if "\t" not in name]))
        return [None if "\t" in name else next(found) for name in ids]

    @cached_property
    def document_encoder(self) -> TextEncoder:
        """The encoder of passages, which are never truncated."""
        return TextEncoder(self.loaded_model, "document", **asdict(self.limits) | {"long_documents": "truncate"})

    def document_vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        """Return one vector of each document: each term's largest weight in a passage, or the mean of dense vectors."""
        self.texts(ids)  # raises for an unknown id
        passages = [self._passages([name]) for name in ids]
        vectors = self.store.vectors([one.id for some in passages for one in some], space)
        counts = [len(some) for some in passages]
        return mean_of_windows(vectors, counts) if isinstance(vectors, np.ndarray) else maximum(vectors, counts)

    def shown(self, documents: Sequence[Document], query: Callable[[], csr_array]) -> list[Document]:
        """Return the passage of each document with the best score by the sparse vectors."""
        stored = self._passages([document.id for document in documents])
        scores = (self.vectors([one.id for one in stored]) @ query().T).toarray().ravel()
        best: dict[str, Document] = {}
        for row in np.argsort(-scores, kind="stable").tolist():
            best.setdefault(document_of(stored[row].id), stored[row])
        return [best[document.id] for document in documents]

    def _passages(self, ids: Sequence[str]) -> list[Document]:
        """Return all stored passages of documents, including those left over by an interrupted change."""
        found, start, until = list[Document](), dict.fromkeys(ids, 0), dict.fromkeys(ids, 1)
        while names := [f"{name}\t{number}" for name in until for number in range(start[name], until[name])]:
            start = dict(until)
            for one in filter(None, self.store.documents(names)):
                found.append(one)
                name = document_of(one.id)
                until[name] = max(until[name], one.fields[SPAN_FIELD][2] + 1)
        return found

    def _documents_of(self, hits: list[tuple[str, float]]) -> list[tuple[str, float]]:
        documents: dict[str, float] = {}
        for identifier, score in hits:
            documents.setdefault(document_of(identifier), score)
        return list(documents.items())

    def searched(self) -> Iterator[str]:
        return (identifier for identifier in self.store.ids() if "\t" in identifier)

    def _searched_count(self) -> int:
        return len(self.store) - len(self)

    def _put(
        self,
        documents: Sequence[Document],
        replaced: Sequence[Document],
        stored: EncodedTexts | None = None,
        advance: Callable[[int], object] = lambda done: None,
    ) -> StreamProgress:
        passages = [one for document in documents for one in passages_of(document, self.document_encoder)]
        m, v = len(documents), self.meta.size
        nothing: dict[Space, Vectors] = {"sparse": csr_array((m, v), dtype=np.float32)}
        if "bm25" in self.spaces:
            nothing["bm25"] = csr_array((m, UNBOUNDED), dtype=np.float32)
        if self.dense is not None:
            nothing["dense"] = np.zeros((m, self.store.spaces["dense"]), dtype=np.float32)
        with self._documents_changing(m - len(replaced)):
            counts = super()._put(passages, self._passages([document.id for document in documents]))
            self.store.upsert(documents, nothing)
        advance(m)
        counts.windows = len(passages)
        return counts

    def _remove(self, documents: Sequence[Document]) -> None:
        ids = [document.id for document in documents]
        with self._documents_changing(-len(ids)):
            super()._remove(self._passages(ids))
            self.store.delete(ids)

    @contextmanager
    def _documents_changing(self, more: int) -> Iterator[None]:
        """Leave the number of documents unknown within the block and after a failure; a success raises it by `more`."""
        count = len(self)
        if self.store.settings.get("documents") is not None:
            self.store.configure(self.store.settings | {"documents": None})
        with self.store.changing():
            yield
        self._count = self.store.version(), count + more

    def _settle(self, drift: float) -> None:
        super()._settle(drift)
        if self.store.settings.get("documents") is None:
            self.store.configure(self.store.settings | {"documents": len(self)})
