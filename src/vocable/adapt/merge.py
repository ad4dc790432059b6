"""Merge models of one shape: weighted means of their weights, or sums of what training added to a common base."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SparseEncoder

from vocable.encoding.graph import refuse_exported
from vocable.encoding.models import model_name
from vocable.errors import ArgumentError, ModelError
from vocable.options import checked
from vocable.torch_models.fuse import fuse, splade_modules
from vocable.torch_models.provenance import Step, describes, record
from vocable.torch_models.torch_model import TorchModel


@checked
def merge(
    models: Sequence[SparseEncoder], *, weights: Sequence[float] | None = None, base: SparseEncoder | None = None
) -> SparseEncoder:
    """Merge models of one shape into one, without training.

    Without `base`, each parameter is the mean of the models' parameters, weighted by w_i / sum w. With `base`, the
    model that all were trained from, it is base + sum w_i (m_i - base) (Ilharco et al. 2023). Settings, prompts and
    tokenizer are the first model's.

    Args:
        models: two or more models; in Python from `vocable.load`. They are not changed.
        weights: a number for each model; by default all are equal and sum to 1.
        base: the model that all models were trained from.

    Returns:
        a new model. Its provenance is the first model's, and the names and weights of all.

    Raises:
        ModelError: the models do not have the same terms and parameters, or one only encodes.
        ArgumentError: fewer than two models, or weights that do not fit them.
    """
    if len(models) < 2:
        raise ArgumentError("merge needs two models or more")
    # Weights are shares of the sum, or factors of the differences from the base.
    shares = [1 / len(models)] * len(models) if weights is None else [*map(float, weights)]
    if len(shares) != len(models):
        raise ArgumentError(f"weights must be {len(models)} numbers, one for each model, not {len(shares)}")
    total = sum(shares) if base is None else 1.0
    if not all(map(math.isfinite, shares)) or abs(total) < 1e-6:
        raise ArgumentError(f"weights must be finite{'' if base else ' and must not sum to 0'}")
    # All models must have the terms and parameters of the first.
    others = [*models[1:], *([] if base is None else [base])]
    for model in (models[0], *others):
        refuse_exported(model)
    for other in others:
        _check_shape(models[0], other)
    merged = copy.deepcopy(models[0])
    start = None if base is None else dict(base.named_parameters())
    sides = [dict(model.named_parameters()) for model in models]
    # From an origin of zero, the sum is the weighted mean.
    with torch.no_grad():
        for name, parameter in merged.named_parameters():
            origin = torch.zeros_like(parameter) if start is None else start[name].to(parameter)
            added = (w / total * (side[name].to(parameter) - origin) for w, side in zip(shares, sides, strict=True))
            parameter.copy_(sum(added, origin))
    fuse(merged).eval()
    names = [model_name(model) for model in models]
    based: dict[str, Any] = {} if base is None else {"base": model_name(base)}
    record(merged, "merge", models=names, weights=[w / total for w in shares], **based)
    return merged


@describes("merge")
def _describe(step: Step) -> Iterable[str]:
    sides = [f"{weight:.3g} of {name}" for weight, name in zip(step["weights"], step["models"], strict=True)]
    what = "what training added to " + step["base"] if "base" in step else "the weights"
    return [f"{what}: {', '.join(sides)}"]


def _check_shape(first: SparseEncoder, other: SparseEncoder) -> None:
    """Raise `ModelError` if two models cannot be merged."""
    names = f"{model_name(first)} and {model_name(other)}"
    if TorchModel(first).terms != TorchModel(other).terms:
        raise ModelError(f"{names} do not have the same terms: transfer one to the vocabulary of the other")
    shapes = [{name: tuple(weight.shape) for name, weight in model.named_parameters()} for model in (first, other)]
    if shapes[0] != shapes[1]:
        different = sorted(name for name in shapes[0] | shapes[1] if shapes[0].get(name) != shapes[1].get(name))
        raise ModelError(f"{names} do not have the same shape: {different[0]}")
    heads = [
        [(p.pooling_strategy, p.activation_function) for _, p in splade_modules(model)] for model in (first, other)
    ]
    if heads[0] != heads[1]:
        raise ModelError(f"{names} have different poolings or activations: {heads[0]} and {heads[1]}")
