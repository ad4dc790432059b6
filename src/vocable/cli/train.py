"""Commands that train, and prepare data to train on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import vocable as vo
from vocable.cli.command import Command, Outcome
from vocable.cli.output import quoted
from vocable.cli.repeated import once, verb_settings


def _tune(dry_run: bool = False, **given: Any) -> Outcome:
    tuned: Any = None if dry_run else _kept_tuning(given)
    tuned = vo.tune(dry_run=dry_run, **given) if tuned is None else tuned
    if not hasattr(tuned, "next_command"):  # the plan of a dry run
        return Outcome(tuned, written=())
    skipped = f" --skip-bad {given['skip_bad']}" if given.get("skip_bad") else ""
    return Outcome(tuned, tuned.next_command() + skipped)


def _kept_tuning(given: Mapping[str, Any]) -> Any:
    """Return the result of an equal call that has ended, without PyTorch; None without such a call."""
    from vocable.core.storage import finished

    if not finished(given["output"], verb_settings("tune", given)):
        return None
    from vocable.tuning.plan import Tuned

    return Tuned.read(given["output"])


def _train(variants: list[str] | None = None, **given: Any) -> Outcome:
    following = f"vocable evaluate {quoted(given['output'])} --dataset SOURCE"
    if variants is None and "sweep" not in given and _is_trained(**given):
        return Outcome(None, following, repeated=True)
    names = [name.strip() for listed in variants or [] for name in listed.split(",")]
    result = vo.train(variants="all" if names == ["all"] else names or None, **given)
    if variants or "sweep" in given:
        return Outcome(result)
    return Outcome(None, following)


def _is_trained(
    recipe: str, output: str | Path, overrides: Sequence[str] = (), variant: str | None = None, **others: Any
) -> bool:
    """Return whether a finished run of the recipe has made the output; without PyTorch."""
    from vocable.core.storage import RECIPE, finished, is_there
    from vocable.training.recipe_files import read_recipe

    return is_there(Path(output)) and finished(output, read_recipe(recipe, overrides, variant).made_from(), name=RECIPE)


def _kept_examples(given: Mapping[str, Any]) -> object:
    from vocable.data import read_examples
    from vocable.training.example_files import ExampleCounts

    return ExampleCounts.of(read_examples(given["examples"]), given["output"])


def _mine(model: str, loading: dict[str, Any], **given: Any) -> Outcome:
    return Outcome(vo.mine(vo.load(model, **loading), **given))


def _make_testset(**given: Any) -> Outcome:
    output = given["output"]
    following = f"vocable evaluate vocable-mini --dataset {quoted(f'beir:{output}')}"
    if index := given.get("index"):
        following = f"vocable bakeoff {quoted(index)} --testset {quoted(output)} -o bakeoff.html"
    return Outcome(vo.make_testset(**given), following)


TRAINING_COMMANDS = (
    Command("demo", "", "", traits="resumes no-json"),
    Command(
        "tune",
        "model corpus",
        "vocable-mini docs/ -o my-model --minutes 30",
        _tune,
        "named resumes",
        sources="corpus queries",
    ),
    Command("train", "recipe", "my-pairs -o my-model --override training.steps=200", _train, "resumes"),
    Command("recipes", "name", "my-pairs"),
    Command(
        "mine",
        "model examples",
        "my-model pairs.jsonl -o hard.jsonl",
        once("mine", _kept_examples, _mine),
        "loads resumes",
        sources="examples corpus",
    ),
    Command(
        "teacher-scores",
        "model examples",
        "my-teacher hard.jsonl -o scored.jsonl",
        once("teacher_scores", _kept_examples),
        traits="named resumes",
        sources="examples",
    ),
    Command("make-testset", "log", "clicks.jsonl -o test-set --queries 300", _make_testset),
)
