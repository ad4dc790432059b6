"""The order of imports between the parts of the package, and that its commands and functions are the same words."""

from __future__ import annotations

import ast
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from typer.main import get_command

import vocable
from vocable.cli import COMMANDS, program
from vocable.cli.adapt import Adapting
from vocable.cli.declare import Reading

ROOT = Path(vocable.__file__).parent
# A part imports from the levels below it and from its own.
LEVELS = [
    {"errors", "tables", "figures", "progress", "storage", "seal", "arrays", "options", "__init__"},
    {"data", "vectors"},
    {"encoder", "objectives"},
    {"retrieval"},
    {"evaluation"},
    {"adapt"},
    {"training"},
    {"analysis", "wackiness"},
    {"reproduce"},
    {"service", "integrations"},
    {"cli", "__main__"},
]
LEVEL = {part: number for number, parts in enumerate(LEVELS) for part in parts}


def imports(path: Path) -> set[str]:
    """The parts of vocable that a module imports at its top, but for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checked = {id(node) for block in tree.body if isinstance(block, ast.If) for node in ast.walk(block)}
    found = set()
    for node in ast.walk(tree):
        if id(node) in checked:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vocable":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return {part for part in found if part in LEVEL}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_run_one_way(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    above = {part for part in imports(path) if LEVEL[part] > LEVEL[own]}
    assert not above, f"{own} imports from parts above it"


# What a command declares and its function has not, and why.
PRINTED = {"as_json", "markdown"}
ONLY_COMMAND = {
    "transfer": {"neighbours"},  # of a function of its own
    "index": {"vectors"},  # further shards, in Python a list of them is the model
    "search": {"query", "wacky_share"},
    "explain": {"wacky_share"},
    "prune": {"wacky", "wackiest", "texts", "model"},  # one function in Python: then
    "train": {"set"},  # overrides
    "reproduce": {"set"},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_its_function_have_the_same_arguments(name: str) -> None:
    one = COMMANDS[name]
    command = {parameter.name for parameter in get_command(program(name)).commands[name].params}
    function = set(inspect.signature(getattr(vocable, name.replace("-", "_"))).parameters) - {"options"}
    hints = (
        get_type_hints(getattr(vocable, name.replace("-", "_")))
        if "options" in inspect.signature(getattr(vocable, name.replace("-", "_"))).parameters
        else {}
    )
    function |= set(get_type_hints(get_args(hints["options"])[0])) if "options" in hints else set()
    saved = {"output"} if issubclass(one, Adapting) else set()  # the function returns the model
    own = ONLY_COMMAND.get(name, set()) | saved | set(one.loading)  # a model in Python, by its name on the command line
    own |= {"skip_bad"} if issubclass(one, Reading) else set()  # the function is given what was read
    assert command - PRINTED == (function - set(one.python_only)) | own
    assert set(one.python_only) <= function


def test_an_argument_of_a_verb_alone_is_an_option(tmp_path: Path) -> None:
    """Its name, type, choices, default and help are those of the source, which is all that is changed here."""
    copy = Path(shutil.copytree(ROOT, tmp_path / "vocable", ignore=shutil.ignore_patterns("models", "__pycache__")))
    source = copy / "adapt" / "calibrate.py"
    text = source.read_text(encoding="utf-8")
    text = text.replace(
        "    max_length: int = 128,\n", '    max_length: int = 128,\n    trial_of: Role | None = "query",\n', 1
    )
    text = text.replace(
        "        max_length: tokens", "        trial_of: whose trial it is. More.\n        max_length: tokens", 1
    )
    source.write_text(f"from vocable.encoder.stream import Role\n{text}", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "vocable", "calibrate", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert "--trial-of <query|document> Whose trial it is. [default: query]" in " ".join(done.stdout.split())
