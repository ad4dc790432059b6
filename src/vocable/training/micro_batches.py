"""Encode a batch in parts; on a CPU several parts at once, forward and backward, each in its own thread.

Threads that share a matrix product wait for each other, and wait long if another process occupies a core. Here each
thread encodes different texts.

Letters: b texts, s tokens, v terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import torch
from sentence_transformers.base.losses.gradcache import RandContext
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


def embedded(model: Any, columns: Sequence[Tokens], micro_batch: int | None = None) -> list[Tensor]:
    """Return the vectors [b, v] of each column of tokens.

    On a CPU padding costs as much as words, so texts of similar length are encoded together. There `micro_batch`, a
    number of texts, bounds the memory for gradients: the backward pass computes the vectors of each part again. On a
    GPU a column is encoded at once; with several processes, too, because they must call the model equally often.
    """
    if not in_parts(model):
        return cast(list[Tensor], embed_columns(model, columns))
    # Tokens that are encoded together; with gradient caching at most a micro batch.
    masks = [mask for column in columns if isinstance(mask := column.get("attention_mask"), Tensor)]
    tokens = sum(mask.numel() for mask in masks)
    cached = micro_batch is not None and torch.is_grad_enabled() and bool(masks)
    if micro_batch is not None and cached:
        tokens = min(tokens, micro_batch * max(mask.shape[1] for mask in masks))
    split = [[*by_length(column, part_size(tokens))] for column in columns]
    parts = [part for column in split for _, part in column]

    def encode(part: Tokens, known: Tensor | None = None) -> Tensor:
        token = KNOWN_VECTORS.set(known)
        try:
            return cast(Tensor, model(dict(part))["sentence_embedding"])
        finally:
            KNOWN_VECTORS.reset(token)

    # Encode the parts of all columns, then put the rows into the order of the texts.
    vectors = iter((call_twice if cached else call_on_parts)(model, encode, parts, tokens))
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
    return share if MIN_PART_TOKENS <= share <= PART_TOKENS else min(tokens, PART_TOKENS)


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
    if len(parts) < 2 or drops(model):
        return [call(part) for part in parts]
    with _mapping(len(parts)) as mapped:
        results = list(mapped(partial(_as_here(), call), parts))
    if not (torch.is_grad_enabled() and any(result.requires_grad for result in results)):
        return results
    with_graphs = [partial(_itself, result) for result in results]
    return list(_Backward.apply(torch.empty(0, requires_grad=True), model, results, with_graphs, True))


def _itself(result: Tensor) -> Tensor:
    return result


def call_twice(
    model: nn.Module, call: Callable[[T, Tensor | None], Tensor], parts: Sequence[T], tokens: int
) -> list[Tensor]:
    """Call `call` on each part without gradients; the backward pass calls it again, part by part, with its result.

    Only the parts that are computed at a time need memory for gradients (Gao et al. 2021, arXiv 2101.06983).
    """
    as_here, states = _as_here(), dict[int, RandContext]()

    def first(part: T) -> Tensor:
        if drops(model):
            states[id(part)] = RandContext()
        return call(part, None)

    def again(part: T, result: Tensor) -> Tensor:
        with states.get(id(part), nullcontext()):
            return as_here(lambda part: call(part, result), part)

    with torch.no_grad():
        results = call_on_parts(model, first, parts, tokens)
    with_graphs = [partial(again, *both) for both in zip(parts, results, strict=True)]
    threads = not drops(model) and threads_pay(model, len(parts), tokens)
    return list(_Backward.apply(torch.empty(0, requires_grad=True), model, results, with_graphs, threads))


def drops(model: nn.Module) -> bool:
    """Return whether a model in training drops activations at random."""
    return model.training and any(_rate(module) for module in model.modules())


def _rate(module: nn.Module) -> float:
    rate = module.p if isinstance(module, nn.Dropout) else getattr(module, "attention_dropout", 0.0)  # ModernBERT's
    return rate if isinstance(rate, float) else 0.0


@contextmanager
def _mapping(parts: int, threads: bool = True) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield `map` with a single-threaded worker per part, up to PyTorch's number of threads; without, plain `map`."""
    if not threads:
        yield map
        return
    count = torch.get_num_threads()
    with ThreadPoolExecutor(min(count, parts), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield pool.map
        finally:
            torch.set_num_threads(count)  # for threads that start later


def _as_here() -> Callable[[Callable[[T], Tensor], T], Tensor]:
    """Return a function that calls another with the gradient mode and autocast of the current thread."""
    learns, infers = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    casts, kind = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def run(function: Callable[[T], Tensor], part: T) -> Tensor:
        with torch.inference_mode(infers), torch.set_grad_enabled(learns), torch.autocast("cpu", kind, enabled=casts):
            return function(part)

    return run


class _Backward(torch.autograd.Function):
    """Returns the results of parts; its backward pass runs through their graphs, in threads as well.

    `with_graphs` return the results with their graphs.
    """

    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        model: nn.Module,
        results: list[Tensor],
        with_graphs: list[Callable[[], Tensor]],
        threads: bool,
    ) -> tuple[Tensor, ...]:
        # The results are detached; `anchor` makes them differentiable.
        ctx.weights, ctx.with_graphs, ctx.threads = _learning(model), with_graphs, threads
        return tuple(result.detach() for result in results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        def back(with_graph: Callable[[], Tensor], gradient: Tensor) -> tuple[Tensor | None, ...]:
            result = with_graph()
            if not result.requires_grad:
                return ()
            return torch.autograd.grad(result, ctx.weights, gradient, allow_unused=True)

        with _mapping(len(gradients), ctx.threads) as mapped:
            for of_weights in mapped(back, ctx.with_graphs, gradients):  # in the order of the parts
                for weight, grad in zip(ctx.weights, of_weights, strict=False):
                    if grad is not None and weight.grad is None:
                        weight.grad = grad.contiguous()
                    elif grad is not None:
                        weight.grad += grad
        return (None,) * 5


def _learning(model: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if weight.requires_grad]
