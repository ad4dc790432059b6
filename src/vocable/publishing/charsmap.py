"""SentencePiece's maps of characters ("precompiled charsmap"): a trie of bytes in a double array, and the replacements.

The shortest key that a text begins with is replaced, so that longer keys with the same beginning have no effect.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

LEAF = 1 << 8  # flag of a unit that ends a key
LABEL_BITS = 0x800000FF  # bits of a unit's label, which are those of its byte
WIDE = 1 << 9  # flag of an offset in blocks of 256


def charsmap_entries(content: bytes) -> dict[str, str]:
    """Return the shortest keys of a map, and what replaces each."""
    size = int.from_bytes(content[:4], "little")
    units, texts = np.frombuffer(content[4 : 4 + size], dtype="<u4").tolist(), content[4 + size :]
    found, open_nodes = {}, [(0, b"")]
    while open_nodes:
        place, key = open_nodes.pop()
        below = place ^ ((units[place] >> 10) << (8 if units[place] & WIDE else 0))
        if key and units[place] & LEAF:
            start = units[below] & 0x7FFFFFFF
            found[key.decode()] = texts[start : texts.index(0, start)].decode()
            continue
        labels = ((byte, below ^ byte) for byte in range(1, 256))
        open_nodes += [
            (to, key + bytes([byte])) for byte, to in labels if to < len(units) and units[to] & LABEL_BITS == byte
        ]
    return dict(sorted(found.items()))


def charsmap_of(entries: Mapping[str, str]) -> bytes:
    """Return the map of keys, none of which begins with another one; each node of the trie has 256 units of its own."""
    units, texts = [WIDE | 1 << 10, *[0] * 511], b""
    bases = {b"": 256}  # of the nodes: the unit of a byte below is at base ^ byte
    for key, value in entries.items():
        spelled = key.encode()
        for end in range(1, len(spelled) + 1):
            if spelled[:end] not in bases:
                byte, place = spelled[end - 1], bases[spelled[: end - 1]] ^ spelled[end - 1]
                bases[spelled[:end]] = len(units) | place & 255
                units[place] = byte | WIDE | (len(units) ^ place) >> 8 << 10
                units += [0] * 256
        units[bases[spelled[:-1]] ^ spelled[-1]] |= LEAF
        units[bases[spelled]] = 1 << 31 | len(texts)
        texts += value.encode() + b"\0"
    trie = np.array(units, dtype="<u4").tobytes()
    return struct.pack("<I", len(trie)) + trie + texts
