"""The public names of the package, pinned: a change here is a change of the interface."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

import vocable

NAMES = [
    "BM25Index",
    "ExactIndex",
    "add",
    "align",
    "calibrate",
    "check_engine",
    "compare",
    "delete",
    "demo",
    "encode",
    "evaluate",
    "expand",
    "explain",
    "export",
    "export_model",
    "fuse",
    "index",
    "inference_free",
    "inspect",
    "load",
    "logits",
    "make_testset",
    "mine",
    "new_tokens",
    "open_index",
    "postings",
    "pretrain",
    "provenance",
    "prune",
    "read_corpus",
    "read_examples",
    "read_judgments",
    "read_queries",
    "read_recipe",
    "read_texts",
    "recipes",
    "reciprocal_rank",
    "removal",
    "rescale",
    "search",
    "select",
    "serve",
    "teacher_scores",
    "term_weights",
    "terms",
    "train",
    "train_vocabulary",
    "transfer",
    "unfuse",
    "vocabulary",
    "wackiness",
    "weighted",
]
HEAVY = ("torch", "transformers", "sentence_transformers", "numpy", "scipy", "pyarrow", "numba", "datasets")


def test_the_names_are_these() -> None:
    assert sorted(vocable.__all__) == NAMES
    assert set(NAMES) <= set(dir(vocable))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_the_verb_that_it_says(name: str) -> None:
    found = getattr(vocable, name)
    assert callable(found)
    assert found.__name__.rpartition(".")[2] == name
    assert inspect.getdoc(found)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(vocable))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(seen - {None}) == NAMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'vocable' has no attribute 'splade'"):
        _ = vocable.splade


def test_importing_imports_no_heavy_library() -> None:
    code = "import sys, vocable, vocable.cli; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert not set(HEAVY) & set(modules)


@pytest.mark.parametrize("command", ["--help", "pretrain --help", "wackiness --help", "recipes"])
def test_help_and_recipes_import_no_heavy_library(command: str) -> None:
    code = "import sys; from vocable.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout
    assert not set(HEAVY) & set(done.stderr.split())
