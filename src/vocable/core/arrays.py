"""Ids, the validity of sparse matrices, and folders of memory-mapped arrays that are written atomically.

A folder of arrays has NAME.npy files and index.json with the type, shape and checksum of each.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vocable.core.storage import (
    StrPath,
    force_to_disk,
    is_there,
    locked,
    make_folder,
    part_of,
    partial_of,
    regular,
    remove_path,
    replacing,
    target_of,
)
from vocable.errors import ArgumentError, VectorsError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

HEADER = "index.json"
FORMAT = 1
CHECKED_ENTRIES = 1 << 22  # at a time


class Ids(Sequence[str]):
    """A sequence of `str` in one Arrow array: a few bytes each, and read from disk without a copy.

    >>> ids = Ids(["d1", "d2", "d3"])
    >>> ids[1], list(ids[1:]), ids == ["d1", "d2", "d3"]
    ('d2', ['d2', 'd3'], True)
    """

    def __init__(self, ids: Iterable[str] | pa.LargeStringArray) -> None:
        import pyarrow as pa  # slow to import; a search of an index in a folder needs none

        try:
            self.array = pa.array(ids if isinstance(ids, Sequence | pa.Array) else list(ids), type=pa.large_string())
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
            raise ArgumentError(f"ids must be strings: {error}") from error
        if self.array.null_count:
            raise ArgumentError("ids must be strings, not None")

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, position: Any) -> Any:
        return Ids(self.array[position]) if isinstance(position, slice) else self.array[int(position)].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self.array.to_pylist())

    def rows(self, ids: Sequence[str]) -> np.ndarray:
        """Return the row of each of m ids, int64 [m]; -1 for an unknown id."""
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers_of = {identifier: number for number, identifier in enumerate(dict.fromkeys(ids))}
        wanted = pa.array(numbers_of, type=pa.large_string())
        matches = pc.fill_null(pc.index_in(self.array, value_set=wanted), -1)  # hashes only the wanted ids
        matched = numbers(matches, np.int32)  # for each row, the number of its id among the distinct ids, or -1
        rows = np.full(len(numbers_of), -1, dtype=np.int64)
        rows[matched[matched >= 0]] = np.flatnonzero(matched >= 0)
        return rows[[numbers_of[identifier] for identifier in ids]]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ids):
            return bool(self.array.equals(other.array))
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Ids({len(self)})" if len(self) > 5 else f"Ids({list(self)})"


def numbers(array: pa.Array, kind: type[np.generic]) -> np.ndarray:
    """Return the values of an Arrow array without nulls, read-only and without a copy.

    Unlike Arrow's `to_numpy`, this does not import pandas, which takes a seventh of a second.
    """
    buffer = array.buffers()[1]
    values: np.ndarray = np.frombuffer(b"" if buffer is None else buffer, kind)[array.offset :][: len(array)]
    values.flags.writeable = False
    return values


def wrong_entries(matrix: tuple[np.ndarray, np.ndarray, np.ndarray], size: int) -> int:
    """Return the first fault of a CSR matrix (weights, indices, indptr) with a valid indptr, or 0.

    1: an index is not below `size`; 2: the indices of a row do not rise; 3: a weight is not positive and finite.
    """
    weights, indices, indptr = matrix
    for start in range(0, len(indices), CHECKED_ENTRIES):
        first, end = max(start, 1), min(start + CHECKED_ENTRIES, len(indices))
        rising = indices[first:end] > indices[first - 1 : end - 1]
        rows = slice(*np.searchsorted(indptr, np.array((first, end), dtype=indptr.dtype)))
        rising[indptr[rows] - first] = True  # the first entry of a row follows another row
        if not 0 <= indices[start:end].min() <= indices[start:end].max() < size:
            return 1
        if not rising.all():
            return 2
        if not 0 < weights[start:end].min() <= weights[start:end].max() < np.inf:
            return 3
    return 0


def save_arrays(folder: StrPath, kind: str, arrays: dict[str, np.ndarray], header: Mapping[str, object]) -> None:
    """Write `arrays` and `header` (JSON values) as a folder, which replaces an older folder atomically.

    Readers of the older folder keep their arrays. Raises `VectorsError` if `folder` exists and holds no arrays, and
    `ArgumentError` while another process writes it.
    """
    target = target_of(folder)
    if is_there(target) and not (target / HEADER).is_file():
        raise VectorsError(f"{target}: exists and is not an index: it is not replaced")
    make_folder(target.parent)
    with locked(partial_of(target)), part_of(target, Path.mkdir) as part:
        described = {}
        for name, array in arrays.items():
            with replacing(part / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
            described[name] = {"type": array.dtype.str, "shape": list(array.shape), "crc32": _checksum(array)}
        record = {"kind": kind, "format": FORMAT, **header, "arrays": described}
        text = json.dumps(record | {"crc32": _record_checksum(record)}, ensure_ascii=False, indent=1)
        with replacing(part / HEADER) as file:
            file.write(text.encode())
        if target.exists() and not _exchange(part, target):
            remove_path(_old(target))
            target.rename(_old(target))
        if not target.exists():
            part.rename(target)
        force_to_disk(target.parent)
        remove_path(_old(target))


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders atomically; return False if the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename is not None and rename(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0


def _old(folder: Path) -> Path:
    """Return the path that an old folder has while a new folder replaces it in two steps."""
    return folder.with_name(f".{folder.name}.old") if folder.name else folder


def place_state(place: StrPath) -> tuple[int, ...]:
    """Return numbers that change when another file, folder or link takes a path."""
    with suppress(OSError):
        states = os.lstat(place), os.stat(place)  # a new link may have the same target
        return tuple(number for state in states for number in (state.st_ino, state.st_mtime_ns))
    return ()


def read_whole(read: Callable[[], T], *places: StrPath) -> T:
    """Return the result of `read`; call it again if one of the paths was replaced meanwhile."""
    while True:
        states = [place_state(place) for place in places]
        try:
            result = read()
        except Exception:
            if states == [place_state(place) for place in places]:
                raise
        else:
            if states == [place_state(place) for place in places]:
                return result


def load_arrays(folder: StrPath, kind: str, *, verify: bool = True) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the memory-mapped, read-only arrays and the header of a folder that `save_arrays` wrote.

    `verify` compares the checksums, which reads every byte; otherwise only types, shapes and lengths are checked.
    """
    return read_whole(lambda: _load_arrays(Path(folder), kind, verify), folder)


def _load_arrays(place: Path, kind: str, verify: bool) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays, header = {}, read_header(place, kind)
    for name, described in header.pop("arrays").items():
        if not name.isidentifier():
            raise VectorsError(f"{place / HEADER}: {name!r} is not the name of an array")
        file = (place if place.exists() else _old(place)) / f"{name}.npy"
        try:
            array = np.asarray(np.lib.format.open_memmap(regular(file), mode="r"))
        except Exception as error:  # NumPy evaluates the header of the file, which may raise anything
            raise VectorsError(f"{file}: missing, truncated or damaged: {error}") from error
        if array.dtype.str != described.get("type") or list(array.shape) != described.get("shape"):
            raise VectorsError(f"{file}: holds {array.shape} {array.dtype}, unlike {HEADER}")
        if verify and _checksum(array) != described.get("crc32"):
            raise VectorsError(f"{file}: damaged (its checksum differs)")
        arrays[name] = array
    return arrays, header


def release(array: np.ndarray) -> None:
    """Free the memory pages of a memory-mapped array, which are read again when needed; ignore other arrays."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def read_header(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """Return the header of a folder of arrays; raise `VectorsError` if its kind is not `kind`."""
    file = (folder if folder.exists() else _old(folder)) / HEADER
    try:
        header: dict[str, Any] = json.loads(regular(file).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise VectorsError(f"{folder}: not an index (no {HEADER})") from error
    except (OSError, ValueError, RecursionError) as error:
        raise VectorsError(f"{file}: truncated or damaged: {error}") from error
    arrays = header.get("arrays") if isinstance(header, dict) else None
    if not isinstance(arrays, dict) or not all(isinstance(array, dict) for array in arrays.values()):
        raise VectorsError(f"{file}: does not describe an index")
    if header.get("kind") != (kind or header.get("kind")) or header.get("format") != FORMAT:
        actual = f"kind {header.get('kind')!r}, format {header.get('format')}"
        raise VectorsError(f"{folder}: expected an index of kind {kind!r}, format {FORMAT}, not {actual}")
    if header.pop("crc32", None) != _record_checksum(header):
        raise VectorsError(f"{file}: damaged (its checksum differs)")
    return header


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _record_checksum(record: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())
