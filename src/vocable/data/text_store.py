"""Texts by id, on disk: of ten million passages, only those that are asked for are read.

FOLDER/texts.arrow   id and text, in the order in which they came, memory-mapped
FOLDER/keys.npy      a 64-bit hash of every id, ascending, memory-mapped
FOLDER/rows.npy      the row of each of these hashes
"""

from __future__ import annotations

import os
import shutil
from array import array
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from vocable.unfinished import partial_of

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
