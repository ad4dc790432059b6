"""Training objectives: pure functions on vectors and scores, and classes with their settings.

Each loss is a class in `losses.py` and each regularizer a class in `regularizers.py`, with its name in a recipe, its
settings, its inputs and its value. A new class touches only that file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError


class Settings(BaseModel):
    """A section of a recipe: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def mistakes(failure: ValidationError, values: Any, section: type[Settings]) -> list[tuple[list[str | int], str]]:
    """Return every mistake in the `values` of a section: the path of its key, without names of union members, and text.

    An unknown key comes with the nearest known key.
    """
    return [_mistake(error, values, section) for error in failure.errors()]


def _mistake(error: Any, values: Any, section: type[Settings]) -> tuple[list[str | int], str]:
    keys: list[str | int] = []
    loc = [key for key in error["loc"] if key != "[key]"]  # "[key]" means that the key before it is wrong
    for i, key in enumerate(loc):
        is_key = (isinstance(values, Mapping) and key in values) or (isinstance(values, list) and isinstance(key, int))
        if is_key:
            values = values[key]
        if is_key or i + 1 == len(loc):
            keys.append(key)
    if error["type"] == "missing":
        return keys, "this key is missing"
    if error["type"] == "extra_forbidden":
        sections, key = _sections_at(section, loc[:-1]), str(loc[-1])
        known = [name for each in sections for field in each.model_fields.items() for name in _names(*field)]
        meant = get_close_matches(key, known, 1) or [path for each in sections for path in _below(each, key)]
        return keys, f"unknown key; did you mean {' or '.join(meant)}?" if meant else "unknown key"
    message = error["msg"].removeprefix("Value error, ")
    return keys, message if isinstance(error["input"], Mapping) else f"{message}, not {error['input']!r}"


def _sections_at(section: type[Settings], loc: Sequence[str | int]) -> list[type[Settings]]:
    """Return the classes of the section at a location, where the name of a union's member chooses among several."""
    sections = [section]
    for key in loc:
        known = (field for each in sections for field in each.model_fields.items())
        fields = [field for name, field in known if key in _names(name, field)]
        named = [each for each in sections if "name" in each.model_fields and each.model_fields["name"].default == key]
        sections = named or ([*_classes(fields[0].annotation)] if fields else sections)
    return sections


def _classes(annotation: Any) -> Iterator[type[Settings]]:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    for part in get_args(annotation):
        yield from _classes(part)


def _below(section: type[Settings], key: str) -> list[str]:
    """Return the paths of a key in the sections below."""
    fields = section.model_fields.items()
    return [
        f"{name}.{key}" for name, field in fields for each in _classes(field.annotation) if key in each.model_fields
    ]


def _names(name: str, field: Any) -> list[str]:
    """Return the names of a field."""
    alias = field.validation_alias
    return [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]


Positive = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
