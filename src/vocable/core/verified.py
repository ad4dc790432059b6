"""Files that were verified or digested on this machine before, so that opening them again does not read them whole.

A record in the user's cache folder names the device, inode, size and times of the last change of each. The system, not
a program, sets the time of the last change of status: a file that is changed, replaced, copied or unpacked is verified
and digested again. A record that is missing, damaged, another user's or cannot be written is ignored.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

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
        self._file = None if identity is None else _record("verified", *identity)
        self._states = self._read()

    def _read(self) -> States:
        with suppress(ValueError, AttributeError, TypeError):
            return {str(name): list(map(int, state)) for name, state in _read(self._file).items()}
        return {}

    def __contains__(self, file: tuple[str, os.stat_result]) -> bool:
        name, status = file
        return self._states.get(name) == state_of(status)

    def add(self, files: Iterable[tuple[str, os.stat_result]], kept: Iterable[str]) -> None:
        """Record verified files, and forget all files that are not among `kept`."""
        states = self._read()
        for name, status in files:
            if _is_settled(status):
                states[name] = state_of(status)
        names = set(kept)
        states = {name: state for name, state in states.items() if name in names}
        if states != self._states:
            self._states = states
            _write(self._file, states)


def remembered(kind: str, files: Sequence[Path], compute: Callable[[], str]) -> str:
    """Return a digest of files, which `compute` makes where none of this `kind` is recorded or a file has changed.

    The folder of the first file has one record.
    """
    try:
        folder, statuses = os.stat(files[0].parent), [os.stat(file) for file in files]
    except OSError:  # `compute` names the file
        return compute()
    record = _record("digests", folder.st_dev, folder.st_ino)
    name, states = f"{kind} {' '.join(file.name for file in files)}", [state_of(status) for status in statuses]
    known = _read(record)
    with suppress(TypeError, ValueError):
        recorded, digest = known.get(name, (None, ""))
        if recorded == states and isinstance(digest, str):
            return digest
    digest = compute()
    if all(map(_is_settled, statuses)):
        _write(record, known | {name: [states, digest]})
    return digest


def _record(kind: str, device: int, inode: int) -> Path | None:
    """Return the path of the record of a folder; None where the user has no home folder."""
    with suppress(OSError, RuntimeError):
        return cache_folder() / kind / f"{device:x}-{inode:x}.json"
    return None


def _is_settled(status: os.stat_result) -> bool:
    """Return whether a further change of a file would change its times."""
    return max(status.st_mtime_ns, status.st_ctime_ns) < time.time_ns() - SETTLED


def _read(record: Path | None) -> dict[str, Any]:
    """Return what a record holds: nothing if it is missing, damaged or another user's."""
    with suppress(OSError, ValueError, RecursionError):
        if record is not None and (not hasattr(os, "getuid") or os.stat(record).st_uid == os.getuid()):
            content = json.loads(record.read_bytes())
            return content if isinstance(content, dict) else {}
    return {}


def _write(record: Path | None, content: dict[str, Any]) -> None:
    if record is not None:
        with suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True)
            part = record.with_name(f".{record.name}.{os.getpid()}")
            part.write_text(json.dumps(content))
            part.replace(record)
