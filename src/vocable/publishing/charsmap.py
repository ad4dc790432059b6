"""Read SentencePiece's maps of characters ("precompiled charsmap"): a trie in a double array, and replacements.

The shortest key at the beginning of a text is replaced, so longer keys with the same beginning have no effect.
"""

from __future__ import annotations

import numpy as np

LEAF = 1 << 8  # flag of a unit that ends a key
LABEL_BITS = 0x800000FF  # bits of a unit's label, which is a byte
WIDE = 1 << 9  # flag of an offset in blocks of 256


def charsmap_entries(content: bytes) -> dict[str, str]:
    """Return the shortest keys of a map with their replacements."""
    size = int.from_bytes(content[:4], "little")
    units, texts = np.frombuffer(content[4 : 4 + size], dtype="<u4").tolist(), content[4 + size :]
    entries, open_nodes = {}, [(0, b"")]
    while open_nodes:
        node, key = open_nodes.pop()
        below = node ^ ((units[node] >> 10) << (8 if units[node] & WIDE else 0))
        if key and units[node] & LEAF:
            start = units[below] & 0x7FFFFFFF
            entries[key.decode()] = texts[start : texts.index(0, start)].decode()
            continue
        labels = ((byte, below ^ byte) for byte in range(1, 256))
        open_nodes += [
            (to, key + bytes([byte])) for byte, to in labels if to < len(units) and units[to] & LABEL_BITS == byte
        ]
    return dict(sorted(entries.items()))
