"""Texts by id, on disk: of ten million passages, only those that are asked for are read.

FOLDER/texts.arrow   id and text, in the order in which they came, memory-mapped
FOLDER/keys.npy      a 64-bit hash of every id, ascending, memory-mapped
FOLDER/rows.npy      the row of each of these hashes

Which ids were seen before, in little memory.
"""

from __future__ import annotations

import os
import shutil
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from vocable.storage import partial_of

RECENT = 1 << 16  # ids kept in a Python set before they go to an array: about 6 MB
GROWTH = 4  # each array is at least this many times longer than the next, so there are few to look in


class SeenIds:
    """A set of strings at 8 bytes each: their 64-bit hashes, in a few sorted arrays and one small set.

    Ten million ids take about 110 MB at the worst moment, where a Python set of strings takes more than a gigabyte. Two
    different ids fall together with probability n² / 2⁶⁵: 3 in a million for ten million ids.

    >>> seen = SeenIds()
    >>> seen.add("d1"), seen.add("d2"), seen.add("d1")
    (True, True, False)
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._runs: list[array[int]] = []

    def add(self, identifier: str) -> bool:
        """Remember `identifier`; False when it was there before."""
        key = hash(identifier)
        if key in self._recent or any(_contains(run, key) for run in self._runs):
            return False
        self._recent.add(key)
        if len(self._recent) >= RECENT:
            self._settle()
        return True

    def _settle(self) -> None:
        """Move the small set into the arrays, joining those that have become too alike in length."""
        self._runs.append(array("q", self._recent))
        self._recent.clear()
        while len(self._runs) > 1 and len(self._runs[-2]) < GROWTH * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1].extend(last)
        np.frombuffer(self._runs[-1], dtype=np.int64).sort()  # in place: no second copy of the largest array


def _contains(run: array[int], key: int) -> bool:
    place = bisect_left(run, key)
    return place < len(run) and run[place] == key


SCHEMA = pa.schema([("id", pa.large_string()), ("text", pa.large_string())])
ROWS = 4096  # texts held while the store is made


class TextStore:
    """What `text_store` made, opened.

    >>> import tempfile
    >>> store = text_store(Path(tempfile.mkdtemp()) / "store", lambda: [("d1", "A list."), ("d2", "A set.")])
    >>> len(store), store.get("d2"), store.get("d3")
    (2, 'A set.', None)
    """

    def __init__(self, folder: Path) -> None:
        with pa.memory_map(str(folder / "texts.arrow")) as source:
            table = ipc.open_file(source).read_all()
        self._ids, self._texts = table.column("id"), table.column("text")
        self._keys, self._rows = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("keys", "rows"))

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, identifier: str) -> str | None:
        """The text of an id, None if there is none."""
        key = _key(identifier)
        position = int(np.searchsorted(self._keys, np.uint64(key)))
        while position < len(self._keys) and self._keys[position] == key:  # different ids may have one hash
            row = int(self._rows[position])
            if self._ids[row].as_py() == identifier:
                text: str = self._texts[row].as_py()
                return text
            position += 1
        return None


def text_store(folder: Path, texts: Callable[[], Iterable[tuple[str, str]]]) -> TextStore:
    """The store in `folder`, made first if it is not there.

    Args:
        folder: there only when it is whole.
        texts: gives the ids, no two alike, and their texts; called only if the store has to be made.
    """
    if not folder.exists():
        work = partial_of(folder)
        shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
        work.mkdir(parents=True)
        keys = np.frombuffer(_write_texts(texts(), work / "texts.arrow"), dtype=np.uint64)
        order = np.argsort(keys, kind="stable")
        np.save(work / "keys.npy", keys[order])
        np.save(work / "rows.npy", order)
        os.replace(work, folder)
    return TextStore(folder)


def _write_texts(texts: Iterable[tuple[str, str]], path: Path) -> array[int]:
    """Write ids and texts; gives the hashes of the ids."""
    keys, stream = array("Q"), iter(texts)
    with pa.OSFile(str(path), "wb") as file, ipc.new_file(file, SCHEMA) as writer:
        while some := list(islice(stream, ROWS)):
            keys.extend(_key(identifier) for identifier, _ in some)
            writer.write_batch(pa.record_batch([list(column) for column in zip(*some, strict=True)], schema=SCHEMA))
    return keys


def _key(identifier: str) -> int:
    return int.from_bytes(blake2b(identifier.encode(), digest_size=8).digest(), "little")
