"""A searchable corpus on disk: vectors in an index, texts, and the name of the model that made them.

FOLDER/settings.json     what made it
FOLDER/progress.json     how many texts there are, and how many were cut or stayed empty
FOLDER/postings/         the index of the vectors
FOLDER/texts.arrow       id, title, text and further fields by row, memory-mapped
FOLDER/bm25/             the lexical index, where there is one

Letters: n documents, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, reduce
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import torch
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.data import BadLines, Document, read_corpus
from vocable.encoder.encode import DType, TextEncoder
from vocable.encoder.load import check_length, load
from vocable.encoder.stream import (
    TEXT_SCHEMA,
    EncodedCorpus,
    StreamProgress,
    checksum,
    describe,
    documents_of,
    encode_stream,
    file_checksum,
    model_name,
    read_progress,
    stream_settings,
    text_table,
    write_texts,
)
from vocable.errors import ArgumentError, VectorsError, check_texts
from vocable.progress import track
from vocable.search.engines.bm25 import BM25Index
from vocable.search.index import Index, load_index, vector_engine
from vocable.search.ranking import Ranking, weighted
from vocable.storage import (
    ANOTHER,
    SETTINGS,
    Ids,
    fingerprint,
    finish,
    finished,
    partial_of,
    read_record,
    read_whole,
    regular,
    resumable,
    write_record,
)
from vocable.vectors import PROGRESS, Sources, StoredVectors, holds_vectors, prune, read_vectors

FUSED_DEPTH = 100  # hits that each side of a hybrid search gives at least


@dataclass(frozen=True, eq=False)
class Collection:
    """An opened collection: the names of `model` and `source`, its indexes, and what its encoding counted.

    `texts` is an Arrow table of `TEXT_SCHEMA`; `bm25` is None if not built.
    """

    folder: Path
    model: str
    source: str
    postings: Index
    texts: pa.Table
    bm25: BM25Index | None
    built: EncodedCorpus
    weights: str = ""  # the checksum of the model's, in the type that it encoded in; "" where it is not known
    allow_changed_model: bool = False
    device: str | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"Collection({str(self.folder)!r}, {len(self):,} documents, model={self.model!r})"

    def __str__(self) -> str:
        return f"{self.folder}: {self.built}"

    def to_json(self) -> dict[str, Any]:
        """How it was built, as JSON values."""
        return {"output": str(self.folder), **self.built.to_json()}

    def document(self, row: int) -> Document:
        """The document in a row of the index."""
        return documents_of(self.texts.slice(row, 1))[0]

    @cached_property
    def loaded_model(self) -> SparseEncoder:
        """The model that made the collection, loaded when it is first needed; `VectorsError` if it has changed."""
        model = load(self.model, device=self.device)
        found = (checksum(model, kind) for kind in (None, torch.float32, torch.bfloat16))
        if self.weights and not self.allow_changed_model and self.weights not in found:
            what = f"the weights of {self.model} have changed since it was made"
            raise VectorsError(f"{self.folder}: {what}: index again, or say allow_changed_model")
        return model

    def query_encoder(
        self,
        model: SparseEncoder | None = None,
        *,
        top_k: int | None = None,
        min_weight: float = 0.0,
        mass: float | None = None,
    ) -> TextEncoder:
        """`model`, by default the collection's own, made ready for queries, which are cut as in `vocable.prune`.

        Raises `VectorsError` if it has another vocabulary than the index.
        """
        encoder = TextEncoder(model or self.loaded_model, "query", top_k=top_k, min_weight=min_weight, mass=mass)
        meta = self.postings.meta
        if meta is not None and meta.vocabulary != describe(encoder, self.model).vocabulary:
            raise VectorsError(f"the vocabulary of {self.model} is not the one that the index was made with")
        return encoder

    def search(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        vectors: csr_array | None = None,
        hybrid: bool = False,
        minimum_match: float = 0.0,
    ) -> Ranking:
        """The ranking that `vocable.search` makes its answers of.

        `vectors` are those of the queries [q, v]; unless given, the collection's model encodes them. With `hybrid` the
        scores of BM25 are added, both scaled to 0 to 1.
        """
        check_texts(queries, "queries")
        if hybrid and self.bm25 is None:
            raise ArgumentError("a hybrid search needs the lexical index: build this index with --bm25")
        k = min(k, max(1, len(self.texts)))
        if vectors is None:
            vectors = self.query_encoder().encode(queries)
        if not hybrid or self.bm25 is None:
            return self.postings.search(vectors, k, minimum_match=minimum_match)
        depth = max(k, FUSED_DEPTH)
        learned = self.postings.search(vectors, depth, minimum_match=minimum_match)
        return weighted([learned, self.bm25.search(queries, depth)], [1, 1], depth=k)


def index(
    model: SparseEncoder | Sources,
    corpus: str | PathLike[str],
    output: str | PathLike[str],
    *,
    bm25: bool = False,
    engine: str = "exact",
    top_k: int | None = None,
    min_weight: float = 0.0,
    mass: float | None = None,
    dtype: DType = "auto",
    max_length: int | None = None,
    device: str | None = None,
    skip_bad: int = 0,
) -> Collection:
    """Encode a corpus and make it searchable in a folder; a killed call goes on when it is repeated.

    Args:
        model: from `vocable.load`, or its name; or the document vectors that `vocable encode` wrote: a file, a folder
            or several, as the shards of a corpus are.
        corpus: source of the documents; `vocable.data` lists the kinds.
        output: the folder; there only when it is whole. One made by the same call is opened.
        bm25: also build the lexical index, for hybrid search.
        engine: what searches the vectors; exact is the one there is. In general a module of `vocable.search`.
        top_k: keep only so many terms of a text, the heaviest. As in `vocable.prune`.
        min_weight: drop terms lighter than this.
        mass: keep the fewest terms that have this share of a text's weight.
        dtype: "auto" computes in bfloat16 where the device has it natively.
        max_length: tokens per text, in place of the model's own length.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.
        skip_bad: bad lines of the corpus that are tolerated, and left out.

    Raises:
        ArgumentError: an argument out of its range, no documents, or something else at `output`.
        DataError: the corpus cannot be read.
        ModelError: no such model.
        VectorsError: stored vectors are not those of the corpus, or damaged.
    """
    bad, source = BadLines(skip_bad), fspath(corpus)
    vector_engine(engine)
    documents = read_corpus(source, bad=bad)
    limits: dict[str, Any] = {"top_k": top_k, "min_weight": min_weight, "mass": mass}
    if not isinstance(model, SparseEncoder) and holds_vectors(model):
        if max_length is not None:
            raise ArgumentError("max_length is for encoding: these vectors are encoded already")
        _index_stored(model, documents, Path(output), limits, {"source": source} | _parts(bm25, engine))
        return open_index(output, bad)
    if not isinstance(model, SparseEncoder | str | PathLike):
        raise VectorsError(f"{', '.join(map(str, model))}: not all of these are stored vectors")
    check_length(model, max_length)
    loaded = model if isinstance(model, SparseEncoder) else load(fspath(model), device=device)
    encoder = TextEncoder(loaded, "document", dtype=dtype, max_length=max_length, **limits)
    build_collection(encoder, documents, output, model=model_name(model), source=source, bm25=bm25, engine=engine)
    collection = open_index(output, bad)
    collection.__dict__["loaded_model"] = loaded
    return collection


def build_collection(
    encoder: TextEncoder,
    documents: Iterable[Document],
    folder: str | PathLike[str],
    *,
    model: str,
    source: str = "",
    bm25: bool = False,
    engine: str = "exact",
) -> StreamProgress:
    """Encode `documents` and make them searchable in `folder`; a killed call goes on when it is repeated.

    Arguments and errors are those of `encode_stream`; `bm25` and `engine` are those of `index`.
    """
    folder = Path(folder)
    settings = stream_settings(encoder, describe(encoder, model), source, keep_texts=True) | _parts(bm25, engine)
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


def _parts(bm25: bool, engine: str) -> dict[str, Any]:
    """The settings that name the indexes; those of before there was a choice of engines have none."""
    return {"bm25": bm25} | ({} if engine == "exact" else {"engine": engine})


def _index_stored(
    sources: Any, documents: Iterable[Document], folder: Path, limits: dict[str, Any], given: dict[str, Any]
) -> None:
    """Make stored vectors searchable, in the order of the documents that they are of; `given` are further settings."""
    places = [sources] if isinstance(sources, str | PathLike) else list(sources)
    stored = read_vectors(places)
    if stored.meta.role != "document":
        raise ArgumentError(f"{places[0]}: vectors of queries cannot be indexed: encode the corpus with role document")
    records = [Path(place, SETTINGS) for place in places if Path(place, SETTINGS).exists()]
    weights = {str(read_record(path, dict[str, Any]).get("weights") or "") for path in records}
    made = {"weights": weights.pop()} if len(weights) == 1 else {}
    settings = asdict(stored.meta) | limits | given | {"inputs": fingerprint(*places)} | made
    source = given["source"]
    if finished(folder, settings, upgrade=lambda before: made | before):
        return
    rows = {identifier: row for row, identifier in enumerate(stored.ids)}
    order: list[int] = []
    kept: list[Document] = []
    with resumable(folder, settings, upgrade=lambda before: made | before) as work:
        for document in track(documents, "index"):
            if document.id not in rows:
                raise VectorsError(f"{source}: the document {document.id!r} has no vector in {places[0]}")
            order.append(rows[document.id])
            kept.append(document)
        if len(order) != len(rows):
            raise VectorsError(f"{source} has {len(order)} documents, but {places[0]} vectors of {len(rows)}")
        matrix = prune(stored.matrix[order], **limits)
        done = StreamProgress(parts=1, texts=len(order), empty=int((np.diff(matrix.indptr) == 0).sum()))
        vectors = StoredVectors(Ids([document.id for document in kept]), matrix, stored.meta)
        finish(work, folder, _complete(work / "whole", [text_table(kept)], vectors, done, settings))


def _complete(
    whole: Path, texts: Iterable[pa.Table], vectors: StoredVectors, done: StreamProgress, settings: dict[str, Any]
) -> Path:
    """Write all parts of a collection to the folder `whole`, which a killed call may have begun."""
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    write_texts(whole / "texts.arrow", texts)
    done.texts_crc32 = file_checksum(whole / "texts.arrow")
    vector_engine(settings.get("engine", "exact"))(vectors.matrix, vectors.ids, vectors.meta).save(whole / "postings")
    if settings["bm25"]:
        rows = _read_texts(whole / "texts.arrow")
        full = [document.full for document in documents_of(rows)]
        BM25Index(full, rows.column("id").to_pylist()).save(whole / "bm25")
    write_record(whole / PROGRESS, done)
    return whole


def open_index(
    source: str | PathLike[str],
    bad: BadLines | None = None,
    *,
    allow_changed_model: bool = False,
    device: str | None = None,
) -> Collection:
    """Open what `index` made, memory-mapped; `bad` counts the lines that were left out when it was made.

    `allow_changed_model` lets a model search whose weights have changed since; `device` is the model's, as in `load`.

    Raises:
        VectorsError: there is no collection, or it is damaged.
    """
    return read_whole(lambda: _open(Path(source), bad, allow_changed_model, device), source)


def _open(folder: Path, bad: BadLines | None, allow_changed_model: bool, device: str | None) -> Collection:
    if not (folder / SETTINGS).is_file() or not (folder / "postings").is_dir():
        unfinished = folder.name and partial_of(folder).exists()
        hint = "it is unfinished: repeat the command that began it" if unfinished else "make one with vocable index"
        raise VectorsError(f"{folder}: there is no index here ({hint})")
    settings, done = read_record(folder / SETTINGS, dict[str, Any]), read_progress(folder)
    try:
        model, corpus, lexical = str(settings["model"]), str(settings["source"]), bool(settings["bm25"])
        weights = str(settings.get("weights") or "")
    except KeyError as error:
        raise VectorsError(f"{folder / SETTINGS}: the index is damaged: no {error}") from error
    texts = _read_texts(folder / "texts.arrow", done.texts_crc32)
    postings = load_index(folder / "postings")
    bm25 = BM25Index.load(folder / "bm25") if lexical else None
    ids = Ids(texts.column("id").cast(pa.large_string()).combine_chunks())
    if not len(postings) == len(texts) == done.texts or ids != postings.ids or (bm25 and ids != bm25.ids):
        counts = f"{len(postings)} vectors, {len(texts)} texts and {done.texts} counted"
        raise VectorsError(f"{folder}: the index is damaged: its parts are not of the same documents ({counts})")
    length = postings.meta.max_length if postings.meta else 0
    left_out = (0, "") if bad is None else (bad.count, bad.first or "")
    built = EncodedCorpus(done.texts, done.seconds, done.truncated, done.empty, length or None, *left_out)
    return Collection(folder, model, corpus, postings, texts, bm25, built, weights, allow_changed_model, device)


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
