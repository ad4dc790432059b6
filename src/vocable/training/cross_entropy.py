"""Cross-entropy over the output terms, for some hundred hidden tokens and any number of terms.

With 100,000 terms the logits of a large batch's hidden tokens are gigabytes, and so are their softmax and their
gradient. Here they are made for a block of tokens at a time, and what the backward pass needs of a block is taken at
once: beside one block nothing is held but the gradients themselves.

Letters: m hidden tokens, d size of the decoder's input, v output terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ENTRIES = 2**25  # logits of a block: 128 MB in float32


def mean_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """The mean of -log softmax(states @ weight.T + bias) at the labels: a scalar, float32, differentiable once.

    Products are computed in the type of autocast where it is on, everything else in float32.

    Args:
        states: [m, d].
        weight: [v, d].
        bias: [v] or None.
        labels: [m], below v.

    >>> mean_cross_entropy(torch.zeros(3, 2), torch.zeros(4, 2), None, torch.tensor([0, 1, 3])).exp()
    tensor(4.)
    """
    loss: Tensor = _MeanCrossEntropy.apply(*_cast(states, weight, bias), labels)
    return loss


def guess(states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each token [m], and whether its largest logit is the label's [m]; no gradients."""
    losses, right = states.new_empty(len(states), dtype=torch.float32), torch.empty_like(labels, dtype=torch.bool)
    for block, logits in _logits(*_cast(states, weight, bias)):
        losses[block] = nn.functional.cross_entropy(logits, labels[block], reduction="none")
        right[block] = logits.argmax(dim=1) == labels[block]
    return losses, right


class _MeanCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
        m, total = max(len(states), 1), states.new_zeros((), dtype=torch.float32)
        needed = any(ctx.needs_input_grad)
        # [m, d], [v, d] and [v]
        grads = [torch.zeros_like(given, dtype=torch.float32) for given in (states, weight, weight[:, 0])]
        for block, logits in _logits(states, weight, bias):
            picked = torch.arange(len(logits), device=logits.device), labels[block]
            norm = logits.logsumexp(dim=1)
            total += (norm - logits[picked]).sum()
            if needed:
                slope = logits.sub_(norm[:, None]).exp_()  # the softmax, where the logits were
                slope[picked] -= 1
                slope /= m
                grads[2] += slope.sum(dim=0)
                slope = slope.to(states.dtype)
                grads[0][block] = (slope @ weight).float()
                grads[1] += slope.T @ states[block]
        ctx.save_for_backward(*grads)
        ctx.types = states.dtype, weight.dtype, None if bias is None else bias.dtype
        return total / m

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        pairs = zip(ctx.saved_tensors, ctx.types, strict=True)
        return *(None if dtype is None else (grad * grad_loss).to(dtype) for grad, dtype in pairs), None


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of tokens with their logits [block, v], float32."""
    rows = max(ENTRIES // len(weight), 1)
    for start in range(0, len(states), rows):
        block = slice(start, start + rows)
        logits = nn.functional.linear(states[block], weight, bias)
        yield block, logits.float()


def _cast(states: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The type that autocast computes products in."""
    device = states.device.type
    if not torch.is_autocast_enabled(device):
        return states, weight, bias
    dtype = torch.get_autocast_dtype(device)
    return states.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
