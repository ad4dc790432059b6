"""Tables of files with ranges of sorted texts: the first key of each range, and the name of its file."""

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
