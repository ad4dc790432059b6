"""Find the terms that can be active with 8-bit integers, then compute only those: the same weights, sooner.

In a trained model all but a few hundred of a text's terms are zero. An integer product bounds every logit from above; a
term whose bound is not above zero is inactive, and the others are computed from the floating-point hidden states and
weights, so that nothing is approximated. With h = h' + e and w = w' + f, where h' and w' are what the integers stand
for, |h . w - h' . w'| <= |e| |w| + |h'| |f| (Cauchy-Schwarz).

Letters: b texts, n tokens of all texts, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from vocable.encoder.few_shapes import product


class Run(NamedTuple):
    """Neighbouring texts of `length` tokens each: where they are among the b texts, and their tokens among the n."""

    texts: slice
    tokens: slice
    length: int


def runs(offsets: Sequence[int]) -> list[Run]:
    """The texts, whose i-th owns the tokens offsets[i] to offsets[i + 1], as runs of equal length.

    One call reduces a run, which takes a third of the time of one a text.

    >>> [(run.texts, run.length) for run in runs([0, 2, 4, 5])]
    [(slice(0, 2, None), 2), (slice(2, 3, None), 1)]
    """
    found, first = [], 0
    for length, texts in groupby(end - start for start, end in pairwise(offsets)):
        last = first + len(list(texts))
        found.append(Run(slice(first, last), slice(offsets[first], offsets[last]), length))
        first = last
    return found


def blocks(size: int, step: int) -> list[slice]:
    """The terms from 0 to `size`, `step` at a time."""
    return [slice(low, min(low + step, size)) for low in range(0, size, step)]


def reduce_texts(reduce: Callable[..., object], values: Tensor, texts: Sequence[Run], out: Tensor) -> None:
    """`reduce` (torch.amax, torch.sum) of every text's rows of `values` [n, r] into `out` [b, r]."""
    for run in texts:
        reduce(values[run.tokens].unflatten(0, (-1, run.length)), dim=1, out=out[run.texts])


LEVELS = 127  # the largest magnitude of a quantized number
BLOCK = 1 << 21  # numbers in a block of the integer product: four times as many no longer fit in the cache
TERMS = 512  # in a block at least, however many tokens: narrower products are slow
ROWS = 4096  # of the weights that are quantized at a time
SLACK = 1.001  # on the bound: far more than the float32 rounding of a logit


class _Quantized(NamedTuple):
    """Rows [r, d] as integers: row i stands for integers[i] * scale[i]."""

    integers: Tensor  # [r, d] int8
    scale: Tensor  # [r], or [1] for all rows
    length: Tensor  # [r], of the rows that the integers stand for
    error: Tensor  # [r], length of what they miss


_weights: WeakIdKeyDictionary = WeakIdKeyDictionary()  # weight -> its state and its quantized rows


def has_fast_int8(hidden: Tensor, weight: Tensor) -> bool:
    """Whether the processor has instructions for 8-bit integers (VNNI or AMX), and these numbers can be screened."""
    if hidden.device.type != "cpu" or hidden.dtype != weight.dtype or not _fast_integers():
        return False
    if hidden.shape[1] < 2:  # torch 2.13 multiplies int8 matrices of a single column wrongly
        return False
    # Autocast makes its bfloat16 weights anew for every call, and quantizing them costs more than is won.
    half = hidden.dtype == torch.bfloat16 and not torch.is_autocast_enabled("cpu")
    return half or hidden.dtype == torch.float32


@cache
def _fast_integers() -> bool:
    capabilities = torch.cpu.get_capabilities()
    return any(bool(capabilities.get(name)) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))


def upper_bounds(hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Sequence[int]) -> Tensor:
    """What no logit of a term exceeds in a text: [b, v] float32; arguments as `sparse_head`."""
    # One scale for all tokens, so that the maximum over a text's tokens can be taken of the integers.
    tokens, rows = _quantize(hidden, hidden.abs().amax().reshape(1)), _quantized_weight(weight)
    products, texts = torch.empty(len(offsets) - 1, len(weight), dtype=torch.int32), runs(offsets)
    size = min(max(BLOCK // len(hidden), TERMS), len(weight))
    memory = torch.empty(len(hidden) * size, dtype=torch.int32)  # asking for it block by block costs page faults
    for block in blocks(len(weight), size):
        found = memory[: len(hidden) * (block.stop - block.start)].view(len(hidden), -1)
        torch._int_mm(tokens.integers, rows.integers[block].T, out=found)
        reduce_texts(torch.amax, found, texts, products[:, block])
    upper = products * (tokens.scale * rows.scale)
    longest = torch.stack([tokens.length[start:end].amax() for start, end in pairwise(offsets)])
    worst = torch.stack([tokens.error[start:end].amax() for start, end in pairwise(offsets)])
    upper.addr_(worst * SLACK, rows.length + rows.error).addr_(longest * SLACK, rows.error)
    if hidden.dtype == torch.bfloat16:  # a product is rounded to it before the bias is added
        upper.addcmul_(upper.abs(), upper.new_tensor(torch.finfo(torch.bfloat16).eps))
    return upper if bias is None else upper.add_(bias.float())


def logits_where(wanted: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Sequence[int]) -> Tensor:
    """Each text's largest logit of the `wanted` terms ([b, v] bool) and 0 for all others: [b, v] float32."""
    largest = torch.zeros(wanted.shape)
    for i, (start, end) in enumerate(pairwise(offsets)):
        terms = wanted[i].nonzero().squeeze(1)
        rows = weight.index_select(0, terms)  # copies whole rows, which weight[terms] does number by number
        logits = product(hidden[start:end], rows).amax(dim=0).float()
        largest[i, terms] = logits if bias is None else logits + bias[terms].float()
    return largest


def _quantized_weight(weight: Tensor) -> _Quantized:
    """The decoder's rows as integers with a scale each, made once for every state of the weights."""
    # What tells one state of the weights from another: torch's count of changes, and a number out of every row. The
    # count alone is blind to changes by way of `weight.data`, as adapters, optimizers and `Module.to` make them.
    sample = weight.detach().reshape(-1)[:: weight.shape[1] - 1]
    state = torch.cat([sample, sample.new_tensor([0 if weight.is_inference() else weight._version])])
    found: tuple[Tensor, _Quantized] | None = _weights.get(weight)
    if found is None or not torch.equal(found[0], state):
        # On the way a number takes 16 bytes, in the end one: hence a part at a time. The result is allocated before the
        # parts: pieces of it between theirs would leave holes too small to be used again.
        lengths = weight.new_empty(3, len(weight), dtype=torch.float32)
        whole = _Quantized(torch.empty_like(weight, dtype=torch.int8), *lengths)
        for block in blocks(len(weight), ROWS):
            rows = weight[block]
            for kept, part in zip(whole, _quantize(rows, rows.abs().amax(dim=1)), strict=True):
                kept[block] = part
        found = _weights[weight] = state, whole
    return found[1]


def _quantize(rows: Tensor, largest: Tensor) -> _Quantized:
    rows, largest = rows.float(), largest.float()
    scale = (largest / LEVELS).clamp_min(torch.finfo(torch.float32).tiny)
    rounded = (rows / scale[:, None]).round_()
    integers = rounded.to(torch.int8)
    meant = rounded.mul_(scale[:, None])  # in place: fresh memory costs more than the arithmetic
    length = meant.norm(dim=1)
    return _Quantized(integers, scale, length, meant.sub_(rows).norm(dim=1))
