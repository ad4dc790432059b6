"""The documents of a collection: written with their vectors, counted, and recovered after a kill.

Letters: m documents, v output vocabulary, d dimensions of dense vectors.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import asdict
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.hashed_words import HashedWords
from vocable.collection.records import Changed
from vocable.collection.settings import check_settings, of_vocabulary
from vocable.collection.statistics import DRIFT, Content, Statistics, TermCounts
from vocable.core.progress import progress
from vocable.core.storage import ANOTHER
from vocable.core.tables import counted, masked
from vocable.data import Document
from vocable.data.records import same_document
from vocable.data.texts import check_documents
from vocable.encoding.dense_models import dense_fingerprint, load_dense, normalized
from vocable.encoding.encode import EncodedCorpus
from vocable.encoding.load import load_encoder
from vocable.encoding.model_fingerprint import refuse_differences
from vocable.encoding.models import check_unchanged
from vocable.encoding.protocol import EncodedTexts, EncodingModel
from vocable.encoding.stream import StreamProgress, in_parts
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines.base import Store, Vectors
from vocable.engines.filters import names_of
from vocable.engines.protocols import Lexicon, Space
from vocable.engines.server import patiently
from vocable.errors import (
    ArgumentError,
    NoSpaceError,
    UnavailableError,
    VectorsError,
    VocableError,
)
from vocable.language.coverage import Coverage, warn_of_language

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

INDEX_AGAIN = "index again, or use allow_changed_model"
STATISTICS_FILE = "statistics.sqlite"  # in the folder of a collection that changes


class StoredDocuments:
    """Documents in a store with their sparse vectors and, if the collection has them, words and dense vectors."""

    built: EncodedCorpus | None = None  # counts of the making, just after it
    _counted: tuple[object, TermCounts] | None = None  # the last counts, with the version of the documents
    statistics: Statistics | None = None  # of a folder that changes
    hashed_words: HashedWords | None = None  # of BM25 on a server
    was_there = False  # the making found it whole

    def __init__(
        self, place: str, store: Store, *, allow_changed_model: bool = False, device: str | None = None
    ) -> None:
        """Open the collection that a store holds; `VectorsError` if its settings are not those of a collection."""
        self.place, self.store = masked(place), store
        self.allow_changed_model, self.device = allow_changed_model, device
        settings = check_settings(store.settings, self.place)
        self.model, self.source, self.meta, self.dense = settings.model, settings.source, settings.meta, settings.dense
        self.base_url, self.language, self.title_weight = settings.base_url, settings.language, settings.title_weight
        self.limits, self.dtype = settings.limits, settings.limits.dtype
        has = {"sparse": True, "bm25": settings.bm25, "dense": self.dense is not None}
        # The model gives both vectors in one pass: no other model could change.
        self.dense_inside = self.dense is not None and settings.dense_fingerprint is None
        self.spaces: tuple[Space, ...] = tuple(space for space, present in has.items() if present)
        if store.folder is not None and store.about.changes:
            counts = len(store), settings.statistics
            words = self.language if settings.bm25 and not store.about.weighs_words else None
            self.statistics = Statistics(store.folder / STATISTICS_FILE, *counts, size=self.meta.size, language=words)
            if self.statistics.recover:
                self._recount()
            elif settings.whole and self.statistics.drifted > DRIFT:
                self._settle(DRIFT)  # a kill came between a change and this
        if settings.bm25 and not store.about.in_folder:
            self.hashed_words = HashedWords(store, self.language, settings.mean_length)

    def __len__(self) -> int:
        return len(self.store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r}, {len(self):,} documents, model={self.model!r})"

    def __str__(self) -> str:
        return f"{self.place}: {self.built or f'{len(self):,} documents'}"

    def to_json(self) -> dict[str, object]:
        """Return the counts of the making as JSON values."""
        return {"output": self.place, **({"texts": len(self)} if self.built is None else self.built.to_json())}

    def close(self) -> None:
        """Close the store and the files beside it."""
        if self.statistics is not None:
            self.statistics.close()
        self.store.close()

    def with_model(self, **options: Any) -> Self:
        """Return the same collection with another `model`, `device` or `allow_changed_model`, its model reloaded."""
        other = copy(self)
        for name in ("loaded_model", "terms", "document_encoder", "dense_model", "query_spaces"):
            vars(other).pop(name, None)
        vars(other).update(options)
        return other

    @cached_property
    def loaded_model(self) -> EncodingModel:
        """The model that made the collection, in its runtime, loaded on first use; `VectorsError` if it has changed."""
        model = load_encoder(self.model, self.device, self.meta.runtime)
        if not self.allow_changed_model:
            check_unchanged(model, self.meta, self.place, INDEX_AGAIN)
        return model

    @cached_property
    def dense_model(self) -> SentenceTransformer:
        """The model of the dense vectors, loaded on first use."""
        if self.dense is None or self.dense_inside:
            raise ArgumentError(f"{self.place}: it was made without dense vectors of another model")
        model, stored = load_dense(self.dense, self.device), self.store.settings.get("dense_fingerprint") or {}
        if not self.allow_changed_model:
            refuse_differences(stored, dense_fingerprint(model), f"{self.place}: {self.dense}", INDEX_AGAIN)
        return model

    @cached_property
    def document_encoder(self) -> TextEncoder:
        """The encoder of documents, with the options of the collection; `VectorsError` for another vocabulary."""
        return of_vocabulary(TextEncoder(self.loaded_model, "document", **asdict(self.limits)), self.meta, self.model)

    @property
    def lexicon(self) -> Lexicon:
        """The words of the documents; `ArgumentError` for a collection without BM25."""
        if "bm25" not in self.spaces:
            raise ArgumentError(f"{self.place}: it was made without bm25 vectors")
        lexicon: Any = self.hashed_words or self.statistics or self.store
        return cast(Lexicon, lexicon)

    @property
    def term_counts(self) -> TermCounts:
        """Exact counts of the documents of a local collection as they are now; of passages, if it has them."""
        version = self.store.version()
        if self._counted is None or self._counted[0] != version:
            if self.statistics is not None:
                counts = self.statistics.terms, int(self.statistics["documents"])
            else:
                counts = self.store.document_frequencies(), len(self.store)
            self._counted = version, TermCounts.of(*counts)
        return self._counted[1]

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id."""
        return self.store.documents(ids)

    def vectors(self, ids: Sequence[str]) -> csr_array:
        """Return the stored sparse vectors [m, v] of documents; `ArgumentError` for an unknown id."""
        return csr_array(self.store.vectors(ids))

    def stored(self) -> Iterator[csr_array]:
        """Iterate over all stored sparse vectors, in parts [m, v]."""
        ids = self.store.ids()
        while some := list(islice(ids, self.store.about.part)):
            yield self.vectors(some)

    @property
    def known_fields(self) -> frozenset[str] | None:
        """Names of fields for filters, deleted documents' included; None if there are too many."""
        names = self.store.settings.get("fields")
        return None if names is None else frozenset(names)

    def ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents, in any order."""
        return self.store.ids()

    def check_changes(self) -> None:
        """Raise `ArgumentError` for a collection that cannot change."""
        if not self.store.about.changes:
            raise ArgumentError(f"{self.place} cannot change: index again to a plain folder, or to a server")

    @patiently()
    def fill(self, parts: Iterable[tuple[Sequence[Document], EncodedTexts | None]]) -> None:
        """Add the documents of a corpus to a new collection; an interrupted call resumes when repeated.

        A part is documents and their vectors, None if they must be encoded. The store's settings hold the `progress`,
        and `whole` at the end.
        """
        done, stream = StreamProgress(**self.store.settings["progress"]), iter(parts)
        before = deque(islice(stream, done.parts), maxlen=1)
        if done.parts and (not before or before[0][0][-1].id != done.last_id):
            raise VectorsError(f"{self.place} was begun with other documents: {ANOTHER}")
        try:
            self._fill_on(stream, done)
            if not done.texts:
                raise ArgumentError(f"{self.source or 'the corpus'} has no documents")
            self._settle(0)
            self.store.configure(self.store.settings | {"whole": True})
        except UnavailableError as error:
            error.args = (f"{error}; {counted(done.texts, 'document')} written: the same command resumes",)
            raise
        warn_of_language(self.model, Coverage(*done.coverage), "bm25" in self.spaces)

    def _fill_on(self, parts: Iterable[tuple[Sequence[Document], EncodedTexts | None]], done: StreamProgress) -> None:
        """Write further parts of a corpus, and count them in `done`."""
        resumed = done.parts  # a killed call may have written this part
        with progress("index") as advance:
            advance(done.texts)
            for part, stored in parts:
                started = time.perf_counter()
                found = self.documents([document.id for document in part]) if done.parts == resumed else []
                counts = self._put(part, [one for one in found if one is not None], stored, advance)
                done.parts, done.texts, done.last_id = done.parts + 1, done.texts + len(part), part[-1].id
                done.truncated, done.windows = done.truncated + counts.truncated, done.windows + counts.windows
                done.empty, done.unknown = done.empty + counts.empty, done.unknown + counts.unknown
                done.seconds += time.perf_counter() - started
                if stored is None:
                    read = [document.full for document in part], self.document_encoder.tokenization
                    done.coverage = Coverage(*done.coverage).with_sample(*read)
                lengths = {} if self.hashed_words is None else {"mean_length": self.hashed_words.mean}
                self.store.configure(self.store.settings | lengths | {"progress": asdict(done)})

    def counts(self) -> EncodedCorpus:
        """Return the counts of the making of the collection."""
        done = StreamProgress(**self.store.settings["progress"])
        seconds, length = 0.0 if self.was_there else done.seconds, self.meta.max_length or None
        counts = done.texts, seconds, done.truncated, done.empty, length, 0, ""
        return EncodedCorpus(*counts, windows=done.windows, unknown=done.unknown)

    def add(self, documents: Iterable[Document]) -> Changed:
        """Add documents; a document with a known id replaces the old one, an unchanged one is skipped.

        Raises `ArgumentError`, before anything is written, for a document that no reader returns and for a repeated id.
        """
        return self.add_stream(check_documents(documents))

    @patiently()
    def add_stream(self, documents: Iterable[Document]) -> Changed:
        """Add documents of a reader as `add` does, in parts and unchecked.

        An error names the number of documents that were written before.
        """
        self.check_changes()
        added = replaced = unchanged = 0
        done = StreamProgress()
        try:
            with progress("add") as advance:
                for some in in_parts(documents, self.store.about.part, self.limits.long_documents):
                    part = list({document.id: document for document in some}.values())
                    found = self.documents([document.id for document in part])
                    pairs = [(new, old) for new, old in zip(part, found, strict=True) if not same_document(new, old)]
                    gone = [old for _, old in pairs if old is not None]
                    changed = [new for new, _ in pairs]
                    if changed:
                        counts = self._put(changed, gone)
                        done.truncated, done.empty = done.truncated + counts.truncated, done.empty + counts.empty
                        done.unknown += counts.unknown
                    added, replaced = added + len(changed) - len(gone), replaced + len(gone)
                    unchanged += len(part) - len(changed)
                    advance(len(some))
            self._settle_written()
            count = len(self)
        except VocableError as error:
            if written := added + replaced:
                error.args = (f"{error}; {counted(written, 'document')} before this are written: add the same again",)
            elif isinstance(error, UnavailableError) and not error.unwritten:
                error.args = (f"{error}; no document is written: add the same again",)
            raise
        self._warn(done)
        return Changed(added, replaced, unchanged, 0, count)

    def _warn(self, done: StreamProgress) -> None:
        """Log losses of added texts."""
        length = self.document_encoder.max_length if done.truncated else None  # loads the model
        lost = {
            f"cut at {length} tokens": done.truncated,
            "without an active term": done.empty,
            "mostly unknown to the vocabulary": done.unknown,
        }
        for loss, count in lost.items():
            if count:
                logger.warning("%s: %s %s", self.place, counted(count, "text"), loss)

    @patiently()
    def delete(self, ids: Sequence[str]) -> Changed:
        """Delete documents; an unknown id is ignored."""
        self.check_changes()
        deleted, names = 0, iter(dict.fromkeys(ids))
        try:
            while some := list(islice(names, self.store.about.part)):
                found = [document for document in self.documents(some) if document is not None]
                self._remove(found)
                deleted += len(found)
            self._settle_written()
            return Changed(0, 0, 0, deleted, len(self))
        except UnavailableError as error:
            error.args = (f"{error}; {counted(deleted, 'document')} before this are deleted: delete the same again",)
            raise

    def others(self, ids: Collection[str]) -> Iterator[str]:
        """Iterate over the ids of documents that are not among `ids`, in any order."""
        return (name for name in self.ids() if name not in ids)

    def _settle_written(self) -> None:
        """Settle after a successful change; on a full disk this waits until the collection is opened again."""
        with suppress(NoSpaceError):
            self._settle(DRIFT)
        if self.hashed_words is not None:
            self.hashed_words.warn_of_drift()
        if self.store.version() is None:  # after a kill: all that this change repeats may be written already
            with self.store.changing():
                pass

    def _put(
        self,
        documents: Sequence[Document],
        replaced: Sequence[Document],
        stored: EncodedTexts | None = None,
        advance: Callable[[int], object] = lambda done: None,
    ) -> StreamProgress:
        """Write documents, and encode them unless `stored` has their vectors; return counts of the texts.

        `replaced` are the documents in the store with the same ids.
        """
        counts = StreamProgress()
        if stored is None:
            encoder = self.document_encoder
            before = encoder.truncated, encoder.windows_read, encoder.unknown
            sparse, dense = encoder.encode_both([document.full for document in documents], advance)
            counts.truncated, counts.windows = encoder.truncated - before[0], encoder.windows_read - before[1]
            counts.unknown = encoder.unknown - before[2]
        else:
            sparse, dense = stored
            advance(len(documents))
        counts.empty = int((np.diff(sparse.indptr) == 0).sum())
        self._write(documents, sparse, replaced, dense)
        return counts

    def _remove(self, documents: Sequence[Document]) -> None:
        """Delete documents that exist."""
        self._write([], csr_array((0, self.meta.size), dtype=np.float32), documents)

    def _write(
        self,
        documents: Sequence[Document],
        sparse: csr_array,
        replaced: Sequence[Document],
        dense: np.ndarray | None = None,
    ) -> None:
        """Write documents with all their vectors, and delete the others of `replaced`.

        `dense` are the dense vectors of the collection's own model, from the pass that made the `sparse` ones.
        """
        self._know_fields(documents)
        texts = [document.full for document in documents]
        vectors: dict[Space, Vectors] = {"sparse": sparse}
        if self.dense is not None and documents:
            if not self.dense_inside:
                dense = normalized(self.dense_model.encode_document(texts, show_progress_bar=False))
                dense[[not text.strip() for text in texts]] = 0  # never a hit: hits have scores above 0
            assert dense is not None
            vectors["dense"] = dense
        gone = {document.id for document in replaced} - {document.id for document in documents}
        with self._counting(Content(sparse, self._counted_texts(documents)), replaced) as weights:
            if documents:
                self.store.upsert(documents, vectors if weights is None else {**vectors, "bm25": weights})
            if gone:
                self.store.delete(sorted(gone))

    @contextmanager
    def _counting(self, added: Content, replaced: Sequence[Document]) -> Iterator[csr_array | None]:
        """Count a change of the documents in the block; yields the vectors for BM25."""
        if self.hashed_words is not None:
            with self.hashed_words.changing(added.texts) as weights:
                yield weights
            return
        with self.store.changing():
            if self.statistics is None:
                yield None
                return
            vectors = self.vectors([document.id for document in replaced])
            removed = Content(vectors, self._counted_texts(replaced))
            with self.statistics.changing(added, removed) as weights:
                yield weights

    def _counted_texts(self, documents: Sequence[Document]) -> list[str]:
        """Return the texts whose words BM25 counts."""
        return [document.weighed(self.title_weight) for document in documents]

    def _know_fields(self, documents: Sequence[Document]) -> None:
        """Record the names of the fields of documents before they are written."""
        known = self.known_fields
        if known is not None and (found := names_of((document.fields for document in documents), known)) != known:
            now = self.store.settings_now()  # with names of other writers
            names = None if found is None or now["fields"] is None else sorted(found.union(now["fields"]))
            self.store.configure({**now, "fields": names})

    def _settle(self, drift: float) -> None:
        """Weigh the words of all documents again if the mean length has drifted further, and let the engine tidy up."""
        if self.statistics is not None and self.statistics.drifted > drift:
            with self.statistics.renewed():
                for some in self._parts():
                    weights = self.statistics.weights(self._counted_texts(some))
                    self.store.replace_vectors([document.id for document in some], "bm25", weights)
        elif self.hashed_words is not None and not self.store.settings["whole"]:
            self.hashed_words.weigh_all(self._parts(), self._counted_texts)
        self.store.optimize()

    def _recount(self) -> None:
        """Count all documents again, after an interrupted change."""
        assert self.statistics is not None
        with self.store.changing():  # of what is known of them
            self.statistics.clear()
            for some in self._parts():
                vectors = self.vectors([document.id for document in some])
                with self.statistics.changing(Content(vectors, self._counted_texts(some))):
                    pass
        self._settle(-1 if "bm25" in self.spaces else 0)
        self.statistics.end_recovery()
        self.store.configure(self.store.settings | {"statistics": self.statistics.identity})

    def _parts(self) -> Iterator[list[Document]]:
        ids = self.store.ids()
        while some := list(islice(ids, self.store.about.part)):
            yield [document for document in self.store.documents(some) if document is not None]
