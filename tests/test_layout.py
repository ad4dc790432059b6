"""The order of imports between the parts of the package, and that its commands and functions are the same words."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import vocable
from vocable.cli import COMMANDS
from vocable.cli.adapt import Adapting

ROOT = Path(vocable.__file__).parent
# A part imports from the levels below it and from its own.
LEVELS = [
    {"errors", "tables", "figures", "progress", "storage", "__init__"},
    {"data", "vectors", "pydocs"},
    {"encoder", "objectives"},
    {"search"},
    {"evaluation"},
    {"adapt"},
    {"training"},
    {"analysis"},
    {"demo", "cli", "__main__"},
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


# What a command has and its function has not, or the other way round, and why.
LOADING = {"model", "device", "new_head", "pooling", "activation"}  # a name and how to load it: a model in Python
PRINTED = {"as_json", "markdown"}
ADAPTING = {name for name, one in COMMANDS.items() if issubclass(one, Adapting)}
ONLY_COMMAND = {
    **{name: {"output"} for name in ADAPTING},  # the function returns the model, which the command saves
    "transfer": {"output", "neighbours"},  # of a function of its own
    "index": {"vectors"},  # further shards, in Python a list of them is the model
    "search": {"query", "wacky_share"},
    "explain": {"wacky_share"},
    "prune": {"wacky", "wackiest", "texts"},  # one function in Python
    "train": {"set"},  # overrides
}
ONLY_FUNCTION = {
    "encode": {"name"},  # the command has it from MODEL
    "inspect": {"tokenizer"},
    "pretrain": {"work"},  # beside the output
    "prune": {"then"},
    "train": {"overrides"},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_its_function_have_the_same_arguments(name: str) -> None:
    command = set(COMMANDS[name].model_fields) - PRINTED - LOADING - ONLY_COMMAND.get(name, set())
    function = set(inspect.signature(getattr(vocable, name.replace("-", "_"))).parameters)
    assert command == function - LOADING - ONLY_FUNCTION.get(name, set())
