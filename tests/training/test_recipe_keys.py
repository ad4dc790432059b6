"""Unknown and missing keys, and the list of keys that they are compared with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vocable.errors import RecipeError
from vocable.training.recipe import Recipe
from vocable.training.recipe_files import read_recipe
from vocable.training.recipe_keys import KEYS_FILE, key_mistakes, key_tree

RECIPE = """model: bert-base-uncased
data:
  examples:
    - pairs.tsv
training:
  steps: 10
"""


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_all_unknown_and_missing_keys_are_named_at_once_with_their_lines(recipe_file: Path) -> None:
    wrong = (
        RECIPE.replace("steps", "stepz") + "  losses: [{name: info_nce, temprature: 2}]\nevaluation: {measure: [R@1]}\n"
    )
    recipe_file.write_text(wrong, encoding="utf-8")
    with pytest.raises(RecipeError) as error:
        read_recipe(recipe_file, ["seed=1", "sed=2", "training.batch_size=0"])
    assert str(error.value).splitlines() == [
        f"{recipe_file}:6: training.stepz: unknown key; did you mean steps?",
        f"{recipe_file}:7: training.losses.0.temprature: unknown key; did you mean temperature?",
        f"{recipe_file}: training.steps: this key is missing",
        f"{recipe_file}:8: evaluation.measure: unknown key; did you mean measures?",
        f"{recipe_file}: evaluation.datasets: this key is missing",
        f"{recipe_file}: sed: unknown key; did you mean seed?",
    ]


def test_the_list_of_keys_is_that_of_the_schema() -> None:
    """After a change of the schema: python -m vocable.training.recipe_keys."""
    assert json.loads(KEYS_FILE.read_text(encoding="utf-8")) == key_tree(Recipe)


@pytest.mark.parametrize(
    ("part", "mistakes"),
    [
        ({"evaluation": {"dataset": "x"}}, []),  # another name of a required key
        ({"variants": {"a": {"sets": {}}}}, ["variants.a.sets"]),
        (
            {"data": {"examples": ["a", {"file": "b", "corpse": "c", "queries": "d"}]}},
            ["data.examples.1.corpse", "data.examples.1.corpus"],
        ),
        (
            {"training": {"steps": 1, "regularizers": {"query": 0.1, "document": {"weight": 1, "wight": 2}}}},
            ["training.regularizers.document.wight"],
        ),
        ({"training": {"steps": 1, "losses": [{"name": "unknown", "x": 1}]}}, []),  # the schema names the kinds
        ({"rescale": 3, "training": [1]}, []),  # the schema names the types
    ],
)
def test_keys_below_are_found_by_their_paths(part: dict[str, object], mistakes: list[str]) -> None:
    values = {"model": "m", "data": {"examples": ["a"]}, "training": {"steps": 1}} | part
    assert [".".join(map(str, path)) for path, _ in key_mistakes(values)] == mistakes
