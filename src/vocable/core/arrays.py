"""Strings, the validity of sparse matrices, and files of arrays that are memory-mapped.

A file of arrays is a magic word, length and checksum of its header, the header in JSON with the type, shape, place and
checksum of each array, and the arrays, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import codecs
import json
import mmap
import os
import stat
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from vocable.core.storage import StrPath, is_there, locked, make_folder, partial_of, replacing, target_of
from vocable.errors import ArgumentError, VectorsError

T = TypeVar("T")

MAGIC = b"vocable\n"
ARRAYS_FORMAT = 2
ALIGNMENT = 64  # bytes; a line of a processor's cache
PREFIX = 16  # bytes of the magic word, the length and the checksum of the header
CHECKED_ENTRIES = 1 << 22  # at a time
CHECKED_BYTES = 1 << 20  # at a time
FEW_STRINGS = 16  # strings that are looked up one by one


class Strings(Sequence[str]):
    """A sequence of `str` in two arrays: `content` uint8, all strings in UTF-8, and `offsets` int64 [n + 1] in it.

    It takes a few bytes a string, and is read from disk without a copy.

    >>> strings = Strings(["d1", "d2", "d3"])
    >>> strings[1], list(strings[1:]), strings == ["d1", "d2", "d3"]
    ('d2', ['d2', 'd3'], True)
    """

    offsets: np.ndarray
    content: np.ndarray

    def __init__(self, strings: Iterable[str] = ()) -> None:
        try:
            encoded = [string.encode() for string in strings]
        except (AttributeError, TypeError) as error:
            raise ArgumentError(f"ids must be strings: {error}") from error
        except UnicodeEncodeError as error:
            raise ArgumentError(f"ids must be strings: {error.object!r} cannot be written in UTF-8") from error
        whole = Strings.of_encoded(encoded)
        self.offsets, self.content = whole.offsets, whole.content

    @classmethod
    def of_encoded(cls, encoded: Sequence[bytes]) -> Strings:
        """Return strings that are given in UTF-8."""
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([*map(len, encoded)], out=offsets[1:])
        return cls.of(offsets, np.frombuffer(b"".join(encoded), np.uint8))

    @classmethod
    def joined(cls, parts: Sequence[Strings]) -> Strings:
        """Return the strings of several sequences."""
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        content = np.concatenate([part.content[part.offsets[0] : part.offsets[-1]] for part in parts])
        return cls.of(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), content)

    @classmethod
    def of(cls, offsets: np.ndarray, content: np.ndarray) -> Strings:
        """Return the strings of two arrays, without a copy."""
        strings = cls.__new__(cls)
        strings.offsets, strings.content = offsets, content
        return strings

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            start, end, step = position.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, end, step))
            return Strings.of(self.offsets[start : max(start, end) + 1], self.content)
        number = int(position)
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return self.encoded(number % len(self)).decode()

    def encoded(self, number: int) -> bytes:
        """Return a string in UTF-8."""
        return self.content[self.offsets[number] : self.offsets[number + 1]].tobytes()

    def all_encoded(self) -> list[bytes]:
        """Return all strings in UTF-8."""
        text = self.content[self.offsets[0] : self.offsets[-1]].data
        return [bytes(text[start:end]) for start, end in pairwise((self.offsets - self.offsets[0]).tolist())]

    def __iter__(self) -> Iterator[str]:
        return (string.decode() for string in self.all_encoded())

    def take(self, rows: np.ndarray) -> Strings:
        """Return the strings in these rows."""
        text = self.content.data
        starts = self.offsets[rows].tolist()
        ends = self.offsets[rows + 1].tolist()
        content = b"".join([text[start:end] for start, end in zip(starts, ends, strict=True)])
        offsets = np.concatenate([[0], np.cumsum(self.offsets[rows + 1] - self.offsets[rows])]).astype(np.int64)
        return Strings.of(offsets, np.frombuffer(content, np.uint8))

    def find(self, string: str) -> int:
        """Return the row of a string in ascending strings, or -1."""
        return self._search(string.encode(errors="surrogatepass"), 0, len(self))

    def _search(self, wanted: bytes, start: int, end: int) -> int:
        row = bisect_left(range(end), wanted, start, end, key=self.encoded)
        return row if row < end and self.encoded(row) == wanted else -1

    def rows(self, strings: Sequence[str]) -> np.ndarray:
        """Return the row of each of m strings in ascending strings, int64 [m]; -1 for an unknown string."""
        if len(strings) < FEW_STRINGS or not len(self):
            return np.array([self.find(string) for string in strings], np.int64)
        shared, keys = self._keys
        encoded = [string.encode(errors="surrogatepass") for string in strings]
        wanted = np.frombuffer(b"".join([text[shared : shared + 8].ljust(8, b"\0") for text in encoded]), ">u8")
        starts, ends = (np.searchsorted(keys, wanted, side=side).tolist() for side in ("left", "right"))
        return np.array([*map(self._search, encoded, starts, ends)], np.int64)

    @cached_property
    def _keys(self) -> tuple[int, np.ndarray]:
        """The length of the beginning that all ascending strings share, and their next eight bytes, uint64 [n]."""
        first, last = self.encoded(0), self.encoded(len(self) - 1)
        unequal = (at for at, (left, right) in enumerate(zip(first, last, strict=False)) if left != right)
        shared = next(unequal, min(len(first), len(last)))
        starts, ends = self.offsets[:-1] + shared, self.offsets[1:]
        keys = np.zeros(len(self), np.uint64)
        for byte in range(8):
            inside = starts + byte < ends
            keys[inside] |= self.content[(starts + byte)[inside]].astype(np.uint64) << np.uint64(56 - 8 * byte)
        return shared, keys

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays to store, `NAME_offsets` and `NAME_bytes`."""
        start, end = int(self.offsets[0]), int(self.offsets[-1])
        return {f"{name}_offsets": self.offsets - start, f"{name}_bytes": self.content[start:end]}

    @classmethod
    def stored(
        cls, name: str, arrays: Mapping[str, np.ndarray], place: StrPath = "", *, verified: bool = False
    ) -> Strings:
        """Return the strings in stored arrays, without a copy; `VectorsError` names the array in `place` otherwise."""
        strings = cls.of(
            typed(arrays, f"{name}_offsets", np.int64, place), typed(arrays, f"{name}_bytes", np.uint8, place)
        )
        if not verified and not strings.valid():
            raise VectorsError(f"{place}: the index is damaged: {name}_bytes is not text in UTF-8")
        if not len(strings.offsets) or strings.offsets[0] or strings.offsets[-1] != len(strings.content):
            raise VectorsError(f"{place}: the index is damaged: {name}_offsets does not fit {name}_bytes")
        return strings

    def valid(self) -> bool:
        """Return whether offsets rise, and each string is valid UTF-8."""
        offsets, content = self.offsets, self.content
        if not len(offsets) or offsets[0] < 0 or offsets[-1] > len(content) or (offsets[1:] < offsets[:-1]).any():
            return False
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for start in range(0, len(content), CHECKED_BYTES):
                decoder.decode(content[start : start + CHECKED_BYTES].tobytes())
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
        inside = offsets[offsets < len(content)]
        return not bool((content[inside] & 0xC0 == 0x80).any())  # no string begins within a character

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Strings):
            return len(self) == len(other) and self.all_encoded() == other.all_encoded()
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Strings({len(self)})" if len(self) > 5 else f"Strings({list(self)})"


def order_of(ids: Strings) -> np.ndarray:
    """Return the rows in the order of their strings, int32 [n]; raise `VectorsError` for a repeated id."""
    encoded = ids.all_encoded()
    rows = sorted(range(len(encoded)), key=encoded.__getitem__)
    for first, second in pairwise(rows):
        if encoded[first] == encoded[second]:
            raise VectorsError(f"the document id {encoded[first].decode()!r} occurs more than once")
    return np.array(rows, dtype=np.int32)


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


def typed(arrays: Mapping[str, np.ndarray], name: str, kind: type[np.generic], place: StrPath = "") -> np.ndarray:
    """Return the array `name`, which has the type `kind` and one dimension; else raise `VectorsError` with its file."""
    array = arrays.get(name)
    if array is None:
        raise VectorsError(f"{place}: the index is not complete: {name} is missing")
    if array.dtype != kind or array.ndim != 1:
        raise VectorsError(f"{place}: {name} is {array.dtype} {array.shape}, expected one row of {np.dtype(kind)}")
    return array


def write_arrays(file: BinaryIO, kind: str, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> int:
    """Write arrays and a header of JSON values into a file; return the header's checksum, which covers the rest."""
    place, described = 0, {}
    for name, array in arrays.items():
        crc32 = zlib.crc32(_bytes(array))
        described[name] = {"type": array.dtype.str, "shape": list(array.shape), "at": place, "crc32": crc32}
        place += _aligned(array.nbytes)
    text = json.dumps(
        {"kind": kind, "format": ARRAYS_FORMAT, **header, "arrays": described}, ensure_ascii=False
    ).encode()
    text += b" " * (_aligned(PREFIX + len(text)) - PREFIX - len(text))
    checksum = zlib.crc32(text)
    file.write(MAGIC + len(text).to_bytes(4, "little") + checksum.to_bytes(4, "little") + text)
    for array in arrays.values():
        file.write(_bytes(array))
        file.write(bytes(_aligned(array.nbytes) - array.nbytes))
    return checksum


def read_arrays(
    descriptor: int, kind: str | Sequence[str], place: StrPath, *, verify: bool = True
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the memory-mapped, read-only arrays and the header of an open file that `write_arrays` wrote.

    `kind` is the kind of the file, or several that it may have.
    `verify` compares the checksums of the arrays, which reads every byte; otherwise only the header's. The header also
    has its own checksum, `crc32`. Raises `VectorsError`, which begins with `place`, for a file that is damaged,
    truncated or of another kind.
    """
    # The file has the magic word, length and checksum of the header, the header as JSON, and the arrays.
    size = os.fstat(descriptor).st_size
    if size < PREFIX:
        raise VectorsError(f"{place}: damaged: it is truncated")
    mapped = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    length, checksum = (int.from_bytes(mapped[start : start + 4], "little") for start in (8, 12))
    if mapped[:8] != MAGIC:
        raise VectorsError(f"{place}: not an index, or made by another version of vocable")
    text = bytes(mapped[PREFIX : PREFIX + length])
    if len(text) != length or zlib.crc32(text) != checksum:
        raise VectorsError(f"{place}: damaged: its header")
    # A header with a right checksum may still come from another program.
    try:
        header: dict[str, Any] = json.loads(text)
        described = {str(name): dict(array) for name, array in header.pop("arrays").items()}
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
        raise VectorsError(f"{place}: damaged: its header cannot be read: {error}") from error
    kinds = [kind] if isinstance(kind, str) else kind
    if header.get("kind") not in kinds or header.get("format") != ARRAYS_FORMAT:
        expected, actual = " or ".join(map(repr, kinds)), f"kind {header.get('kind')!r}, format {header.get('format')}"
        raise VectorsError(f"{place}: expected an index of kind {expected}, format {ARRAYS_FORMAT}, not {actual}")
    # An array is a view of the mapped file, so that its bytes are read when they are used.
    header["crc32"] = checksum
    data = mapped[PREFIX + length :]
    return {name: _array(data, name, array, place, verify) for name, array in described.items()}, header


def _array(data: memoryview, name: str, described: Mapping[str, Any], place: StrPath, verify: bool) -> np.ndarray:
    try:
        kind = np.dtype(described["type"])
        shape = tuple(map(int, described["shape"]))
        at = int(described["at"])
        count = int(np.prod(shape, dtype=object))
        end = at + count * kind.itemsize
        if kind.hasobject or min((at, *shape)) < 0 or at % ALIGNMENT or end > len(data):
            raise ValueError("it is truncated")
        array: np.ndarray = np.frombuffer(data, kind, count, at).reshape(shape) if count else np.empty(shape, kind)
        expected = described["crc32"]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise VectorsError(f"{place}: damaged: {name}: {error}") from error
    if verify and zlib.crc32(data[at:end]) != expected:
        raise VectorsError(f"{place}: damaged: {name} (its checksum differs)")
    array.flags.writeable = False
    return array


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def save_arrays(path: StrPath, kind: str, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> None:
    """Write `arrays` and `header` (JSON values) as a file, which replaces an older file of arrays atomically.

    Readers of the older file keep their arrays. Raises `VectorsError` if `path` exists and holds no arrays, and
    `ArgumentError` while another process writes it.
    """
    target = target_of(path)
    if is_there(target) and not holds_arrays(target):
        raise VectorsError(f"{target}: exists and is not an index: it is not replaced")
    make_folder(target.parent)
    with locked(partial_of(target)), replacing(target) as file:
        write_arrays(file, kind, arrays, header)


def load_arrays(
    path: StrPath, kind: str | Sequence[str], *, verify: bool = True
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the memory-mapped arrays and the header of a file of arrays, as `read_arrays` does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise VectorsError(f"{path}: there is no index here") from error
    except OSError as error:
        raise VectorsError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise VectorsError(f"{path}: not an index: it is not a regular file")
        return read_arrays(descriptor, kind, path, verify=verify)
    finally:
        os.close(descriptor)


def holds_arrays(path: StrPath) -> bool:
    """Return whether a path is a file of arrays."""
    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return content.read(len(MAGIC)) == MAGIC


def release(array: np.ndarray) -> None:
    """Free the memory pages of a memory-mapped array, which are read again when needed; ignore other arrays."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    mapped = base.obj if isinstance(base, memoryview) else None
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        whole = np.frombuffer(base, np.uint8)
        start = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0] if array.size else 0
        first = -(-(start + len(mapped) - len(base)) // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (start + len(mapped) - len(base) + array.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
        if length > 0:
            mapped.madvise(mmap.MADV_DONTNEED, first, length)


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
