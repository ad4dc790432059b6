"""Recipes that stand on others, and keys laid over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from vocable.errors import RecipeError
from vocable.training.recipe_files import assign, override, read_recipe, read_values


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
        ({"a": "base: none.yaml"}, "none.yaml: No such file or directory"),
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
