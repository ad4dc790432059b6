"""Checks of a model's files and arguments; their errors are one line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import Transformer
from torch import accelerator, nn

from vocable.errors import ArgumentError, ModelError

MAX_SIZES = {"num_hidden_layers": 1000, "hidden_size": 1 << 20, "intermediate_size": 1 << 22, "vocab_size": 1 << 25}


def check_device(device: str | None) -> None:
    """Raise `ArgumentError` for a device that PyTorch does not find."""
    best = accelerator.current_accelerator(check_available=True)
    known = ["cpu"]
    if best is not None:
        known += [best.type, *(f"{best.type}:{number}" for number in range(accelerator.device_count()))]
    if device is not None and device not in known:
        raise ArgumentError(f"device must be one that PyTorch has here ({', '.join(known)}), not {device!r}")


def check_finite(name: str | Path, model: nn.Module) -> None:
    """Raise `ModelError` if a weight of a model is not finite."""
    for key, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise ModelError(f"{name}: {key} has weights that are not finite")


def check_sizes(name: str | Path, config: object) -> Any:
    """Return a configuration; raise `ModelError` for absurd sizes: building 10 million layers would take hours."""
    for key, most in MAX_SIZES.items():
        size = getattr(config, key, 1)
        if isinstance(size, int) and not 0 < size <= most:
            raise ModelError(f"{name}: {key} {size} in config.json, which no model has")
    return config


def check_settings(name: str | Path, transformer: Transformer) -> None:
    """Raise `ModelError` for a setting in a sparse encoder's files that makes encoding impossible."""
    config, tokenizer = transformer.auto_model.config, transformer.tokenizer
    limits, power, kept = (getattr(config, key, None) for key in ("active_terms", "query_idf", "special_terms"))
    by_role = limits is None or (isinstance(limits, Mapping) and {*limits} <= {"query", "document"})
    counts = by_role and all(_is_number(limit, 1, int) for limit in (limits or {}).values())
    task, query, document = transformer.transformer_task, transformer.query_length, transformer.document_length
    longest, tokens = tokenizer.model_max_length, "a number of tokens"
    settings, terms = "sentence_bert_config.json", "a number of terms for query, document or both"
    for file, key, value, expected, valid in (
        (settings, "transformer_task", task, "fill-mask", task == "fill-mask"),
        (settings, "query_length", query, tokens, _is_number(query or 1, 1, int)),
        (settings, "document_length", document, tokens, _is_number(document or 1, 1, int)),
        ("tokenizer_config.json", "model_max_length", longest, tokens, _is_number(longest, 1)),
        ("config.json", "query_idf", power, "a number, 0 or more", power is None or _is_number(power, 0)),
        ("config.json", "special_terms", kept, "true or false", isinstance(kept, bool | None)),
        ("config.json", "active_terms", limits, terms, counts),
    ):
        if not valid:
            raise ModelError(f"{name}: {key} in {file} must be {expected}, not {value!r}")


def _is_number(value: object, least: float, kind: Any = int | float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and least <= value < math.inf
