"""The writing of a collection: documents are encoded, stored and counted in parts, and deleted.

Letters: m documents, v output vocabulary, d dimensions of dense vectors.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.models import CollectionModels
from vocable.collection.passages import UnitChange, Units
from vocable.collection.records import Changed
from vocable.collection.settings import CollectionSettings
from vocable.core.progress import progress
from vocable.core.storage import ANOTHER
from vocable.core.tables import counted
from vocable.data import Document
from vocable.data.records import same_document
from vocable.data.texts import Documents, as_documents
from vocable.encoding.protocol import EncodedTexts
from vocable.encoding.stream import StreamProgress, in_parts
from vocable.engines.base import Store, Vectors
from vocable.engines.filters import names_of
from vocable.engines.patience import patiently
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, UnavailableError, VectorsError, VocableError
from vocable.language.coverage import Coverage, warn_of_language
from vocable.options import LongDocuments

logger = logging.getLogger(__name__)

DocumentParts: TypeAlias = Iterator[tuple[list[Document], EncodedTexts | None]]  # documents, with vectors if stored


FIRST_PART = 64  # documents that get their vectors first, so that some are searched soon


class WriterRun(NamedTuple):
    """The number of texts that a call has added to a new collection, and its seconds."""

    texts: int = 0
    seconds: float = 0.0


class CollectionWriter:
    """Changes of the collection at a place: documents are added, replaced and deleted."""

    def __init__(
        self,
        place: str,
        store: Store,
        settings: CollectionSettings,
        models: CollectionModels,
        units: Units,
    ) -> None:
        self._place, self._store, self._settings = place, store, settings
        self._models, self._units = models, units
        self.run = WriterRun()

    @patiently()
    def fill(self, parts: DocumentParts, total: int | None = None) -> None:
        """Add the documents of a corpus to a new collection; an interrupted call resumes when repeated.

        A part is documents and their vectors, None if they must be encoded: then a local index first stores all
        documents with their words. The store's settings hold the `progress`, and `whole` at the end. `total` is the
        number of documents, if it is known.
        """
        settings = self._store.settings
        done, stream = StreamProgress(**settings["progress"]), iter(parts)
        began, earlier = time.perf_counter(), done.texts
        try:
            if not settings["stored"]:
                self._fill_parts(self._after(stream, done), done, total)
                if not done.texts:
                    raise ArgumentError(f"{self._settings.source or 'the corpus'} has no documents")
            encoded = self._encode_rest(done)
            with self._store.changing():
                self._store.finish()
                self._store.configure(self._store.settings | {"whole": True})
            self.run = WriterRun(max(done.texts - earlier, encoded), time.perf_counter() - began)
        except UnavailableError as error:
            error.args = (f"{error}; {counted(done.texts, 'document')} written: the same command resumes",)
            raise
        warn_of_language(self._settings.model, Coverage(*done.coverage), self._settings.bm25)

    def _after(self, stream: DocumentParts, done: StreamProgress) -> DocumentParts:
        """Return the parts after those that an interrupted call has written."""
        last = deque(islice(stream, done.parts), maxlen=1)
        if done.parts and (not last or last[0][0][-1].id != done.last_id):
            raise VectorsError(f"{self._place} was begun with other documents: {ANOTHER}")
        return stream

    def _fill_parts(self, parts: DocumentParts, done: StreamProgress, total: int | None) -> None:
        """Write further parts of a corpus, and count them in `done`."""
        resumed, local = done.parts, self._store.about.words_first  # a killed call may have written the first part
        part = next(parts, None)
        with progress("words" if part and local and part[1] is None else "index", total, begun=done.texts) as advance:
            while part is not None:
                started, (documents, encoded) = time.perf_counter(), part
                ids = [document.id for document in documents]
                stored = [one for one in self._units.documents(ids) if one] if done.parts == resumed else []
                if local and encoded is None:
                    self._put_words(documents, stored)
                    advance(len(documents))
                else:
                    done.add(self._put(documents, stored, encoded, advance))
                done.parts, done.texts, done.last_id = done.parts + 1, done.texts + len(documents), documents[-1].id
                done.seconds += time.perf_counter() - started
                if encoded is None and not local:
                    done.coverage = self._covered(done, documents)
                self._keep(done)
                part = next(parts, None)
        self._store.configure(self._store.settings | {"stored": True})

    def _put_words(self, documents: Sequence[Document], replaced: Sequence[Document]) -> None:
        """Store documents with their words alone."""
        changes = [*self._units.changes(documents, replaced)]
        with self._store.changing():
            for change in changes:
                self._know_fields(change.added)
                gone = {document.id for document in change.removed} - {document.id for document in change.added}
                self._store.upsert(change.added, {})
                self._store.delete(sorted(gone))

    def _encode_rest(self, done: StreamProgress) -> int:
        """Give all documents vectors that have none yet, a part at a time; return their number."""
        if self._store.encoded_share == 1:
            return 0
        total, part = len(self._store), self._store.about.part
        begun = round(self._store.encoded_share * total)
        with progress("index", total, begun=begun) as advance:
            for units in _growing_parts(self._store.without_vectors(), part, self._settings.limits["long_documents"]):
                started, counts = time.perf_counter(), StreamProgress()
                sparse, dense = self._encoded(units, counts, advance)
                counts.empty += int((np.diff(sparse.indptr) == 0).sum())
                counts.windows += 0 if self._units.are_documents else len(units)
                vectors = self._all_vectors(units, counts, sparse, dense)
                done.add(counts)
                done.coverage = self._covered(done, units)
                done.seconds += time.perf_counter() - started
                with self._store.changing():
                    self._store.upsert(units, vectors)
                    self._keep(done)
        return total - begun

    def _covered(self, done: StreamProgress, documents: Sequence[Document]) -> Coverage:
        """Return the coverage of a sample of texts, these documents' included, by the model's vocabulary."""
        texts = [document.full for document in documents]
        return Coverage(*done.coverage).with_sample(texts, self._models.documents.tokenization)

    def _keep(self, done: StreamProgress) -> None:
        """Store the counts of a making."""
        self._store.configure(self._store.settings | {"progress": asdict(done)})

    def add(self, documents: Documents) -> Changed:
        """Add documents; a document with a known id replaces the old one, an unchanged one is skipped.

        Raises `ArgumentError`, before anything is written, for a document that no reader returns and for a repeated id.
        """
        return self.add_stream(as_documents(documents))

    @patiently()
    def add_stream(self, documents: Iterable[Document]) -> Changed:
        """Add documents of a reader as `add` does, in parts and unchecked.

        An error names the number of documents that are already written.
        """
        self.check_changes()
        added = replaced = unchanged = 0
        done = StreamProgress()
        try:
            with progress("add") as advance:
                for read in in_parts(documents, self._store.about.part, self._settings.limits["long_documents"]):
                    # Of documents with one id the last counts. An unchanged document is not encoded.
                    part = list({document.id: document for document in read}.values())
                    stored = self._units.documents([document.id for document in part])
                    pairs = [(new, old) for new, old in zip(part, stored, strict=True) if not same_document(new, old)]
                    gone = [old for _, old in pairs if old is not None]
                    if pairs:
                        done.add(self._put([new for new, _ in pairs], gone))
                    added, replaced = added + len(pairs) - len(gone), replaced + len(gone)
                    unchanged += len(part) - len(pairs)
                    advance(len(read))
            self._settle()
            count = len(self._units)
        except VocableError as error:
            # What is written stays, and the same call skips it.
            if written := added + replaced:
                error.args = (f"{error}; {counted(written, 'document')} before this are written: add the same again",)
            elif isinstance(error, UnavailableError) and not error.unwritten:
                error.args = (f"{error}; no document is written: add the same again",)
            raise
        self._warn(done)
        return Changed(added, replaced, unchanged, 0, count)

    @patiently()
    def delete(self, ids: Sequence[str]) -> Changed:
        """Delete documents; an unknown id is ignored."""
        self.check_changes()
        deleted, names = 0, iter(dict.fromkeys(ids))
        try:
            while part := list(islice(names, self._store.about.part)):
                gone = [document for document in self._units.documents(part) if document is not None]
                changes = [*self._units.changes([], gone)] if gone else []
                with self._store.changing() if changes else nullcontext():
                    for change in changes:
                        self._write(change, StreamProgress(), self._no_vectors)
                deleted += len(gone)
            self._settle()
            return Changed(0, 0, 0, deleted, len(self._units))
        except UnavailableError as error:
            error.args = (f"{error}; {counted(deleted, 'document')} before this are deleted: delete the same again",)
            raise

    def others(self, ids: Collection[str]) -> Iterator[str]:
        """Iterate over the ids of documents that are not among `ids`, in any order."""
        return (name for name in self._units.ids() if name not in ids)

    def check_changes(self) -> None:
        """Raise `ArgumentError` for a collection that cannot change."""
        if not self._store.about.changes:
            raise ArgumentError(f"{self._place} cannot change: {self._store.about.instead}")
        if not self._store.settings_now().get("whole", True):
            raise ArgumentError(f"{self._place} is unfinished: repeat the command that began it, then change it")

    def _settle(self) -> None:
        """Complete a change, or one that found nothing left to do."""
        self._store.settle()
        if self._store.version() is None:  # after a kill: all that this change repeats may be written already
            with self._store.changing():
                pass

    def _put(
        self,
        documents: Sequence[Document],
        replaced: Sequence[Document],
        encoded: EncodedTexts | None = None,
        advance: Callable[[int], object] = lambda done: None,
    ) -> StreamProgress:
        """Write documents, and encode them unless they are `encoded` already; return counts of the texts.

        `replaced` are the documents of the collection with the same ids.
        """
        counts, whole, writes = StreamProgress(), self._units.are_documents, []
        # Encode before anything is written: an error of the model changes nothing.
        for change in self._units.changes(documents, replaced):
            if encoded is None:
                sparse, dense = self._encoded(change.added, counts, advance if whole else lambda done: None)
            else:
                sparse, dense = encoded
            counts.empty += int((np.diff(sparse.indptr) == 0).sum())
            counts.windows += 0 if whole else len(change.added)
            writes.append((change, sparse, dense))
        with self._store.changing():
            for change, sparse, dense in writes:
                self._write(change, counts, sparse, dense)
        # The encoder has reported the progress of whole documents; windows and given vectors have not been reported.
        if encoded is not None or not whole:
            advance(len(documents))
        return counts

    def _encoded(
        self, documents: Sequence[Document], counts: StreamProgress, advance: Callable[[int], object]
    ) -> EncodedTexts:
        """Return the vectors of documents, and count texts with losses in `counts`."""
        if not documents:
            return EncodedTexts(self._no_vectors)
        encoder = self._models.documents
        previous = encoder.truncated, encoder.windows_read, encoder.unknown
        vectors = encoder.encode_both([document.full for document in documents], advance)
        counts.truncated += encoder.truncated - previous[0]
        counts.windows += encoder.windows_read - previous[1]
        counts.unknown += encoder.unknown - previous[2]
        return vectors

    @property
    def _no_vectors(self) -> csr_array:
        return csr_array((0, self._settings.meta.size), dtype=np.float32)

    def _write(
        self, change: UnitChange, counts: StreamProgress, sparse: csr_array, dense: np.ndarray | None = None
    ) -> None:
        """Write the added units of a change with all their vectors, and delete the other removed units.

        `dense` are the dense vectors [m, d] of the collection's model, from the pass that made the `sparse` vectors.
        """
        documents = change.added
        vectors = self._all_vectors(documents, counts, sparse, dense)
        gone = {document.id for document in change.removed} - {document.id for document in documents}
        self._know_fields(documents)
        if documents:
            self._store.upsert(documents, vectors)
        if gone:
            self._store.delete(sorted(gone))

    def _all_vectors(
        self, documents: Sequence[Document], counts: StreamProgress, sparse: csr_array, dense: np.ndarray | None
    ) -> dict[Space, Vectors]:
        """Return the vectors of documents by space; the dense model computes its own unless they are given.

        Texts that the dense model reads in part are counted in `counts`.
        """
        vectors: dict[Space, Vectors] = {"sparse": sparse}
        if self._settings.dense is not None and documents:
            if not self._models.dense_inside:
                texts = [document.full for document in documents]
                dense = self._models.dense_documents(texts)
                counts.dense_truncated += self._models.count_cut(texts)
            assert dense is not None
            vectors["dense"] = dense
        return vectors

    def _know_fields(self, documents: Sequence[Document]) -> None:
        """Record the names of the fields of documents before they are written."""
        known = self._store.settings.get("fields")
        if known is None:  # too many
            return
        names = names_of((document.fields for document in documents), frozenset(known))
        if names != frozenset(known):
            now = self._store.settings_now()  # other writers may have added names
            merged = None if names is None or now["fields"] is None else sorted(names.union(now["fields"]))
            self._store.configure({**now, "fields": merged})

    def _warn(self, done: StreamProgress) -> None:
        """Log losses of added texts."""
        length = self._models.documents.max_length if done.truncated else None  # loads the model
        read = self._models.dense.get_max_seq_length() if done.dense_truncated else None
        lost = {
            f"cut at {length} tokens": done.truncated,
            f"cut at {read} tokens for the dense vectors": done.dense_truncated,
            "without an active term": done.empty,
            "mostly unknown to the vocabulary": done.unknown,
        }
        for loss, count in lost.items():
            if count:
                logger.warning("%s: %s %s", self._place, counted(count, "text"), loss)


def _growing_parts(
    documents: Iterator[Document], most: int, long_documents: LongDocuments | None
) -> Iterator[list[Document]]:
    """Yield documents in parts as `in_parts` does, of rising size, up to `most` documents."""
    size = FIRST_PART
    while part := next(in_parts(documents, min(size, most), long_documents), None):
        yield part
        size *= 2
