"""Which ids were seen before, in little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np

RECENT = 1 << 16  # ids kept in a Python set before they go to an array: about 6 MB
GROWTH = 4  # each array is at least this many times longer than the next, so there are few to look in


class SeenIds:
    """A set of strings at 8 bytes each: their 64-bit hashes, in a few sorted arrays and one small set.

    Ten million ids take about 110 MB at the worst moment, where a Python set of strings takes more than a gigabyte. Two
    different ids fall together with probability n² / 2⁶⁵: 3 in a million for ten million ids.

    >>> seen = SeenIds()
    >>> seen.add("d1"), seen.add("d2"), seen.add("d1")
    (True, True, False)
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._runs: list[array[int]] = []

    def add(self, identifier: str) -> bool:
        """Remember `identifier`; False when it was there before."""
        key = hash(identifier)
        if key in self._recent or any(_contains(run, key) for run in self._runs):
            return False
        self._recent.add(key)
        if len(self._recent) >= RECENT:
            self._settle()
        return True

    def _settle(self) -> None:
        """Move the small set into the arrays, joining those that have become too alike in length."""
        self._runs.append(array("q", self._recent))
        self._recent.clear()
        while len(self._runs) > 1 and len(self._runs[-2]) < GROWTH * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1].extend(last)
        np.frombuffer(self._runs[-1], dtype=np.int64).sort()  # in place: no second copy of the largest array


def _contains(run: array[int], key: int) -> bool:
    place = bisect_left(run, key)
    return place < len(run) and run[place] == key
