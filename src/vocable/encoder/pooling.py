"""Poolings: how the tokens of a text become its terms. One entry of `POOLINGS` is all that is known of one.

The module imports no torch, so that a command line can list the names at once.

Letters: b texts, n tokens of all texts together (packed, no padding), d size of the decoder's input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from vocable.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor

Reduction = Literal["max", "sum"]


@dataclass(frozen=True)
class Pooling:
    """What distinguishes a pooling from the others."""

    name: str
    reduction: Reduction  # of the activations over a text's rows, as `head.sparse_head` computes it
    # Makes one row of each text, [n, d] and b + 1 offsets -> [b, d]; None where the rows are the tokens.
    one_row: Callable[[Tensor, list[int]], Tensor] | None = None

    @property
    def stock(self) -> bool:
        """Whether sentence-transformers' own SpladePooling has it."""
        return self.one_row is None


def _means(hidden: Tensor, offsets: list[int]) -> Tensor:
    from torch import stack

    return stack([tokens.mean(dim=0) for tokens in hidden.split([end - start for start, end in pairwise(offsets)])])


POOLINGS = {
    pooling.name: pooling
    for pooling in (
        Pooling("max", "max"),  # the largest activation of each term over the tokens
        Pooling("sum", "sum"),  # the sum of the activations over the tokens
        Pooling("cls", "max", lambda hidden, offsets: hidden[offsets[:-1]]),  # the terms of the first token alone
        Pooling("mean-before-head", "max", _means),  # of the mean of the tokens' states before the output layer
    )
}

if TYPE_CHECKING:
    PoolingName = str
else:
    PoolingName = Literal[tuple(POOLINGS)]


def pooling_of(name: str) -> Pooling:
    """Return the pooling of this name; raises `ArgumentError` where there is none."""
    if name not in POOLINGS:
        raise ArgumentError(f"pooling must be one of {', '.join(POOLINGS)}, not {name!r}")
    return POOLINGS[name]


def rows_to_pool(hidden: Tensor, offsets: list[int], pooling: str) -> tuple[Tensor, list[int]]:
    """Return the rows [., d] of `hidden` [n, d] that the texts' terms are pooled from, and the texts' b + 1 offsets."""
    one_row = POOLINGS[pooling].one_row
    if one_row is None:
        return hidden, offsets
    if any(start >= end for start, end in pairwise(offsets)):
        raise ArgumentError("a text without a token cannot be pooled")
    return one_row(hidden, offsets), list(range(len(offsets)))  # texts of one token, whose maximum is that token
