"""Encode the data of a published collection: numbers in groups of 7 bits, front-coded texts, checksums, compression.

page/bytes.js decodes it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

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
