"""The budget of a page: what reading a file may cost at most, whatever its format.

A file that costs more is a bad file. Memory and seconds are limits of the process that reads large files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from vocable.data.pages.blocks import PageError

MEGABYTE = 1 << 20
MOST_UNPACKED = 64 * MEGABYTE
MOST_SECONDS = 60
MOST_MEMORY = 2048 * MEGABYTE


class Budget(NamedTuple):
    """The most that reading a file may cost.

    Args:
        unpacked: bytes of the parts of an archive, without pictures.
        characters: characters of its documents, with titles, paths and fields; and characters that references insert.
        seconds: seconds of a processor.
        memory: bytes of memory.
    """

    unpacked: int
    characters: int
    seconds: float
    memory: int


def budget_of(size: int) -> Budget:
    """Return the budget of a file of `size` bytes.

    >>> budget_of(100_000)
    Budget(unpacked=13388608, characters=5200000, seconds=4.9, memory=324572800)
    """
    return Budget(
        unpacked=min(8 * MEGABYTE + 50 * size, MOST_UNPACKED),
        characters=200_000 + 50 * size,
        seconds=min(round(3 + 20 * size / MEGABYTE, 1), MOST_SECONDS),
        memory=min(300 * MEGABYTE + 100 * size, MOST_MEMORY),
    )


class Insertions:
    """Texts that references of a page insert, within the budget of the page."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.most = self.left = budget_of(sum(map(len, lines))).characters

    def insert(self, text: str) -> str:
        """Return a text; raise `PageError` if the page has inserted more characters than its budget."""
        self.left -= len(text)
        if self.left < 0:
            raise PageError(f"references insert more than {self.most:,} characters", 1)
        return text
