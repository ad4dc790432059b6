"""Seal a folder: record the size, time and digest of its files, to notice damage before the folder is used again.

Work that changes the folder breaks the seal first and seals the folder again at its end. A folder without a seal
belongs to work that was cut short, so there is nothing to compare it with.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from vocable.errors import VectorsError
from vocable.storage import force_to_disk, read_record, write_record

SEAL = "seal.json"
BLOCK = 1 << 20  # bytes that are read at once
ZEROS = bytes(BLOCK)
MANY = 1 << 26  # bytes that are digested at an opening before new times are worth recording


class SealedFile(NamedTuple):
    """One file of a sealed folder: bytes, nanoseconds of its last change, and the digest of its content."""

    size: int
    changed: int
    digest: str


class Seal(NamedTuple):
    """The state of a folder: its number of documents, and its files by their path in it.

    A `settled` folder is one that stays the same, file by file, when it is opened and only read.
    """

    documents: int
    settled: bool
    files: dict[str, SealedFile]


def seal(folder: Path, inner: str, documents: int, *, settled: bool, before: Seal | None = None) -> None:
    """Seal the folder `inner` of a folder; files that are as the seal `before` says are not read again."""
    known = before.files if before is not None else {}
    files = {name: _state(folder / inner / name, known.get(name)) for name in _names(folder / inner)}
    write_record(folder / SEAL, Seal(documents, settled, files))


def break_seal(folder: Path) -> None:
    """Remove the seal of a folder that is about to change."""
    if (folder / SEAL).exists():
        (folder / SEAL).unlink()
        force_to_disk(folder)


def check_seal(folder: Path, inner: str) -> Seal | None:
    """Return the seal of a folder, None if it has none, after comparing it with the files in `inner`.

    A file of the same size and time counts as unchanged; any other is read.

    Raises:
        VectorsError: a file is missing, new or has changed, or the seal cannot be read.
    """
    if not (folder / SEAL).exists():
        return None
    found = read_record(folder / SEAL, Seal)
    names = set(_names(folder / inner))
    if differing := names ^ found.files.keys():
        name = min(differing)
        what = "should not be there" if name in names else "is missing"
        raise VectorsError(f"{folder}: the index is damaged: {inner}/{name} {what}")
    read = 0
    for name, expected in found.files.items():
        state = _state(folder / inner / name, expected)
        if state[::2] != expected[::2]:
            raise VectorsError(f"{folder}: the index is damaged: {inner}/{name} has changed")
        read += state.size if state != expected else 0
    if read > MANY and os.access(folder, os.W_OK):  # a copy with new times: the next opening need not read it
        seal(folder, inner, found.documents, settled=found.settled, before=found)
    return found


def _names(folder: Path) -> list[str]:
    """Return the paths of all files in a folder, sorted; hidden ones are left by writes that a kill cut short."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return sorted(path.as_posix() for path in paths if not any(part[0] == "." for part in path.parts))


def _state(path: Path, known: SealedFile | None) -> SealedFile:
    """Return the state of a file, with its `known` digest if size and time are the known ones."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):  # neither a link nor a pipe is read
        return SealedFile(-1, 0, "")
    if known is not None and (status.st_size, status.st_mtime_ns) == (known.size, known.changed):
        return known
    return SealedFile(status.st_size, status.st_mtime_ns, _digest(path))


def _digest(path: Path) -> str:
    """Return 32 hexadecimal digits of a file's content, of JSON whatever the order of its keys.

    Blocks of zeros are skipped: most of a sparse file is zeros.
    """
    digest, start = blake2b(digest_size=16), 0
    if path.suffix == ".json":
        with suppress(ValueError, RecursionError):
            digest.update(json.dumps(json.loads(path.read_bytes()), sort_keys=True).encode())
            return digest.hexdigest()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            if block != ZEROS[: len(block)]:
                digest.update(start.to_bytes(8, "big"))
                digest.update(block)
            start += len(block)
    return digest.hexdigest()
