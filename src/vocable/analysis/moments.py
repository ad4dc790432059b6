"""Means and variances of many terms at once, added up block by block (Chan, Golub and LeVeque 1979).

Shapes: v terms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Moments:
    """Of each of v terms: how many values there were, their mean, and their squared deviations from it; float64 [v].

    >>> moments = Moments(1)
    >>> moments.add(2, [3.0], [2.0])  # 2 and 4
    >>> moments.add(1, [9.0], [0.0])
    >>> float(moments.mean[0]), round(float(moments.std()[0]) ** 2, 6)  # of 2, 4 and 9
    (5.0, 8.666667)
    """

    def __init__(self, v: int) -> None:
        self.counts, self.mean, self._squares = np.zeros(v), np.zeros(v), np.zeros(v)

    def add(self, counts: ArrayLike, mean: ArrayLike, squares: ArrayLike) -> None:
        """Merge a block in: the `counts` of its values, their `mean`, and the sums of squared deviations from it.

        Each is [v], or one number for all terms.
        """
        more, mean = np.asarray(counts, np.float64), np.asarray(mean, np.float64)
        share = np.divide(more, self.counts + more, out=np.zeros_like(self.counts), where=self.counts + more > 0)
        apart = mean - self.mean
        self._squares += np.asarray(squares, np.float64) + apart**2 * self.counts * share
        self.mean += apart * share
        self.counts += more

    def std(self) -> Floats:
        """The standard deviation of all values, [v] (divided by their number); 0 where there are none."""
        found: Floats = np.sqrt(self._squares / np.maximum(self.counts, 1))
        return found
