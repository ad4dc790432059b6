"""SentencePiece's maps of characters ("precompiled charsmap"): a trie of bytes in a double array, and the replacements.

The shortest key that a text begins with is replaced, so that longer keys with the same beginning have no effect.
"""

from __future__ import annotations

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
