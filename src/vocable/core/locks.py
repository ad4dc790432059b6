"""Locks between processes, on files and folders, and between threads; a forked child inherits neither.

File systems without locks are tolerated. The library filelock cannot lock folders, does not name the holder, and
refuses file systems whose locks fail.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet

from vocable.core.links import GUARDED, open_regular
from vocable.errors import InUseError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

QUIET_SECONDS = 1.0  # of waiting before it is logged
logger = logging.getLogger(__name__)
HAS_LOCKS = fcntl is not None

_locks: set[int] = set()  # descriptors of locks; a forked child closes them, or they would outlive the process
_thread_locks: WeakSet[Any] = WeakSet()  # a forked child opens them: their holders stay in the parent


def _forget_locks() -> None:
    for descriptor in _locks:
        os.close(descriptor)
    _locks.clear()
    for lock in _thread_locks:
        lock._at_fork_reinit()


def thread_lock() -> Lock:
    """Return a lock between threads that is open in a forked child, even if a thread of the parent held it."""
    lock = Lock()
    _thread_locks.add(lock)
    return lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Lock a file or folder; raise `BlockingIOError` if it is locked, `OSError` on a file system without locks."""
    descriptor = os.open(path, os.O_RDONLY | GUARDED)
    _locks.add(descriptor)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        _locks.discard(descriptor)
        os.close(descriptor)


def lock_file(path: Path, advice: str, patience: float = 0.0) -> int:
    """Lock a file, create it if it is missing, and return the descriptor for `unlock_file`.

    Raises `VectorsError` if the path is a link, whose target would be emptied, and the errors of `take_lock`.
    """
    return take_lock(open_regular(path, os.O_RDWR | os.O_CREAT), path.parent, advice, patience)


def take_lock(descriptor: int, place: Path, advice: str, patience: float = 0.0) -> int:
    """Lock an open file of a place, and return its descriptor for `unlock_file`; after an error it is closed.

    While locked, the file names its holder. The lock ends with the process; file systems without locks are tolerated.
    A wait of more than `QUIET_SECONDS` is logged.

    Raises:
        InUseError: another process has held the lock for `patience` seconds; the message ends with `advice`.
    """
    started, reported = time.monotonic(), False
    # Try again and again: a wait by the system has no limit of time.
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            # The process that has the lock wrote its name into the file.
            waited = time.monotonic() - started
            holder = os.pread(descriptor, 100, 0).decode(errors="replace") or "another process"
            if waited > patience:
                os.close(descriptor)
                raise InUseError(f"{place} is in use by {holder}: {advice}") from error
            if waited > QUIET_SECONDS and not reported:
                logger.warning("%s is in use by %s: waiting for at most %.0f seconds", place, holder, patience)
                reported = True
            time.sleep(0.02)
        except OSError:  # a file system without locks
            break
        except BaseException:
            os.close(descriptor)
            raise
    # A forked child closes the descriptor, or it would keep the lock beyond this process.
    _locks.add(descriptor)
    with suppress(OSError):  # a full disk: the lock holds, but names no holder
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} since {time.strftime('%H:%M:%S')}".encode())
    return descriptor


def unlock_file(descriptor: int) -> None:
    """Release a lock that `lock_file` took; do nothing in a forked child, which holds no locks."""
    if descriptor in _locks:
        _locks.discard(descriptor)
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that is being forked still has the file open
        os.close(descriptor)
