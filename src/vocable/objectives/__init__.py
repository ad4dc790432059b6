"""Training objectives: pure functions on vectors and scores, and classes with their settings.

Each loss is a class in `losses.py` and each regularizer a class in `regularizers.py`, with its name in a recipe, its
settings, its inputs and its value. A new class touches only that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """A section of a recipe: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _suggest_for_unknown(cls, values: object) -> Any:
        """Refuse an unknown key and suggest the nearest known key; the error's context has the unknown key."""
        if isinstance(values, Mapping):
            known = {name for field in cls.model_fields.items() for name in _names(*field)}
            for key in values:
                if key not in known:
                    meant = get_close_matches(str(key), known, 1) or cls._below(key)
                    hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
                    raise PydanticCustomError("unknown_key", "unknown key{hint}", {"key": key, "hint": hint})
        return values

    @classmethod
    def _below(cls, key: object) -> list[str]:
        """Return the paths of a key in the sections below."""
        fields = cls.model_fields.items()
        parts = ((name, part) for name, field in fields for part in (field.annotation, *get_args(field.annotation)))
        return [
            f"{name}.{key}" for name, part in parts if isinstance(part, type(Settings)) and key in part.model_fields
        ]


def first_mistake(failure: ValidationError, values: Any) -> tuple[list[str | int], str]:
    """Return the path of the key that the first error is about, without names of union members, and its message."""
    error: Any = failure.errors()[0]
    keys: list[str | int] = []
    loc = [key for key in error["loc"] if key != "[key]"]  # "[key]" means that the key before it is wrong
    if error["type"] == "unknown_key":
        loc.append(error["ctx"]["key"])
    for i, key in enumerate(loc):
        is_key = (isinstance(values, Mapping) and key in values) or (isinstance(values, list) and isinstance(key, int))
        if is_key:
            values = values[key]
        if is_key or i + 1 == len(loc):
            keys.append(key)
    if error["type"] == "missing":
        return keys, "this key is missing"
    message = error["msg"].removeprefix("Value error, ")
    plain = error["type"] == "unknown_key" or isinstance(error["input"], Mapping)
    return keys, message if plain else f"{message}, not {error['input']!r}"


def _names(name: str, field: Any) -> list[str]:
    """Return the names of a field."""
    alias = field.validation_alias
    return [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]


Positive = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
