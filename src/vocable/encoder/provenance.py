"""Identity and provenance of a model: its name, checksum and vocabulary, the steps that made it, its new terms.

Steps and new terms are in the configuration of its transformer, under `vocable`, and are copied and saved with it:

    {"provenance": [{"verb": "rescale", "factor": 8.0}, ...], "new_tokens": "AAAB..."}

The new tokens are one bit per term (`numpy.packbits`), in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import nn

from vocable.encoder.fuse import splade_modules
from vocable.encoder.hub import BUILT_IN_MODEL, BY_LOOKUP
from vocable.encoder.terms import terms
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ModelError
from vocable.tables import Table, Tabled
from vocable.vectors import VectorsMeta, vocabulary_fingerprint

NOTES_KEY = "vocable"  # in a model's configuration


def model_name(model: SparseEncoder | str | os.PathLike[str]) -> str:
    """Return the name of a model in its outputs: the absolute path of a local folder, or the Hub id."""
    if isinstance(model, SparseEncoder):
        names = [transformer.auto_model.name_or_path for transformer, _ in splade_modules(model)]
        return model_name(names[0]) if names and names[0] else "model"
    name = os.fspath(model)
    return str(Path(name).resolve()) if name not in (BUILT_IN_MODEL, BY_LOOKUP) and Path(name).is_dir() else name


def checksum(model: nn.Module, dtype: torch.dtype | None = None) -> str:
    """Return eight hexadecimal digits that change with the weights of a model, converted to `dtype` if given."""
    total = 0
    for parameter in model.parameters():
        content = parameter.detach().to(dtype=dtype).cpu().contiguous().view(-1).view(torch.uint8)
        total = zlib.crc32(content.numpy().data, total)
    return f"{total:08x}"


def describe(encoder: TextEncoder, name: str) -> VectorsMeta:
    """Return the metadata of the vectors of `encoder`, by which vectors of other vocabularies or models are refused."""
    names = terms(encoder.model)
    length = encoder.max_length or 0
    return VectorsMeta(vocabulary_fingerprint(names), name, encoder.pooling, encoder.role, length, size=len(names))


class Step(Tabled, dict[str, Any]):
    """A step that made a model: its verb under "verb", with its settings and figures; `str()` describes it."""

    def table(self) -> Sequence[Table | str]:
        """Return the tables and lines of the verb (`describes`), or one line for a verb without any."""
        if (describe := _DESCRIBED.get(self["verb"])) is not None:
            return list(describe(self))
        figures = [f"{k} {value}" for k, value in self.items() if k != "verb" and isinstance(value, str | int | float)]
        return [", ".join([self["verb"], *figures])]

    def to_json(self) -> dict[str, Any]:
        """Return the step as JSON values."""
        return dict(self)


Describe = Callable[[Step], Iterable[Table | str]]
_DESCRIBED: dict[str, Describe] = {}


def describes(verb: str) -> Callable[[Describe], Describe]:
    """Register the function that returns the tables and lines of a verb's steps."""
    return lambda function: _DESCRIBED.setdefault(verb, function)


def provenance(model: SparseEncoder) -> list[Step]:
    """Return the steps that made `model`, in order; for two encoders, the steps of the document encoder."""
    return [Step(step) for step in _notes(model).get("provenance", [])]


def new_tokens(model: SparseEncoder) -> NDArray[np.int64] | None:
    """Return the ids [n] of the terms that were new to `model` when it was transferred; None for any other model."""
    packed = _notes(model).get("new_tokens")
    if packed is None:
        return None
    try:
        bits = np.frombuffer(base64.b64decode(packed, validate=True), dtype=np.uint8)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ModelError("the configuration's list of new tokens (vocable.new_tokens) is damaged") from error
    return np.flatnonzero(np.unpackbits(bits)).astype(np.int64)


def record(model: SparseEncoder, verb: str, *, new: NDArray[np.int64] | None = None, **figures: Any) -> None:
    """Add the step `verb` with its figures (JSON values) to the provenance of `model`, in place.

    `new` are the ids of the terms that are new to it; None keeps the recorded ones.
    """
    step = json.loads(json.dumps({"verb": verb, **figures}))  # plain values: the same before and after saving
    notes = {**_notes(model), "provenance": [*_notes(model).get("provenance", []), step]}
    if new is not None:
        notes["new_tokens"] = base64.b64encode(np.packbits(np.bincount(new) > 0).tobytes()).decode()
    for transformer, _ in splade_modules(model):
        setattr(transformer.auto_model.config, NOTES_KEY, notes)


def splitter_name(model: SparseEncoder) -> str:
    """Return the name of the splitter that found the words of an expanded model; "words" for any other model."""
    names = [step["splitter"] for step in provenance(model) if "splitter" in step]
    return str(names[-1]) if names else "words"


def _notes(model: SparseEncoder) -> dict[str, Any]:
    transformer, _ = splade_modules(model)[-1]  # queries come first
    return getattr(transformer.auto_model.config, NOTES_KEY, None) or {}
