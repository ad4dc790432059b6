"""What `--sweep` says, and the runs that it makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.errors import RecipeError
from vocable.training.recipe import read_recipe
from vocable.training.recipe_files import override
from vocable.training.variants import label, read_sweep


@given(st.lists(st.floats(1e-9, 1e9) | st.integers(-5, 5) | st.booleans() | st.none(), min_size=1, max_size=5))
def test_values_are_read_as_they_are_written(values: list[Any]) -> None:
    key, swept = read_sweep(f"a.b={','.join(map(json.dumps, values))}")
    assert (key, swept) == ("a.b", values)
    overridden: list[dict[str, Any]] = [{} for _ in values]
    for target, value in zip(overridden, swept, strict=True):
        override(target, f"{key}={json.dumps(value)}")
    assert overridden == [{"a": {"b": value}} for value in values]


def test_values_may_be_parts_with_keys_of_their_own() -> None:
    _, values = read_sweep(
        "training.regularizers={query: 1e-3, document: 2e-3},{query: 0, document: {name: l1, weight: 3}}"
    )
    assert [label(value) for value in values] == ["1e-3/2e-3", "0/l1/3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed", "--sweep seed: expected key=value,value,..."),
        ("seed=", "--sweep seed=: expected key=value,value,..."),
        ("seed={1,2", "--sweep seed={1,2: not YAML: .*"),
    ],
)
def test_what_is_no_sweep(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=f"^{message.replace('{', '[{]')}$"):
        read_sweep(text)


def test_an_override_is_what_read_recipe_takes(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("{model: m, data: {examples: [a]}, training: {steps: 1}}", encoding="utf-8")
    key, values = read_sweep("training.regularizers={query: 1e-5, document: 2e-5},{query: 0.1, document: 0.2}")
    overrides = [f"{key}={json.dumps(value)}" for value in values]
    found = [read_recipe(path, [one]).training.regularizers for one in overrides]
    assert [(part.query.weight, part.document.weight) for part in found] == [(1e-5, 2e-5), (0.1, 0.2)]
