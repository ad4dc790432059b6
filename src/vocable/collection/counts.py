"""The counts of a collection's documents: how many have each term and word. Searches weigh terms and words by them.

A folder that changes has a file of `Statistics`, a server counts itself (`Store.count_terms`), and an engine that never
changes is counted once.

Letters: m documents, t terms, v output vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.hashed_words import HashedWords
from vocable.collection.settings import CollectionSettings
from vocable.collection.statistics import DRIFT, Content, Statistics, TermCounts
from vocable.data import Document
from vocable.encoding.idf import idf
from vocable.engines.base import Store
from vocable.engines.protocols import Lexicon
from vocable.errors import ArgumentError

STATISTICS_FILE = "statistics.sqlite"  # file in the folder of a collection that changes


class DocumentCounts:
    """The counts of the documents in a store, which follow every change."""

    statistics: Statistics | None = None  # counts of a folder that changes
    hashed_words: HashedWords | None = None  # words of BM25 on a server
    _terms: tuple[object, TermCounts] | None = None  # the last counts, with the version of the documents

    def __init__(self, place: str, store: Store, settings: CollectionSettings) -> None:
        """Open the counts; after an interrupted change, count all documents again."""
        self._place, self._store, self._settings = place, store, settings
        language = settings.language
        if store.folder is not None and store.about.changes:
            words = language if settings.bm25 and not store.about.weighs_words else None
            counted = len(store), settings.statistics
            self.statistics = Statistics(
                store.folder / STATISTICS_FILE, *counted, size=settings.meta.size, language=words
            )
            if self.statistics.recover:
                self._recount(self.statistics)
            elif settings.whole and self.statistics.drifted > DRIFT:
                self.settle(DRIFT)  # a kill came between a change and its settling
        if settings.bm25 and not store.about.in_folder:
            self.hashed_words = HashedWords(store, language, settings.mean_length)

    @property
    def lexicon(self) -> Lexicon:
        """The words of the documents; `ArgumentError` for a collection without BM25."""
        if not self._settings.bm25:
            raise ArgumentError(f"{self._place}: it was made without bm25 vectors")
        return cast(Lexicon, self.hashed_words or self.statistics or self._store)

    @property
    def terms(self) -> TermCounts:
        """Exact counts of a local collection's documents, or of its passages, as they are now."""
        version = self._store.version()
        if self._terms is None or self._terms[0] != version:
            if self.statistics is not None:
                counts = self.statistics.terms, int(self.statistics["documents"])
            else:
                counts = self._store.document_frequencies(), len(self._store)
            self._terms = version, TermCounts.of(*counts)
        return self._terms[1]

    def idf(self, terms: np.ndarray) -> np.ndarray:
        """Return the IDF of t terms in the documents as they are now, float32 [t]; 1 without documents."""
        if not self._store.about.in_folder:
            frequencies, documents = self._store.count_terms(terms)
            return idf(frequencies, documents) if documents else np.ones(len(terms), np.float32)
        counts = self.terms
        return np.ones(len(terms), np.float32) if counts.idf is None else counts.idf[terms]

    @contextmanager
    def changing(self, added: Sequence[Document], vectors: csr_array, replaced: Sequence[Document]) -> Iterator[Any]:
        """Count the change that the block makes; yields the vectors of `added` for BM25, None without BM25.

        `vectors` [m, v] are the sparse vectors of the added documents.
        """
        texts = self._texts(added)
        if self.hashed_words is not None:
            with self.hashed_words.changing(texts) as weights:
                yield weights
            return
        with self._store.changing():
            if self.statistics is None:
                yield None
                return
            stored = csr_array(self._store.vectors([document.id for document in replaced]))
            removed = Content(stored, self._texts(replaced))
            with self.statistics.changing(Content(vectors, texts), removed) as weights:
                yield weights

    def settle(self, drift: float) -> None:
        """Weigh the words of all documents again if the mean length has drifted further, and let the engine tidy up."""
        if self.statistics is not None and self.statistics.drifted > drift:
            with self.statistics.renewed():
                for documents in self._parts():
                    weights = self.statistics.weights(self._texts(documents))
                    self._store.replace_vectors([document.id for document in documents], "bm25", weights)
        elif self.hashed_words is not None and not self._store.settings["whole"]:
            self.hashed_words.weigh_all(self._parts(), self._texts)
        self._store.optimize()

    def _recount(self, statistics: Statistics) -> None:
        """Count all documents again, after an interrupted change."""
        with self._store.changing():  # the counts change
            statistics.clear()
            for documents in self._parts():
                vectors = csr_array(self._store.vectors([document.id for document in documents]))
                with statistics.changing(Content(vectors, self._texts(documents))):
                    pass
        self.settle(-1 if self._settings.bm25 else 0)
        statistics.end_recovery()
        self._store.configure(self._store.settings | {"statistics": statistics.identity})

    def _texts(self, documents: Sequence[Document]) -> list[str]:
        """Return the texts whose words BM25 counts."""
        return [document.weighed(self._settings.title_weight) for document in documents]

    def _parts(self) -> Iterator[list[Document]]:
        ids = self._store.ids()
        while names := list(islice(ids, self._store.about.part)):
            yield [document for document in self._store.documents(names) if document is not None]
