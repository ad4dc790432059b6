"""A batch that goes through the encoder in parts, on a processor several at once: a thread for each, and its gradients.

Threads that share a product wait for each other, and for long where another process has one of the cores. Here each has
texts of its own, forwards and backwards, and computes alone.

Letters: b texts, s tokens, v terms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar, cast

import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vocable.training import distributed

T = TypeVar("T")

# Tokens, padding included, that go through the encoder at once on a processor: every part has gradients of all weights.
TOGETHER = 2048
LEAST = 1024  # of them, where there are threads for smaller parts, and of a batch that is worth threads
MEMORY = 2**31  # bytes that gradients of all weights may take, where every thread has its own


def embedded(model: Any, columns: Sequence[dict[str, Any]]) -> list[Tensor]:
    """Return the vectors of tokens by column, one [b, v] each.

    On a processor padding costs what words cost, so that texts of like length go through the encoder together. Several
    processes each have to call the model as often as the others, and GPUs want to be filled: there a column is one.
    """
    if not in_parts(model):
        return cast(list[Tensor], embed_columns(model, columns))
    masks = [mask for column in columns if isinstance(mask := column.get("attention_mask"), Tensor)]
    tokens = sum(mask.numel() for mask in masks)
    split = [[*by_length(column, part_size(tokens))] for column in columns]
    parts = [part for some in split for _, part in some]

    def encode(part: dict[str, Any]) -> Tensor:
        return cast(Tensor, model(part)["sentence_embedding"])

    threads = threads_pay(model, len(parts), tokens)
    vectors = iter(in_threads(model, encode, parts) if threads else [encode(part) for part in parts])
    found = []
    for some in split:
        rows = torch.cat([rows for rows, _ in some])
        found.append(torch.cat([next(vectors) for _ in some])[rows.argsort()])
    return found


def in_parts(model: nn.Module) -> bool:
    """Whether a batch of the model goes through it in parts: on a processor, in one process."""
    return distributed.count() == 1 and next(model.parameters()).device.type == "cpu"


def threads_pay(model: nn.Module, parts: int, tokens: int) -> bool:
    """Whether so many parts, of so many tokens, padding included, should have a thread each.

    Not if some threads would idle, or if the gradients, of all weights in each thread, would need too much memory.
    """
    learning = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    threads = torch.get_num_threads()
    return tokens > LEAST and parts >= threads and 4 * learning * threads <= MEMORY


def part_size(tokens: int) -> int:
    """How many of a batch's tokens, padding included, go through the encoder together: less if each thread has some."""
    share = tokens // torch.get_num_threads()
    return share if LEAST <= share <= TOGETHER else TOGETHER


def by_length(batch: dict[str, Any], size: int) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    """Yield parts of a batch of tokens, [b, s], of up to `size` each, and the rows that they are: the longest first."""
    mask = batch.get("attention_mask")
    if not isinstance(mask, Tensor) or not bool(mask[:, 0].all()):  # a table of weights reads it; padded on the left
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
    """What `call` makes of each part with the weights of `model`, which is on a processor; differentiable once.

    Gradients are added up in the order of the parts, whichever thread is first: of the same parts they do not depend on
    how many threads there are, but for autocast's weights that a part uses several times (ALBERT). A model that drops
    activations is called without further threads: all draw from one generator.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    drops = model.training and any(_rate(module) for module in model.modules())
    if len(parts) < 2 or drops:
        return [call(part) for part in parts]
    with _pool(len(parts)) as pool:
        made = list(pool.map(partial(_as_here(), call), parts))
    if not (torch.is_grad_enabled() and any(one.requires_grad for one in made)):
        return made
    return list(_Backward.apply(torch.empty(0, requires_grad=True), weights, made))


def _rate(module: nn.Module) -> float:
    """The share of activations that a module drops itself; ModernBERT's attention has it as a number."""
    given = module.p if isinstance(module, nn.Dropout) else getattr(module, "attention_dropout", 0.0)
    return given if isinstance(given, float) else 0.0


@contextmanager
def _pool(parts: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that compute alone, for so many parts."""
    before = torch.get_num_threads()
    with ThreadPoolExecutor(min(before, parts), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield pool
        finally:
            torch.set_num_threads(before)  # of threads that begin later


def _as_here() -> Callable[..., Any]:
    """Return what calls a function in another thread with this one's gradients and number type."""
    learns, infers = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    casts, kind = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def run(function: Callable[[T], Tensor], part: T) -> Tensor:
        with torch.inference_mode(infers), torch.set_grad_enabled(learns), torch.autocast("cpu", kind, enabled=casts):
            return function(part)

    return run


class _Backward(torch.autograd.Function):
    """Hands on what threads have made; its gradients go back through their graphs in threads, too."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, weights: list[nn.Parameter], made: list[Tensor]) -> tuple[Tensor, ...]:
        """`anchor`, of which nothing else is known, makes the results differentiable."""
        ctx.weights, ctx.made = weights, made
        return tuple(one.detach() for one in made)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        """Add to the gradients of the weights."""
        learning = [(one, grad) for one, grad in zip(ctx.made, gradients, strict=True) if one.requires_grad]
        with _gradients_in_order(ctx.weights, len(learning)) as turn, _pool(len(learning)) as pool:

            def back(number: int) -> None:
                with turn(number):
                    torch.autograd.backward(*learning[number])

            list(pool.map(back, range(len(learning))))
        return None, None, None


@contextmanager
def _gradients_in_order(weights: Sequence[nn.Parameter], count: int) -> Iterator[Callable[[int], Any]]:
    """Within the context a part, in the block of what is yielded, adds to each weight's gradient after those before it.

    A part waits at a weight until the one before it has added there, or is through.
    """
    added = [{weight: threading.Event() for weight in weights} for _ in range(count)]
    through, own = [threading.Event() for _ in range(count)], threading.local()

    def wait(weight: nn.Parameter, _: Tensor) -> None:
        if own.number:
            added[own.number - 1][weight].wait()

    @contextmanager
    def turn(number: int) -> Iterator[None]:
        own.number = number
        try:
            yield
        finally:  # also after an error: nobody waits for what will not come
            if number:
                through[number - 1].wait()
            for event in added[number].values():
                event.set()
            through[number].set()

    with ExitStack() as stack:
        for weight in weights:
            stack.callback(weight.register_hook(partial(wait, weight)).remove)
            done = weight.register_post_accumulate_grad_hook(lambda weight: added[own.number][weight].set())
            stack.callback(done.remove)
        yield turn
