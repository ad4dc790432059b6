"""Training objectives: pure functions on vectors and scores, and classes with their settings.

Each loss is a class in `losses.py` and each regularizer a class in `regularizers.py`, with its name in a recipe, its
settings, its inputs and its value. A new class touches only that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class Settings(BaseModel):
    """A section of a recipe: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def mistakes(failure: ValidationError, values: Any) -> list[tuple[list[str | int], str]]:
    """Return the mistakes in `values`: the path of each key, without names of union members, and what is wrong."""
    return [_mistake(error, values) for error in failure.errors()]


def _mistake(error: Any, values: Any) -> tuple[list[str | int], str]:
    keys: list[str | int] = []
    loc = [key for key in error["loc"] if key != "[key]"]  # "[key]" means that the key before it is wrong
    for i, key in enumerate(loc):
        is_key = (isinstance(values, Mapping) and key in values) or (isinstance(values, list) and isinstance(key, int))
        if is_key:
            values = values[key]
        if is_key or i + 1 == len(loc):
            keys.append(key)
    message = error["msg"].removeprefix("Value error, ")
    return keys, message if isinstance(error["input"], Mapping) else f"{message}, not {error['input']!r}"


Positive = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
