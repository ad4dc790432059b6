"""A collection whose documents are searched by their passages: a document scores as its best one (Dai and Callan 2019).

In the store a document has no vectors; its passages, with the vectors, are documents of their own: their ids are
"DOCUMENT<tab>NUMBER", as no document of a corpus has, their titles and fields are the document's. A document is written
after its passages and deleted after them: one that is there has them all.

Letters: m documents, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.encoder.stream import StreamProgress
from vocable.encoder.text_encoder import TextEncoder
from vocable.retrieval.engines.base import UNBOUNDED
from vocable.retrieval.living import LivingCollection
from vocable.retrieval.protocols import Space
from vocable.retrieval.records import Passage

PLACE = "place in the text"  # a further field of a passage, of a name that no filter can ask for: start, end, how many


def passages_of(document: Document, encoder: TextEncoder) -> list[Document]:
    """The passages of a document as they are stored; each is encoded after the title, or half as much."""
    title = document.title[slice(*encoder.windows(document.title, share=0.5)[0])]
    spans = encoder.windows(document.text, f"{title} " if title else "")
    return [
        Document(
            f"{document.id}\t{number}",
            document.text[start:end],
            title,
            {**document.fields, PLACE: [start, end, len(spans)]},
        )
        for number, (start, end) in enumerate(spans)
    ]


def passage(stored: Document) -> Passage:
    """The passage that a stored one is."""
    start, end, _ = stored.fields[PLACE]
    return Passage(start, end, stored.text)


def document_of(identifier: str) -> str:
    """The id of the document that a passage is of, or of the document itself."""
    return identifier.partition("\t")[0]


class PassageCollection(LivingCollection):
    """Documents in a store, each found by the vectors of its passages."""

    _count: int | None = None  # of documents, where it is known

    def __len__(self) -> int:
        if self._count is None:
            self._count = self.store.settings.get("documents")  # None while they change, and after a kill then
        if self._count is None:
            self._count = sum("\t" not in identifier for identifier in self.store.ids())
        return self._count

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """As `Collection.documents`; a passage is none."""
        found = iter(self.store.documents([name for name in ids if "\t" not in name]))
        return [None if "\t" in name else next(found) for name in ids]

    @cached_property
    def document_encoder(self) -> TextEncoder:
        """The model made ready for passages, none of which is cut."""
        return TextEncoder(self.loaded_model, "document", **self.limits | {"long_documents": "truncate"})

    def shown(self, documents: Sequence[Document], query: Callable[[], csr_array]) -> list[Document]:
        """As `Collection.shown`: of each document the passage that has the best score by the sparse vectors."""
        stored = self._passages([document.id for document in documents])
        scores = (self.vectors([one.id for one in stored]) @ query().T).toarray().ravel()
        best: dict[str, Document] = {}
        for row in np.argsort(-scores, kind="stable").tolist():
            best.setdefault(document_of(stored[row].id), stored[row])
        return [best[document.id] for document in documents]

    def _passages(self, ids: Sequence[str]) -> list[Document]:
        """All stored passages of documents; also those that a killed change of a document left beyond its last one."""
        found, asked, until = list[Document](), dict.fromkeys(ids, 0), dict.fromkeys(ids, 1)
        while wanted := [f"{name}\t{number}" for name in until for number in range(asked[name], until[name])]:
            asked = dict(until)
            for one in filter(None, self.store.documents(wanted)):
                found.append(one)
                name = document_of(one.id)
                until[name] = max(until[name], one.fields[PLACE][2] + 1)
        return found

    def _documents_of(self, hits: list[tuple[str, float]]) -> list[tuple[str, float]]:
        documents: dict[str, float] = {}
        for identifier, score in hits:
            documents.setdefault(document_of(identifier), score)
        return list(documents.items())

    def _searched(self) -> Iterator[str]:
        return (identifier for identifier in self.store.ids() if "\t" in identifier)

    def _searched_count(self) -> int:
        return len(self.store) - len(self)

    def _put(
        self, documents: Sequence[Document], replaced: Sequence[Document], sparse: csr_array | None = None
    ) -> StreamProgress:
        passages = [one for document in documents for one in passages_of(document, self.document_encoder)]
        m, v = len(documents), self.meta.size if self.meta else 0
        nothing: dict[Space, csr_array | np.ndarray] = {"sparse": csr_array((m, v or 0), dtype=np.float32)}
        if self.lexicon is not None:
            nothing["bm25"] = csr_array((m, UNBOUNDED), dtype=np.float32)
        if self.dense is not None:
            nothing["dense"] = np.zeros((m, self.dense_model.get_embedding_dimension() or 0), dtype=np.float32)
        with self._counting(m - len(replaced)):
            counts = super()._put(passages, self._passages([document.id for document in documents]))
            self.store.upsert(documents, nothing)
        counts.windows = len(passages)
        return counts

    def _remove(self, documents: Sequence[Document]) -> None:
        ids = [document.id for document in documents]
        with self._counting(-len(ids)):
            super()._remove(self._passages(ids))
            self.store.delete(ids)

    @contextmanager
    def _counting(self, more: int) -> Iterator[None]:
        """The number of documents is unknown within the block, and after it if it fails; then it is so much higher."""
        count, self._count = len(self), None
        if self.store.settings.get("documents") is not None:
            self.store.configure(self.store.settings | {"documents": None})
        yield
        self._count = count + more

    def _settle(self, drift: float) -> None:
        super()._settle(drift)
        if self.store.settings.get("documents") is None:
            self.store.configure(self.store.settings | {"documents": len(self)})
