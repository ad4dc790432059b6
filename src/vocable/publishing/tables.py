"""Tables of files: of sorted texts that are cut into ranges, the first text of each range and the name of its file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from vocable.publishing.binary import front_coded, varints
from vocable.publishing.files import size_of


class FileTable(NamedTuple):
    """The first key of each file, ascending, and the names of the files."""

    keys: list[str]
    names: list[str]

    def to_bytes(self) -> bytes:
        """Encode the table: its keys, sizes and checksums."""
        checksums = b"".join(bytes.fromhex(name[:8]) for name in self.names)
        return front_coded(self.keys) + varints([len(self.names), *map(size_of, self.names)]) + checksums


def ranges(sizes: Sequence[int], least: int) -> Iterator[slice]:
    """Cut a sequence of parts into ranges of some bytes, or of one part.

    The square root of all bytes is the size at which the names of the files, which are read once, and the files that a
    query reads weigh about the same; smaller files than the `least` are not worth their requests.

    >>> [(one.start, one.stop) for one in ranges([3, 4, 9, 1], least=7)]
    [(0, 2), (2, 3), (3, 4)]
    """
    limit = max(least, math.isqrt(sum(sizes)))
    start = total = 0
    for place, size in enumerate(sizes):
        if place > start and total + size > limit:
            yield slice(start, place)
            start, total = place, 0
        total += size
    if sizes:
        yield slice(start, len(sizes))


def shortest_keys(ranges: Sequence[Sequence[str]]) -> list[str]:
    """Return the key of each range of sorted texts: the shortest beginning of its first after the range before.

    >>> shortest_keys([["apple", "cat"], ["catalogue", "dog"]])
    ['a', 'cata']
    """
    keys, before = [], ""
    for some in ranges:
        first = some[0]
        length = next(n for n in range(1, len(first) + 1) if first[:n] > before or n == len(first))
        keys.append(first[:length])
        before = some[-1]
    return keys


def table_of(ranges: Sequence[Sequence[str]], add: Callable[[int], str]) -> FileTable:
    """Return the table of ranges of sorted texts; `add` writes the file of a range and returns its name."""
    return FileTable(shortest_keys(ranges), [add(number) for number in range(len(ranges))])
