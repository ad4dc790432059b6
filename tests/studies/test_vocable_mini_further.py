"""The script that trains the built-in model further: its steps read what earlier ones write, and what is held out."""

from __future__ import annotations

import gzip
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from vocable.cli import program
from vocable.training.recipe_files import read_recipe

SCRIPT = Path(__file__).parents[2] / "studies/vocable_mini/vocable-mini-further.sh"


@pytest.fixture
def steps(tmp_path: Path) -> list[list[str]]:
    """The words of each command that the script gives, where the command only writes them down."""
    places = {place.removeprefix("cloze:") for place in map(str, read_recipe("vocable-mini").data.examples)}
    for place in places:
        (tmp_path / "data" / place).parent.mkdir(parents=True, exist_ok=True)
        rows = "".join(f"{place} {number}\n" for number in range(5000 if place.startswith("pairs") else 9000))
        (tmp_path / "data" / place).write_bytes(gzip.compress(rows.encode(), mtime=0))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "vocable"
    command.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(tmp_path / "steps"))}\n', encoding="utf-8")
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(tmp_path / "steps"))}\nmkdir "$2"\n', encoding="utf-8")
    for file in (command, python):
        file.chmod(0o755)
    path = {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", SCRIPT, "data", "out"], cwd=tmp_path, env=os.environ | path, check=True)
    return [line.split() for line in (tmp_path / "steps").read_text(encoding="utf-8").splitlines()]


def test_every_step_reads_what_is_there(steps: list[list[str]], tmp_path: Path) -> None:
    commands = get_command(program()).commands  # type: ignore[attr-defined]
    recipe = read_recipe(SCRIPT.with_suffix(".yaml"))
    made = set()
    for verb, *words in steps:
        if verb.endswith("granite.py"):
            made.add(words[0].removesuffix(".partial"))
            continue
        options = {name for parameter in commands[verb].params for name in parameter.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options
        if verb == "mine":
            assert words[0] == recipe.model
            assert (tmp_path / "out" / words[1].removeprefix("cloze:")).stat().st_size > 0
        made.add(words[words.index("-o") + 1])
    assert recipe.training.teacher is not None
    assert made == {*recipe.training.teacher.models, *map(str, recipe.data.examples), "vocable-mini-further"}
    assert {place.name for place in (tmp_path / "out").glob("granite*")} == {"granite-embedding-30m-english"}


def test_held_out_pairs_are_not_drawn(steps: list[list[str]], tmp_path: Path) -> None:
    held_out = sorted((tmp_path / "out" / "held-out").iterdir())
    assert len(held_out) == 8
    for file in held_out:
        kept = {*file.read_text(encoding="utf-8").splitlines()}
        drawn = {*(tmp_path / "out" / "pairs" / file.name).read_text(encoding="utf-8").splitlines()}
        assert (len(kept), len(drawn), kept & drawn) == (200, 4500, set())
