"""Bytes of a published collection: numbers in groups of 7 bits, front-coded texts, checksums and compression.

page/bytes.js reads the same.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from vocable.indexes.export import varint

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


def floats(values: Sequence[float]) -> bytes:
    """Encode numbers as float32."""
    return struct.pack(f"<{len(values)}f", *values)


def gaps(ascending: np.ndarray) -> np.ndarray:
    """Return the first of ascending numbers and the differences to the numbers before.

    >>> gaps(np.array([3, 5, 9])).tolist()
    [3, 2, 4]
    """
    return np.diff(ascending, prepend=0)


def compressed(content: bytes, level: int = LEVEL) -> bytes:
    """Compress bytes as a raw deflate stream, which browsers decompress."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


def checksum(content: bytes) -> str:
    """Return the CRC-32 of bytes as eight hexadecimal digits."""
    return f"{zlib.crc32(content):08x}"
