"""Recipes: what is read, what is refused, and with which words."""

import subprocess
import sys

import pytest

from vocable.errors import RecipeError
from vocable.training.recipe import make_recipe, read_recipe
from vocable.training.recipe_files import recipes

SMALLEST = """
model: some/model
data:
  examples: [pairs.jsonl]
training:
  steps: 10
"""


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(SMALLEST, encoding="utf-8")
    return path


def test_defaults_fill_what_is_left_out(recipe_file):
    recipe = read_recipe(recipe_file)
    assert (recipe.training.batch_size, recipe.training.learning_rate, recipe.seed) == (32, 2e-5, 0)
    assert recipe.pretrain is None
    assert recipe.calibrate is None


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("training.learning_rate=2e-5", 2e-5),
        ("training.learning_rate=0.1", 0.1),
        ("training.regularizers.query.weight=0.003", 0.003),
        ("seed=7", 7),
        ("data.examples=[a.tsv, b.tsv]", ["a.tsv", "b.tsv"]),
    ],
)
def test_override_replaces_one_key(recipe_file, override, value):
    found = read_recipe(recipe_file, [override])
    for part in override.partition("=")[0].split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.learning_rat=1", "{file}: training.learning_rat: unknown key; did you mean learning_rate?"),
        ("steps=1", "{file}: steps: unknown key; did you mean pretrain.steps or training.steps?"),
        ("training.steps=0", "{file}: training.steps: Input should be greater than 0, not 0"),
        ("training.batch_size=1", "{file}: training.batch_size: Input should be greater than or equal to 2, not 1"),
        ("calibrate.texts=a.txt", "{file}: calibrate: give either activation_rate or shift"),
        ("training.learning_rate=.inf", "{file}: training.learning_rate: Input should be a finite number, not inf"),
        ("seed=-1", "{file}: seed: Input should be greater than or equal to 0, not -1"),
        ("seed=4294967296", "{file}: seed: Input should be less than 4294967296, not 4294967296"),
        (
            "data={examples: [a], examples: [b]}",
            "--set data={{examples: [a], examples: [b]}}:1: examples: this key is there twice",
        ),
        ("pooling=mean", "{file}: pooling: Input should be 'max', 'sum', 'cls' or 'mean-before-head', not 'mean'"),
        ("steps", "--set steps: expected key=value"),
        ("model.name=x", "--set model.name=x: model is not a part with keys of its own"),
    ],
)
def test_a_wrong_key_is_named_with_its_path(recipe_file, override, message):
    with pytest.raises(RecipeError) as error:
        read_recipe(recipe_file, [override])
    assert str(error.value) == message.format(file=recipe_file)


def test_an_unknown_measure_is_refused(recipe_file):
    with pytest.raises(RecipeError, match=r"evaluation\.measures: .*'x@y'"):
        read_recipe(recipe_file, ["evaluation={dataset: d, measures: [x@y]}"])


def test_a_wrong_key_of_the_file_is_named_with_its_line(recipe_file):
    recipe_file.write_text(SMALLEST.replace("steps", "stepz"), encoding="utf-8")
    with pytest.raises(RecipeError) as error:
        read_recipe(recipe_file, ["seed=1"])
    assert str(error.value) == f"{recipe_file}:6: training.stepz: unknown key; did you mean steps?"


def test_a_missing_key_is_named():
    with pytest.raises(RecipeError, match=r"^recipe: training: this key is missing$"):
        make_recipe({"model": "m", "data": {"examples": ["a"]}})


@pytest.mark.parametrize(("text", "message"), [("a: [", "not YAML"), ("- 1", "a recipe is a mapping of keys")])
def test_a_file_that_is_no_recipe(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=message):
        read_recipe(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(RecipeError, match="No such file"):
        read_recipe(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("pairs/a.jsonl", "data/pairs/a.jsonl"),
        ("/abs/a.jsonl", "/abs/a.jsonl"),
        ("beir:scifact#train", "beir:data/scifact#train"),
        ("pydocs:#train", "pydocs:#train"),
        ("hf:some/set", "hf:some/set"),
    ],
)
def test_relative_places_are_looked_up_in_the_data_folder(place, found):
    recipe = make_recipe({"model": "m", "data_folder": "data", "data": {"examples": ["a"]}, "training": {"steps": 1}})
    assert recipe.place(place) == found


def test_recipes_that_run_here_are_listed_first():
    needing = [bool(recipe.needs) for recipe in recipes().values()]
    assert needing == sorted(needing)
    assert [name for name, recipe in recipes().items() if not recipe.needs] == ["pydocs"]
    assert recipes("pydocs").name == "pydocs"
    assert read_recipe("pydocs").data.examples == ["pydocs:#train"]


def test_recipes_are_listed_without_torch():
    code = "import sys, vocable.training.recipe_files as y; print(len(y.recipes())); assert 'torch' not in sys.modules"
    assert int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) == 7
