"""Recipes that stand on others, and keys laid over them."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema.validators import Draft202012Validator

from vocable.errors import RecipeError
from vocable.training.recipe_files import assign, make_recipe, override, read_recipe, read_values, recipes

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((files("vocable") / "recipes/recipe.schema.json").read_text(encoding="utf-8"))
STARTER: dict[str, Any] = {"model": "m", "data": {"examples": ["e"]}, "training": {"steps": 1}}


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / f"{next(iter(texts))}.yaml"


def test_a_base_fills_what_is_left_out_key_by_key(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        top="base: middle.yaml\npart: {a: 10}\ngone: null\nlist: [3]",
        middle="base: bottom.yaml\npart: {b: 2}\nneeds: [x]\nabout: middle",
        bottom="part: {a: 1, c: {d: 1, e: 2}}\ngone: {f: 1}\nlist: [1, 2]\nkept: 5",
    )
    assert read_values(path) == {
        "part": {"a": 10, "b": 2, "c": {"d": 1, "e": 2}},
        "gone": None,
        "list": [3],
        "kept": 5,
    }


def test_a_derived_recipe_does_not_inherit_the_description(tmp_path: Path) -> None:
    path = write(tmp_path, top="base: low.yaml\nabout: top", low="about: low\nneeds: [x]\nvariants: {v: {}}\nseed: 1")
    assert read_values(path) == {"about": "top", "seed": 1}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"a": "base: b.yaml", "b": "base: a.yaml"}, "a.yaml: base: "),
        ({"a": "base: none.yaml"}, "a.yaml: base: .*none.yaml: No such file or directory"),
        ({"a": "base: [b.yaml]"}, r"a.yaml: base .*\['b.yaml'\]"),
        ({"a": "- 1"}, "a.yaml: .*mapping of keys, not list"),
        ({"a": "a: ["}, "a.yaml: not YAML"),
        ({"a": "a: 1\nb:\n  c: 1\n  c: 2"}, "a.yaml:4: duplicate key 'c'"),
        ({"a": "a: &a [*a]"}, "a.yaml: more than 100,000 values"),
    ],
)
def test_a_base_that_cannot_be_stood_on(tmp_path: Path, texts: dict[str, str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        read_values(write(tmp_path, **texts))


@pytest.mark.parametrize(("folder", "found"), [(".", "in"), ("data", "in/data"), ("/data", "/data"), ("", "")])
def test_a_data_folder_is_beside_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, found: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", below=f"data_folder: '{folder}'\nmodel: m\ntraining: {{steps: 1}}\ndata: {{examples: [a]}}")
    top = write(tmp_path, top="base: in/below.yaml")
    assert read_values(Path("in/below.yaml"))["data_folder"] == found
    assert read_values(Path(top.name))["data_folder"] == found
    assert read_recipe("in/below.yaml", ["data_folder=other"]).data_folder == "other"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=2e-5", {"a": {"b": 2e-5, "c": 1}, "n": None}),
        ("a=null", {"a": None, "n": None}),
        ("n.x.y=[1, k]", {"a": {"c": 1}, "n": {"x": {"y": [1, "k"]}}}),
        ("needs=[]", {"a": {"c": 1}, "n": None, "needs": []}),
        ("n=pydocs:", {"a": {"c": 1}, "n": "pydocs:"}),
        ("n={x: 1}", {"a": {"c": 1}, "n": {"x": 1}}),
    ],
)
def test_an_override_changes_one_key(text: str, expected: dict[str, object]) -> None:
    values = {"a": {"c": 1}, "n": None}
    override(values, text)
    assert values == expected


def test_an_override_below_a_value_is_refused() -> None:
    with pytest.raises(RecipeError):
        assign({"a": 1}, "a.b", 2, "here")
    with pytest.raises(RecipeError):
        override({}, "a=[")


def test_an_override_changes_a_key_in_a_list() -> None:
    values = {"losses": [{"weight": 1}, {"weight": 1}]}
    override(values, "losses.1.weight=3")
    assert values == {"losses": [{"weight": 1}, {"weight": 3}]}
    for place in ("2", "-1", "info_nce"):
        with pytest.raises(RecipeError, match=rf"losses .*list of 2: .*'{place}'$"):
            override(values, f"losses.{place}.weight=3")


@pytest.mark.slow
@pytest.mark.parametrize("value", ["!!bool maybe", '!!int ""', '!!float ""', "!!timestamp x", "[" * 100_000])
def test_an_override_that_yaml_cannot_make_is_refused(value: str) -> None:
    with pytest.raises(RecipeError, match=r"training\.steps"):
        override({}, f"training.steps={value}")


def test_all_mistakes_are_named_at_once_with_their_lines(tmp_path: Path) -> None:
    text = "model: m\ndata:\n  examples:\n    - pairs.tsv\ntraining:\n  stepz: 10\n"
    text += "  losses: [{name: info_nce, temprature: 2}]\nevaluation: {measure: [R@1]}\n"
    file = write(tmp_path, recipe=text)
    with pytest.raises(RecipeError) as error:
        read_recipe(file, ["seed=1", "sed=2", "training.batch_size=0"])
    assert {*str(error.value).splitlines()} == {
        f"{file}:6: training.stepz: unknown key; did you mean steps?",
        f"{file}:7: training.losses.0.temprature: unknown key; did you mean temperature?",
        f"{file}: training.steps: this key is missing",
        f"{file}: training.batch_size must be at least 2, not 0",
        f"{file}:8: evaluation.measure: unknown key; did you mean measures?",
        f"{file}: evaluation.datasets: this key is missing",
        f"{file}: sed: unknown key; did you mean seed?",
    }


@pytest.mark.parametrize(
    ("part", "mistakes"),
    [
        ({"variants": {"a": {"sets": {}}}}, ["variants.a.sets: unknown key; did you mean set?"]),
        (
            {"data": {"examples": ["a", {"file": "b", "corpse": "c", "queries": "d"}]}},
            [
                "data.examples.1.corpus: this key is missing",
                "data.examples.1.corpse: unknown key; did you mean corpus?",
            ],
        ),
        (
            {"training": {"steps": 1, "regularizers": {"query": 0.1, "document": {"weight": 1, "wight": 2}}}},
            ["training.regularizers.document.wight: unknown key; did you mean weight?"],
        ),
        ({"pretrain": {"steps": 1, "texts": ["a"], "models": 1}}, ["pretrain.models: unknown key"]),
        ({"models": ["a"]}, ["models: unknown key; did you mean model?"]),
        ({"lexical": True}, ["lexical: unknown key"]),
        ({"momentum": 0.5}, ["momentum: unknown key"]),
        ({"batch_size": 4}, ["batch_size: unknown key; did you mean pretrain.batch_size or training.batch_size?"]),
    ],
)
def test_an_unknown_key_is_told_with_the_key_that_is_meant(part: dict[str, object], mistakes: list[str]) -> None:
    values = {"model": "m", "data": {"examples": ["a"]}, "training": {"steps": 1}} | part
    with pytest.raises(RecipeError) as error:
        make_recipe(values)
    assert str(error.value).splitlines() == [f"recipe: {mistake}" for mistake in mistakes]


@pytest.mark.parametrize("file", [*ROOT.glob("src/vocable/recipes/*.yaml"), *ROOT.glob("studies/**/*.yaml")], ids=str)
def test_the_schema_for_editors_accepts_every_recipe(file: Path) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(values)] == []


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("base", "other.yaml", True),
        ("evaluation.dataset", "beir:a", True),
        ("evaluation.datasets", ["beir:a"], True),
        ("training.guard", False, True),
        ("training.guard", "of", False),
        ("training.regularizers.query", 0.1, True),
        ("training.regularizers.query", {"weight": 0.1}, True),
        ("training.regularizers.query", {"name": "l1", "threshold": 1}, False),
        ("training.regularizers.joint", 0.1, True),
        ("training.regularizers.joint", -0.1, False),
        ("training.losses", [{"name": "kl", "temperature": 2}], True),
        ("training.losses", [{"name": "margin_mse", "temperature": 2}], False),
        ("training.losses", [{"temperature": 2}], False),
        ("training.stepz", 3, False),
        ("training.steps", "three", False),
        ("data.examples", [{"file": "f", "corpus": "c", "queries": "q"}], True),
        ("seeed", 3, False),
        ("pooling", "mean", False),
    ],
)
def test_the_schema_for_editors_accepts_what_a_recipe_takes(
    key: str, value: Any, accepted: bool, tmp_path: Path
) -> None:
    (tmp_path / "other.yaml").write_text("model: n\n", encoding="utf-8")
    values = json.loads(json.dumps(STARTER))
    if key.startswith("training.losses"):
        values["data"]["negatives"] = 1
    assign(values, key, value, "here")
    assert Draft202012Validator(SCHEMA).is_valid(values) == accepted
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    if accepted:
        read_recipe(tmp_path / "recipe.yaml")
    else:
        with pytest.raises(RecipeError):
            read_recipe(tmp_path / "recipe.yaml")


def test_a_printed_recipe_names_the_schema_to_editors_in_any_folder() -> None:
    for name, recipe in recipes().items():
        first = str(recipe).splitlines()[0]
        place = re.fullmatch(r"# yaml-language-server: \$schema=(/.*|[A-Z]:/.*)", first)
        assert place is not None, name
        assert json.loads(Path(place[1]).read_text(encoding="utf-8")) == SCHEMA
