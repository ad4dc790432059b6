"""Files that were verified on this machine before, so that opening them again does not read them whole.

A record in the user's cache folder names the device, inode, size and times of the last change of each. The system, not
a program, sets the time of the last change of status: a file that is changed, replaced, copied or unpacked is verified
again. A record that is missing, damaged, another user's or cannot be written is ignored.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

SETTLED = 2_000_000_000  # nanoseconds, the coarsest clock of file systems: a younger file may change at the same time
States = dict[str, list[int]]


def cache_folder() -> Path:
    """Return the folder of the user's caches of vocable, which may be missing."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return Path(base) / "vocable" if base else Path.home() / "AppData" / "Local" / "vocable"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "vocable"


def state_of(status: os.stat_result) -> list[int]:
    """Return the numbers that change with a file."""
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


class Verified:
    """The verified files of a folder with this identity, by name; without an identity none is, and none is recorded."""

    def __init__(self, identity: tuple[int, int] | None) -> None:
        self._file: Path | None = None
        self._states: States = {}
        if identity is None:
            return
        with suppress(OSError, RuntimeError):  # RuntimeError: no home folder
            self._file = cache_folder() / "verified" / f"{identity[0]:x}-{identity[1]:x}.json"
        self._states = self._read()

    def _read(self) -> States:
        with suppress(OSError, ValueError, RecursionError, AttributeError, TypeError):
            if self._file is not None and self._is_mine(os.stat(self._file)):
                states = json.loads(self._file.read_bytes())
                return {str(name): list(map(int, state)) for name, state in states.items()}
        return {}

    def _is_mine(self, status: os.stat_result) -> bool:
        return not hasattr(os, "getuid") or status.st_uid == os.getuid()

    def __contains__(self, file: tuple[str, os.stat_result]) -> bool:
        name, status = file
        return self._states.get(name) == state_of(status)

    def add(self, files: Iterable[tuple[str, os.stat_result]], kept: Iterable[str]) -> None:
        """Record verified files, and forget all files that are not among `kept`."""
        now, states = time.time_ns(), self._read()
        for name, status in files:
            if max(status.st_mtime_ns, status.st_ctime_ns) < now - SETTLED:
                states[name] = state_of(status)
        names = set(kept)
        states = {name: state for name, state in states.items() if name in names}
        if states == self._states or self._file is None:
            return
        self._states = states
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            part.write_text(json.dumps(states))
            part.replace(self._file)
