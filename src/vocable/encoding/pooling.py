"""Poolings of token states, activations of logits, and reductions over the tokens of a text.

The module does not import torch, so that the command line lists the names of `POOLINGS` without delay.

Letters: b texts, n tokens of all texts together (packed, no padding), d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from vocable.errors import ArgumentError
from vocable.options import Activation

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Reduction:
    """A reduction of a text's activations to a weight per term; `head.DIFFERENTIABLE_REDUCTIONS` has its gradient."""

    reduce: Callable[[Tensor], Tensor]  # [rows, terms] -> [terms]
    commutes: bool = False  # commutes with the activation, so that logits are reduced first


REDUCTIONS = {
    "max": Reduction(lambda rows: rows.amax(dim=0), commutes=True),
    "sum": Reduction(lambda rows: rows.sum(dim=0)),
}


@dataclass(frozen=True)
class Pooling:
    """A way to pool the tokens of a text into a vector."""

    name: str
    reduction: str  # name of the reduction over a text's rows
    # Reduces the states of each text to one row, [n, d] and b + 1 offsets -> [b, d]; None: the rows are the tokens.
    one_row: Callable[[Tensor, list[int]], Tensor] | None = None
    stock: bool = False  # SpladePooling of sentence-transformers has it


def _means(hidden: Tensor, offsets: list[int]) -> Tensor:
    from torch import stack

    return stack([tokens.mean(dim=0) for tokens in hidden.split([end - start for start, end in pairwise(offsets)])])


POOLINGS = {
    pooling.name: pooling
    for pooling in (
        Pooling("max", "max", stock=True),  # the largest activation of each term over the tokens
        Pooling("sum", "sum", stock=True),  # the sum of the activations over the tokens
        Pooling("cls", "max", lambda hidden, offsets: hidden[offsets[:-1]]),  # the activations of the first token
        Pooling("mean-before-head", "max", _means),  # the activations of the mean state before the output layer
    )
}

if TYPE_CHECKING:
    PoolingName = str
else:
    PoolingName = Literal[tuple(POOLINGS)]


def pooling_of(name: str) -> Pooling:
    """Return the pooling `name`; raise `ArgumentError` for an unknown name."""
    if name not in POOLINGS:
        raise ArgumentError(f"pooling must be one of {', '.join(POOLINGS)}, not {name!r}")
    return POOLINGS[name]


def rows_to_pool(hidden: Tensor, offsets: list[int], pooling: str) -> tuple[Tensor, list[int]]:
    """Return the rows [., d] of `hidden` [n, d] to pool, and the b + 1 offsets of the texts among them."""
    one_row = POOLINGS[pooling].one_row
    if one_row is None:
        return hidden, offsets
    check_offsets(offsets)
    return one_row(hidden, offsets), list(range(len(offsets)))  # texts of one token, whose maximum is that token


def check_offsets(offsets: Sequence[int]) -> None:
    """Raise `ArgumentError` for a text without a token."""
    if any(start >= end for start, end in pairwise(offsets)):
        raise ArgumentError("a text without a token cannot be pooled")


def activate(x: Tensor, activation: Activation) -> Tensor:
    """Compute log(1 + ReLU(x)), once or twice, in place."""
    x = x.relu_().log1p_()
    return x.log1p_() if activation == "log1p_relu" else x


def slope_at_output(y: Tensor, activation: Activation) -> Tensor:
    """Return the activation's derivative, where it is positive, from its value y."""
    # y = log(1 + x) has slope exp(-y); y = log(1 + log(1 + x)) has exp(-y) / (1 + x) with log(1 + x) = expm1(y).
    return (-y).exp() if activation == "relu" else (-y - y.expm1()).exp()


class TextRun(NamedTuple):
    """Neighbouring texts of `length` tokens each: the slice of the b texts, and the slice of the n tokens."""

    texts: slice
    tokens: slice
    length: int


def runs(offsets: Sequence[int]) -> list[TextRun]:
    """Group neighbouring texts of equal length; the i-th text has the tokens offsets[i] to offsets[i + 1].

    A single call reduces a run, in a third of the time of a call for each text.

    >>> [(run.texts, run.length) for run in runs([0, 2, 4, 5])]
    [(slice(0, 2, None), 2), (slice(2, 3, None), 1)]
    """
    groups, first = [], 0
    for length, texts in groupby(end - start for start, end in pairwise(offsets)):
        last = first + len(list(texts))
        groups.append(TextRun(slice(first, last), slice(offsets[first], offsets[last]), length))
        first = last
    return groups


def blocks(size: int, step: int) -> list[slice]:
    """Cut the terms from 0 to `size` into blocks of `step`."""
    return [slice(low, min(low + step, size)) for low in range(0, size, step)]


def reduce_texts(reduce: Callable[..., object], values: Tensor, texts: Sequence[TextRun], out: Tensor) -> None:
    """Apply `reduce` (torch.amax, torch.sum) to each text's rows of `values` [n, r], into `out` [b, r]."""
    for run in texts:
        reduce(values[run.tokens].unflatten(0, (-1, run.length)), dim=1, out=out[run.texts])
