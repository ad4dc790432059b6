"""Encode a corpus of any size into shards of vectors on disk, resumable after a kill.

`OUTPUT.partial` holds the finished parts, `settings.json` (what is being made) and `progress.json` (which parts count).
A part is counted after it is on disk, so that a kill doubles none; what there is of the next one is put on disk every
ten seconds and at Ctrl-C (`part-*.begun`), so that it loses no more than that.
"""

from __future__ import annotations

import json
import logging
import os
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import torch
from annotated_types import Ge, Le
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder
from torch import nn

from vocable.data import BadLines, Document, Query, read_corpus, read_queries
from vocable.data.schemas import DOCUMENT, QUERY, Kind
from vocable.data.slices import Span, absolute, has_changed, read_span
from vocable.data.texts import Texts
from vocable.encoder.asymmetric import Role
from vocable.encoder.fuse import splade_modules
from vocable.encoder.hub import BUILT_IN, BY_LOOKUP
from vocable.encoder.load import load
from vocable.encoder.shards import Make, Run, in_processes, in_turn, make_all, on_dask, planned
from vocable.encoder.terms import terms
from vocable.encoder.text_encoder import TextEncoder, warn_of_unknown
from vocable.errors import ArgumentError, InUseError, VectorsError
from vocable.fingerprint import fingerprint
from vocable.options import Count, CountOrZero, DType, LongDocuments, Share, checked
from vocable.progress import progress
from vocable.storage import ANOTHER, finish, finished, read_record, regular, replacing, resumable, write_record
from vocable.tables import counted
from vocable.vectors import PROGRESS, VectorsMeta, read_file, shard_folder, vocabulary_fingerprint, write_vectors

logger = logging.getLogger(__name__)

PART_SIZE = 2048  # texts in a part
PART_CHARACTERS = 2**20  # in a part of texts that are read whole, after which it ends
PART_SECONDS = 10.0  # between states of the part that is being encoded: what a kill can lose

TEXT_SCHEMA = pa.schema(  # fields: a JSON object, "" for none
    [("id", pa.string()), *((name, pa.large_string()) for name in ("title", "text", "fields"))]
)


@dataclass
class StreamProgress:
    """What has been encoded so far, all runs together."""

    parts: int = 0
    texts: int = 0
    truncated: int = 0  # texts that were longer than the length and lost their end
    empty: int = 0  # texts without a single active term
    unknown: int = 0  # texts, or windows, of which the vocabulary does not know most tokens
    windows: int = 0  # in which texts were read, if they were
    seconds: float = 0.0  # spent on encoding and writing
    last_id: str = ""
    texts_crc32: int | None = None  # of the files of texts, one after the other


class EncodedCorpus(NamedTuple):
    """What `vocable.encode`, with an output, and `vocable.index` did.

    `truncated` texts were longer than `max_length` tokens (None: the model has no limit), `empty` ones have no active
    term, and of `unknown` ones the vocabulary does not know most tokens. Of `bad_lines` bad lines that were left out in
    this run, `first_bad` is the first; `repeated` lines repeat an earlier one and were passed over. `windows` is the
    number of windows in which texts were read whole.
    """

    texts: int
    seconds: float
    truncated: int
    empty: int
    max_length: int | None
    bad_lines: int
    first_bad: str
    shards: int = 1
    windows: int = 0
    repeated: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, done: StreamProgress, encoder: TextEncoder, bad: BadLines) -> EncodedCorpus:
        """What `encode_stream` has counted."""
        counts = done.texts, done.seconds, done.truncated, done.empty
        seen = {"windows": done.windows, "repeated": bad.repeated, "unknown": done.unknown}
        return cls(*counts, encoder.max_length, bad.count, bad.first or "", **seen)

    @property
    def texts_per_second(self) -> float:
        """How many texts were encoded and written per second."""
        return self.texts / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        names = ("texts", "seconds", "texts_per_second", "truncated", "empty", "bad_lines")
        some = {name: getattr(self, name) for name in ("windows", "repeated", "unknown") if getattr(self, name)}
        return {name: getattr(self, name) for name in names} | some

    def __str__(self) -> str:
        speed = f", {self.texts_per_second:,.0f} texts/s" if self.seconds else ""  # none, of vectors that were there
        lines = [counted(self.texts, "text") + speed]
        if self.shards > 1:
            lines = [f"{counted(self.texts, 'text')} in {self.shards} shards{speed}{' a process' if speed else ''}"]
        if self.windows:
            lines.append(f"{counted(self.windows, 'window')} of at most {self.max_length} tokens")
        if self.truncated:
            lines.append(f"{counted(self.truncated, 'text')} cut at {self.max_length} tokens")
        if self.empty:
            lines.append(f"{counted(self.empty, 'text')} without an active term")
        if self.unknown:
            lines.append(f"{counted(self.unknown, 'text')} mostly unknown to the vocabulary")
        if self.bad_lines:
            lines.append(f"{counted(self.bad_lines, 'bad line')} left out, the first: {self.first_bad}")
        if self.repeated:
            lines.append(f"{counted(self.repeated, 'repeated line')} passed over")
        return "\n".join(lines)


@checked
def encode(
    model: SparseEncoder,
    texts: Texts | str | Path,
    role: Role = "document",
    *,
    output: str | Path | None = None,
    shards: Annotated[int, Ge(1), Le(10_000)] | None = None,
    shard: Count | None = None,
    workers: Count = 1,
    scheduler: str | None = None,
    max_terms: Count | None = None,
    min_weight: Annotated[float, Ge(0)] = 0.0,
    mass: Share | None = None,
    dtype: DType = "auto",
    max_length: Count | None = None,
    long_documents: LongDocuments = "truncate",
    skip_bad: CountOrZero = 0,
    name: str | None = None,
) -> csr_array | EncodedCorpus:
    """Encode texts, in memory or into Parquet files of vectors; a killed call with an output goes on when repeated.

    Args:
        model: from `vocable.load` (a stock SparseEncoder works, slower); it is not changed.
        texts: b texts, of which one without a word that the vocabulary knows has no terms; with `output`, the source of
            the documents, or of queries where that is the role (`vocable.data` lists the sources).
        role: "query" or "document": chooses the model's prompt, `Router` route and length.
        output: the folder for the vectors; there only when it is whole. One that the same call has made is left as it
            is.
        shards: cut the corpus into so many shards, folders in the output, which any number of processes can make at the
            same time, on all machines that see it: by the same call, by `shard`, `workers` or `scheduler`.
        shard: make only this shard, counted from 1.
        workers: processes on this machine that make shards; each loads the model by its name.
        scheduler: address of a Dask scheduler whose workers make the shards, as dask://host:8786.
        max_terms: keep only so many terms of a text, the heaviest. By default what the model's configuration has for
            the role under `active_terms`, or its `max_active_dims`, if it has either.
        min_weight: drop terms lighter than this.
        mass: keep the fewest terms that have this share of a text's weight.
        dtype: "auto" computes in bfloat16 where the device has it natively, in float32 elsewhere.
        max_length: tokens of a text, in place of the model's own length for the role.
        long_documents: what becomes of longer texts: "truncate" loses their ends, and counts them in a warning or in the
            result; "maxpool" reads them in windows, and takes each term's highest weight in any of them.
        skip_bad: bad lines of the corpus, or of each shard, that are tolerated, and left out. With `output`.
        name: with `output`, of the model, written down with the vectors; by default where it was loaded from.

    Returns:
        [b, v] csr_array of float32 weights > 0, indices sorted; with `output`, the counts of texts.

    Raises:
        ArgumentError: an argument out of its range, or the output was made otherwise.
        DataError: a source that cannot be read, or a bad line too many.
        VectorsError: the work in progress was made from other texts, or is damaged.
    """
    check_shards(texts, shards, shard, workers, scheduler)
    limits: dict[str, Any] = {"max_terms": max_terms, "min_weight": min_weight, "mass": mass}
    limits |= {"max_length": max_length, "long_documents": long_documents}
    encoder = TextEncoder(model, role, dtype=dtype, **limits)
    if output is None:
        vectors = encoder.encode(cast(Texts, texts))
        if encoder.truncated:
            cut = encoder.truncated, vectors.shape[0], encoder.max_length
            logger.warning("%d of %d texts were cut at %d tokens", *cut)
        warn_of_unknown(encoder.unknown, encoder.windows_read or vectors.shape[0])
        return vectors
    if not isinstance(texts, str | Path):
        raise ArgumentError("with output, texts is the source of the texts, such as a file")
    named, bad = name or model_name(model), BadLines(skip_bad)
    if shards is None:
        found = read_corpus(texts, bad=bad) if role == "document" else read_queries(texts, bad=bad)
        done = encode_stream(encoder, _as_documents(found), output, model=named, source=str(texts))
        return EncodedCorpus.of(done, encoder, bad)
    sharded = _Sharded.planned(encoder, texts, output, named, shards, bad)
    if shard is not None:
        return sharded.encode(encoder, shard, bad)
    here = workers == 1 and scheduler is None
    given = {"texts": sharded.source, "role": role, "output": sharded.folder, "shards": shards, "name": named}
    given |= {"dtype": str(encoder.model.dtype).removeprefix("torch."), "skip_bad": skip_bad, **limits}
    make = partial(_make_shard, model if here else named, None if here or scheduler else model.device.type, given)
    run = (
        in_turn
        if here
        else partial(on_dask, address=scheduler)
        if scheduler
        else partial(in_processes, workers=workers)
    )
    return sharded.encode_all(make, run)


@checked
def check_shards(
    texts: object,
    shards: Annotated[int, Ge(1), Le(10_000)] | None,
    shard: Count | None = None,
    workers: Count = 1,
    scheduler: str | None = None,
) -> None:
    """Raise `ArgumentError` for what the arguments of `encode` about shards cannot be."""
    if shards is None and (shard, workers, scheduler) != (None, 1, None):
        raise ArgumentError("`shard`, `workers` and `scheduler` are about shards: say with `shards` how many there are")
    if (shard is not None) + (workers > 1) + (scheduler is not None) > 1:
        raise ArgumentError("give `shard`, `workers` or `scheduler`: one of the three")
    if shards and shard and shard > shards:
        raise ArgumentError(f"shard is one of {shards}, counted from 1, not {shard}")
    if shards and texts == "-":
        raise ArgumentError("shards are cut from what can be read again: name a file, not standard input")


class _Sharded(NamedTuple):
    """A folder of shards: of which source, what each of them is made of, and the name of the model."""

    folder: Path
    source: str
    kind: Kind[Any]
    spans: list[Span]
    model: str

    @classmethod
    def planned(
        cls, encoder: TextEncoder, texts: str | Path, output: str | Path, model: str, shards: int, bad: BadLines
    ) -> _Sharded:
        """Read what the shards of a folder are made of, or settle it."""
        folder, source = Path(output).resolve(), absolute(texts)
        kind: Kind[Any] = DOCUMENT if encoder.role == "document" else QUERY
        settings = stream_settings(encoder, describe(encoder, model), source, inputs="") | {"shards": shards}
        return cls(folder, source, kind, planned(folder, settings, kind, PART_SIZE, bad), model)

    def encode(self, encoder: TextEncoder, shard: int, bad: BadLines) -> EncodedCorpus:
        """Make one shard."""
        if has_changed(self.source, self.kind, self.spans, shard - 1):
            raise ArgumentError(f"{self.source} has changed since {self.folder} was begun: {ANOTHER}")
        span, part = self.spans[shard - 1], (shard, len(self.spans))
        done = encode_stream(
            encoder,
            _as_documents(read_span(self.source, self.kind, span, bad)),
            shard_folder(self.folder, shard),
            model=self.model,
            source=self.source,
            inputs=span.digest,
            shard=part,
            title="shard {} of {}".format(*part),
            total=span.size,
        )
        return EncodedCorpus.of(done, encoder, bad)

    def encode_all(self, make: Make[EncodedCorpus], run: Run[EncodedCorpus]) -> EncodedCorpus:
        """Have all shards made, and add up what was done."""
        made = list(make_all(make, range(1, len(self.spans) + 1), run))
        names = ("texts", "seconds", "truncated", "empty", "bad_lines", "windows", "repeated", "unknown")
        counts = {name: sum(getattr(one, name) for one in made) for name in names}
        first = next((one.first_bad for one in made if one.first_bad), "")
        return made[0]._replace(**counts, first_bad=first, shards=len(made))


def _make_shard(
    model: SparseEncoder | str, device: str | None, given: dict[str, Any], shard: int
) -> EncodedCorpus | None:
    """Make a shard with a model, or one of this name; None while another process makes it."""
    loaded = _loaded(model, device=device) if isinstance(model, str) else model
    try:
        return cast(EncodedCorpus, encode(loaded, shard=shard, **given))
    except InUseError:
        return None


_loaded = lru_cache(maxsize=1)(load)


def _as_documents(found: Iterable[Document | Query]) -> Iterator[Document]:
    """Queries as documents, which have no title."""
    return (one if isinstance(one, Document) else Document(one.id, one.text) for one in found)


def model_name(model: SparseEncoder | str | os.PathLike[str]) -> str:
    """Return how a model is written down with what it made: a local folder by its whole path, else its Hub id."""
    if isinstance(model, SparseEncoder):
        names = [transformer.auto_model.name_or_path for transformer, _ in splade_modules(model)]
        return model_name(names[0]) if names and names[0] else "model"
    name = os.fspath(model)
    return str(Path(name).resolve()) if name not in (BUILT_IN, BY_LOOKUP) and Path(name).is_dir() else name


def describe(encoder: TextEncoder, name: str) -> VectorsMeta:
    """Return what made the vectors of `encoder`: enough to refuse vectors of another vocabulary or model."""
    names = terms(encoder.model)
    length = encoder.max_length or 0
    return VectorsMeta(vocabulary_fingerprint(names), name, encoder.pooling, encoder.role, length, size=len(names))


def encode_stream(
    encoder: TextEncoder,
    documents: Iterable[Document],
    folder: str | Path,
    *,
    model: str,
    source: str = "",
    inputs: str | None = None,
    shard: tuple[int, int] = (1, 1),
    keep_texts: bool = False,
    title: str = "encode",
    total: int | None = None,
) -> StreamProgress:
    """Encode `documents` into `folder/part-*.parquet`, going on where an earlier call with the same settings stopped.

    The folder is there only when it is whole; one made with the same settings is left as it is. The counts, which are
    returned, include those of earlier calls.

    Args:
        documents: read once and never held; a resumed call must be given the same documents in the same order.
        model, source: the model's and the corpus' names, written down.
        inputs: what tells that the documents are others now; by default the fingerprint of a local corpus' files.
        shard: (i, m) if they are the i-th of m shards, written down.
        keep_texts: also keep the texts themselves, as `part-*.arrow`.
        title, total: of the progress bar.

    Raises:
        ArgumentError: the folder or the work in progress was made with other settings.
        VectorsError: the work in progress was made from other documents, or is damaged.
    """
    meta = describe(encoder, model)
    settings = stream_settings(encoder, meta, source, inputs=inputs, shard=shard, keep_texts=keep_texts)
    if finished(folder, settings):
        return read_progress(folder)
    with resumable(folder, settings) as work, progress(title, total) as advance:
        done = read_progress(work)
        stream = iter(documents)
        newest = deque(islice(stream, done.texts), maxlen=1)
        if done.texts and (not newest or newest[0].id != done.last_id):
            raise VectorsError(f"{work} was begun with other documents: {ANOTHER}")
        advance(done.texts)
        # Without documents there is still one part, an empty one: a shard of a small corpus is readable, too.
        parts = in_parts(stream, PART_SIZE, encoder.long_documents)
        while (part := next(parts, [])) or not done.parts:
            started, before = time.perf_counter(), (encoder.truncated, encoder.windows_read, encoder.unknown)
            name = f"part-{done.parts:05d}"
            state = _PartBegun(work / f"{name}.begun", [document.id for document in part], meta)
            texts = [document.full for document in part]
            try:
                vectors = encoder.encode(texts, advance, begun=state.read, keep=state.keep)
            except KeyboardInterrupt:
                state.write()
                raise
            write_vectors(work / f"{name}.parquet", [document.id for document in part], vectors, meta)
            if keep_texts:
                write_texts(work / f"{name}.arrow", [text_table(part)])
                if not done.parts or done.texts_crc32 is not None:  # an older version began without
                    done.texts_crc32 = file_checksum(work / f"{name}.arrow", done.texts_crc32 or 0)
            done.parts += 1
            done.texts += len(part)
            done.truncated += encoder.truncated - before[0]
            done.windows += encoder.windows_read - before[1]
            done.unknown += encoder.unknown - before[2]
            done.empty += int((np.diff(vectors.indptr) == 0).sum())
            done.seconds += time.perf_counter() - started
            done.last_id = part[-1].id if part else ""
            state.path.unlink(missing_ok=True)
            write_record(work / PROGRESS, done)
        finish(work, folder, work)
    warn_of_unknown(done.unknown, done.windows or done.texts)
    return done


def in_parts(documents: Iterable[Document], most: int, long_documents: LongDocuments) -> Iterator[list[Document]]:
    """The documents, at most so many at a time, and fewer long ones where they are read to their ends."""
    part, characters = list[Document](), 0
    for document in documents:
        part.append(document)
        characters += 0 if long_documents == "truncate" else len(document.text)
        if len(part) == most or characters >= PART_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part


class _PartBegun:
    """The vectors that there are of a part, in the order in which they are encoded, in a file of vectors."""

    def __init__(self, path: Path, ids: list[str], meta: VectorsMeta) -> None:
        self.path, self._ids, self._meta = path, ids, meta
        self._rows, self._written = list[csr_array](), time.monotonic()

    def read(self, order: np.ndarray) -> csr_array | None:
        """What an earlier call has left; None if it left nothing, or it is of other texts."""
        self._ids = [self._ids[row] for row in order]
        if not self.path.exists():
            return None
        kept = read_file(self.path)
        return kept.matrix if list(kept.ids) == self._ids[: len(kept.ids)] else None

    def keep(self, rows: list[csr_array]) -> None:
        """Write them if it is time."""
        self._rows = rows
        if time.monotonic() - self._written >= PART_SECONDS:
            self.write()

    def write(self) -> None:
        """Write what there is."""
        if self._rows:
            made = csr_array(vstack(self._rows, format="csr"))
            write_vectors(self.path, self._ids[: made.shape[0]], made, self._meta)
            self._written = time.monotonic()


def stream_settings(
    encoder: TextEncoder,
    meta: VectorsMeta,
    source: str,
    *,
    inputs: str | None = None,
    shard: tuple[int, int] = (1, 1),
    keep_texts: bool = False,
) -> dict[str, Any]:
    """Return all that decides what the vectors are, as JSON values."""
    return {
        **asdict(meta),
        "weights": checksum(encoder.model),
        "source": source,
        "inputs": fingerprint(source) if inputs is None else inputs,
        "shard": list(shard),
        "max_terms": encoder.max_terms,
        "min_weight": encoder.min_weight,
        "mass": encoder.mass,
        "dtype": str(encoder.model.dtype),
        "texts": keep_texts,
        "long_documents": encoder.long_documents,
    }


def read_progress(folder: str | Path) -> StreamProgress:
    """Return what has been done in `folder`; nothing if it does not say."""
    path = Path(folder) / PROGRESS
    return read_record(path, StreamProgress) if path.exists() else StreamProgress()


def text_table(documents: Sequence[Document]) -> pa.Table:
    """Return documents as a table of `TEXT_SCHEMA`; their further fields as JSON."""
    fields = [json.dumps(d.fields, ensure_ascii=False) if d.fields else "" for d in documents]
    texts = ([getattr(document, name) for document in documents] for name in TEXT_SCHEMA.names[:-1])
    return pa.table([*texts, fields], schema=TEXT_SCHEMA)


def documents_of(table: pa.Table) -> list[Document]:
    """Return the documents that `text_table` made a table of."""
    rows = zip(*(table.column(name).to_pylist() for name in TEXT_SCHEMA.names), strict=True)
    return [Document(id, text, title, json.loads(fields) if fields else {}) for id, title, text, fields in rows]


def write_texts(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write tables of `TEXT_SCHEMA` as one Arrow file, whole or not at all."""
    with replacing(path) as file, ipc.new_file(file, TEXT_SCHEMA) as writer:
        for table in tables:
            writer.write_table(table)


def file_checksum(path: Path, before: int = 0) -> int:
    """Return the CRC-32 of a file, or of it after files whose checksum was `before`."""
    with pa.memory_map(str(regular(path))) as file:
        return zlib.crc32(file.read_buffer(), before)


def checksum(model: nn.Module, dtype: torch.dtype | None = None) -> str:
    """Return eight hexadecimal digits that change when a model is trained further under the same name.

    With `dtype` they are those of the model in that number type.
    """
    total = 0
    for parameter in model.parameters():
        content = parameter.detach().to(dtype=dtype).cpu().contiguous().view(-1).view(torch.uint8)
        total = zlib.crc32(content.numpy().data, total)
    return f"{total:08x}"
