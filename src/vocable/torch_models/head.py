"""Compute sparse vectors from hidden states without holding the logits.

SPLADE's cost is the b x s x v matrix of logits x = H W^T + c. Max pooling commutes with the monotone log(1 + ReLU(x)),
so the pooling comes first, one block of the vocabulary at a time, and only [b, v] is ever held. The backward pass
recomputes the few dot products of the winning tokens of *active* terms (sum pooling: a block of logits) instead of
storing positions. On CUDA, Triton's kernels do the same (`triton.py`). On a CPU with fast 8-bit integers, an 8-bit
product first finds the few terms that can be active, if that proves to be faster (`cpu.py`).

Letters: b texts, n tokens of all texts together (packed, no padding), d size of the decoder's input, v output terms.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vocable.encoding.pooling import (
    activate,
    blocks,
    check_offsets,
    reduce_texts,
    runs,
    slope_at_output,
)
from vocable.options import Activation
from vocable.torch_models.cpu import padded_rows, product_of_few_shapes, screened_or_direct

logger = logging.getLogger(__name__)

# Terms in a block of logits: large enough for the matrix product to run at full speed, small enough that a block of a
# usual batch stays in the cache until it is pooled (128 to 2048 were measured within 10 % of each other).
TERM_BLOCK = 512


def sparse_head(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    offsets: Sequence[int],
    pooling: str = "max",
    activation: Activation = "relu",
    known: Tensor | None = None,
) -> Tensor:
    """Pool activations over each text's tokens: w_j = max_i (or sum_i) log(1 + ReLU(h_i . W_j + c_j)).

    `hidden` [n, d] holds the tokens of all texts one after the other, without padding: text i has the tokens offsets[i]
    to offsets[i + 1], at least one token. `weight` [v, d] and `bias` [v] belong to the decoder. SPLADE-max pools by the
    maximum, the first SPLADE by the sum; `pooling` is a key of `pooling.REDUCTIONS`. The activation "log1p_relu" is
    log(1 + log(1 + ReLU(x))).

    `known` [b, v] is the result of an earlier call with equal arguments: maximum pooling on a CPU then returns it and
    computes only gradients.

    The result [b, v] is float32, not negative, and differentiable once in hidden, weight and bias. Raises
    `ArgumentError` for a text without a token.

    >>> hidden, weight = torch.tensor([[1.0], [2.0], [-3.0]]), torch.tensor([[1.0], [-1.0]])
    >>> sparse_head(hidden, weight, None, [0, 2, 3]).expm1()
    tensor([[2., 0.],
            [0., 3.]])
    """
    check_offsets(offsets)
    reduction = DIFFERENTIABLE_REDUCTIONS[pooling]
    # On a GPU, a Triton kernel replaces the loop over blocks.
    if _triton_serves(hidden.device, *_types(hidden, weight)):
        from vocable.torch_models import triton

        if pooling in triton.TRITON_REDUCTIONS:
            reduction, (hidden, weight) = triton.TRITON_REDUCTIONS[pooling], _autocast(hidden, weight)
    if reduction is _MaxPool and known is not None:
        return _MaxPool.apply(hidden, weight, bias, tuple(offsets), activation, known)
    return reduction.apply(hidden, weight, bias, tuple(offsets), activation)


def max_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Sequence[int]) -> Tensor:
    """Return each text's largest logit of every term, [b, v] float32; arguments as in `sparse_head`.

    The result has no activation and is differentiable once. The time of the backward pass grows with the number of
    terms with a nonzero gradient.
    """
    return _MaxLogits.apply(hidden, weight, bias, tuple(offsets))


def _largest(hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Sequence[int]) -> Tensor:
    if _triton_serves(hidden.device, hidden.dtype, weight.dtype):
        from vocable.torch_models import triton

        return triton.largest_logits(hidden, weight, bias, offsets, winners=False)[0]
    best = hidden.new_empty(len(offsets) - 1, len(weight))
    texts = runs(offsets)
    hidden = padded_rows(hidden)
    for block in blocks(len(weight), TERM_BLOCK):
        reduce_texts(torch.amax, hidden @ weight[block].T, texts, best[:, block])
    # The same bias for every token: adding it to the winner alone gives the same maximum.
    return best.float() if bias is None else best.float() + bias.float()


def _types(hidden: Tensor, weight: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """Return the types of the product's factors: autocast's type if it is on, else the types that they have."""
    if not torch.is_autocast_enabled(hidden.device.type):
        return hidden.dtype, weight.dtype
    return (torch.get_autocast_dtype(hidden.device.type),) * 2


def _autocast(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Convert both factors to the types of the product."""
    hidden_type, weight_type = _types(hidden, weight)
    return hidden.to(hidden_type), weight.to(weight_type)


@cache  # every kind of input is decided, and logged, once
def _triton_serves(device: torch.device, dtype: torch.dtype, weight_dtype: torch.dtype) -> bool:
    """Return whether Triton's kernels serve a device and number types."""
    reason = None
    if device.type != "cuda":
        reason = f"the hidden states are on the {device.type}"
    elif _triton_version() < (3, 4):
        reason = "triton 3.4 or later is not installed"
    elif torch.cuda.get_device_capability(device) < (8, 0):
        reason = "the device is older than Triton supports (compute capability 8.0)"
    elif dtype != weight_dtype or dtype not in (torch.float16, torch.bfloat16, torch.float32):
        reason = f"hidden states in {dtype} with weights in {weight_dtype} are not among its types"
    if reason is None:
        logger.debug("sparse head: Triton's kernels, for %s on %s", dtype, device)
    else:
        logger.debug("sparse head: blocks of the vocabulary in torch, because %s", reason)
    return reason is None


def _triton_version() -> tuple[int, ...]:
    """Return Triton's major and minor version number; () if it is not installed."""
    try:
        import triton
    except ImportError:
        return ()
    return tuple(int(part) for part in triton.__version__.split(".")[:2])


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        offsets: tuple[int, ...],
        activation: Activation,
        known: Tensor | None = None,
    ) -> Tensor:
        ctx.types = hidden.dtype, weight.dtype
        hidden, weight = _autocast(hidden, weight)
        if known is not None:
            pooled = known.clone()  # autograd marks an input that is returned as it is
        else:
            pooled = activate(screened_or_direct((hidden, weight, bias, offsets), max_logits), activation)
        ctx.save_for_backward(hidden, weight, bias, pooled)
        ctx.offsets, ctx.activation = offsets, activation
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_pooled: Tensor) -> tuple[Tensor | None, ...]:
        *_, pooled = ctx.saved_tensors
        grad = grad_pooled * slope_at_output(pooled, ctx.activation) * (pooled > 0)
        return *_winner_gradients(ctx, grad), None, None, None  # for offsets, activation and known


class _MaxLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: tuple[int, ...]) -> Tensor:
        ctx.types = hidden.dtype, weight.dtype
        hidden, weight = _autocast(hidden, weight)
        ctx.save_for_backward(hidden, weight, bias)
        ctx.offsets = offsets
        return _largest(hidden, weight, bias, offsets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *_winner_gradients(ctx, grad), None  # for offsets


def _winner_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of hidden, weight and bias from the gradient of each text's largest logits [b, v]."""
    hidden, weight, *_ = ctx.saved_tensors
    grad_hidden = torch.zeros_like(hidden, dtype=torch.float32)
    grad_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
    for i, (start, end) in enumerate(pairwise(ctx.offsets)):
        terms = grad[i].nonzero().squeeze(1)
        tokens, rows = hidden[start:end], weight[terms]
        winners = product_of_few_shapes(tokens, rows).argmax(dim=0)
        # [tokens of the text, its active terms], one entry a column: two small products do the scattering.
        credit = grad.new_zeros(len(tokens), len(terms))
        credit[winners, torch.arange(len(terms), device=grad.device)] = grad[i, terms]
        grad_hidden[start:end] = credit @ rows.float()
        if grad_weight is not None:
            grad_weight[terms] += credit.T @ tokens.float()
    return _in_input_types(ctx, grad_hidden, grad_weight, grad.sum(dim=0))


class _SumPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: tuple[int, ...], activation: Activation
    ) -> Tensor:
        ctx.types = hidden.dtype, weight.dtype
        hidden, weight = _autocast(hidden, weight)
        pooled = hidden.new_empty(len(offsets) - 1, len(weight), dtype=torch.float32)
        texts = runs(offsets)
        for block in blocks(len(weight), TERM_BLOCK):
            weights = activate(_logits(hidden, weight, bias, block), activation)
            reduce_texts(torch.sum, weights, texts, pooled[:, block])
        ctx.save_for_backward(hidden, weight, bias)
        ctx.offsets, ctx.activation = offsets, activation
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_pooled: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        grad_hidden = torch.zeros_like(hidden, dtype=torch.float32)
        grad_weight = torch.empty_like(weight, dtype=torch.float32)
        grad_bias = grad_weight.new_empty(len(weight))
        lengths = torch.tensor([end - start for start, end in pairwise(ctx.offsets)], device=hidden.device)
        for block in blocks(len(weight), TERM_BLOCK):
            weights = activate(_logits(hidden, weight, bias, block), ctx.activation)
            grad = grad_pooled[:, block].repeat_interleave(lengths, dim=0)
            grad *= slope_at_output(weights, ctx.activation) * (weights > 0)
            grad_hidden += grad @ weight[block].float()
            grad_weight[block] = grad.T @ hidden.float()
            grad_bias[block] = grad.sum(dim=0)
        return *_in_input_types(ctx, grad_hidden, grad_weight, grad_bias), None, None  # for offsets and activation


# Each reduction of `pooling.REDUCTIONS` with its gradient.
DIFFERENTIABLE_REDUCTIONS: dict[str, Any] = {"max": _MaxPool, "sum": _SumPool}


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, block: slice) -> Tensor:
    """Return a block of logits [n, terms], float32."""
    logits = (hidden @ weight[block].T).float()
    return logits if bias is None else logits + bias[block].float()


def _in_input_types(
    ctx: Any, grad_hidden: Tensor, grad_weight: Tensor | None, grad_bias: Tensor
) -> tuple[Tensor | None, ...]:
    """Convert gradients to the types of their inputs before autocast."""
    hidden_type, weight_type = ctx.types
    bias = ctx.saved_tensors[2]
    return (
        grad_hidden.to(hidden_type),
        None if grad_weight is None else grad_weight.to(weight_type),
        None if bias is None else grad_bias.to(bias.dtype),
    )
