"""Provenance of a model: the steps that made it, and its new terms.

Steps and new terms are in the configuration of its transformer, under `vocable`, and are copied and saved with it:

    {"provenance": [{"verb": "rescale", "factor": 8.0}, ...], "new_tokens": "AAAB..."}

The new tokens are one bit per term (`numpy.packbits`), in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vocable.core.tables import Table, Tabled
from vocable.encoding.models import Model, encoding_model
from vocable.encoding.protocol import NOTES_KEY
from vocable.errors import ModelError

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder


class Step(Tabled, dict[str, Any]):
    """A step that made a model: its verb under "verb", with its settings and figures; `str()` describes it."""

    def table(self) -> Sequence[Table | str]:
        """Return the tables and lines that the verb `describes`, or one line for a verb without a description."""
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


def provenance(model: Model) -> list[Step]:
    """Return the steps that made `model`, in order; for two encoders, the steps of the document encoder."""
    return [Step(step) for step in _notes(model).get("provenance", [])]


def last_step(folder: str | Path) -> Step:
    """Return the last step that made the model in a folder, which is not loaded."""
    configurations = (json.loads(file.read_bytes()) for file in sorted(Path(folder).rglob("config.json")))
    steps = [step for config in configurations for step in config.get(NOTES_KEY, {}).get("provenance", [])]
    if not steps:
        raise ModelError(f"{folder}: the provenance of the model is missing")
    return Step(steps[-1])


def new_tokens(model: Model) -> NDArray[np.int64] | None:
    """Return the ids [n] of the terms that were new to a transferred model; None for any other model."""
    packed = _notes(model).get("new_tokens")
    if packed is None:
        return None
    try:
        bits = np.frombuffer(base64.b64decode(packed, validate=True), dtype=np.uint8)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ModelError("the configuration's list of new tokens (vocable.new_tokens) is damaged") from error
    return np.flatnonzero(np.unpackbits(bits)).astype(np.int64)


def record(model: SparseEncoder, verb: str, *, new: NDArray[np.int64] | None = None, **figures: Any) -> None:
    """Add the step `verb` with its figures (JSON values) to the provenance of `model`, in place; renew its card.

    `new` are the ids of the terms that are new to the model; None keeps the recorded ids.
    """
    from vocable.torch_models.fuse import splade_modules

    step = json.loads(json.dumps({"verb": verb, **figures}))  # plain values: the same before and after saving
    notes = {**_notes(model), "provenance": [*_notes(model).get("provenance", []), step]}
    if new is not None:
        notes["new_tokens"] = base64.b64encode(np.packbits(np.bincount(new) > 0).tobytes()).decode()
    for transformer, _ in splade_modules(model):
        setattr(transformer.auto_model.config, NOTES_KEY, notes)
    model._model_card_text = None  # of the model before the step, which sentence-transformers would write again


def splitter_name(model: Model) -> str:
    """Return the name of the splitter that found the words of an expanded model; "words" for any other model."""
    names = [step["splitter"] for step in provenance(model) if "splitter" in step]
    return str(names[-1]) if names else "words"


def _notes(model: Model) -> Mapping[str, Any]:
    return encoding_model(model).notes
