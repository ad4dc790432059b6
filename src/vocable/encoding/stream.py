"""Encode a stream of documents into a folder of vectors, which an interrupted run resumes.

`OUTPUT.partial` holds the finished parts, `settings.json` and `progress.json`, which counts the parts. A part counts
once it is on disk, so that it is not written twice. The vectors of the unfinished part are saved every ten seconds and
at Ctrl-C (`part-*.begun`), so that a kill loses the work of ten seconds at most.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from vocable.core.fingerprint import fingerprint
from vocable.core.progress import progress
from vocable.core.steps import record_so_far
from vocable.core.storage import ANOTHER, finish, finished, resumable, write_record
from vocable.data import Document
from vocable.encoding.protocol import EncodedTexts
from vocable.encoding.text_encoder import TextEncoder, describe, joined_texts, warn_of_unknown
from vocable.encoding.vectors import PROGRESS, VectorsMeta, read_file, write_vectors
from vocable.errors import VectorsError
from vocable.options import LongDocuments

PART_SIZE = 2048  # texts in a part
PART_CHARACTERS = 2**20  # characters that end a part of texts that are read whole
PART_SECONDS = 10.0  # seconds between saved states of the current part: the work that a kill can lose


@dataclass
class StreamProgress:
    """Counts of the texts encoded by all runs together."""

    parts: int = 0
    texts: int = 0
    truncated: int = 0  # texts longer than the maximum length
    dense_truncated: int = 0  # texts longer than what the dense model beside reads
    empty: int = 0  # texts without an active term
    unknown: int = 0  # texts, or windows, with more than half of their tokens outside the vocabulary
    windows: int = 0  # windows of the texts that were read in windows
    seconds: float = 0.0  # time of encoding and writing
    last_id: str = ""
    coverage: tuple[int, ...] = ()  # `vocable.language.coverage` of a sample of the texts

    def add(self, losses: StreamProgress) -> None:
        """Add the counts of what was lost of further texts, and of their windows."""
        self.truncated, self.empty = self.truncated + losses.truncated, self.empty + losses.empty
        self.dense_truncated += losses.dense_truncated
        self.unknown, self.windows = self.unknown + losses.unknown, self.windows + losses.windows


def encode_stream(
    encoder: TextEncoder,
    documents: Iterable[Document],
    folder: str | Path,
    *,
    model: str,
    source: str = "",
    inputs: str | None = None,
    shard: tuple[int, int] = (1, 1),
    title: str = "encode",
    total: int | None = None,
    dense: bool = False,
) -> StreamProgress:
    """Encode `documents` into `folder/part-*.parquet`; an interrupted run resumes when repeated.

    The folder is written atomically; an existing folder with the same settings is left unchanged. The returned counts
    include earlier runs.

    Args:
        documents: read once, a part at a time; a repeated call needs the same documents in the same order.
        model, source: names of the model and of the corpus, stored in the settings.
        inputs: a text that changes with the documents; by default the fingerprint of a local corpus' files.
        shard: (i, m) for the i-th of m shards, stored in the settings.
        title, total: title and total of the progress bar.
        dense: also write the dense vectors of a model that gives them in the same pass.

    Raises:
        ArgumentError: the folder or the work in progress was made with other settings.
        VectorsError: the work in progress was made from other documents, or is damaged.
    """
    meta = describe(encoder, model)
    dense = dense and encoder.model.dimensions is not None  # else looked-up queries have no dense vectors
    settings = stream_settings(encoder, meta, source, inputs=inputs, shard=shard, dense=dense)
    if finished(folder, settings):
        return record_so_far(Path(folder, PROGRESS), StreamProgress)
    with (
        resumable(folder, settings) as work,
        progress(title, total, begun=record_so_far(work / PROGRESS, StreamProgress).texts) as advance,
    ):
        done = record_so_far(work / PROGRESS, StreamProgress)
        stream = iter(documents)
        newest = deque(islice(stream, done.texts), maxlen=1)
        if done.texts and (not newest or newest[0].id != done.last_id):
            raise VectorsError(f"{work} was begun with other documents: {ANOTHER}")
        # Without documents one empty part is written, so that an empty shard of a small corpus is readable.
        parts = in_parts(stream, PART_SIZE, encoder.long_documents)
        while (part := next(parts, [])) or not done.parts:
            started = time.perf_counter()
            counts_before = encoder.truncated, encoder.windows_read, encoder.unknown
            name = f"part-{done.parts:05d}"
            state = _UnfinishedPart(work / f"{name}.begun", [document.id for document in part], meta, dense)
            texts = [document.full for document in part]
            try:
                vectors, embedded = encoder.encode_both(texts, advance, begun=state.read, keep=state.keep)
            except KeyboardInterrupt:
                state.write()
                raise
            ids = [document.id for document in part]
            write_vectors(work / f"{name}.parquet", ids, vectors, meta, embedded if dense else None)
            done.parts += 1
            done.texts += len(part)
            done.truncated += encoder.truncated - counts_before[0]
            done.windows += encoder.windows_read - counts_before[1]
            done.unknown += encoder.unknown - counts_before[2]
            done.empty += int((np.diff(vectors.indptr) == 0).sum())
            done.seconds += time.perf_counter() - started
            done.last_id = part[-1].id if part else ""
            state.path.unlink(missing_ok=True)
            write_record(work / PROGRESS, done)
        finish(work, folder, work)
    warn_of_unknown(done.unknown, done.windows or done.texts)
    return done


def in_parts(
    documents: Iterable[Document], most: int, long_documents: LongDocuments | None
) -> Iterator[list[Document]]:
    """Yield lists of at most `most` documents, and shorter lists of long documents that are read whole."""
    part, characters = list[Document](), 0
    for document in documents:
        part.append(document)
        characters += 0 if long_documents in (None, "truncate") else len(document.text)
        if len(part) == most or characters >= PART_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part


class _UnfinishedPart:
    """The saved vectors of an unfinished part, in the order of encoding."""

    def __init__(self, path: Path, ids: list[str], meta: VectorsMeta, dense: bool) -> None:
        self.path, self._ids, self._meta, self._dense = path, ids, meta, dense
        self._rows, self._written = list[EncodedTexts](), time.monotonic()

    def read(self, order: np.ndarray) -> EncodedTexts | None:
        """Return the vectors of an earlier run; None if there are no vectors or they belong to other texts."""
        self._ids = [self._ids[row] for row in order]
        if not self.path.exists():
            return None
        kept = read_file(self.path)
        same = list(kept.ids) == self._ids[: len(kept.ids)]
        return EncodedTexts(kept.matrix, kept.dense) if same else None

    def keep(self, rows: list[EncodedTexts]) -> None:
        """Save the vectors every `PART_SECONDS`."""
        self._rows = rows
        if time.monotonic() - self._written >= PART_SECONDS:
            self.write()

    def write(self) -> None:
        """Save the vectors."""
        if self._rows:
            sparse, dense = joined_texts(self._rows)
            write_vectors(self.path, self._ids[: sparse.shape[0]], sparse, self._meta, dense if self._dense else None)
            self._written = time.monotonic()


def stream_settings(
    encoder: TextEncoder,
    meta: VectorsMeta,
    source: str,
    *,
    inputs: str | None = None,
    shard: tuple[int, int] = (1, 1),
    dense: bool = False,
) -> dict[str, object]:
    """Return everything that determines the vectors, as JSON values."""
    both = {"dense_dimensions": encoder.dimensions} if dense and encoder.model.dimensions else {}
    return both | {
        **asdict(meta),
        "source": source,
        "inputs": fingerprint(source) if inputs is None else inputs,
        "shard": list(shard),
        "max_terms": encoder.max_terms,
        "min_weight": encoder.min_weight,
        "mass": encoder.mass,
        "dtype": encoder.model.dtype,
        "long_documents": encoder.long_documents,
    }
