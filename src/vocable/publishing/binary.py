"""Bytes of a published collection: numbers in groups of 7 bits, front-coded texts, checksums and compression.

page/bytes.js reads the same.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from vocable.errors import VectorsError
from vocable.retrieval.export import varint

LEVEL = 9  # of the compression: a file is made once and read often
FEW = 50  # numbers that are encoded faster one by one


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
    found = np.empty(int(lengths.sum()), dtype=np.uint8)
    for group in range(int(lengths.max(initial=0))):
        some = lengths > group
        more = (lengths[some] > group + 1).astype(np.uint8) << 7
        found[starts[some] + group] = (numbers[some] >> np.uint64(7 * group) & np.uint64(127)).astype(np.uint8) | more
    return found.tobytes()


def from_varints(content: bytes) -> np.ndarray:
    """Decode all numbers of `varints`, int64.

    >>> from_varints(varints([1, 300])).tolist()
    [1, 300]
    """
    found = np.frombuffer(content, dtype=np.uint8)
    ends = np.flatnonzero(found < 128)
    if len(found) and (not len(ends) or ends[-1] != len(found) - 1):
        raise VectorsError("a number is cut")
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    groups = np.arange(len(found)) - np.repeat(starts, ends - starts + 1)
    parts = (found & 127).astype(np.int64) << (7 * groups)
    return np.add.reduceat(parts, starts) if len(starts) else np.empty(0, dtype=np.int64)


def front_coded(texts: Sequence[str]) -> bytes:
    """Encode texts, each as the bytes that it shares with the one before and the bytes that follow."""
    found, before = [varints([len(texts)])], b""
    for text in texts:
        spelled = text.encode()
        shared = next((i for i, (a, b) in enumerate(zip(before, spelled, strict=False)) if a != b), None)
        shared = min(len(before), len(spelled)) if shared is None else shared
        lengths = (shared, len(spelled) - shared)
        found += [bytes(lengths) if max(lengths) < 128 else varints(lengths), spelled[shared:]]  # one byte each
        before = spelled
    return b"".join(found)


class Cursor:
    """The place up to which bytes are read."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def take(self, size: int) -> bytes:
        """Return the next bytes; `VectorsError` if there are fewer."""
        found = self.content[self.place : self.place + size]
        if len(found) != size:
            raise VectorsError("the file is cut")
        self.place += size
        return found

    def number(self) -> int:
        """Return the next number of `varints`."""
        value = group = 0
        while True:
            [byte] = self.take(1)
            value |= (byte & 127) << group
            if byte < 128:
                return value
            group += 7

    def numbers(self, count: int) -> list[int]:
        """Return the next numbers."""
        return [self.number() for _ in range(count)]

    def floats(self, count: int) -> list[float]:
        """Return the next float32 numbers."""
        return list(struct.unpack(f"<{count}f", self.take(4 * count)))

    def texts(self) -> list[str]:
        """Return the texts of `front_coded`."""
        found, before = [], b""
        for _ in range(self.number()):
            shared, more = self.numbers(2)
            before = before[:shared] + self.take(more)
            found.append(before.decode())
        return found


def floats(values: Sequence[float]) -> bytes:
    """Encode numbers as float32."""
    return struct.pack(f"<{len(values)}f", *values)


def gaps(ascending: np.ndarray) -> np.ndarray:
    """Return the first of ascending numbers and the differences to the numbers before.

    >>> gaps(np.array([3, 5, 9])).tolist()
    [3, 2, 4]
    """
    return np.diff(ascending, prepend=0)


def starts_of(lengths: Sequence[int]) -> list[int]:
    """Return the place at which each part of a sequence begins, and the end.

    >>> starts_of([2, 3])
    [0, 2, 5]
    """
    return [0, *accumulate(lengths)]


def compressed(content: bytes, level: int = LEVEL) -> bytes:
    """Compress bytes as a raw deflate stream, which browsers decompress."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


def decompressed(content: bytes) -> bytes:
    """Return the bytes of a raw deflate stream; `VectorsError` for anything else."""
    try:
        return zlib.decompress(content, -zlib.MAX_WBITS)
    except zlib.error as error:
        raise VectorsError(f"not compressed as it should be ({error})") from error


def checksum(content: bytes) -> str:
    """Return the CRC-32 of bytes as eight hexadecimal digits."""
    return f"{zlib.crc32(content):08x}"
