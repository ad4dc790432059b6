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
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoder.fuse import pack, without_logits
from vocable.encoder.head import max_logits
from vocable.errors import ArgumentError, ModelError

PROBE_TEXTS = 256


class Calibration(NamedTuple):
    """A calibrated model, and what the shift did to the pooled activation of the probe texts."""

    mlm: PreTrainedModel
    shift: float  # c, in logits
    rate_before: float  # share of (text, term) pairs with a pooled logit above zero
    rate_after: float


def calibrate(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    activation_rate: float | None = None,
    shift: float | None = None,
    max_length: int = 128,
) -> Calibration:
    """Lower the output bias by `shift`, or by what leaves `activation_rate` of the vocabulary active after max pooling.

    Args:
        mlm: a masked language model whose decoder has a bias; it is left as it is.
        texts: probe texts; the first 256 that are not empty are used.
        activation_rate: in (0, 1), the share of (text, term) pairs to be active after pooling over the text's tokens.
        shift: c in logits; exactly one of the two is given.
        max_length: tokens of a probe text.

    Returns:
        a new model with b' = b - c, and the rates before and after.

    Raises:
        ArgumentError: neither or both given, a rate outside (0, 1), a shift that is not finite, no text with a word.
        ModelError: the decoder has no bias to shift.
    """
    if (activation_rate is None) == (shift is None):
        raise ArgumentError("calibrate takes either activation_rate or shift")
    if activation_rate is not None and not 0 < activation_rate < 1:
        raise ArgumentError(f"activation_rate must lie between 0 and 1, not {activation_rate}")
    if shift is not None and not math.isfinite(shift):
        raise ArgumentError(f"shift must be a finite number, not {shift}")
    probe = [text for text in texts if text.strip()][:PROBE_TEXTS]
    if not probe:
        raise ArgumentError("calibrate needs at least one text that is not empty")
    calibrated = copy.deepcopy(mlm).eval()
    decoder = calibrated.get_output_embeddings()
    if decoder is None or decoder.bias is None:
        raise ModelError(f"{type(mlm).__name__} has no output bias to shift")
    logits = _pooled_logits(calibrated, tokenizer, probe, max_length).flatten()
    if activation_rate is not None:
        # Exact, no search needed: what stands strictly above the (k + 1)-th largest logit is at most k entries.
        active = int(activation_rate * len(logits))
        shift = float(logits.kthvalue(len(logits) - active).values)
    assert shift is not None
    with torch.no_grad():
        decoder.bias -= shift
    rates = [float((logits > threshold).float().mean()) for threshold in (0.0, shift)]
    return Calibration(calibrated, shift, *rates)


@torch.inference_mode()
def _pooled_logits(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
) -> Tensor:
    """Each text's largest logit of every term [b, v], before the activation."""
    rows = []
    with without_logits(mlm) as decoder:
        for start in range(0, len(texts), 32):
            batch = list(texts[start : start + 32])
            inputs = tokenizer(batch, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
            inputs = inputs.to(mlm.device)
            hidden, offsets = pack({"token_embeddings": mlm(**inputs).logits, **inputs})
            rows.append(max_logits(hidden, decoder.weight, decoder.bias, offsets))
    return torch.cat(rows)
