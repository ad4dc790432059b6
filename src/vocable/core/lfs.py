"""Pointers of Git LFS, small files that stand for large files until these are fetched."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

POINTER_BEGINNING = b"version https://git-lfs.github.com/spec/"
POINTER_BYTES = 1024
POINTER = "a pointer of Git LFS, not the file: `git lfs pull` fetches it"


def is_pointer(path: Path) -> bool:
    """Return whether a file is a pointer of Git LFS; False for a file that cannot be read."""
    with suppress(OSError):
        if path.is_file() and path.stat().st_size < POINTER_BYTES:
            with path.open("rb") as file:
                return file.read(len(POINTER_BEGINNING)) == POINTER_BEGINNING
    return False
