"""Encode a batch in parts; on a CPU several parts at once, forward and backward, each in its own thread.

Threads that share a matrix product wait for each other, and wait long if another process occupies a core. Here each
thread encodes different texts.

Letters: b texts, s tokens, v terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vocable.torch_models.fuse import KNOWN_VECTORS
from vocable.training import distributed

T = TypeVar("T")
Tokens: TypeAlias = dict[str, Any]  # input_ids and attention_mask [b, s] of texts, and other inputs of the model

# Tokens of a part on a CPU, including padding. Each part adds to the gradients of all weights, so few parts are better.
PART_TOKENS = 2048
MIN_PART_TOKENS = 1024  # smallest part where each thread gets a part; smaller batches use no threads
MEMORY = 2**31  # bytes for gradients; each thread holds a copy


def embedded(model: Any, columns: Sequence[Tokens], known: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Return the vectors [b, v] of each column of tokens.

    On a CPU padding costs as much as words, so texts of similar length are encoded together. There the vectors may be
    `known` from a first pass, so that the head computes only their gradients. On a GPU a column is encoded at once;
    with several processes, too, because they must call the model equally often.
    """
    if not in_parts(model):
        return cast(list[Tensor], embed_columns(model, columns))
    masks = [mask for column in columns if isinstance(mask := column.get("attention_mask"), Tensor)]
    tokens = sum(mask.numel() for mask in masks)
    split = [[*by_length(column, part_size(tokens))] for column in columns]
    vectors_of = [None] * len(columns) if known is None else known
    parts = [
        (part, None if vectors is None else vectors[rows])
        for column, vectors in zip(split, vectors_of, strict=True)
        for rows, part in column
    ]

    def encode(part_and_vectors: tuple[Tokens, Tensor | None]) -> Tensor:
        part, vectors = part_and_vectors
        token = KNOWN_VECTORS.set(vectors)
        try:
            return cast(Tensor, model(part)["sentence_embedding"])
        finally:
            KNOWN_VECTORS.reset(token)

    vectors = iter(call_on_parts(model, encode, parts, tokens))
    ordered = []
    for column_parts in split:
        rows = torch.cat([rows for rows, _ in column_parts])
        ordered.append(torch.cat([next(vectors) for _ in column_parts])[rows.argsort()])
    return ordered


def call_on_parts(model: nn.Module, call: Callable[[T], Tensor], parts: Sequence[T], tokens: int) -> list[Tensor]:
    """Call `call` on each part of a batch with `tokens` tokens (including padding), in threads where that is faster."""
    if threads_pay(model, len(parts), tokens):
        return in_threads(model, call, parts)
    return [call(part) for part in parts]


def in_parts(model: nn.Module) -> bool:
    """Return True if batches are encoded in parts: on a CPU, in a single process."""
    return distributed.count() == 1 and next(model.parameters()).device.type == "cpu"


def threads_pay(model: nn.Module, parts: int, tokens: int) -> bool:
    """Return False if some threads would idle, or if the gradients of all threads would need too much memory."""
    learning = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    threads = torch.get_num_threads()
    return tokens > MIN_PART_TOKENS and parts >= threads and 4 * learning * threads <= MEMORY


def part_size(tokens: int) -> int:
    """Return the tokens of a part, including padding: fewer if a part per thread is large enough."""
    share = tokens // torch.get_num_threads()
    return share if MIN_PART_TOKENS <= share <= PART_TOKENS else PART_TOKENS


def by_length(batch: Tokens, size: int) -> Iterator[tuple[Tensor, Tokens]]:
    """Yield the rows and tokens of parts of a batch [b, s], up to `size` tokens each, longest texts first."""
    mask = batch.get("attention_mask")
    if not isinstance(mask, Tensor) or not bool(mask[:, 0].all()):  # weights are looked up, or padding is on the left
        yield torch.arange(len(batch["input_ids"])), batch
        return
    lengths = mask.sum(dim=1)
    order, start = lengths.argsort(descending=True, stable=True), 0
    while start < len(order):
        width = int(lengths[order[start]])
        rows = order[start : start + max(1, size // width)]
        part = {
            key: value[rows, :width] if isinstance(value, Tensor) and value.shape[:2] == mask.shape else value
            for key, value in batch.items()
        }
        yield rows, part
        start += len(rows)


def in_threads(model: nn.Module, call: Callable[[T], Tensor], parts: Sequence[T]) -> list[Tensor]:
    """Call `call` on each part, with the weights of `model` on a CPU; differentiable once.

    Gradients are added in the order of the parts, so that they do not depend on the number of threads. The exception is
    a weight that a part uses several times under autocast (ALBERT). A model with dropout is called only in the current
    thread, because all calls draw from the same generator.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    drops = model.training and any(_rate(module) for module in model.modules())
    if len(parts) < 2 or drops:
        return [call(part) for part in parts]
    with _pool(len(parts)) as pool:
        results = list(pool.map(partial(_as_here(), call), parts))
    if not (torch.is_grad_enabled() and any(result.requires_grad for result in results)):
        return results
    return list(_Backward.apply(torch.empty(0, requires_grad=True), weights, results))


def _rate(module: nn.Module) -> float:
    rate = module.p if isinstance(module, nn.Dropout) else getattr(module, "attention_dropout", 0.0)  # ModernBERT's
    return rate if isinstance(rate, float) else 0.0


@contextmanager
def _pool(parts: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool with a single-threaded worker per part, up to PyTorch's number of threads."""
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(min(threads, parts), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield pool
        finally:
            torch.set_num_threads(threads)  # for threads that start later


def _as_here() -> Callable[[Callable[[T], Tensor], T], Tensor]:
    """Return a function that calls another with the gradient mode and autocast of the current thread."""
    learns, infers = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    casts, kind = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def run(function: Callable[[T], Tensor], part: T) -> Tensor:
        with torch.inference_mode(infers), torch.set_grad_enabled(learns), torch.autocast("cpu", kind, enabled=casts):
            return function(part)

    return run


class _Backward(torch.autograd.Function):
    """Returns the results of threads; its backward pass runs through their graphs in threads as well."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, weights: list[nn.Parameter], results: list[Tensor]) -> tuple[Tensor, ...]:
        # The results are detached; `anchor` makes them differentiable.
        ctx.weights, ctx.results = weights, results
        return tuple(result.detach() for result in results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        def back(result: Tensor, gradient: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(result, ctx.weights, gradient, allow_unused=True)

        learning = [(result, grad) for result, grad in zip(ctx.results, gradients, strict=True) if result.requires_grad]
        with _pool(len(learning)) as pool:
            for of_weights in pool.map(back, *zip(*learning, strict=True)):  # in the order of the parts
                for weight, grad in zip(ctx.weights, of_weights, strict=True):
                    if grad is not None and weight.grad is None:
                        weight.grad = grad.contiguous()
                    elif grad is not None:
                        weight.grad += grad
        return None, None, None
