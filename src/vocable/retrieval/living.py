"""A collection that changes: documents with their vectors in a store, its model, and the words that BM25 counts.

Letters: m documents, q queries, v output vocabulary, d dimensions of dense vectors, k results.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from scipy.sparse import csr_array
from sentence_transformers import SentenceTransformer

from vocable.data import Document
from vocable.data.records import same_document
from vocable.data.texts import check_documents
from vocable.encoder.encode import EncodedCorpus
from vocable.encoder.opening import without_bars
from vocable.encoder.provenance import checksum
from vocable.encoder.stream import StreamProgress, in_parts
from vocable.encoder.text_encoder import TextEncoder, warn_of_unknown
from vocable.errors import ArgumentError, ModelError, NoSpaceError, VectorsError, VocableError
from vocable.options import DType, LongDocuments
from vocable.progress import progress
from vocable.retrieval.bm25_statistics import DRIFT, Lexicon
from vocable.retrieval.collection import Collection
from vocable.retrieval.filters import Filter, names_of
from vocable.retrieval.protocols import Space, Store
from vocable.retrieval.ranking import Ranking, ranking_of
from vocable.retrieval.records import Changed
from vocable.storage import ANOTHER
from vocable.tables import counted, masked
from vocable.vectors import VectorsMeta

logger = logging.getLogger(__name__)

PART = 512  # documents that are encoded and written at once: what a kill makes to be done again


@dataclass(frozen=True)
class Limits:
    """The options by which documents of a collection are encoded, as they are stored."""

    max_terms: Annotated[int, Field(ge=1)] | None
    min_weight: Annotated[float, Field(ge=0)]
    mass: Annotated[float, Field(gt=0, le=1)] | None
    dtype: DType
    max_length: Annotated[int, Field(ge=1)] | None
    long_documents: LongDocuments = "truncate"


@dataclass(frozen=True)
class CollectionSettings:
    """The settings that a store keeps of its collection."""

    model: str
    source: str
    weights: str
    meta: VectorsMeta
    limits: Limits
    bm25: bool
    dense: str | None
    dense_weights: str | None
    progress: StreamProgress  # of the making
    whole: bool  # the making is done
    inputs: str = ""  # fingerprint of the corpus
    vectors: str = ""  # and of the vectors that it was made of
    documents: int | None = None  # of a collection in passages; None while they change
    words: int | None = None  # the identity of its lexicon
    fields: list[str] | None = None  # the names of its documents' fields; None where these are too long, or of a server


def check_settings(settings: dict[str, Any], place: str) -> CollectionSettings:
    """Return the settings of a store as a record; raises `VectorsError` if they are not those of a collection."""
    try:
        found = TypeAdapter(CollectionSettings).validate_python(settings, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise VectorsError(f"{place}: the index is damaged: its settings: {field}: {first['msg']}") from error
    if found.whole and ("documents" in settings) != (found.limits.long_documents == "passages"):
        raise VectorsError(
            f"{place}: the index is damaged: its settings: limits.long_documents is not that of its documents"
        )
    return found


class LivingCollection(Collection):
    """Documents in a store, searched by sparse vectors, by BM25 and by dense vectors as far as it has them."""

    long_documents: LongDocuments  # what becomes of documents beyond the model's length

    def __init__(
        self, place: str, store: Store, *, allow_changed_model: bool = False, device: str | None = None
    ) -> None:
        """Open the collection that a store holds; raises `VectorsError` if its settings are not those of one."""
        self.place, self.store = masked(place), store
        self.allow_changed_model, self.device = allow_changed_model, device
        settings = check_settings(store.settings, self.place)
        self.model, self.source, self.weights = settings.model, settings.source, settings.weights
        self.meta, self.dense = settings.meta, settings.dense
        self.limits: dict[str, Any] = store.settings["limits"]  # how documents are encoded
        self.long_documents, self.dtype = settings.limits.long_documents, settings.limits.dtype
        has = {"sparse": True, "bm25": settings.bm25, "dense": self.dense is not None}
        self.spaces = tuple(space for space, there in has.items() if there)
        self.lexicon: Lexicon | None = None
        if settings.bm25:
            path = Path(getattr(store, "folder", "."), "words.sqlite")
            self.lexicon = Lexicon(path, self._searched_count(), settings.words)
            if self.lexicon.recover:
                self._recount()
            elif settings.whole and self.lexicon.drifted > DRIFT:
                self._settle(DRIFT)  # a kill came between a change and this

    def __len__(self) -> int:
        return len(self.store)

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """As `Collection.documents`."""
        return self.store.documents(ids)

    def vectors(self, ids: Sequence[str]) -> csr_array:
        """As `Collection.vectors`; raises `ArgumentError` for an id that is not there."""
        return csr_array(self.store.vectors(ids))

    def rank(
        self,
        queries: csr_array | np.ndarray,
        k: int,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        minimum_match: float = 0.0,
    ) -> Ranking:
        """As `Collection.rank`; with `minimum_match` hits are asked for until enough of them have so many terms."""
        if not 0 <= minimum_match <= 1:
            raise ArgumentError(f"minimum_match is a share between 0 and 1, not {minimum_match}")
        if filter is not None and not self.store.about.filters:
            raise ArgumentError(f"the {self.store.about.engine} engine has no filters")
        if filter is not None:
            self.check_filter(filter)
        matching = minimum_match > 0 and not isinstance(queries, np.ndarray)
        if not matching and self.long_documents != "passages":
            return self.store.search(queries, k, space=space, filter=filter)
        found, how = [], {"space": space, "filter": filter}
        for row in range(queries.shape[0]):
            query: Any = queries[[row]]
            needed = int(np.ceil(query.nnz * minimum_match - 1e-9)) if matching else 0
            found.append(self._hits(query, k, needed, **how))
        return ranking_of(found, k)

    def _hits(self, query: Any, k: int, needed: int, **how: Any) -> list[tuple[str, float]]:
        """The hits of one query [1, columns] that have at least `needed` of its terms, k of them if there are."""
        depth = 4 * k
        while True:
            hits = enough = self.store.search(query, depth, **how).hits(0)
            if needed and hits:
                stored = csr_array(self.store.vectors([identifier for identifier, _ in hits], how["space"]))
                shared = np.diff((stored[:, query.indices] > 0).tocsr().indptr)
                enough = [hit for hit, count in zip(hits, shared, strict=True) if count >= needed]
            enough = self._documents_of(enough)
            if len(enough) >= k or len(hits) < depth:
                return enough
            depth *= 4

    def _documents_of(self, hits: list[tuple[str, float]]) -> list[tuple[str, float]]:
        """The documents that hits of the store are, best first, each once."""
        return hits

    def _searched(self) -> Iterator[str]:
        """The ids in the store of all that has vectors."""
        return self.store.ids()

    def _searched_count(self) -> int:
        """Return the number of ids that `_searched` gives."""
        return len(self.store)

    def lexical_queries(self, queries: Sequence[str]) -> csr_array:
        """As `Collection.lexical_queries`."""
        if self.lexicon is None:
            raise ArgumentError(f"{self.place}: it was made without bm25 vectors")
        return self.lexicon.query_vectors(queries)

    def dense_queries(self, queries: Sequence[str]) -> np.ndarray:
        """As `Collection.dense_queries`."""
        return _normalized(self.dense_model.encode_query(list(queries), show_progress_bar=False))

    @cached_property
    def dense_model(self) -> SentenceTransformer:
        """The model of the dense vectors, loaded when it is first needed."""
        if self.dense is None:
            raise ArgumentError(f"{self.place}: it was made without dense vectors")
        model = load_dense(self.dense, self.device)
        if not self.allow_changed_model and self.store.settings.get("dense_weights") not in (None, checksum(model)):
            what = f"the weights of {self.dense} have changed since it was made"
            raise VectorsError(f"{self.place}: {what}: index again, or say allow_changed_model")
        return model

    @cached_property
    def document_encoder(self) -> TextEncoder:
        """The model made ready for documents as it was when the collection was made."""
        return TextEncoder(self.loaded_model, "document", **self.limits)

    def stored(self) -> Iterator[csr_array]:
        """As `Collection.stored`."""
        ids = self._searched()
        while some := list(islice(ids, PART)):
            yield self.vectors(some)

    @property
    def known_fields(self) -> frozenset[str] | None:
        """As `Collection.known_fields`, with those of deleted documents; None of a server, which others change, too."""
        names = self.store.settings.get("fields")
        return None if names is None else frozenset(names)

    def fill(self, parts: Iterable[tuple[Sequence[Document], csr_array | None]]) -> None:
        """Add the documents of a corpus to a store that is being made, going on where a killed call stopped.

        A part is documents and their vectors, None where they are to be encoded. What was done is in the store's
        settings under `progress`; `whole` comes to them at the end.
        """
        done, stream = StreamProgress(**self.store.settings["progress"]), iter(parts)
        before = deque(islice(stream, done.parts), maxlen=1)
        if done.parts and (not before or before[0][0][-1].id != done.last_id):
            raise VectorsError(f"{self.place} was begun with other documents: {ANOTHER}")
        resumed = done.parts  # the part in which a call was killed may be there
        with progress("index") as advance:
            advance(done.texts)
            for part, stored in stream:
                started = time.perf_counter()
                there = self.store.documents([document.id for document in part]) if done.parts == resumed else []
                counts = self._put(part, [document for document in there if document is not None], stored)
                advance(len(part))
                done.parts, done.texts, done.last_id = done.parts + 1, done.texts + len(part), part[-1].id
                done.truncated, done.windows = done.truncated + counts.truncated, done.windows + counts.windows
                done.empty, done.unknown = done.empty + counts.empty, done.unknown + counts.unknown
                done.seconds += time.perf_counter() - started
                self.store.configure(self.store.settings | {"progress": asdict(done)})
        if not done.texts:
            raise ArgumentError(f"{self.source or 'the corpus'} has no documents")
        self._settle(0)
        self.store.configure(self.store.settings | {"whole": True})
        warn_of_unknown(done.unknown, done.windows or done.texts)

    def counts(self, bad_lines: int = 0, first_bad: str = "") -> EncodedCorpus:
        """What the making of the collection counted."""
        done = StreamProgress(**self.store.settings["progress"])
        length = self.meta.max_length if self.meta else None
        counts = done.texts, done.seconds, done.truncated, done.empty, length or None
        return EncodedCorpus(*counts, bad_lines, first_bad, windows=done.windows, unknown=done.unknown)

    def add(self, documents: Iterable[Document]) -> Changed:
        """Add documents; one whose id is there is replaced, one that is there unchanged is left as it is.

        Raises `ArgumentError`, before anything is written, for a document that no reader gives and for an id twice.
        """
        return self.add_stream(check_documents(documents))

    def add_stream(self, documents: Iterable[Document]) -> Changed:
        """Add documents as `add` does, a part at a time, and check none: they come from a reader.

        An error says how many documents are written by then.
        """
        added = replaced = unchanged = 0
        done = StreamProgress()
        try:
            with progress("add") as advance:
                for some in in_parts(documents, PART, self.long_documents):
                    part = list({document.id: document for document in some}.values())
                    there = self.documents([document.id for document in part])
                    pairs = [(new, old) for new, old in zip(part, there, strict=True) if not same_document(new, old)]
                    gone = [old for _, old in pairs if old is not None]
                    changed = [new for new, _ in pairs]
                    if changed:
                        counts = self._put(changed, gone)
                        done.truncated, done.empty = done.truncated + counts.truncated, done.empty + counts.empty
                        done.unknown += counts.unknown
                    added, replaced = added + len(changed) - len(gone), replaced + len(gone)
                    unchanged += len(part) - len(changed)
                    advance(len(some))
        except VocableError as error:
            if written := added + replaced:
                error.args = (f"{error}; {counted(written, 'document')} before this are written: add the same again",)
            raise
        self._settle_written()
        self._warn(done)
        return Changed(added, replaced, unchanged, 0, len(self))

    def _warn(self, done: StreamProgress) -> None:
        """Log what was lost of the texts that were added."""
        length = self.document_encoder.max_length if done.truncated else None  # which loads the model
        lost = {
            f"cut at {length} tokens": done.truncated,
            "without an active term": done.empty,
            "mostly unknown to the vocabulary": done.unknown,
        }
        for what, count in lost.items():
            if count:
                logger.warning("%s: %s %s", self.place, counted(count, "text"), what)

    def delete(self, ids: Sequence[str]) -> Changed:
        """Delete documents; an id that is not there is passed over."""
        there = [document for document in self.documents(list(dict.fromkeys(ids))) if document is not None]
        self._remove(there)
        self._settle_written()
        return Changed(0, 0, 0, len(there), len(self))

    def _settle_written(self) -> None:
        """Settle after a change that has succeeded; on a full disk that waits for the next opening."""
        with suppress(NoSpaceError):
            self._settle(DRIFT)

    def close(self) -> None:
        """Close the store and the files beside it."""
        if self.lexicon is not None:
            self.lexicon.close()
        self.store.close()

    def _put(
        self, documents: Sequence[Document], replaced: Sequence[Document], sparse: csr_array | None = None
    ) -> StreamProgress:
        """Encode documents, unless their `sparse` vectors [m, v] are there, and write them.

        `replaced` are those that have their ids by now. Returned is what there is to count of texts.
        """
        counts = StreamProgress()
        if sparse is None:
            encoder = self.document_encoder
            before = encoder.truncated, encoder.windows_read, encoder.unknown
            sparse = encoder.encode([document.full for document in documents])
            counts.truncated, counts.windows = encoder.truncated - before[0], encoder.windows_read - before[1]
            counts.unknown = encoder.unknown - before[2]
        counts.empty = int((np.diff(sparse.indptr) == 0).sum())
        self._write(documents, {"sparse": sparse}, replaced)
        return counts

    def _remove(self, documents: Sequence[Document]) -> None:
        """Delete documents that are there."""
        self._write([], {}, documents)

    def _write(
        self,
        documents: Sequence[Document],
        vectors: dict[Space, csr_array | np.ndarray],
        replaced: Sequence[Document],
    ) -> None:
        """Write documents with all their vectors, in place of those `replaced`, which have their ids or are deleted."""
        self._know_fields(documents)
        texts = [document.full for document in documents]
        if self.dense is not None and documents:
            dense = _normalized(self.dense_model.encode_document(texts, show_progress_bar=False))
            dense[[not text.strip() for text in texts]] = 0  # without text it is never a hit, as scores are above 0
            vectors["dense"] = dense
        gone = {document.id for document in replaced} - {document.id for document in documents}
        old = [document.full for document in replaced]
        with nullcontext() if self.lexicon is None else self.lexicon.changing(texts, old) as weights:
            if documents:
                self.store.upsert(documents, vectors if weights is None else {**vectors, "bm25": weights})
            if gone:
                self.store.delete(sorted(gone))

    def _know_fields(self, documents: Sequence[Document]) -> None:
        """Add to the known fields those of documents that are about to be written."""
        known = self.known_fields
        if known is not None and (found := names_of((document.fields for document in documents), known)) != known:
            names = None if found is None else sorted(found)
            self.store.configure(self.store.settings | {"fields": names})

    def _settle(self, drift: float) -> None:
        """Weigh all documents anew if their mean length has drifted further, and let the engine tidy up."""
        vars(self).pop("document_frequencies", None)  # which may be others by now
        if self.lexicon is not None and self.lexicon.drifted > drift:
            with self.lexicon.renewed():
                for some in self._parts():
                    weights = self.lexicon.weights([document.full for document in some])
                    self.store.replace_vectors([document.id for document in some], "bm25", weights)
        self.store.optimize()

    def _recount(self) -> None:
        """Count the words of all documents anew, after a change that was cut short."""
        assert self.lexicon is not None
        self.lexicon.clear()
        for some in self._parts():
            with self.lexicon.changing([document.full for document in some]):
                pass
        self._settle(-1)
        self.store.configure(self.store.settings | {"words": self.lexicon.identity})

    def _parts(self) -> Iterator[list[Document]]:
        ids = self._searched()
        while some := list(islice(ids, PART)):
            yield [document for document in self.store.documents(some) if document is not None]


def load_dense(name: str, device: str | None = None) -> SentenceTransformer:
    """Load a model of dense vectors; raises `ModelError` if there is none."""
    try:
        with without_bars():
            return SentenceTransformer(name, device=device)
    except Exception as error:  # the library raises whatever is under it
        raise ModelError(f"{name}: cannot be loaded as a model of dense vectors: {error}") from error


def _normalized(vectors: Any) -> np.ndarray:
    """Dense vectors [m, d] of length 1, so that their dot product is the cosine."""
    matrix = np.asarray(vectors, dtype=np.float32)
    result: np.ndarray = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return result
