"""From a file to numbered raw items: lines as bytes, or the rows of a Parquet file."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from vocable.errors import DataError

T = TypeVar("T")
COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
BUFFER = 1 << 18  # bytes
ROWS = 1024  # Parquet rows turned into Python objects at a time


def split_extension(path: Path) -> tuple[str, str]:
    """The format's extension and the compression's, both lower-case.

    >>> split_extension(Path("corpus.TSV.gz")), split_extension(Path("corpus"))
    (('.tsv', '.gz'), ('', ''))
    """
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSION else ""
    inner = path.with_suffix("") if compression else path
    return inner.suffix.lower(), compression


def file_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, decompressed, each with its number from 1 and its line end."""
    with _opened(path) as stream:
        yield from enumerate(stream, start=1)


def stdin_lines() -> Iterator[tuple[int, bytes]]:
    """The lines of standard input."""
    yield from enumerate(sys.stdin.buffer, start=1)


def parquet_rows(path: Path, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a Parquet file, numbered from 1; of its columns only those named."""
    with _opened(path) as stream, _seekable(stream, path) as file, pq.ParquetFile(file) as table:
        wanted = [name for name in table.schema_arrow.names if name in set(columns)]
        batches = table.iter_batches(batch_size=ROWS, columns=wanted)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)


def guarded(items: Iterable[tuple[int, T]], place: str) -> Iterator[tuple[int, T]]:
    """The same items; what goes wrong while they are fetched becomes a `DataError` that says how far it got."""
    number = 0
    try:
        for number, item in items:
            yield number, item
    except (OSError, EOFError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        reached = f" beyond line {number}" if number else ""
        raise DataError(f"cannot be read{reached}: {reason}", place=place) from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    compression = COMPRESSION.get(path.suffix.lower())
    if compression is None:
        with path.open("rb", buffering=BUFFER) as plain:
            yield plain
    else:
        # Arrow's decompressors notice a stream that was cut short, and go on to a file's further members or frames.
        with pa.input_stream(str(path), compression=compression, buffer_size=BUFFER) as raw:
            yield cast(BinaryIO, io.BufferedReader(raw, BUFFER))


@contextmanager
def _seekable(stream: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """Parquet is read from its end: a compressed file is unpacked beside memory, on disk, first."""
    if path.suffix.lower() not in COMPRESSION:
        yield stream
        return
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(stream, unpacked, BUFFER)
        unpacked.seek(0)
        yield cast(BinaryIO, unpacked)
