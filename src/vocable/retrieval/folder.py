"""An immutable collection in a folder: exact or another index of vectors, documents, and the lexical index.

FOLDER/settings.json     what made it
FOLDER/progress.json     how many texts there are, and how many were cut or stayed empty
FOLDER/postings/         the index of the vectors
FOLDER/texts.arrow       id, title, text and further fields by row, memory-mapped
FOLDER/bm25/             the lexical index, where there is one

Letters: n documents, m of them, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property, lru_cache, reduce
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
from scipy.sparse import csr_array

from vocable.arrays import Ids
from vocable.data import BadLines, Document
from vocable.data.text_table import TEXT_SCHEMA, documents_of, file_checksum, text_table, write_texts
from vocable.encoder.encode import EncodedCorpus
from vocable.encoder.provenance import describe
from vocable.encoder.stream import PART_SIZE, StreamProgress, encode_stream, read_progress, stream_settings
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError, VectorsError
from vocable.fingerprint import fingerprint
from vocable.progress import track
from vocable.pruning import prune
from vocable.retrieval.bm25 import BM25Index
from vocable.retrieval.collection import Collection
from vocable.retrieval.filters import Filter, matches, names_of
from vocable.retrieval.protocols import Index, Space, load_index, vector_engine
from vocable.retrieval.ranking import Ranking
from vocable.storage import (
    ANOTHER,
    SETTINGS,
    finish,
    finished,
    partial_of,
    read_record,
    regular,
    resumable,
    write_record,
)
from vocable.vectors import PROGRESS, StoredVectors, places_of, read_vectors


class FolderCollection(Collection):
    """The collection in a folder: `postings` of the sparse vectors, `texts` of `TEXT_SCHEMA`, `bm25` or None."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        postings: Index,
        texts: pa.Table,
        bm25: BM25Index | None,
    ) -> None:
        self.folder, self.place = folder, str(folder)
        self.model, self.source, self.weights = (str(settings.get(n) or "") for n in ("model", "source", "weights"))
        self.postings, self.texts, self.bm25, self.meta = postings, texts, bm25, postings.meta
        self.spaces = ("sparse",) if bm25 is None else ("sparse", "bm25")
        if settings.get("dtype") == "torch.float32":  # bfloat16 may be "auto", and slow on another machine
            self.dtype = "float32"
        self._passing = lru_cache(16)(self._rows_that_pass)

    def __len__(self) -> int:
        return len(self.texts)

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """As `Collection.documents`."""
        rows = self._ids.rows(ids)
        found = dict(zip(rows[rows >= 0].tolist(), documents_of(self.texts.take(rows[rows >= 0])), strict=True))
        return [found.get(row) for row in rows.tolist()]

    def vectors(self, ids: Sequence[str]) -> csr_array:
        """As `Collection.vectors`; raises `ArgumentError` for an id that is not there."""
        rows = self._ids.rows(ids)
        if rows.min(initial=0) < 0:
            raise ArgumentError(f"{self.place}: there is no document {ids[int(rows.argmin())]!r}")
        return self.postings.get(rows)

    def rank(
        self,
        queries: csr_array | np.ndarray,
        k: int,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        minimum_match: float = 0.0,
    ) -> Ranking:
        """As `Collection.rank`."""
        index = self.bm25 if space == "bm25" else self.postings if space == "sparse" else None
        if index is None or isinstance(queries, np.ndarray):
            raise ArgumentError(f"{self.place}: it was made without {space} vectors")
        if filter is not None:
            self.check_filter(filter)
        allowed = None if filter is None else self._passing(filter)
        return index.search(queries, k, minimum_match=minimum_match, allowed=allowed)

    def lexical_queries(self, queries: Sequence[str]) -> csr_array:
        """As `Collection.lexical_queries`."""
        if self.bm25 is None:
            raise ArgumentError(f"{self.place}: it was made without bm25 vectors")
        return self.bm25.query_vectors(queries)

    def stored(self) -> Iterator[csr_array]:
        """As `Collection.stored`, in one part."""
        yield self.postings.get()

    @cached_property
    def document_frequencies(self) -> tuple[np.ndarray, int]:
        """As `Collection.document_frequencies`, of all documents."""
        return self.postings.document_frequency, len(self)

    @property
    def _ids(self) -> Ids:
        assert isinstance(self.postings.ids, Ids)
        return self.postings.ids

    @cached_property
    def known_fields(self) -> frozenset[str] | None:
        """As `Collection.known_fields`, read from all documents when the first filter is given."""
        return names_of(self._fields())

    def _rows_that_pass(self, filter: Filter) -> np.ndarray:
        """Return whether each document passes, bool [n]."""
        return np.fromiter((matches(filter, fields) for fields in self._fields()), bool, len(self))

    def _fields(self) -> Iterator[dict[str, Any]]:
        """Iterate over the documents' fields, by row."""
        for part in self.texts.column("fields").chunks:
            yield from (json.loads(one) if one else {} for one in part.to_pylist())


def build_collection(
    encoder: TextEncoder,
    documents: Iterable[Document],
    folder: str | PathLike[str],
    *,
    model: str,
    source: str = "",
    bm25: bool = False,
    engine: str = "exact",
    weight_bits: int | None = None,
) -> StreamProgress:
    """Encode `documents` and make them searchable in `folder`; a killed call goes on when it is repeated.

    Arguments and errors are those of `encode_stream`; `bm25`, `engine` and `weight_bits` are those of `index`.
    """
    folder = Path(folder)
    settings = stream_settings(encoder, describe(encoder, model), source, keep_texts=True)
    settings |= settings_of_parts(bm25, engine, weight_bits)
    if finished(folder, settings):
        return read_progress(folder)
    with resumable(folder, settings) as work:
        encoded = work / "encoded"
        done = encode_stream(encoder, documents, encoded, model=model, source=source, keep_texts=True, title="index")
        parts = sorted(encoded.glob("part-*.arrow"))
        if not done.texts:
            shutil.rmtree(work)
            raise ArgumentError(f"{source or 'the corpus'} has no documents")
        if done.texts_crc32 not in (None, reduce(lambda before, part: file_checksum(part, before), parts, 0)):
            raise VectorsError(f"{encoded}: the texts are damaged (a checksum differs): {ANOTHER}")
        finish(work, folder, _complete(work / "whole", map(_read_texts, parts), read_vectors(encoded), done, settings))
    return done


def settings_of_parts(bm25: bool, engine: str, weight_bits: int | None) -> dict[str, Any]:
    """The settings that name the indexes; those of before there was a choice have none."""
    settings = {"bm25": bm25} | ({} if engine == "exact" else {"engine": engine})
    return settings if weight_bits is None else settings | {"weight_bits": weight_bits}


def stored_weights(places: Iterable[str | PathLike[str]]) -> str:
    """The checksum of the model that made stored vectors, "" where they do not say, or not the same."""
    records = [Path(place, SETTINGS) for place in places if Path(place, SETTINGS).exists()]
    found = {str(read_record(path, dict[str, Any]).get("weights") or "") for path in records}
    return found.pop() if len(found) == 1 else ""


def index_stored(
    sources: Any, documents: Iterable[Document], folder: Path, limits: dict[str, Any], given: dict[str, Any]
) -> None:
    """Make stored vectors searchable, in the order of the documents that they are of; `given` are further settings."""
    places = places_of(sources)
    stored = read_vectors(places)
    if stored.meta.role != "document":
        raise ArgumentError(f"{places[0]}: vectors of queries cannot be indexed: encode the corpus with role document")
    weights = stored_weights(places)
    made = {"weights": weights} if weights else {}
    settings = asdict(stored.meta) | limits | given | {"inputs": fingerprint(*places)} | made
    source = given["source"]
    if finished(folder, settings):
        return
    rows = {identifier: row for row, identifier in enumerate(stored.ids)}
    order: list[int] = []
    texts: list[pa.Table] = []
    with resumable(folder, settings) as work:
        stream = track(documents, "index")
        while some := list(islice(stream, PART_SIZE)):
            if (missing := next((document.id for document in some if document.id not in rows), None)) is not None:
                raise VectorsError(f"{source}: the document {missing!r} has no vector in {places[0]}")
            order += [rows[document.id] for document in some]
            texts.append(text_table(some))
        if len(order) != len(rows):
            raise VectorsError(f"{source} has {len(order)} documents, but {places[0]} vectors of {len(rows)}")
        in_order = order == list(range(len(order)))  # as they mostly are: then there is no need of a copy
        matrix = prune(stored.matrix if in_order else stored.matrix[order], **limits)
        done = StreamProgress(parts=1, texts=len(order), empty=int((np.diff(matrix.indptr) == 0).sum()))
        vectors = StoredVectors(Ids(stored.ids.array.take(pa.array(order, pa.int64()))), matrix, stored.meta)
        finish(work, folder, _complete(work / "whole", texts, vectors, done, settings))


def _complete(
    whole: Path, texts: Iterable[pa.Table], vectors: StoredVectors, done: StreamProgress, settings: dict[str, Any]
) -> Path:
    """Write all parts of a collection to the folder `whole`, which a killed call may have begun."""
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    write_texts(whole / "texts.arrow", texts)
    done.texts_crc32 = file_checksum(whole / "texts.arrow")
    engine = vector_engine(settings.get("engine", "exact"))
    options = {name: settings[name] for name in ("weight_bits",) if name in settings}
    engine(vectors.matrix, vectors.ids, vectors.meta, **options).save(whole / "postings")
    if settings["bm25"]:
        rows = _read_texts(whole / "texts.arrow")
        full = [document.full for document in documents_of(rows)]
        BM25Index(full, rows.column("id").to_pylist()).save(whole / "bm25")
    write_record(whole / PROGRESS, done)
    return whole


def open_folder(
    folder: Path, bad: BadLines | None = None, *, allow_changed_model: bool = False, device: str | None = None
) -> FolderCollection:
    """Open the collection in a folder, memory-mapped; `bad` counts the lines that were left out when it was made.

    Raises:
        VectorsError: there is no collection, or it is damaged.
    """
    if not (folder / SETTINGS).is_file() or not (folder / "postings").is_dir():
        unfinished = folder.name and partial_of(folder).exists()
        hint = "it is unfinished: repeat the command that began it" if unfinished else "make one with vocable index"
        raise VectorsError(f"{folder}: there is no index here ({hint})")
    settings, done = read_record(folder / SETTINGS, dict[str, Any]), read_progress(folder)
    missing = {"model", "source", "bm25"} - settings.keys()
    if missing:
        raise VectorsError(f"{folder / SETTINGS}: the index is damaged: no {min(missing)!r}")
    texts = _read_texts(folder / "texts.arrow", done.texts_crc32)
    postings = load_index(folder / "postings")
    bm25 = BM25Index.load(folder / "bm25") if settings["bm25"] else None
    ids = Ids(texts.column("id").cast(pa.large_string()).combine_chunks())
    if not len(postings) == len(texts) == done.texts or ids != postings.ids or (bm25 and ids != bm25.ids):
        counts = f"{len(postings)} vectors, {len(texts)} texts and {done.texts} counted"
        raise VectorsError(f"{folder}: the index is damaged: its parts are not of the same documents ({counts})")
    length = postings.meta.max_length if postings.meta else 0
    bad = bad or BadLines()
    collection = FolderCollection(folder, settings, postings, texts, bm25)
    collection.allow_changed_model, collection.device = allow_changed_model, device
    made = EncodedCorpus(
        done.texts, done.seconds, done.truncated, done.empty, length or None, bad.count, bad.first or ""
    )
    collection.built = made._replace(windows=done.windows, repeated=bad.repeated, unknown=done.unknown)
    return collection


def _read_texts(path: Path, expected: int | None = None) -> pa.Table:
    """The texts in a file, which is compared with its checksum before anything in it is believed."""
    try:
        if expected is not None and file_checksum(path) != expected:
            raise VectorsError(f"{path}: the index is damaged (its checksum differs)")
        with pa.memory_map(str(regular(path))) as source:
            table = ipc.open_file(source).read_all()
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise VectorsError(f"{path}: the index is damaged: {error}") from error
    if table.column_names == TEXT_SCHEMA.names[:-1]:  # of a version that kept no fields
        fields = TEXT_SCHEMA.field("fields")
        table = table.append_column(fields, pa.array([""] * len(table), fields.type))
    if not table.schema.equals(TEXT_SCHEMA) or any(column.null_count for column in table.columns):
        raise VectorsError(f"{path}: the index is damaged: expected the columns {', '.join(TEXT_SCHEMA.names)}")
    return table
