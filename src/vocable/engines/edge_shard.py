"""An open shard of Qdrant Edge: locked against other processes, checked for damage, with reserved disk space.

The engine releases its own lock before its files are written: a process that opens the shard at that moment loses
documents. The engine detects little damage, and if the disk is full, a write to a mapped file kills the process. This
module closes these gaps.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import qdrant_edge as qdrant

from vocable.core.links import refuse_links
from vocable.core.locks import lock_file, unlock_file
from vocable.core.seal import Seal, break_seal, check_seal, seal
from vocable.errors import InUseError, NoSpaceError, VectorsError, VocableError

SHARD, LOCK = "shard", "lock"
PATIENCE = 5.0  # seconds to wait for another process; a search from the command line takes less
PLENTY = 2 << 30  # bytes: if the disk has more free space, none is reserved
FILE = 32 << 20  # bytes of a log file, and of a page of documents or vectors
BUSY = "one process at a time has a store open: wait, or search a service by its address, http://HOST:PORT"
UNWRITABLE = (
    "cannot be written by this user, which a store needs even for a search: "
    "change the owner of its files, or index to exact:FOLDER, which is only read"
)


_inherited: list[qdrant.EdgeShard] = []  # shards of the parent process, after a fork


class OpenShard:
    """The shard in a folder, opened by this process."""

    def __init__(self, folder: Path, lock: int, shard: qdrant.EdgeShard, spaces: int) -> None:
        self.folder, self._lock, self._spaces = folder, lock, spaces
        self._shard: qdrant.EdgeShard | None = shard
        self._before: Seal | None = None  # the files as they were sealed
        self._sealed = self._written = False
        self._process = os.getpid()

    @classmethod
    def create(cls, folder: Path, config: qdrant.EdgeConfig, spaces: int) -> Self:
        """Create an empty shard in an existing folder, for documents with vectors in `spaces` spaces.

        Raises:
            NoSpaceError: the disk is too full.
        """
        _check_room(folder, FILE * (2 + spaces))
        lock = lock_file(folder / LOCK, BUSY)
        with _failing(folder, lock):
            opened = cls(folder, lock, qdrant.EdgeShard.create(str(folder / SHARD), config), spaces)
        opened._written = True
        return opened

    @classmethod
    def open(cls, folder: Path, spaces: int) -> Self:
        """Compare the files of a folder with its seal, and open the shard.

        If the folder has no seal, the shard was not closed: the engine then recovers missing data from its log.

        Raises:
            InUseError: another process has opened the shard.
            NoSpaceError: the disk is too full to recover the writes of a killed process.
            VectorsError: the shard is damaged, the folder contains a link, or this user cannot write to the folder.
        """
        with _failing(folder):
            lock = lock_file(folder / LOCK, BUSY, PATIENCE)
        with _failing(folder, lock):
            sealed = check_seal(folder, SHARD)
            refuse_links(folder)  # without a seal, the engine would write through a link in its folder
            if sealed is None or not sealed.settled:  # loading the shard changes files
                reserve_room(folder, FILE)
                break_seal(folder)
            shard = qdrant.EdgeShard.load(str(folder / SHARD))
            if sealed is not None and sealed.documents != (left := _count(shard)):
                shard.close()
                raise VectorsError(
                    f"{folder}: the index is damaged: {left:,} of {sealed.documents:,} documents are left"
                )
            opened = cls(folder, lock, shard, spaces)
            opened._before, opened._written = sealed, sealed is None
            opened._sealed = sealed is not None and sealed.settled
        return opened

    @contextmanager
    def reading(self) -> Iterator[qdrant.EdgeShard]:
        """Yield the engine's shard, and raise its errors as `VectorsError`."""
        if self._shard is None:
            raise VectorsError(f"{self.folder}: the index is closed")
        with _failing(self.folder):
            yield self._shard

    @contextmanager
    def writing(self, size: int = 0) -> Iterator[qdrant.EdgeShard]:
        """Reserve disk space for documents of `size` bytes, and yield the engine's shard for writing them."""
        with self.reading() as shard:
            reserve_room(self.folder, FILE * (2 + self._spaces) + 4 * size)
            if self._sealed:
                break_seal(self.folder)
            self._sealed, self._written = False, True
            yield shard

    def count(self, filter: qdrant.Filter | None = None) -> int:
        """Return the number of documents that pass a filter; of all documents without a filter."""
        with self.reading() as shard:
            return _count(shard, filter)

    def close(self) -> None:
        """Write everything to disk, seal the folder, and only then let other processes open it.

        If data cannot be written, it stays in the engine's log, and the folder stays unsealed. A forked child does
        nothing: the process that opened the shard closes it.
        """
        shard, self._shard = self._shard, None
        if shard is None:
            return
        if os.getpid() != self._process:
            _inherited.append(shard)  # if the shard were destroyed here, the engine would write to its files
            return
        with suppress(VocableError), _failing(self.folder):
            documents = _count(shard)
            shard.flush()
            shard.close()
            if not self._sealed:
                seal(self.folder, SHARD, documents, settled=not self._written, previous=self._before)
        with suppress(VocableError), _failing(self.folder):
            shard.close()  # even after an error, and before the lock is released
        unlock_file(self._lock)


def _count(shard: qdrant.EdgeShard, filter: qdrant.Filter | None = None) -> int:
    return int(shard.count(qdrant.CountRequest(exact=True, filter=filter)))


@contextmanager
def _failing(folder: Path, lock: int | None = None) -> Iterator[None]:
    """Raise errors of the engine and the file system as `VocableError`, and release the lock after any error."""
    try:
        yield
    except BaseException as error:
        if lock is not None:
            unlock_file(lock)
        # The engine raises plain `Exception`s, and a panic derives from BaseException.
        by_engine = type(error) is Exception or type(error).__name__ == "PanicException"
        if isinstance(error, VocableError) or not (by_engine or isinstance(error, OSError)):
            raise
        raise _refusal(folder, str(error)) from error


def _refusal(folder: Path, message: str) -> VocableError:
    """Return the error to raise for a message from the engine or the file system."""
    if os.strerror(28) in message:  # ENOSPC
        return NoSpaceError(f"{folder}: no space left on the disk: free some, and repeat the command")
    if any(words in message for words in ("Permission denied", "Read-only file system")):
        return VectorsError(f"{folder} {UNWRITABLE}")
    if "WouldBlock" in message:
        return InUseError(f"{folder} is in use by another program: {BUSY}")
    return VectorsError(f"{folder}: the index is damaged: {message}")


def _check_room(folder: Path, needed: int) -> bool:
    """Return whether the disk has plenty of free space; raise `NoSpaceError` if it has less than `needed` bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise NoSpaceError(
            f"{folder}: no space left on the disk: {needed >> 20:,} MiB are needed, {free >> 20:,} MiB are free"
        )
    return free >= PLENTY


def reserve_room(folder: Path, new: int) -> None:
    """Allocate the holes in the files of a shard, and check that `new` more bytes are free.

    The engine maps sparse files: if the disk is full, a write to a hole kills the process (SIGBUS). If the disk has
    plenty of free space, nothing is allocated, and the files stay sparse.

    Raises:
        NoSpaceError: the disk has too little free space.
    """
    if _check_room(folder, 0) or not hasattr(os, "posix_fallocate"):  # macOS lacks it
        return
    sparse = [path for path in (folder / SHARD).rglob("*") if path.is_file() and _hole(path)]
    _check_room(folder, new + sum(map(_hole, sparse)))
    for path in sparse:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _hole(path: Path) -> int:
    """Return the number of bytes of a file that the disk has not allocated."""
    status = path.stat()
    return max(0, status.st_size - 512 * status.st_blocks)
