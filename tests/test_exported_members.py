"""The public names of the package, pinned: a change here is a change of the interface."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

import vocable
from tests.forks import Fork

NAMES = [
    "BM25Index",
    "ExactIndex",
    "ablate",
    "add",
    "alias",
    "align",
    "analyze_logits",
    "analyze_postings",
    "analyze_weights",
    "bakeoff",
    "calibrate",
    "check",
    "compare",
    "convert",
    "delete",
    "demo",
    "drop",
    "encode",
    "evaluate",
    "expand_vocabulary",
    "explain",
    "export",
    "export_model",
    "fuse",
    "index",
    "inspect",
    "load",
    "make_inference_free",
    "make_testset",
    "measure_wackiness",
    "merge",
    "mine",
    "new_tokens",
    "open_index",
    "pretrain",
    "provenance",
    "prune",
    "publish",
    "read_corpus",
    "read_examples",
    "read_judgments",
    "read_queries",
    "read_recipe",
    "read_texts",
    "recipes",
    "reciprocal_rank",
    "rescale",
    "search",
    "select",
    "serve",
    "teacher_scores",
    "terms",
    "train",
    "train_tokenizer",
    "train_vocabulary",
    "transfer",
    "tune",
    "tune_threads",
    "unfuse",
    "weighted",
]
HEAVY = ("torch", "transformers", "sentence_transformers", "numpy", "scipy", "pyarrow", "datasets")


def in_a_new_process(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_public_names_are_listed_here() -> None:
    assert sorted(vocable.__all__) == NAMES
    assert set(NAMES) <= set(dir(vocable))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_a_documented_function_or_class_of_that_name(name: str) -> None:
    found = getattr(vocable, name)
    assert callable(found)
    assert found.__name__ == name
    assert inspect.getdoc(found)


def test_type_checkers_see_the_same_names_in_the_same_modules() -> None:
    tree = ast.parse(inspect.getsource(vocable))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: node.module for node in imports for alias in node.names}
    [table] = [node for node in ast.walk(tree) if isinstance(node, ast.Dict) and node.keys]
    names = {module: names.split() for module, names in ast.literal_eval(table).items()}
    assert seen == {name: f"vocable.{module}" for module, some in names.items() for name in some}
    assert sorted(seen) == NAMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = vocable.splade


def test_importing_imports_no_heavy_library_and_leaves_the_environment() -> None:
    code = "import os, sys; before = dict(os.environ); import vocable, vocable.cli; assert before == os.environ"
    modules = in_a_new_process(f"{code}; print(*sys.modules)").split()
    assert not set(HEAVY) & set(modules)


def print_modules() -> None:
    """Print the public names that are modules, in a process that has imported all modules and used no name."""
    print(*(name for name in vocable.__all__ if inspect.ismodule(getattr(vocable, name))))


def test_a_verb_stays_a_function_when_its_module_is_imported() -> None:
    with Fork(print_modules) as process:
        assert process.stdout.read() == "\n"


@pytest.mark.parametrize("command", ["--help", "pretrain --help", "measure-wackiness --help", "recipes"])
def test_help_and_recipes_import_no_heavy_library(command: str) -> None:
    code = "import sys; from vocable.cli import main; main(sys.argv[1:]); print('modules', *sys.modules)"
    printed, _, modules = in_a_new_process(code, *command.split()).rpartition("modules ")
    assert printed
    assert not set(HEAVY) & set(modules.split())
