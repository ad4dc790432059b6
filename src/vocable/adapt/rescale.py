"""Scale the output matrix down before training, W' = W / k, so that scores do not start in the thousands.

Jang et al. 2026, table 2. The best k differs between backbones of the same norm: `choose_factor` reads it off the start
of a training.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

import torch
from sentence_transformers import SparseEncoder
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.statistics import BATCH, RULES, Start, measure_start, probe_texts
from vocable.encoder.fuse import copy_with, parts
from vocable.encoder.head import Activation
from vocable.encoder.output_vocabulary import output_layer
from vocable.encoder.provenance import record
from vocable.errors import ArgumentError, check_texts

FACTORS = (1, 2, 4, 8, 16, 32)


class Trial(NamedTuple):
    """A factor, and the start of a training after it."""

    factor: int
    start: Start


class Choice(NamedTuple):
    """The chosen factor, and all that were tried, 1 first."""

    factor: int
    trials: tuple[Trial, ...]


def rescale(
    model: SparseEncoder, factor: float | Literal["auto"], *, texts: Sequence[str] | None = None
) -> SparseEncoder:
    """Divide the decoder's matrix W [v, d] by `factor`: W' = W / k (Jang et al. 2026, eq. 6). The bias stays.

    Where the decoder is tied to the input embeddings, the one matrix is scaled once, for both, and stays tied.

    Args:
        model: from `vocable.load`; it is left as it is.
        factor: k. A k below 1 makes the matrix larger, which takes back an earlier rescaling. "auto" is what
            `choose_factor` finds on the probe texts, with the pooling and the activation of the model.
        texts: probe texts, for "auto"; of many, 128 evenly taken ones of at least 8 words are used.

    Returns:
        a new model, with the factor and, for "auto", all that were tried in its provenance.

    Raises:
        ArgumentError: a factor that is not a finite number above 0, or "auto" without texts.
        DataError: fewer than two usable probe texts.
        ModelError: no masked-language-model head, or one that is no plain `Linear`.
    """
    check_texts(texts)
    figures: dict[str, Any] = {}
    if factor == "auto":
        if texts is None:
            raise ArgumentError("a factor of auto needs texts, to probe with")
        mlm, tokenizer, pooling, activation = parts(model)
        choice = choose_factor(mlm, tokenizer, texts, pooling=pooling, activation=activation)
        factor = choice.factor
        figures["trials"] = [{"factor": trial.factor, **asdict(trial.start)} for trial in choice.trials]
    if not (math.isfinite(factor) and factor > 0):
        raise ArgumentError(f"a factor must be finite and above 0, not {factor}")
    rescaled = copy_with(model)
    _divide(parts(rescaled).mlm, factor)
    record(rescaled, "rescale", factor=factor, **figures)
    return rescaled


def choose_factor(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    temperature: float = 1.0,
    pooling: str = "max",
    activation: Activation = "relu",
) -> Choice:
    """Find the k of 1, 2, 4, 8, 16, 32 that a SPLADE training would start well from.

    Each is applied and measured, because a tied matrix also feeds the encoder. The rule:

    1. k is alive if at least 0.1 % of the terms are active in a text, and if the share of queries that find their own
       document first is at most 10 points below that at k = 1, which itself counts as alive.
    2. k is stable if the starting loss is at most 2.5 log(batch).
    3. The smallest k that is alive and stable; if none is stable, the alive one with the smallest loss.

    A dead start has a loss of exactly log(batch), which is why stable alone is not enough.

    Args:
        mlm: a masked language model; it is left as it is.
        texts, temperature, pooling, activation: as for `probe_texts` and `measure_start`.

    Raises:
        DataError: fewer than two such texts.
    """
    check_texts(texts)
    probe, scaled = probe_texts(texts), copy.deepcopy(mlm)
    trials = []
    for factor in FACTORS:
        if factor > 1:
            _divide(scaled, 2)  # exact, so that this is the same as dividing the original once
        start = measure_start(scaled, tokenizer, probe, temperature=temperature, pooling=pooling, activation=activation)
        trials.append(Trial(factor, start))
    return Choice(_chosen(trials), tuple(trials))


def best_factor(mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], first: Start) -> int:
    """The factor of `choose_factor`, with no more measured than decides about it.

    Of a factor that is far from stable, the first batch tells, since no batch has a loss below 0; all of it is measured
    only if no factor is stable.

    Args:
        first: the start at k = 1 on these texts.

    Raises:
        DataError: fewer than two usable texts.
    """
    check_texts(texts)
    if first.stable:
        return 1
    probe, scaled = probe_texts(texts), copy.deepcopy(mlm)
    trials, postponed = [Trial(1, first)], []
    for factor in FACTORS[1:]:
        _divide(scaled, 2)
        # The larger the factor, the more stable: after one that passes this look, it would tell nothing.
        if len(trials) == 1:
            batch = measure_start(scaled, tokenizer, probe[:BATCH])
            if RULES["unstable"].beyond(batch.loss * batch.pairs, first.chance * first.pairs):
                postponed.append(factor)
                continue
        trials.append(Trial(factor, measure_start(scaled, tokenizer, probe)))
        if trials[-1].start.stable and trials[-1].start.alive(first):
            return factor
    for factor in postponed:
        scaled = copy.deepcopy(mlm)
        _divide(scaled, factor)
        trials.append(Trial(factor, measure_start(scaled, tokenizer, probe)))
    return _chosen(sorted(trials))


def _chosen(trials: Sequence[Trial]) -> int:
    first = trials[0].start
    alive = [trial for trial in trials if trial.factor == 1 or trial.start.alive(first)]
    best = next((trial for trial in alive if trial.start.stable), None)
    return (best or min(alive, key=lambda trial: trial.start.loss)).factor


@torch.no_grad()
def _divide(mlm: PreTrainedModel, factor: float) -> None:
    output_layer(mlm).weight.div_(factor)
