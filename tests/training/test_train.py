"""The verb `train`: what it refuses before anything heavy is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vocable.errors import ArgumentError
from vocable.training.recipe_files import make_recipe
from vocable.training.train import train

RECIPE = "model: m\ndata: {examples: [pairs.tsv]}\ntraining: {steps: 10}\n"


def test_mistakes_are_named_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    recipe_file = tmp_path / "recipe.yaml"
    recipe_file.write_text(RECIPE, encoding="utf-8")
    code = (
        "import sys, vocable.errors, vocable as vo\n"
        "try: vo.train(sys.argv[1], 'nowhere', overrides=['sed=1', 'training.steps=many'])\n"
        "except vocable.errors.VocableError as error: print(error, {'torch', 'numpy'} & sys.modules.keys())"
    )
    ran = subprocess.run([sys.executable, "-c", code, recipe_file], capture_output=True, text=True, check=True)
    steps = "training.steps must be a whole number, not 'many'"
    assert ran.stdout == f"{recipe_file}: {steps}\n{recipe_file}: sed: unknown key; did you mean seed? set()\n"


@pytest.mark.parametrize(
    "options",
    [{"variant": "a", "variants": "all"}, {"figure": "f.svg"}, {"variant": "a", "figure": "f.svg"}],
)
def test_options_that_exclude_each_other_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        train("my-pairs", tmp_path / "out", **options)


@pytest.mark.parametrize("options", [{"variant": "a"}, {"overrides": ["seed=1"]}, {"sweep": "seed=1,2"}])
def test_options_of_a_file_are_refused_for_a_recipe(options: dict[str, Any], tmp_path: Path) -> None:
    recipe = make_recipe({"model": "m", "data": {"examples": ["a"]}, "training": {"steps": 1}})
    with pytest.raises(ArgumentError):
        train(recipe, tmp_path / "out", **options)
