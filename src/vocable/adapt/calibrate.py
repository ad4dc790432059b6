"""Shift the output bias so that a chosen share of the vocabulary is active.

A masked-language-model head is trained for a softmax, which does not care about a constant added to every logit; SPLADE
does: whatever stands above zero is a term. Lowering the bias by c, b' = b - c, chooses where zero lies (activation
potential calibration of "Why Advanced Encoders Lag on Sparse Retrieval?", which prints c = 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Gt, Lt
from pydantic import Field, PositiveInt, model_validator
from sentence_transformers import SparseEncoder
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.stages import Inputs, Stage, register
from vocable.adapt.statistics import RATE
from vocable.data.texts import iter_texts
from vocable.encoder.fuse import copy_with, fuse, pack, parts, without_logits
from vocable.encoder.head import max_logits
from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.pooling import rows_to_pool
from vocable.encoder.provenance import Step, describes, record
from vocable.encoder.special_terms import has_bias
from vocable.errors import ArgumentError, ModelError
from vocable.objectives import Settings
from vocable.options import Count, checked

Level = Literal["pooled", "token"]

BATCH = 32  # texts
TOKENS, TERMS = 4096, 1024  # of a block of logits
HALF = 1 << 16  # values of the upper and of the lower half of a float32's bits


class CalibrateSettings(Settings):
    """The shift of the output bias before the retrieval training: to a rate, or by a number of logits."""

    texts: str = Field(description="place of the probe texts")
    activation_rate: float | None = Field(default=None, gt=0, lt=1)
    shift: float | None = None
    level: Level = Field(default="pooled", description="what activation_rate is a share of")
    max_length: PositiveInt = Field(default=128, description="tokens of a probe text")
    count: PositiveInt = Field(default=256, description="probe texts")

    @model_validator(mode="after")
    def _one_of_two(self) -> CalibrateSettings:
        if (self.activation_rate is None) == (self.shift is None):
            raise ValueError("give either activation_rate or shift")
        return self


@checked
def calibrate(
    model: SparseEncoder,
    texts: Sequence[str],
    *,
    activation_rate: Annotated[float, Gt(0), Lt(1)] | None = None,
    shift: float | None = None,
    level: Level = "pooled",
    max_length: Count = 128,
    count: Count = 256,
) -> SparseEncoder:
    """Lower the output bias by `shift`, or by what leaves `activation_rate` of the vocabulary active.

    Args:
        model: from `vocable.load`, with an output bias; it is left as it is. Its pooling decides what a text's terms
            are: of a text's first token, or of the mean of its tokens, far fewer are active than of all its tokens.
        texts: probe texts, of which the first `count` that are not empty are used.
        activation_rate: share of the terms to be active. The shift for it is found exactly, up to ties.
        shift: instead: lower the output bias by so much, in logits.
        level: whose active terms are counted, a text's after pooling or each token's. "pooled", the pairs of a text and
            a term, is our reading of the paper. The same shift leaves far less active of the pairs of "token".
        max_length: tokens of a probe text. A longer text has more active terms: as long as texts will be read.
        count: probe texts. Their pooled logits, 4 bytes a term, are held.

    Returns:
        a new model with b' = b - c. Its provenance has the shift, and what of the probe is active before and after:
        the share of the pairs, and the mean and the 99th percentile of the active terms of a text or token.

    Raises:
        ArgumentError: neither or both given, a rate outside (0, 1), a shift that is not finite, an unknown level, no
            text with a word.
        ModelError: the decoder has no bias to shift.
    """
    given = iter_texts(texts)
    if (activation_rate is None) == (shift is None):
        raise ArgumentError("calibrate takes either activation_rate or shift")
    if shift is not None and not abs(shift) <= torch.finfo(torch.float32).max:
        raise ArgumentError(f"shift must be a finite number in float32, not {shift}")
    if level not in ("pooled", "token"):
        raise ArgumentError(f"level is pooled or token, not {level!r}")
    probe = list(islice((text for text in given if text.strip()), count))
    if not probe:
        raise ArgumentError("calibrate needs at least one text that is not empty")
    calibrated = copy_with(model)
    mlm, tokenizer, pooling, _ = parts(calibrated)
    layer = output_layer(mlm)
    if not has_bias(layer):
        raise ModelError(f"{type(mlm).__name__} has no output bias to shift")
    logits = _probe_logits(mlm, tokenizer, probe, level, max_length, pooling)
    if activation_rate is not None:
        shift = logits.threshold(activation_rate)
    assert shift is not None
    with torch.no_grad():
        layer.bias.sub_(shift)
    fuse(calibrated)  # special tokens stay where no shift makes them active
    before, after = logits.active(0.0), logits.active(shift)
    record(calibrated, "calibrate", shift=shift, level=level, pooling=pooling, before=before, after=after)
    return calibrated


class Logits(NamedTuple):
    """Logits [n, v] of n texts or tokens in `blocks`, each with the number of its first row: always the same ones."""

    rows: int
    terms: int
    blocks: Callable[[], Iterable[tuple[int, Tensor]]]

    def active(self, threshold: float) -> dict[str, float]:
        """What is active if zero lies at `threshold`: the share, and active terms of a row as mean and percentile."""
        counts = torch.zeros(self.rows, dtype=torch.int64)
        for first, block in self.blocks():
            counts[first : first + len(block)] += (block > threshold).sum(dim=1).cpu()
        found = counts.numpy()
        mean = float(found.mean())
        return {"share": float(found.mean() / self.terms), "mean": mean, "p99": float(np.percentile(found, 99))}

    def threshold(self, share: float) -> float:
        """The lowest logit that at most a `share` in [0, 1) of all are strictly above.

        It is found in two passes, for the upper half of the number's bits, then the lower.
        """
        size = self.rows * self.terms
        rank = size - int(share * size) - 1  # counted from 0, from below
        upper, rank = self._half_of_rank(rank, None)
        lower, _ = self._half_of_rank(rank, upper)
        key = torch.tensor([(upper - HALF // 2) * HALF + lower], dtype=torch.int32)
        return float(_keys(key.view(torch.float32)).view(torch.float32))

    def _half_of_rank(self, rank: int, upper: int | None) -> tuple[int, int]:
        """The upper half of the key with this rank, or given it the lower, and its rank among keys that share it."""
        counts = torch.zeros(HALF, dtype=torch.int64)
        for _, block in self.blocks():
            keys = _keys(block.flatten())
            half = (keys >> 16) + HALF // 2
            if upper is not None:
                half = keys[half == upper] & (HALF - 1)
            counts += torch.bincount(half, minlength=HALF).cpu()
        below = counts.cumsum(dim=0)
        found = int(torch.searchsorted(below, rank, right=True))
        return found, rank - int(below[found] - counts[found])


def _keys(values: Tensor) -> Tensor:
    """Return int32 keys that stand in the order of the float32 values; applied to keys, the values again."""
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
    """The logits of every term on `texts`; of each token they are never held together."""
    rows = []
    with without_logits(mlm) as decoder:
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            inputs = tokenizer(batch, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
            inputs = inputs.to(mlm.device)
            hidden, offsets = pack({"token_embeddings": mlm(**inputs).logits, **inputs})
            if level == "pooled":
                hidden, offsets = rows_to_pool(hidden, offsets, pooling)
                hidden = max_logits(hidden, decoder.weight, decoder.bias, offsets)
            rows.append(hidden)
        found, weight = torch.cat(rows), decoder.weight.detach()
        bias = decoder.bias.detach().clone()  # it will be shifted in place
    blocks = partial(logit_blocks, found, weight, bias) if level == "token" else lambda: [(0, found)]
    return Logits(len(found), len(weight), blocks)


def logit_blocks(hidden: Tensor, weight: Tensor, bias: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The logits of tokens from the decoder's inputs [n, d], its weight [v, d] and bias [v], a block at a time."""
    for first in range(0, len(hidden), TOKENS):
        for term in range(0, len(weight), TERMS):
            block = weight[term : term + TERMS]
            yield first, torch.addmm(bias[term : term + TERMS], hidden[first : first + TOKENS], block.T).float()


@describes("calibrate")
def _describe(step: Step) -> list[str]:
    """The shift, and the active terms before and after it."""
    shift, before, after = step["shift"], step["before"], step["after"]
    moved = f"{'raised' if shift < 0 else 'lowered'} by {abs(shift):.3f}"
    mean = f"mean {before['mean']:,.1f} -> {after['mean']:,.1f}"
    p99 = f"99th percentile {before['p99']:,.0f} -> {after['p99']:,.0f}"
    return [
        f"bias {moved}, active {before['share']:.2%} -> {after['share']:.2%}",
        f"active terms of a {'text' if step['level'] == 'pooled' else 'token'}: {mean}, {p99}",
    ]


def _adapt(model: SparseEncoder, settings: CalibrateSettings, inputs: Inputs) -> SparseEncoder:
    texts = (text for text in inputs.texts([settings.texts]) if text.strip())
    return calibrate(model, list(islice(texts, settings.count)), **settings.model_dump(exclude={"texts"}))


register(
    Stage(
        "calibrate",
        CalibrateSettings,
        60,
        adapt=_adapt,
        arguments=("{texts}", "--activation-rate", f"{RATE:g}"),
        key="calibrate:",
        outcome="calibrated",
    )
)
