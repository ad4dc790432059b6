"""Files that were verified here before, so that opening them again does not read them whole.

A record beside the files names the device, inode, size and times of the last change of each. The system, not a program,
sets the time of the last change of status: a file that is changed, replaced, copied or unpacked is verified again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vocable.core.fingerprint import VERIFIED
from vocable.core.storage import read_record, write_record
from vocable.errors import VectorsError

SETTLED = 2_000_000_000  # nanoseconds, the coarsest clock of file systems: a younger file may change at the same time

FileStates = dict[str, tuple[int, int, int, int, int]]


@contextmanager
def verifying(folder: Path) -> Iterator[bool]:
    """Yield whether the files of a folder must be verified; record them if the block verifies them without an error."""
    states, started = _states(folder), time.time_ns()
    is_known = states == _recorded(folder)
    yield not is_known
    if not is_known and all(max(times) < started - SETTLED for _, _, _, *times in states.values()):
        with suppress(OSError, VectorsError):  # a folder that only others write to is verified each time
            write_record(folder / VERIFIED, states)


def _states(folder: Path) -> FileStates:
    states: FileStates = {}
    for path in folder.glob("*"):
        if path.is_file() and path.name != VERIFIED:
            status = path.stat()  # of its target, if it is a link
            times = status.st_mtime_ns, status.st_ctime_ns  # on Windows the latter is the time of creation
            states[path.name] = status.st_dev, status.st_ino, status.st_size, *times
    return states


def _recorded(folder: Path) -> FileStates | None:
    try:
        return read_record(folder / VERIFIED, FileStates)
    except (OSError, VectorsError):
        return None
