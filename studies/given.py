"""Models in place of those that a study names (`--model NAME=MODEL`), and gated models that have to be converted.

`--add ROW=MODEL` adds rows; the names of both options are read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vocable.errors import ArgumentError
from vocable.training.recipe import Recipe

GATED = "naver/splade-v3", "naver/splade-v3-doc"  # models of the studies that have to be converted


def read_given(texts: Sequence[str]) -> dict[str, str]:
    """Return the models of NAME=MODEL texts by the name of a row or of a checkpoint."""
    return _read(texts, "--model", "ROW=MODEL or CHECKPOINT=MODEL")


def read_added(texts: Sequence[str], taken: Iterable[str]) -> dict[str, str]:
    """Return the models of ROW=MODEL texts by the name of a new row; refuse the names of files and `taken` names."""
    added = _read(texts, "--add", "ROW=MODEL")
    for name in added:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ArgumentError(f"--add: a row's name must have letters, digits and .-_ only, not {name!r}")
        if name in taken:
            raise ArgumentError(f"--add: there is a row {name!r} already: --model {name}=MODEL replaces its model")
    return added


def _read(texts: Sequence[str], option: str, wanted: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, model in pairs:
        if not (name and equals and model):
            raise ArgumentError(f"{option}: {name + equals + model!r} is not {wanted}")
    return {name: model for name, _, model in pairs}


def check_given(given: Mapping[str, str], rows: Iterable[str], checkpoints: Iterable[str]) -> None:
    """Raise `ArgumentError` for a name of no row and no checkpoint."""
    rows, checkpoints = dict.fromkeys(rows), dict.fromkeys(checkpoints)
    if unknown := sorted(given.keys() - rows.keys() - checkpoints.keys()):
        raise ArgumentError(
            f"--model: no row and no checkpoint {unknown[0]!r} here: choose from the rows {', '.join(rows)}; "
            f"checkpoints {', '.join(checkpoints)}"
        )


def checkpoints_of(recipe: Recipe) -> Iterator[str]:
    """Yield the names of all models that a recipe reads."""
    yield recipe.model
    for stage, settings in recipe.planned():
        yield from filter(None, (getattr(settings, key) for key in stage.models))
    yield from recipe.other_models()


def rename_models(values: dict[str, Any], recipe: Recipe, renamed: Callable[[str], str]) -> None:
    """Replace the names of all models in the values of a recipe."""
    values["model"] = renamed(recipe.model)
    for stage, _ in recipe.planned():
        for key in stage.models:
            values[stage.name][key] = values[stage.name][key] and renamed(values[stage.name][key])
    training = values["training"]
    training["sparse_teacher"] = training["sparse_teacher"] and renamed(training["sparse_teacher"])
    if training["teacher"]:
        training["teacher"]["models"] = [renamed(name) for name in training["teacher"]["models"]]


def with_given(recipe: Recipe, given: Mapping[str, str]) -> Recipe:
    """Return a recipe that reads the given models in place of the checkpoints that it names."""
    if not given.keys() & set(checkpoints_of(recipe)):
        return recipe
    values = recipe.model_dump(mode="json", by_alias=False)
    rename_models(values, recipe, lambda name: given.get(name, name))
    return Recipe.model_validate(values | {"needs": recipe.needs})


def conversions(checkpoints: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield what has to be done before rows can read their gated checkpoints, given by row."""
    for model in GATED:
        if rows := [row for row, names in checkpoints.items() if model in names]:
            folder, page = model.rpartition("/")[2], f"https://huggingface.co/{model}"
            yield (
                f"for {', '.join(rows)}: {model} is gated and its weights are pickled: accept its licence at {page}, "
                f"log in (hf auth login), convert it (vocable convert {model} -o {folder}), and pass "
                f"--model {model}={folder}"
            )
