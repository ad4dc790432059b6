"""Texts by id on disk, and sets of ids in little memory."""

from __future__ import annotations

import os
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np

from vocable.core.storage import partial_of

T = TypeVar("T", bound=Hashable)

RECENT = 1 << 16  # ids in a Python set before they move to an array: about 6 MB
GROWTH = 4  # least ratio of the lengths of two arrays, which keeps their number small


class IdSet:
    """A set of n ids or other values at 8 bytes each: their 64-bit hashes in sorted arrays and a small set.

    Ten million ids need at most about 110 MB; a Python set of strings needs more than a gigabyte. The probability that
    two different ids collide is n² / 2⁶⁵: 3 in a million for ten million ids.

    >>> ids = IdSet()
    >>> ids.add("d1"), ids.add("d2"), ids.add("d1")
    (True, True, False)
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._runs: list[array[int]] = []

    def add(self, identifier: Hashable) -> bool:
        """Add `identifier`; return whether it is new."""
        key = hash(identifier)
        if key in self._recent:
            return False
        for run in self._runs:
            position = bisect_left(run, key)
            if position < len(run) and run[position] == key:
                return False
        self._recent.add(key)
        if len(self._recent) >= RECENT:  # move to the arrays; merge arrays of similar length
            self._runs.append(array("q", self._recent))
            self._recent.clear()
            while len(self._runs) > 1 and len(self._runs[-2]) < GROWTH * len(self._runs[-1]):
                last = self._runs.pop()
                self._runs[-1].extend(last)
            np.frombuffer(self._runs[-1], dtype=np.int64).sort()  # in place: no second copy of the largest array
        return True


def without_repeats(values: Iterable[T]) -> Iterator[T]:
    """Yield each value once, in order; memory as in `IdSet`.

    >>> [*without_repeats(["a", "b", "a"])]
    ['a', 'b']
    """
    return filter(IdSet().add, values)


class TextStore:
    """Texts by id in an SQLite file that `text_store` made.

    >>> import tempfile
    >>> store = text_store(Path(tempfile.mkdtemp()) / "store", lambda: [("d1", "A list."), ("d2", "A set.")])
    >>> len(store), store.get("d2"), store.get("d3")
    (2, 'A set.', None)
    """

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)

    def __len__(self) -> int:
        return self._file.execute("SELECT count(*) FROM texts").fetchone()[0]

    def __del__(self) -> None:
        self._file.close()

    def get(self, identifier: str) -> str | None:
        """Return the text of an id, or None."""
        row = self._file.execute("SELECT text FROM texts WHERE id = ?", (identifier,)).fetchone()
        return None if row is None else row[0]


def text_store(path: Path, texts: Callable[[], Iterable[tuple[str, str]]]) -> TextStore:
    """Open the store at `path`; if it is missing, first write it atomically from distinct ids and their texts."""
    if not path.is_file():
        work = partial_of(path)
        work.parent.mkdir(parents=True, exist_ok=True)
        work.unlink(missing_ok=True)  # left by a kill
        with closing(sqlite3.connect(work)) as file:
            file.execute("PRAGMA journal_mode = OFF")  # an interrupted file is not used
            file.execute("CREATE TABLE texts (id TEXT, text TEXT)")
            file.executemany("INSERT INTO texts VALUES (?, ?)", texts())
            file.execute("CREATE UNIQUE INDEX ids ON texts (id)")
            file.commit()
        os.replace(work, path)
    return TextStore(path)
