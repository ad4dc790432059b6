"""Models of any runtime: their names, their fingerprints, and the check that they still fit stored vectors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from typing_extensions import TypeIs

from vocable.encoding.hub import BUILT_IN
from vocable.encoding.model_fingerprint import digest, number_type, refuse_differences
from vocable.encoding.protocol import EncodingModel
from vocable.encoding.torch_library import torch_library
from vocable.encoding.vectors import VectorsMeta

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder


Model: TypeAlias = Union["SparseEncoder", EncodingModel]  # as `vocable.load` returns it


def is_model(model: object) -> TypeIs[Model]:
    """Return whether an object is a model, and not a model's name."""
    library: Any = sys.modules.get("sentence_transformers")  # without it there is no SparseEncoder
    return isinstance(model, EncodingModel) or (library is not None and isinstance(model, library.SparseEncoder))


def encoding_model(model: Model) -> EncodingModel:
    """Return a model as an `EncodingModel`."""
    if isinstance(model, EncodingModel):
        return model
    return torch_library().as_encoding_model(model)


def model_name(model: Model | str | os.PathLike[str]) -> str:
    """Return the name of a model in its outputs: the absolute path of a local folder, or the Hub id."""
    if is_model(model):
        return model_name(encoding_model(model).name)
    name = os.fspath(model)
    return str(Path(name).resolve()) if name not in BUILT_IN and Path(name).is_dir() else name


def model_digest(model: Model) -> str:
    """Return 16 hexadecimal digits that change with everything that the vectors of a model depend on."""
    return digest(encoding_model(model).fingerprint())


def check_unchanged(
    model: EncodingModel, meta: VectorsMeta, place: str, advice: str, *, only_documents: bool = False
) -> None:
    """Raise `VectorsError`, with all differences, if a model has changed since it made the vectors at a place.

    With `only_documents` the model encodes queries for another model's documents: its query side may differ.
    """
    stored = meta.fingerprint
    if only_documents:
        stored = {part: value for part, value in stored.items() if not part.startswith("query")}
    if stored:
        now = model.fingerprint(number_type(stored))
        refuse_differences(stored, now, f"{place}: {meta.model}", advice)
