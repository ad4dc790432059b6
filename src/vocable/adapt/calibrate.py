"""Shift the output bias so that a chosen share of the vocabulary is active.

A masked-language-model head is trained for a softmax, which does not change if a constant is added to every logit. In
SPLADE every logit above zero is an active term. Lowering the bias by c, b' = b - c, chooses where zero lies (activation
potential calibration of Geng and Yang 2026, who print c = 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, NamedTuple

import numpy as np
import torch
from annotated_types import Gt, Lt
from sentence_transformers import SparseEncoder
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.stages import CalibrateSettings, Inputs, Level
from vocable.adapt.statistics import token_states
from vocable.core.progress import track
from vocable.data.texts import iter_texts
from vocable.encoding.pooling import rows_to_pool
from vocable.errors import ArgumentError, ModelError
from vocable.options import Count, checked
from vocable.torch_models.fuse import copy_with, fuse, parts, without_logits
from vocable.torch_models.head import max_logits
from vocable.torch_models.output_vocabulary import has_bias, output_layer
from vocable.torch_models.provenance import Step, describes, record

TOKENS, TERMS = 4096, 1024  # size of a block of logits
HALF = 1 << 16  # number of values of 16 bits, half of a float32


@checked
def calibrate(
    model: SparseEncoder,
    texts: Iterable[str],
    *,
    activation_rate: Annotated[float, Gt(0), Lt(1)] | None = None,
    shift: float | None = None,
    level: Level = "pooled",
    max_length: Count = 128,
    count: Count = 256,
) -> SparseEncoder:
    """Choose the share of the vocabulary that is active.

    The output bias of all terms is lowered by one number, b' = b - c.

    Args:
        model: from `vocable.load`, with an output bias; it is not changed. Its pooling matters: texts that are pooled
            to their first token or to the mean of their tokens have far fewer active terms.
        texts: probe texts; the first `count` that are not empty are used.
        activation_rate: share of the terms to be active. The shift for it is exact, up to ties.
        shift: instead of `activation_rate`: the number of logits to lower the bias by.
        level: count the active terms of each text after pooling (pooled, our reading of the paper), or the active terms
            of each token (token), which are far fewer.
        max_length: tokens of a probe text. Longer texts have more active terms: use the length of later inputs.
        count: number of probe texts. Their pooled logits, 4 bytes per term, are held in memory.

    Returns:
        a new model with b' = b - c. Its provenance has the shift, and the active terms before and after it.

    Raises:
        ArgumentError: neither or both of activation_rate and shift, a value out of range, or only empty texts.
        ModelError: the decoder has no bias.
    """
    if (activation_rate is None) == (shift is None):
        raise ArgumentError("calibrate takes either activation_rate or shift")
    if shift is not None and not abs(shift) <= torch.finfo(torch.float32).max:
        raise ArgumentError(f"shift must be a finite number in float32, not {shift}")
    # Logits of the probe texts, or of their tokens [n, v].
    probe = list(islice((text for text in iter_texts(texts) if text.strip()), count))
    if not probe:
        raise ArgumentError("calibrate needs at least one text that is not empty")
    calibrated = copy_with(model)
    mlm, tokenizer, pooling, _ = parts(calibrated)
    layer = output_layer(mlm)
    if not has_bias(layer):
        raise ModelError(f"{type(mlm).__name__} has no output bias to shift")
    logits = _probe_logits(mlm, tokenizer, probe, level, max_length, pooling)
    lowered = logits.threshold(activation_rate) if activation_rate is not None else shift or 0.0
    # All terms get the same shift, so that their order stays.
    with torch.no_grad():
        layer.bias.sub_(lowered)
    fuse(calibrated)  # special tokens stay where no shift makes them active
    start, end = logits.active(0.0), logits.active(lowered)
    record(calibrated, "calibrate", shift=lowered, level=level, pooling=pooling, before=start, after=end)
    return calibrated


class Logits(NamedTuple):
    """Logits [n, v] of n texts or tokens, computed again in the same blocks at each pass."""

    rows: int
    terms: int
    blocks: Callable[[], Iterable[tuple[int, Tensor]]]  # number of the first row, logits

    def active(self, threshold: float) -> dict[str, float]:
        """Return the share of logits above `threshold`, and the mean and 99th percentile of their number per row."""
        counts = torch.zeros(self.rows, dtype=torch.int64)
        for first, block in self.blocks():
            counts[first : first + len(block)] += (block > threshold).sum(dim=1).cpu()
        mean, p99 = float(counts.numpy().mean()), float(np.percentile(counts.numpy(), 99))
        return {"share": float(counts.numpy().mean() / self.terms), "mean": mean, "p99": p99}

    def threshold(self, share: float) -> float:
        """Return the lowest logit with at most a `share` in [0, 1) of all logits strictly above it."""
        size = self.rows * self.terms
        rank = size - int(share * size) - 1  # the lowest logit has rank 0
        upper, rank = self._half_of_rank(rank, None)
        lower, _ = self._half_of_rank(rank, upper)
        key = torch.tensor([(upper - HALF // 2) * HALF + lower], dtype=torch.int32)
        return float(_keys(key.view(torch.float32)).view(torch.float32))

    def _half_of_rank(self, rank: int, upper: int | None) -> tuple[int, int]:
        """Return half of the key with this rank, and the rank among the keys with the same half.

        The half is the upper one, or the lower one among the keys with the upper half `upper`.
        """
        counts = torch.zeros(HALF, dtype=torch.int64)
        for _, block in self.blocks():
            keys = _keys(block.flatten())
            half = (keys >> 16) + HALF // 2
            if upper is not None:
                half = keys[half == upper] & (HALF - 1)
            counts += torch.bincount(half, minlength=HALF).cpu()
        below = counts.cumsum(dim=0)
        wanted = int(torch.searchsorted(below, rank, right=True))
        return wanted, rank - int(below[wanted] - counts[wanted])


def _keys(values: Tensor) -> Tensor:
    """Map float32 to int32 in the same order. The function is its own inverse."""
    bits = values.view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@torch.inference_mode()
def _probe_logits(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    level: Level,
    max_length: int,
    pooling: str,
) -> Logits:
    """Return the logits of every term on `texts`; the logits of single tokens are never all in memory at once."""
    rows = []
    with without_logits(mlm) as decoder:
        for hidden, offsets in token_states(mlm, tokenizer, track(texts, "calibrate"), max_length):
            if level == "pooled":
                hidden, offsets = rows_to_pool(hidden, offsets, pooling)
                hidden = max_logits(hidden, decoder.weight, decoder.bias, offsets)
            rows.append(hidden)
        states, weight = torch.cat(rows), decoder.weight.detach()
        bias = decoder.bias.detach().clone()  # calibration shifts it in place
    blocks = partial(logit_blocks, states, weight, bias) if level == "token" else lambda: [(0, states)]
    return Logits(len(states), len(weight), blocks)


def logit_blocks(hidden: Tensor, weight: Tensor, bias: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the logits of tokens, block by block, from the decoder's inputs [n, d], weight [v, d] and bias [v]."""
    for first in range(0, len(hidden), TOKENS):
        for term in range(0, len(weight), TERMS):
            block = weight[term : term + TERMS]
            yield first, torch.addmm(bias[term : term + TERMS], hidden[first : first + TOKENS], block.T).float()


@describes("calibrate")
def _describe(step: Step) -> list[str]:
    """Return the shift, and the active terms before and after it."""
    shift, start, end = step["shift"], step["before"], step["after"]
    moved = f"{'raised' if shift < 0 else 'lowered'} by {abs(shift):.3f}"
    mean = f"mean {start['mean']:,.1f} -> {end['mean']:,.1f}"
    p99 = f"99th percentile {start['p99']:,.0f} -> {end['p99']:,.0f}"
    return [
        f"bias {moved}, active {start['share']:.2%} -> {end['share']:.2%}",
        f"active terms of a {'text' if step['level'] == 'pooled' else 'token'}: {mean}, {p99}",
    ]


def adapt(model: SparseEncoder, settings: CalibrateSettings, inputs: Inputs) -> SparseEncoder:
    """Return the model after the stage of a recipe."""
    return calibrate(model, inputs.texts([settings.texts]), **settings.model_dump(exclude={"texts"}))
