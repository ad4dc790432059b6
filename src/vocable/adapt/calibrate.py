"""Shift the output bias so that a chosen share of the vocabulary is active.

A masked-language-model head is trained for a softmax, which does not care about a constant added to every logit; SPLADE
does: whatever stands above zero is a term. Lowering the bias by c, b' = b - c, chooses where zero lies (activation
potential calibration of "Why Advanced Encoders Lag on Sparse Retrieval?", which prints c = 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from sentence_transformers import SparseEncoder

from vocable.adapt.statistics import Level, probe_logits
from vocable.encoder.fuse import copy_with, parts
from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.provenance import record
from vocable.errors import ArgumentError, ModelError, check_texts

PROBE_TEXTS = 256


def calibrate(
    model: SparseEncoder,
    texts: Sequence[str],
    *,
    activation_rate: float | None = None,
    shift: float | None = None,
    level: Level = "pooled",
    max_length: int = 128,
) -> SparseEncoder:
    """Lower the output bias by `shift`, or by what leaves `activation_rate` of the vocabulary active.

    Args:
        model: from `vocable.load`, with an output bias; it is left as it is. Its pooling decides what a text's terms
            are: of a text's first token, or of the mean of its tokens, far fewer are active than of all its tokens.
        texts: probe texts; the first 256 that are not empty are used.
        activation_rate: in (0, 1), the share of the pairs to be active. The shift for it is found exactly, up to ties.
        shift: c in logits; exactly one of the two is given.
        level: "pooled" counts (text, term) pairs after pooling over the text's tokens, which is our reading of the
            paper, "token" the pairs of each single token and a term. The same shift leaves far less active of the
            latter.
        max_length: tokens of a probe text.

    Returns:
        a new model with b' = b - c. Its provenance has the shift, and what of the probe is active before and after:
        the share of the pairs, and the mean and the 99th percentile of the active terms of a text or token.

    Raises:
        ArgumentError: neither or both given, a rate outside (0, 1), a shift that is not finite, an unknown level, no
            text with a word.
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
    probe = [text for text in texts if text.strip()][:PROBE_TEXTS]
    if not probe:
        raise ArgumentError("calibrate needs at least one text that is not empty")
    calibrated = copy_with(model)
    mlm, tokenizer, pooling, _ = parts(calibrated)
    layer = output_layer(mlm)
    if layer.bias is None:
        raise ModelError(f"{type(mlm).__name__} has no output bias to shift")
    logits = probe_logits(mlm, tokenizer, probe, level, max_length, pooling)
    if activation_rate is not None:
        shift = logits.threshold(activation_rate)
    assert shift is not None
    with torch.no_grad():
        layer.bias.sub_(shift)
    before, after = logits.above(0.0)._asdict(), logits.above(shift)._asdict()
    record(calibrated, "calibrate", shift=shift, level=level, pooling=pooling, before=before, after=after)
    return calibrated
