"""Reductions over the tokens of each text, where the texts stand one after the other.

One call for neighbours of equal length, of which a sorted or cut batch has many, takes a third of the time of a call
for each.

Letters: b texts, n tokens of all texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from torch import Tensor


class Run(NamedTuple):
    """Neighbouring texts of `length` tokens each: where they are among the b texts, and their tokens among the n."""

    texts: slice
    tokens: slice
    length: int


def runs(offsets: Sequence[int]) -> list[Run]:
    """The texts, whose i-th owns the tokens offsets[i] to offsets[i + 1], as runs of equal length.

    >>> [(run.texts, run.length) for run in runs([0, 2, 4, 5])]
    [(slice(0, 2, None), 2), (slice(2, 3, None), 1)]
    """
    found, first = [], 0
    for length, texts in groupby(end - start for start, end in pairwise(offsets)):
        last = first + len(list(texts))
        found.append(Run(slice(first, last), slice(offsets[first], offsets[last]), length))
        first = last
    return found


def reduce_texts(reduce: Callable[..., object], values: Tensor, texts: Sequence[Run], out: Tensor) -> None:
    """`reduce` (torch.amax, torch.sum) of every text's rows of `values` [n, r] into `out` [b, r]."""
    for run in texts:
        reduce(values[run.tokens].unflatten(0, (-1, run.length)), dim=1, out=out[run.texts])
