"""The counts of a collection's documents: how many have each term and word. Searches weigh terms and words by them.

A local index counts from its segments (`engines.snapshot`), and a server counts itself (`Store.count_terms`).

Letters: m documents, t terms, v output vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

import numpy as np

from vocable.collection.hashed_words import HashedWords
from vocable.collection.settings import CollectionSettings
from vocable.data import Document
from vocable.encoding.idf import idf
from vocable.engines.base import Store
from vocable.engines.protocols import Lexicon
from vocable.errors import ArgumentError


class DocumentCounts:
    """The counts of the documents in a store, which follow every change."""

    hashed_words: HashedWords | None = None  # words of BM25 on a server

    def __init__(self, place: str, store: Store, settings: CollectionSettings) -> None:
        self._place, self._store, self._settings = place, store, settings
        if settings.bm25 and not store.about.in_folder:
            self.hashed_words = HashedWords(store, settings.language, settings.mean_length)

    @property
    def lexicon(self) -> Lexicon:
        """The words of the documents; `ArgumentError` for a collection without BM25."""
        if not self._settings.bm25:
            raise ArgumentError(f"{self._place}: it was made without bm25 vectors")
        return cast(Lexicon, self.hashed_words or self._store)

    def idf(self, terms: np.ndarray) -> np.ndarray:
        """Return the IDF of t terms in the documents as they are now, float32 [t]; 1 without documents."""
        frequencies, documents = self._store.count_terms(terms)
        return idf(frequencies, documents) if documents else np.ones(len(terms), np.float32)

    @contextmanager
    def changing(self, added: Sequence[Document]) -> Iterator[Any]:
        """Count the change that the block makes; yields the vectors of `added` for BM25, None if the store counts."""
        if self.hashed_words is not None:
            with self.hashed_words.changing(self._texts(added)) as weights:
                yield weights
            return
        with self._store.changing():
            yield None

    def settle(self) -> None:
        """Weigh the words of a new collection on a server by the mean length of all documents; let the engine tidy."""
        if self.hashed_words is not None and not self._store.settings["whole"]:
            self.hashed_words.weigh_all(self._parts(), self._texts)
        self._store.optimize()

    def _texts(self, documents: Sequence[Document]) -> list[str]:
        """Return the texts whose words BM25 counts."""
        return [document.weighed(self._settings.title_weight) for document in documents]

    def _parts(self) -> Iterator[list[Document]]:
        ids = self._store.ids()
        while names := list(islice(ids, self._store.about.part)):
            yield [document for document in self._store.documents(names) if document is not None]
