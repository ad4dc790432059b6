"""A corpus of any size -> shards of vectors on disk, resumable after a kill.

Work is done in `FOLDER.partial`, which holds the finished parts, `settings.json` (what is being made) and
`progress.json` (which parts count); only a whole result is renamed to `FOLDER`. A part is counted after it is on disk,
so a kill loses one part at most and doubles none.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import torch
from sentence_transformers import SparseEncoder
from torch import nn

from vocable.data import Document
from vocable.encoder.encode import TextEncoder
from vocable.encoder.fuse import splade_modules
from vocable.encoder.load import BUILT_IN
from vocable.encoder.terms import fingerprint, terms
from vocable.errors import ArgumentError, VectorsError
from vocable.storage import ANOTHER, finish, finished, read_record, replacing, resumable, write_record
from vocable.vectors import VectorsMeta, write_vectors

PART_SIZE = 2048  # texts in a part: what a kill can lose
PROGRESS = "progress.json"

TEXT_SCHEMA = pa.schema([("id", pa.string()), ("title", pa.large_string()), ("text", pa.large_string())])


@dataclass
class StreamProgress:
    """What has been done so far, all runs together."""

    parts: int = 0
    texts: int = 0
    truncated: int = 0  # texts that were longer than the length and lost their end
    empty: int = 0  # texts without a single active term
    seconds: float = 0.0  # spent on encoding and writing
    last_id: str = ""


def model_name(model: SparseEncoder | str | os.PathLike[str]) -> str:
    """How a model is written down with what it made: a local folder by its whole path, to be found from anywhere."""
    if isinstance(model, SparseEncoder):
        names = [transformer.auto_model.name_or_path for transformer, _ in splade_modules(model)]
        return model_name(names[0]) if names and names[0] else "model"
    name = os.fspath(model)
    return str(Path(name).resolve()) if name != BUILT_IN and Path(name).is_dir() else name


def describe(encoder: TextEncoder, name: str) -> VectorsMeta:
    """What made the vectors of `encoder`: enough to refuse vectors of another vocabulary or model."""
    names = terms(encoder.model)
    return VectorsMeta(
        vocabulary=fingerprint(names),
        model=name,
        pooling=encoder.pooling,
        role=encoder.role,
        max_length=encoder.max_length or 0,
        size=len(names),
    )


def encode_stream(
    encoder: TextEncoder,
    documents: Iterable[Document],
    folder: str | Path,
    *,
    model: str,
    source: str = "",
    shard: tuple[int, int] = (1, 1),
    keep_texts: bool = False,
    advance: Callable[[int], object] = lambda done: None,
) -> StreamProgress:
    """Encode `documents` into `folder/part-*.parquet`, going on where an earlier call with the same settings stopped.

    Args:
        encoder: the model, its role and its settings.
        documents: read once and never held; a resumed call must be given the same documents in the same order.
        folder: the result; there only when it is whole. A result made with the same settings is left as it is.
        model: the model's name or path, written down with the vectors.
        source: the corpus' name, written down.
        shard: (i, m) encodes every m-th document from the i-th on, for sharing a corpus among m machines.
        keep_texts: also keep the texts themselves, as `part-*.arrow`.
        advance: called with the number of texts of every batch when it is done, and first with those of earlier calls.

    Returns:
        the counts, earlier calls included.

    Raises:
        ArgumentError: an impossible shard, or the folder or the work in progress was made with other settings.
        VectorsError: the work in progress was made from other documents, or is damaged.
    """
    folder = Path(folder)
    if not 1 <= shard[0] <= shard[1]:
        raise ArgumentError(f"a shard is i/m with i from 1 to m, not {shard[0]}/{shard[1]}")
    meta = describe(encoder, model)
    settings = stream_settings(encoder, meta, source, shard=shard, keep_texts=keep_texts)
    if finished(folder, settings):
        return read_progress(folder)
    with resumable(folder, settings) as work:
        progress = read_progress(work)
        stream = islice(documents, shard[0] - 1, None, shard[1])
        _skip(stream, progress, work)
        advance(progress.texts)
        # Without documents there is still one part, an empty one: a shard of a small corpus is readable, too.
        while (part := list(islice(stream, PART_SIZE))) or not progress.parts:
            _encode_part(encoder, part, work, meta, keep_texts, progress, advance)
        finish(work, folder, work)
    return progress


def stream_settings(
    encoder: TextEncoder, meta: VectorsMeta, source: str, *, shard: tuple[int, int] = (1, 1), keep_texts: bool = False
) -> dict[str, Any]:
    """All that decides what the vectors are, as JSON values."""
    return {
        **asdict(meta),
        "weights": checksum(encoder.model),
        "source": source,
        "shard": list(shard),
        "top_k": encoder.top_k,
        "min_weight": encoder.min_weight,
        "mass": encoder.mass,
        "dtype": str(encoder.model.dtype),
        "texts": keep_texts,
    }


def read_progress(folder: Path) -> StreamProgress:
    """What has been done in `folder`, nothing so far if it does not say; raises `VectorsError` if it is damaged."""
    path = folder / PROGRESS
    return read_record(path, StreamProgress) if path.exists() else StreamProgress()


def checksum(model: nn.Module) -> str:
    """Eight hexadecimal digits that change when a model is trained further under the same name."""
    total = 0
    for parameter in model.parameters():
        content = parameter.detach().cpu().contiguous().view(-1).view(torch.uint8)
        total = zlib.crc32(content.numpy().data, total)
    return f"{total:08x}"


def _skip(stream: Iterator[Document], progress: StreamProgress, work: Path) -> None:
    """Pass over what is done already, and make sure that it is what was done."""
    newest = deque(islice(stream, progress.texts), maxlen=1)
    if progress.texts and (not newest or newest[0].id != progress.last_id):
        raise VectorsError(f"{work} was begun with other documents: {ANOTHER}")


def _encode_part(
    encoder: TextEncoder,
    part: list[Document],
    work: Path,
    meta: VectorsMeta,
    keep_texts: bool,
    progress: StreamProgress,
    advance: Callable[[int], object],
) -> None:
    started, truncated = time.perf_counter(), encoder.truncated
    vectors = encoder.encode([document.full for document in part], advance)
    name = f"part-{progress.parts:05d}"
    write_vectors(work / f"{name}.parquet", [document.id for document in part], vectors, meta)
    if keep_texts:
        _write_texts(work / f"{name}.arrow", part)
    progress.parts += 1
    progress.texts += len(part)
    progress.truncated += encoder.truncated - truncated
    progress.empty += int((np.diff(vectors.indptr) == 0).sum())
    progress.seconds += time.perf_counter() - started
    progress.last_id = part[-1].id if part else ""
    write_record(work / PROGRESS, progress)


def _write_texts(path: Path, part: list[Document]) -> None:
    columns = {"id": [d.id for d in part], "title": [d.title for d in part], "text": [d.text for d in part]}
    with replacing(path) as file, ipc.new_file(file, TEXT_SCHEMA) as writer:
        writer.write_table(pa.table(columns, schema=TEXT_SCHEMA))
