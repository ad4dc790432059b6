"""Write the files of a published collection, each named by its checksum and size, and tables of such files.

A name changes with the content. So a cache never returns an outdated file, an unchanged file is not written again, and
a reader can check the content by the name. page/bytes.js decodes numbers in groups of 7 bits, front-coded texts and
compression.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vocable.indexes.export import varint

LEVEL = 9  # level of compression: a file is written once and read often
FEW = 50  # up to this many numbers are faster to encode one by one


def varints(values: np.ndarray | Sequence[int]) -> bytes:
    """Encode whole numbers in groups of 7 bits, lowest first.

    >>> varints([1, 300]).hex()
    '01ac02'
    """
    if len(values) <= FEW:
        return b"".join(varint(int(value)) for value in values)
    numbers = np.asarray(values, dtype=np.uint64)
    lengths = np.ones(len(numbers), dtype=np.int64)
    for group in range(1, 10):
        lengths += numbers >> np.uint64(7 * group) > 0
    starts = np.cumsum(lengths) - lengths
    encoded = np.empty(int(lengths.sum()), dtype=np.uint8)
    for group in range(int(lengths.max(initial=0))):
        longer = lengths > group
        more = (lengths[longer] > group + 1).astype(np.uint8) << 7
        encoded[starts[longer] + group] = (numbers[longer] >> np.uint64(7 * group) & np.uint64(127)).astype(
            np.uint8
        ) | more
    return encoded.tobytes()


def front_coded(texts: Sequence[str]) -> bytes:
    """Encode each text as the number of bytes that it shares with the previous text, and its remaining bytes."""
    parts, previous = [varints([len(texts)])], b""
    for text in texts:
        spelled = text.encode()
        shared = next((i for i, (a, b) in enumerate(zip(previous, spelled, strict=False)) if a != b), None)
        shared = min(len(previous), len(spelled)) if shared is None else shared
        lengths = (shared, len(spelled) - shared)
        parts += [
            bytes(lengths) if max(lengths) < 128 else varints(lengths),
            spelled[shared:],
        ]  # small numbers take one byte each
        previous = spelled
    return b"".join(parts)


def floats(values: Sequence[float]) -> bytes:
    """Encode numbers as float32."""
    return struct.pack(f"<{len(values)}f", *values)


def gaps(ascending: np.ndarray) -> np.ndarray:
    """Return the first of ascending numbers, then the difference of each number to the previous number.

    >>> gaps(np.array([3, 5, 9])).tolist()
    [3, 2, 4]
    """
    return np.diff(ascending, prepend=0)


def compressed(content: bytes, level: int = LEVEL) -> bytes:
    """Compress bytes as a raw deflate stream, which browsers can decompress."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


def checksum(content: bytes) -> str:
    """Return the CRC-32 of bytes as eight hexadecimal digits."""
    return f"{zlib.crc32(content):08x}"


DATA = "data"  # folder of the files
NAME = re.compile("([0-9a-f]{8})-([0-9a-f]+)")


def name_of(content: bytes) -> str:
    """Return the name of a file with this content.

    >>> name_of(b"fox")
    '0fa0e0e6-3'
    """
    return f"{checksum(content)}-{len(content):x}"


def size_of(name: str) -> int:
    """Return the size in bytes of the file with this name."""
    return int(name.partition("-")[2], 16)


def path_of(folder: Path, name: str) -> Path:
    """Return the path of the file with this name."""
    return folder / DATA / f"{name}.bin"


class SiteFiles:
    """Writes files into a folder, except files that the folder `previous` of an earlier collection already has.

    Attributes:
        names: the names of all files, whether written or not.
        written: the number of written files.
    """

    def __init__(self, folder: Path, previous: Path | None = None) -> None:
        self.folder, self.previous = folder, previous
        self.names: dict[str, bytes] = {}  # contents by name
        self.written = 0
        (folder / DATA).mkdir(parents=True, exist_ok=True)

    def add(self, raw: bytes) -> str:
        """Compress and write the content of a file, and return its name."""
        for level in range(LEVEL, 0, -1):  # if another content has the name, another level gives another name
            content = compressed(raw, level)
            name = name_of(content)
            if self.names.setdefault(name, content) == content:
                break
        else:
            raise AssertionError("two files with the same checksum and size")
        stored = None if self.previous is None else path_of(self.previous, name)
        if stored is None or not (stored.is_file() and stored.read_bytes() == content):
            path = path_of(self.folder, name)
            if not path.exists():
                path.write_bytes(content)
                self.written += 1
        return name

    @property
    def nbytes(self) -> int:
        """The size of all files."""
        return sum(map(size_of, self.names))


def is_site_file(path: Path) -> bool:
    """Return whether a file's name fits its content, as in the files of a publication."""
    if NAME.fullmatch(path.stem) is None or path.is_symlink() or not path.is_file():
        return False
    return path.stat().st_size == size_of(path.stem) and name_of(path.read_bytes()) == path.stem


class FileTable(NamedTuple):
    """The first key of each file, ascending, and the names of the files."""

    keys: list[str]
    names: list[str]

    def to_bytes(self) -> bytes:
        """Encode the table: its keys, sizes and checksums."""
        checksums = b"".join(bytes.fromhex(name[:8]) for name in self.names)
        return front_coded(self.keys) + varints([len(self.names), *map(size_of, self.names)]) + checksums


def ranges(sizes: Sequence[int], least: int) -> Iterator[slice]:
    """Cut a sequence of parts into ranges that are similar in bytes; a range has at least one part.

    Files have about sqrt(total bytes): then the file table, read once, costs as much as the files that a query reads.
    The size is `least` bytes or more, since smaller files are not worth a request.

    >>> [(part.start, part.stop) for part in ranges([3, 4, 9, 1], least=7)]
    [(0, 2), (2, 3), (3, 4)]
    """
    limit = max(least, math.isqrt(sum(sizes)))
    start = total = 0
    for part, size in enumerate(sizes):
        if part > start and total + size > limit:
            yield slice(start, part)
            start, total = part, 0
        total += size
    if sizes:
        yield slice(start, len(sizes))


def shortest_keys(ranges: Sequence[Sequence[str]]) -> list[str]:
    """Return the key of each range of sorted texts: the shortest prefix of its first text after the previous range.

    >>> shortest_keys([["apple", "cat"], ["catalogue", "dog"]])
    ['a', 'cata']
    """
    keys, previous_last = [], ""
    for texts in ranges:
        first = texts[0]
        length = next(n for n in range(1, len(first) + 1) if first[:n] > previous_last or n == len(first))
        keys.append(first[:length])
        previous_last = texts[-1]
    return keys


def table_of(ranges: Sequence[Sequence[str]], add: Callable[[int], str]) -> FileTable:
    """Return the table of ranges of sorted texts; `add` writes the file of a range, and returns its name."""
    return FileTable(shortest_keys(ranges), [add(number) for number in range(len(ranges))])
