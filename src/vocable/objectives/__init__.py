"""Training objectives: pure functions on vectors and scores, and classes with their settings.

The idea: a loss takes vectors and scores, no model, so that a test computes it with NumPy. `losses.py` and
`regularizers.py` have the functions, and `settings.py` the classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vocable.core.faults import in_words


class Settings(BaseModel):
    """A section of a recipe: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def mistakes(failure: ValidationError, values: Any, section: type[Settings]) -> list[tuple[list[str | int], str]]:
    """Return the mistakes in `values`: the path of each key, without names of union members, and what is wrong.

    An unknown key is told with the nearest key of its section, or with the section below that has the key.
    """
    return [_mistake(error, values, section) for error in failure.errors()]


def _mistake(error: Any, values: Any, section: type[Settings]) -> tuple[list[str | int], str]:
    keys: list[str | int] = []
    loc = [key for key in error["loc"] if key != "[key]"]  # "[key]" means that the key before it is wrong
    for i, key in enumerate(loc):
        is_key = (isinstance(values, Mapping) and key in values) or (isinstance(values, list) and isinstance(key, int))
        if is_key:
            values = values[key]
        if is_key or (i + 1 == len(loc) and error["type"] == "missing"):
            keys.append(key)
    if error["type"] == "extra_forbidden":
        meant = _meant(str(loc[-1]), _sections_at(section, loc[:-1]))
        return keys, f"unknown key; did you mean {meant}?" if meant else "unknown key"
    return keys, in_words(error)


def _sections_at(section: type[Settings], loc: Sequence[str | int]) -> list[type[Settings]]:
    """Return the section at a location, or its kinds; the location has the kinds' names, too."""
    sections = [section]
    for key in loc:
        fields = [kind.model_fields[key] for kind in sections if isinstance(key, str) and key in kind.model_fields]
        named = [kind for kind in sections if "name" in kind.model_fields and kind.model_fields["name"].default == key]
        sections = [below for field in fields for below in _sections(field.annotation)] if fields else named or sections
    return sections


def _sections(annotation: Any) -> Iterator[type[Settings]]:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)


def _meant(key: str, sections: Sequence[type[Settings]]) -> str:
    fields = {name: field for kind in sections for name, field in kind.model_fields.items()}
    below = [
        f"{name}.{key}"
        for name, field in fields.items()
        if any(key in kind.model_fields for kind in _sections(field.annotation))
    ]
    return " or ".join(get_close_matches(key, fields, 1) or below)


Divergence = Literal["mse", "kl"]
Positive = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
