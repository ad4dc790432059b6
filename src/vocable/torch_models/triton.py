"""The head without logits on CUDA: the functions of `head.py` with Triton's kernels.

In the forward pass, a kernel multiplies, takes the maximum and remembers the winning token. In the backward pass, a
logit that won is an entry of a sparse matrix C, tokens by terms, and the gradients are C W and C^T H: every row of a
gradient is a weighted sum of the rows that its entries name. The entries are sorted, and each program sums a row,
without atomic additions.

Letters: b texts, n tokens of all texts, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from vocable.encoding.pooling import activate, blocks, slope_at_output
from vocable.options import Activation
from vocable.torch_models.triton_kernels import credit_kernel, gather_kernel, max_kernel, sum_kernel

CHUNK_TOKENS = 1024  # least tokens of a program's texts, so that few tiles are half empty
# If a larger share of the logits has a gradient, C is written out block by block and multiplied, which sum pooling
# always needs: at the start of training most terms are active. Gathering a row moves d numbers an entry, a product
# takes 2 d operations a logit, so gathering wins below 2 x bytes a second / (bytes of a number x operations a second).
# 4 TB/s and 600 TFLOP/s in 16 bits would give 1/150; not yet measured on a device.
DENSE_SHARE = 1 / 128
CREDIT_NUMBERS = 2**26  # numbers of C that are written out at a time


class MaxPool(torch.autograd.Function):
    """`sparse_head` with max pooling: [b, v] float32."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: tuple[int, ...], activation: Activation
    ) -> Tensor:
        largest, winners = largest_logits(hidden, weight, bias, offsets, winners=any(ctx.needs_input_grad))
        pooled = activate(largest, activation)
        ctx.save_for_backward(hidden, weight, bias, pooled, winners)
        ctx.activation = activation
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_pooled: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, pooled, winners = ctx.saved_tensors
        grad = slope_at_output(pooled, ctx.activation).mul_(grad_pooled).mul_(pooled > 0)
        wanted = ctx.needs_input_grad[:2]
        if torch.count_nonzero(grad) > DENSE_SHARE * len(hidden) * len(weight):

            def credit(block: slice) -> Tensor:
                part: Tensor = hidden.new_zeros(block.stop - block.start, len(hidden))
                return part.scatter_(1, winners[:, block].T.long(), grad[:, block].T.to(part.dtype))

            grads = _multiplied(hidden, weight, credit, wanted)
        else:
            grads = _gathered(hidden, weight, grad, winners, wanted)
        return *grads, None if bias is None else grad.sum(dim=0).to(bias.dtype), None, None


class SumPool(torch.autograd.Function):
    """`sparse_head` with sum pooling: [b, v] float32."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: tuple[int, ...], activation: Activation
    ) -> Tensor:
        hidden, weight = hidden.contiguous(), weight.contiguous()
        starts, chunks, longest = _texts(offsets, hidden.device)
        b, v = len(offsets) - 1, len(weight)
        pooled = hidden.new_empty(b, v, dtype=torch.float32)
        shift = hidden.new_zeros(v) if bias is None else bias
        with _on(hidden):
            sum_kernel[_grid(len(chunks) - 1, v)](
                hidden, weight, shift, starts, chunks, pooled, len(chunks) - 1, weight.shape[1], v,
                TWICE=activation == "log1p_relu", PRECISION=_precision(), LONGEST=longest,
            )  # fmt: skip
        ctx.save_for_backward(hidden, weight, bias, starts)
        ctx.activation = activation
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_pooled: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, offsets = ctx.saved_tensors
        credit = _credit_of_all(hidden, weight, bias, offsets, grad_pooled.float().contiguous(), ctx.activation)
        grad_bias = None if bias is None else torch.empty_like(bias)

        def block_of(block: slice) -> Tensor:
            part = credit(block)
            if grad_bias is not None:
                grad_bias[block] = part.sum(dim=1, dtype=torch.float32)
            return part

        return *_multiplied(hidden, weight, block_of, ctx.needs_input_grad[:2]), grad_bias, None, None


TRITON_REDUCTIONS: dict[str, object] = {"max": MaxPool, "sum": SumPool}  # torch computes the other reductions


def largest_logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Sequence[int], winners: bool
) -> tuple[Tensor, Tensor]:
    """Return the largest logits [b, v] float32 and, with `winners`, the first token that has each, [b, v] int32."""
    hidden, weight = hidden.contiguous(), weight.contiguous()
    starts, chunks, longest = _texts(offsets, hidden.device)
    b, v = len(offsets) - 1, len(weight)
    largest = hidden.new_empty(b, v, dtype=torch.float32)
    tokens = hidden.new_empty((b, v) if winners else 0, dtype=torch.int32)
    with _on(hidden):
        max_kernel[_grid(len(chunks) - 1, v)](
            hidden, weight, starts, chunks, largest, tokens, len(chunks) - 1, weight.shape[1], v,
            WINNERS=winners, PRECISION=_precision(), LONGEST=longest,
        )  # fmt: skip
    # The same bias for every token: adding it to the winner alone gives the same maximum.
    return largest if bias is None else largest.add_(bias), tokens


def _gathered(
    hidden: Tensor, weight: Tensor, grad: Tensor, winners: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of hidden and weight, entry by entry, from the gradient of the largest logits [b, v]."""
    term, text = grad.T.nonzero(as_tuple=True)  # sorted by term, then by text
    token, factor = winners[text, term].long(), grad[text, term]
    grad_weight = _sum_rows(hidden, term, token, factor, weight) if wanted[1] else None
    if not wanted[0]:
        return None, grad_weight
    token, order = token.sort(stable=True)
    return _sum_rows(weight, token, term[order], factor[order], hidden), grad_weight


def _sum_rows(source: Tensor, keys: Tensor, rows: Tensor, factors: Tensor, like: Tensor) -> Tensor:
    """Sum factors[e] * source[rows[e]] over the entries e of key i into row i, with shape and type of `like`.

    The keys are sorted.
    """
    out = torch.empty_like(like, memory_format=torch.contiguous_format)
    starts = torch.searchsorted(keys.contiguous(), torch.arange(len(out) + 1, device=keys.device))
    d = out.shape[1]
    block = min(triton.next_power_of_2(d), 256)
    with _on(source):
        gather_kernel[(len(out), triton.cdiv(d, block))](
            source.contiguous(), starts, rows, factors, out, d, BLOCK_E=16, BLOCK_D=block
        )
    return out


def _multiplied(
    hidden: Tensor, weight: Tensor, credit: Callable[[slice], Tensor], wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of hidden and weight from gradients of blocks of logits: credit(block) is [terms, n]."""
    grad_hidden = torch.zeros_like(hidden, dtype=torch.float32) if wanted[0] else None
    grad_weight = torch.empty_like(weight) if wanted[1] else None
    for block in blocks(len(weight), max(128, CREDIT_NUMBERS // len(hidden))):
        part = credit(block)
        if grad_hidden is not None:
            grad_hidden += part.T @ weight[block]
        if grad_weight is not None:
            grad_weight[block] = part @ hidden
    return None if grad_hidden is None else grad_hidden.to(hidden.dtype), grad_weight


def _credit_of_all(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor, upstream: Tensor, activation: Activation
) -> Callable[[slice], Tensor]:
    """Return a function that recomputes a block of logits and returns the gradients of sum pooling, [terms, n]."""
    n, d = hidden.shape
    v = len(weight)
    texts = torch.arange(len(offsets) - 1, dtype=torch.int32, device=hidden.device)
    owners = texts.repeat_interleave(offsets.diff(), output_size=n)  # [n]: the text of every token
    shift = hidden.new_zeros(v) if bias is None else bias

    def credit(block: slice) -> Tensor:
        size = block.stop - block.start
        part = hidden.new_empty(size, n)
        with _on(hidden):
            credit_kernel[lambda tile: (triton.cdiv(n, tile["BLOCK_S"]) * triton.cdiv(size, tile["BLOCK_V"]),)](
                hidden, weight, shift, owners, upstream, part, n, d, v, block.start, size,
                TWICE=activation == "log1p_relu", PRECISION=_precision(), LONGEST=_bucket(n),
            )  # fmt: skip
        return part

    return credit


def _texts(offsets: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Group the texts into c chunks of `CHUNK_TOKENS` tokens or a little more, on the device.

    Returns [b + 1] int32: text i owns the tokens offsets[i] to offsets[i + 1]; [c + 1] int32: chunk j owns the texts
    chunks[j] to chunks[j + 1]; and the tokens of the longest chunk, rounded up to 32, 64 or 256.
    """
    chunks = [0]
    for text, end in enumerate(offsets[1:], start=1):
        if end - offsets[chunks[-1]] >= CHUNK_TOKENS:
            chunks.append(text)
    if chunks[-1] != len(offsets) - 1:
        chunks.append(len(offsets) - 1)
    longest = max((offsets[end] - offsets[start] for start, end in pairwise(chunks)), default=0)
    return _on_device(offsets, device), _on_device(chunks, device), _bucket(longest)


def _on_device(numbers: Sequence[int], device: torch.device) -> Tensor:
    """Copy numbers to the device as int32, without waiting for the device's other work."""
    host = torch.tensor(list(numbers), dtype=torch.int32)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host


def _bucket(tokens: int) -> int:
    return next((size for size in (32, 64) if tokens <= size), 256)


def _grid(chunks: int, v: int) -> Callable[[dict[str, int]], tuple[int]]:
    return lambda tile: (chunks * triton.cdiv(v, tile["BLOCK_V"]),)


def _precision() -> str:
    """Return tf32 as the type of float32 products if torch's own matrix products use it, else ieee."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # from torch 2.9 on, reading the older switch may fail
        return "tf32" if matmul.fp32_precision == "tf32" else "ieee"
    return "tf32" if matmul.allow_tf32 else "ieee"


def _on(tensor: Tensor) -> Any:
    """Make the tensor's device the current device, where kernels start."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
