"""Divide the output matrix before training, W' = W / k, so that scores do not start in the thousands.

Jang et al. 2026, table 2. The best k differs between backbones of the same norm: `choose_factor` measures the start of
a training at several.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import torch
from annotated_types import Gt
from sentence_transformers import SparseEncoder
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.stages import Inputs, RescaleSettings
from vocable.adapt.statistics import Start, measure_start, probe_texts
from vocable.core.tables import Table, short
from vocable.data.texts import as_texts
from vocable.errors import ArgumentError
from vocable.options import Activation
from vocable.torch_models.fuse import copy_with, parts
from vocable.torch_models.output_vocabulary import output_layer
from vocable.torch_models.provenance import Step, describes, record

FACTORS = (1, 2, 4, 8, 16, 32)
PROBE_TEXTS = 1000  # texts read from a recipe's source of probe texts


def rescale(
    model: SparseEncoder,
    factor: Annotated[float, Gt(0)] | Literal["auto"],
    *,
    texts: Sequence[str] | None = None,
) -> SparseEncoder:
    """Divide a model's output matrix by a factor.

    W' = W / k for the output matrix W [v, d] and a factor k (Jang et al. 2026, eq. 6). The bias stays. A matrix that is
    tied to the input embeddings is scaled once and stays tied.

    Args:
        model: from `vocable.load`; it is not changed.
        factor: a number above 0, where a number below 1 undoes an earlier rescaling; or auto, the smallest of 1, 2, 4
            ... 32 that lets training start well, with the model's pooling and activation.
        texts: probe texts for auto, as in `vocable.adapt.statistics.probe_texts`.

    Returns:
        a new model. Its provenance has the factor and, for "auto", the start at each factor that was tried.

    Raises:
        ArgumentError: a factor that is not finite and above 0, weights that become all zero or infinite, or "auto"
            without texts.
        DataError: fewer than two usable probe texts.
        ModelError: no masked-language-model head, or one that is not a plain `Linear`.
    """
    texts = None if texts is None else as_texts(texts)
    figures = dict[str, Any]()
    # Measure the start at each factor.
    if factor == "auto":
        if texts is None:
            raise ArgumentError("factor auto needs texts to probe with")
        mlm, tokenizer, pooling, activation = parts(model)
        factor, starts = choose_factor(mlm, tokenizer, probe_texts(texts), pooling=pooling, activation=activation)
        figures["trials"] = [{"factor": k, **asdict(start)} for k, start in starts.items()]
    if not (math.isfinite(factor) and factor > 0):
        raise ArgumentError(f"a factor must be finite and above 0, not {factor}")
    # Divide, and check that float32 holds the result.
    rescaled = copy_with(model)
    _divide(parts(rescaled).mlm, factor)
    weight = output_layer(parts(rescaled).mlm).weight
    if not (weight.isfinite().all() and weight.any()):
        raise ArgumentError(f"a factor of {factor:g} leaves weights that are all zero, or not finite, in float32")
    record(rescaled, "rescale", factor=factor, **figures)
    return rescaled


def choose_factor(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    probe: Sequence[str],
    first: Start | None = None,
    *,
    temperature: float = 1.0,
    pooling: str = "max",
    activation: Activation = "relu",
) -> tuple[int, dict[int, Start]]:
    """Return the best k of 1, 2, 4, 8, 16, 32 to start a SPLADE training from, and the starts that were measured.

    Each k is applied to a copy and measured, because a tied matrix also feeds the encoder. `first` is the start at
    k = 1, if it is known. The rule:

    1. k is alive if at least 0.1 % of the terms are active in a text, and if the share of queries that find their own
       document first is at most 10 points below the share at k = 1. k = 1 always counts as alive.
    2. k is stable if the starting loss is at most 2.5 log(batch). A dead start has a loss of exactly log(batch).
    3. The choice is the smallest k that is alive and stable, and larger k are not measured; or else the alive k with
       the smallest loss.
    """
    measure = partial(measure_start, temperature=temperature, pooling=pooling, activation=activation)
    scaled, starts, alive = copy.deepcopy(mlm), dict[int, Start](), list[int]()
    for factor in FACTORS:
        if factor > 1:
            _divide(scaled, 2)  # exact, so that this is the same as dividing the original once
        start = first if factor == 1 and first is not None else measure(scaled, tokenizer, probe)
        starts[factor] = start
        if factor == 1 or start.alive(starts[1]):
            alive.append(factor)
            if start.stable:
                return factor, starts
    return min(alive, key=lambda factor: starts[factor].loss), starts


@torch.no_grad()
def _divide(mlm: PreTrainedModel, factor: float) -> None:
    output_layer(mlm).weight.div_(factor)


@describes("rescale")
def _describe(step: Step) -> list[Table | str]:
    """Return a table with a row for each factor that was tried and a mark at the chosen factor, and the result."""
    rows = [
        [
            f"{'> ' if trial['factor'] == step['factor'] else ''}{trial['factor']}",
            f"{trial['pooled_rate']:.1%}",
            f"{trial['terms_mean']:,.0f}",
            *(short(trial[name]) for name in ("score_mean", "score_std", "score_max")),
            f"{trial['accuracy']:.0%}",
            short(trial["loss"]),
            short(trial["chance"]),
        ]
        for trial in step.get("trials", [])
    ]
    header = ["k", "active", "terms", "score", "std", "largest", "accuracy", "loss", "chance"]
    return [*([Table("", header, rows)] if rows else []), f"output matrix divided by {step['factor']:g}"]


def adapt(model: SparseEncoder, settings: RescaleSettings, inputs: Inputs) -> SparseEncoder:
    """Return the model after the stage of a recipe."""
    texts = [] if settings.texts is None else list(islice(inputs.texts([settings.texts]), PROBE_TEXTS))
    return rescale(model, settings.factor, texts=texts)
