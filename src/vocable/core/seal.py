"""Seals of folders: size, time and digest of each file, to notice damage before the folder is used again.

A change of the folder removes the seal first and writes a new seal at the end. A folder without a seal was left by an
interrupted change.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from vocable.core.storage import force_to_disk, read_record, write_record
from vocable.errors import VectorsError

SEAL = "seal.json"
READ_BYTES = 1 << 20  # bytes that are read at once
ZEROS = bytes(READ_BYTES)
RESEAL = 1 << 26  # bytes digested by a check after which new times are recorded


class SealedFile(NamedTuple):
    """A file of a sealed folder: bytes, time of its last change in nanoseconds, digest of its content."""

    size: int
    changed: int
    digest: str


class Seal(NamedTuple):
    """The state of a folder: its number of documents, and its files by path.

    The files of a `settled` folder do not change when it is opened and only read.
    """

    documents: int
    settled: bool
    files: dict[str, SealedFile]


def seal(folder: Path, inner: str, documents: int, *, settled: bool, previous: Seal | None = None) -> None:
    """Seal the folder `inner` of a folder; do not read files again that are unchanged since the `previous` seal."""
    known = previous.files if previous is not None else {}
    files = {name: _state(folder / inner / name, known.get(name)) for name in _names(folder / inner)}
    write_record(folder / SEAL, Seal(documents, settled, files))


def break_seal(folder: Path) -> None:
    """Remove the seal of a folder before a change."""
    if (folder / SEAL).exists():
        (folder / SEAL).unlink()
        force_to_disk(folder)


def check_seal(folder: Path, inner: str) -> Seal | None:
    """Compare the files in `inner` with the seal of a folder, and return the seal; None without a seal.

    A file with the sealed size and time counts as unchanged; all other files are read.

    Raises:
        VectorsError: a file is missing, new or changed, or the seal is unreadable.
    """
    if not (folder / SEAL).exists():
        return None
    sealed = read_record(folder / SEAL, Seal)
    names = set(_names(folder / inner))
    if differing := names ^ sealed.files.keys():
        name = min(differing)
        what = "should not be there" if name in names else "is missing"
        raise VectorsError(f"{folder}: the index is damaged: {inner}/{name} {what}")
    read = 0
    for name, expected in sealed.files.items():
        state = _state(folder / inner / name, expected)
        if state[::2] != expected[::2]:
            raise VectorsError(f"{folder}: the index is damaged: {inner}/{name} has changed")
        read += state.size if state != expected else 0
    if read > RESEAL and os.access(folder, os.W_OK):  # a copy of the folder: record its times
        seal(folder, inner, sealed.documents, settled=sealed.settled, previous=sealed)
    return sealed


def _names(folder: Path) -> list[str]:
    """Return the sorted paths of the files in a folder, except hidden files, which interrupted writes leave."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return sorted(path.as_posix() for path in paths if not any(part[0] == "." for part in path.parts))


def _state(path: Path, known: SealedFile | None) -> SealedFile:
    """Return the state of a file; reuse the digest of the `known` state if size and time agree with it."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):  # links and pipes are not read
        return SealedFile(-1, 0, "")
    if known is not None and (status.st_size, status.st_mtime_ns) == (known.size, known.changed):
        return known
    return SealedFile(status.st_size, status.st_mtime_ns, _digest(path))


def _digest(path: Path) -> str:
    """Return the digest of the content of a file; for JSON, the order of the keys does not matter.

    Blocks of zeros, which fill most of a sparse file, are skipped.
    """
    digest, start = blake2b(digest_size=16), 0
    if path.suffix == ".json":
        with suppress(ValueError, RecursionError):
            digest.update(json.dumps(json.loads(path.read_bytes()), sort_keys=True).encode())
            return digest.hexdigest()
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            if block != ZEROS[: len(block)]:
                digest.update(start.to_bytes(8, "big"))
                digest.update(block)
            start += len(block)
    return digest.hexdigest()
