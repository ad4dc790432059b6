"""A sweep: one key of a recipe that takes several values, a run for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from vocable.errors import RecipeError
from vocable.training.overlays import scalar


class Sweep(NamedTuple):
    """The key, its path with dots between, and the values that it takes in turn."""

    key: str
    values: tuple[Any, ...]

    @property
    def overrides(self) -> Iterator[str]:
        """Each value as `vocable.training.recipe.read_recipe` takes it."""
        return (f"{self.key}={json.dumps(value)}" for value in self.values)


def read_sweep(text: str) -> Sweep:
    """The sweep that `KEY=VALUE,VALUE,...` says; the values are YAML, parts with keys of their own among them.

    >>> read_sweep("training.regularizers.document=0.001,3e-3")
    Sweep(key='training.regularizers.document', values=(0.001, 0.003))

    Raises:
        RecipeError: there is no `=`, or no value, or what stands there is not YAML.
    """
    key, equals, given = text.partition("=")
    if not equals or not given.strip():
        raise RecipeError(f"--sweep {text}: expected key=value,value,...")
    try:
        values = yaml.safe_load(f"[{given}]")
    except yaml.YAMLError as error:
        raise RecipeError(f"--sweep {text}: the values are not YAML") from error
    return Sweep(key, tuple(map(scalar, values)))


def label(value: Any) -> str:
    """What a swept value is called where there is little room; of a part, the values of its keys.

    >>> label(0.003), label({"query": 0.001, "document": 0.0005}), label(None)
    ('0.003', '0.001/0.0005', 'null')
    """
    if isinstance(value, dict):
        return "/".join(label(part) for part in value.values())
    if isinstance(value, list):
        return "/".join(label(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value)
