"""Shift the output bias so that a chosen share of the vocabulary is active.

A masked-language-model head is trained for a softmax, which does not care about a constant added to every logit; SPLADE
does: whatever stands above zero is a term. Lowering the bias by c, b' = b - c, chooses where zero lies (activation
potential calibration of the Vocabulary Transfer paper, which prints c = 5).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.statistics import ActiveShare, Level, probe_logits
from vocable.encoder.fuse import check_pooling
from vocable.encoder.output_vocabulary import output_layer
from vocable.errors import ArgumentError, ModelError, check_texts

PROBE_TEXTS = 256


class Calibration(NamedTuple):
    """A calibrated model, and what the shift did to the activation of the probe texts at the level looked at."""

    mlm: PreTrainedModel
    shift: float  # c, in logits
    before: ActiveShare
    after: ActiveShare


def calibrate(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    activation_rate: float | None = None,
    shift: float | None = None,
    level: Level = "pooled",
    pooling: str = "max",
    max_length: int = 128,
) -> Calibration:
    """Lower the output bias by `shift`, or by what leaves `activation_rate` of the vocabulary active.

    Args:
        mlm: a masked language model whose decoder has a bias; it is left as it is.
        texts: probe texts; the first 256 that are not empty are used.
        activation_rate: in (0, 1), the share of the pairs to be active. The shift for it is found exactly, up to ties.
        shift: c in logits; exactly one of the two is given.
        level: "pooled" counts (text, term) pairs after pooling over the text's tokens, which is our reading of the
            paper, "token" the pairs of each single token and a term. The same shift leaves far less active of the
            latter.
        pooling: that of the model to be: "max", "sum", "cls" or "mean-before-head". The last two make one row of a
            text, which has far fewer active terms than the largest of all its tokens.
        max_length: tokens of a probe text.

    Returns:
        a new model with b' = b - c, and what is active before and after.

    Raises:
        ArgumentError: neither or both given, a rate outside (0, 1), a shift that is not finite, an unknown level or
            pooling, no text with a word.
        ModelError: the decoder has no bias to shift.
    """
    check_texts(texts)
    if (activation_rate is None) == (shift is None):
        raise ArgumentError("calibrate takes either activation_rate or shift")
    if activation_rate is not None and not 0 < activation_rate < 1:
        raise ArgumentError(f"activation_rate must lie between 0 and 1, not {activation_rate}")
    if shift is not None and not math.isfinite(shift):
        raise ArgumentError(f"shift must be a finite number, not {shift}")
    if level not in ("pooled", "token"):
        raise ArgumentError(f"level is pooled or token, not {level!r}")
    check_pooling(pooling)
    probe = [text for text in texts if text.strip()][:PROBE_TEXTS]
    if not probe:
        raise ArgumentError("calibrate needs at least one text that is not empty")
    calibrated = copy.deepcopy(mlm).eval()
    layer = output_layer(calibrated)
    if layer is None or layer.bias is None:
        raise ModelError(f"{type(mlm).__name__} has no output bias to shift")
    logits = probe_logits(calibrated, tokenizer, probe, level, max_length, pooling)
    if activation_rate is not None:
        shift = logits.threshold(activation_rate)
    assert shift is not None
    with torch.no_grad():
        layer.bias.sub_(shift)
    return Calibration(calibrated, shift, logits.above(0.0), logits.above(shift))
