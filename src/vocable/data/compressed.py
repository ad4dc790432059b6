"""Compressed files: gzip by the standard library, Zstandard by Python 3.14 or, in older Pythons, by Arrow.

All members or frames of a file are read. A stream that is cut short or damaged raises `EOFError` or `OSError`.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from vocable.errors import require_extra

try:
    from compression import zstd
except ImportError:
    zstd = None

PACKED = ".gz", ".zst"
BUFFER = 1 << 18  # bytes
DAMAGED = (zlib.error,) if zstd is None else (zlib.error, zstd.ZstdError)


def is_packed(path: Path) -> bool:
    """Return whether a file is compressed, by its name."""
    return path.suffix.lower() in PACKED


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, decompressed; raise `MissingExtraError` if nothing here decompresses Zstandard."""
    if not is_packed(path):
        with path.open("rb", buffering=BUFFER) as plain:
            yield plain
        return
    try:
        with _unpacked(path) as raw:
            yield cast(BinaryIO, io.BufferedReader(raw, BUFFER))
    except DAMAGED as error:
        raise OSError(str(error)) from error


def _unpacked(path: Path) -> Any:
    if path.suffix.lower() == ".gz":
        return gzip.open(path)
    if zstd is not None:
        return zstd.open(path)
    arrow = require_extra("pyarrow", "parquet")
    return arrow.input_stream(str(path), compression="zstd", buffer_size=BUFFER)
