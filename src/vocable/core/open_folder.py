"""An open folder of files that are written once: it is known by its device and inode, and stays open when it is moved.

A file is forced to disk before its name counts: `writing` makes a new file, `replace` exchanges a small file
atomically, and `sync` forces the names to disk.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias
from uuid import uuid4
from weakref import finalize

from vocable.core.links import GUARDED
from vocable.errors import ArgumentError, NoSpaceError, VectorsError

# Windows cannot open a folder: there a path stands for it.
FOLLOWS = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
BINARY = getattr(os, "O_BINARY", 0)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_SPACE = "no space left on the disk"
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
FolderState: TypeAlias = Literal["in place", "moved", "replaced", "removed"]


class OpenFolder:
    """A folder that this process has opened; its files are named without a path."""

    def __init__(self, path: Path) -> None:
        """Open a folder; raise `VectorsError` if it is missing or cannot be opened."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY) if FOLLOWS else None
            status = os.stat(path) if self._fd is None else os.fstat(self._fd)
        except OSError as error:
            hint = "make one with vocable index" if isinstance(error, FileNotFoundError) else error.strerror
            raise VectorsError(f"{path}: there is no index here ({hint})") from error
        self.identity = status.st_dev, status.st_ino
        self.close = finalize(self, os.close, self._fd) if self._fd is not None else lambda: None

    def _at(self, name: str) -> tuple[str | Path, dict[str, Any]]:
        return (self.path / name, {}) if self._fd is None else (name, {"dir_fd": self._fd})

    def standing(self) -> FolderState:
        """Return whether the folder still has its path, moved, was replaced by another, or was removed."""
        with suppress(OSError):
            status = os.stat(self.path)
            return "in place" if (status.st_dev, status.st_ino) == self.identity else "replaced"
        return "moved" if self._fd is not None and os.fstat(self._fd).st_nlink else "removed"

    def status(self, name: str) -> os.stat_result | None:
        """Return the state of a file, None for no file."""
        file, folder = self._at(name)
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.stat(file, follow_symlinks=False, **folder)
        return None

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a regular file, and return its descriptor.

        Raises `FileNotFoundError` for no file, and `VectorsError` for a link, a pipe or a device.
        """
        file, folder = self._at(name)
        try:
            descriptor = os.open(file, flags | GUARDED | BINARY, 0o666, **folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
                raise VectorsError(f"{self.path / name} is a link or a pipe, not a regular file: remove it") from error
            if isinstance(error, FileNotFoundError):
                raise
            if error.errno in FULL:
                raise NoSpaceError(f"{self.path / name}: {NO_SPACE}: free some, and repeat the command") from error
            if flags != os.O_RDONLY and error.errno in REFUSED:
                raise ArgumentError(f"{self.path} cannot be changed by this user: {error.strerror}") from error
            raise VectorsError(f"{self.path / name}: cannot be opened: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise VectorsError(f"{self.path / name} is not a regular file: remove it")
        return descriptor

    def read(self, name: str) -> bytes:
        """Return the content of a file; errors are as in `open`."""
        with os.fdopen(self.open(name), "rb") as file:
            return file.read()

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return sorted(os.listdir(self.path if self._fd is None else self._fd))

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Make a new file, forced to disk when the block ends without an error, else removed.

        Its name is on disk after `sync`.
        """
        with self.named_errors(name), self._making(name) as file:
            yield file

    @contextmanager
    def _making(self, name: str) -> Iterator[BinaryIO]:
        with suppress(FileNotFoundError):
            self.remove(name)  # left by a killed process
        descriptor = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                self.remove(name)
            raise

    def replace(self, name: str, content: bytes) -> None:
        """Exchange the content of a file atomically, on disk at return."""
        part = f".{name}.{uuid4().hex[:8]}"
        with self.named_errors(name):
            with self._making(part) as file:
                file.write(content)
            (source, folder), (target, _) = self._at(part), self._at(name)
            ends = {} if not folder else {"src_dir_fd": self._fd, "dst_dir_fd": self._fd}
            os.replace(source, target, **ends)
            self.sync()

    def remove(self, name: str) -> None:
        """Remove a file."""
        file, folder = self._at(name)
        os.unlink(file, **folder)

    def sync(self) -> None:
        """Wait until the names of the files are on disk."""
        if self._fd is not None:
            with self.named_errors(""):
                os.fsync(self._fd)

    @contextmanager
    def named_errors(self, name: str) -> Iterator[None]:
        """Name a file in errors of the system: `NoSpaceError` for a full disk, else `VectorsError`."""
        try:
            yield
        except OSError as error:
            place = self.path / name
            if error.errno in FULL:
                limit = NO_SPACE if error.errno != errno.EFBIG else "the limit of a file's size"
                raise NoSpaceError(f"{place}: {limit}: free some, and repeat the command") from error
            if error.errno in REFUSED:
                reason = error.strerror
                raise ArgumentError(f"{self.path} cannot be changed by this user ({name}: {reason})") from error
            raise VectorsError(f"{place}: cannot be written: {error.strerror}") from error
