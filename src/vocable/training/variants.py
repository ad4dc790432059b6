"""The variants of a recipe, trained and measured one after another, beside the figures that a paper prints of them.

Each run is left in OUTPUT/NAME, a folder as `train` makes it, and OUTPUT/results.json has the figures of those that are
done. The same call goes on after a kill: what is done is passed over, what was begun goes on from its checkpoint. A
sweep makes several runs of each variant, one a value.

A sweep: one key of a recipe that takes several values, a run for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sentence_transformers import SparseEncoder

from vocable.encoder.load import load
from vocable.errors import RecipeError
from vocable.evaluation import evaluate, load_dataset
from vocable.progress import progress
from vocable.storage import read_record, write_record
from vocable.tables import NONE, Table, short
from vocable.training import processes
from vocable.training.batch_statistics import short_name
from vocable.training.recipe import Recipe, Variant, read_recipe
from vocable.training.recipe_yaml import scalar
from vocable.training.train import made_by, train


class Sweep(NamedTuple):
    """The key, its path with dots between, and the values that it takes in turn."""

    key: str
    values: tuple[Any, ...]

    @property
    def overrides(self) -> Iterator[str]:
        """Each value as `vocable.training.recipe.read_recipe` takes it."""
        return (f"{self.key}={json.dumps(value)}" for value in self.values)


def read_sweep(text: str) -> Sweep:
    """The sweep that `KEY=VALUE,VALUE,...` says; the values are YAML, parts with keys of their own among them.

    >>> read_sweep("training.regularizers.document=0.001,3e-3")
    Sweep(key='training.regularizers.document', values=(0.001, 0.003))

    Raises:
        RecipeError: there is no `=`, or no value, or what stands there is not YAML.
    """
    key, equals, given = text.partition("=")
    if not equals or not given.strip():
        raise RecipeError(f"--sweep {text}: expected key=value,value,...")
    try:
        values = yaml.safe_load(f"[{given}]")
    except yaml.YAMLError as error:
        raise RecipeError(f"--sweep {text}: the values are not YAML") from error
    return Sweep(key, tuple(map(scalar, values)))


def label(value: Any) -> str:
    """What a swept value is called where there is little room; of a part, the values of its keys.

    >>> label(0.003), label({"query": 0.001, "document": 0.0005}), label(None)
    ('0.003', '0.001/0.0005', 'null')
    """
    if isinstance(value, dict):
        return "/".join(label(part) for part in value.values())
    if isinstance(value, list):
        return "/".join(label(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value)


RESULTS = "results.json"
FLOPS = "FLOPS"


@dataclass(frozen=True)
class Result:
    """The figures of one run: ours {measure: value}, the published {measure or column: value} and their source.

    Of several datasets each of our measures has the dataset's name in front. In a sweep, `curve` is what the runs are
    called that differ in the swept key alone, and `swept` is that key with this run's value.
    """

    measured: dict[str, float]
    published: dict[str, float] = field(default_factory=dict)
    source: str = ""
    curve: str = ""
    swept: dict[str, Any] = field(default_factory=dict)


class Results(dict[str, Result]):
    """{name: result} of runs, in their order; its text is a table."""

    def to_json(self) -> dict[str, Any]:
        """The results as JSON values, as they stand in results.json, under `runs`."""
        return {"runs": {name: asdict(result) for name, result in self.items()}}

    def __str__(self) -> str:
        return str(side_by_side(self))


class Run(NamedTuple):
    """A recipe to carry out, and all that its result has before anything is measured."""

    recipe: Recipe
    result: Result


def train_variants(
    path: str | Path,
    names: Sequence[str] | None,
    output: str | Path,
    *,
    overrides: Sequence[str] = (),
    sweep: str | None = None,
    resume: bool = True,
) -> Results:
    """Train variants of a recipe into folders of `output`, and measure each on the recipe's evaluation datasets.

    Args:
        path: the recipe, a YAML file.
        names: of the variants, in the order in which to train them; None for all. With a sweep, none at all is the
            recipe itself.
        output: the folder that holds theirs.
        overrides: keys of all variants, as for `read_recipe`; they come after those of the variant.
        sweep: `KEY=VALUE,VALUE,...`; each variant is trained once with each of these values, which come last of all.
            A run is then called after the variant, the key's last part and the value: `k8-document-0.001`.
        resume: False throws unfinished work away and starts anew; what is done stays.

    Returns:
        {name: result} of the runs that were asked for.

    Raises:
        RecipeError: the recipe, a variant or the sweep is not as it should be, needs what is not shipped, or
            OUTPUT/NAME was made by another recipe; all of this is known before the first is trained.
        DataError, ModelError: what a recipe names cannot be read.
    """
    output = Path(output)
    plan = _plan(path, names, overrides) if sweep is None else _sweep_plan(path, names, overrides, read_sweep(sweep))
    for name, (recipe, _) in plan.items():
        recipe.check_needs()
        if (output / name).exists() and not made_by(recipe, output / name):
            raise RecipeError(f"{output / name} was made by another recipe: name another output, or remove it")
    processes.join()
    results = processes.by_first(lambda: _read_results(output))
    for name, (recipe, result) in plan.items():
        done = (output / name).exists()
        model = None if done else train(recipe, output / name, resume=resume)
        if not done or name not in results:
            trained = model or load(output / name)
            measured = processes.by_first(partial(_measured, trained, recipe))
            results[name] = replace(result, measured=measured)
            if processes.is_first():
                write_record(output / RESULTS, results)
    return Results({name: results[name] for name in plan})


def _plan(path: str | Path, names: Sequence[str] | None, overrides: Sequence[str]) -> dict[str, Run]:
    """The runs of variants, by their names."""
    asked = _asked(path, names)
    if not asked:
        raise RecipeError(f"{path}: the recipe has no variants")
    recipes = {name: read_recipe(path, overrides, name) for name in asked}
    return {name: Run(recipes[name], Result({}, variant.published, variant.source)) for name, variant in asked.items()}


def _sweep_plan(
    path: str | Path, names: Sequence[str] | None, overrides: Sequence[str], sweep: Sweep
) -> dict[str, Run]:
    """The runs of a sweep; a figure that is published of a variant is none of a run with another value."""
    plan: dict[str, Run] = {}
    variants: list[str | None] = [*_asked(path, names)]
    for variant in variants or [None]:
        for value, override in zip(sweep.values, sweep.overrides, strict=True):
            recipe = read_recipe(path, [*overrides, override], variant)
            if recipe.evaluation is None:
                raise RecipeError(f"{path}: a sweep compares runs: name the datasets of evaluation")
            name = _run_name(variant, sweep.key, value)
            if name in plan:
                raise RecipeError(f"--sweep {sweep.key}: two values are called {label(value)}")
            plan[name] = Run(recipe, Result({}, curve=variant or Path(path).stem, swept={sweep.key: value}))
    return plan


def _asked(path: str | Path, names: Sequence[str] | None) -> dict[str, Variant]:
    known = read_recipe(path).variants
    if names is None:
        return known
    return {name: known.get(name, Variant()) for name in names}  # an unknown one is refused when it is read


def _run_name(variant: str | None, key: str, value: Any) -> str:
    """A name for the folder of a run.

    >>> _run_name("k8", "training.regularizers.document", 0.001), _run_name(None, "model", "my/Model")
    ('k8-document-0.001', 'model-my-model')
    """
    words = [variant or "", key.rpartition(".")[2], label(value)]
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower()).strip("-.")


def side_by_side(results: dict[str, Result], title: str = "") -> Table:
    """One row a variant: what was measured, then what is published, under `paper:` and the column's name."""
    ours = list(dict.fromkeys(key for result in results.values() for key in result.measured))
    theirs = list(dict.fromkeys(key for result in results.values() for key in result.published))
    rows = [
        [
            name,
            *(_cell(result.measured.get(key), key) for key in ours),
            *(NONE if key not in result.published else f"{result.published[key]:g}" for key in theirs),
        ]
        for name, result in results.items()
    ]
    return Table(title, ["variant", *ours, *(f"paper: {key}" for key in theirs)], rows)


def _cell(value: float | None, key: str) -> str:
    if value is None:
        return NONE
    return short(value) if key.endswith(FLOPS) else f"{value:.4f}"


def _read_results(output: Path) -> dict[str, Result]:
    path = output / RESULTS
    return read_record(path, dict[str, Result], error=RecipeError) if path.exists() else {}


def _measured(model: SparseEncoder, recipe: Recipe) -> dict[str, float]:
    """The measures of the recipe and FLOPS on each of its datasets."""
    figures: dict[str, float] = {}
    if recipe.evaluation is None:
        return figures
    for place in recipe.evaluation.datasets:
        prefix = f"{short_name(place)} " if len(recipe.evaluation.datasets) > 1 else ""
        dataset = load_dataset(recipe.place(place))
        with progress(short_name(place), total=len(dataset.documents)) as advance:
            found = evaluate(model, dataset, recipe.evaluation.measures, advance=advance)
        for measure, value in found.values.items():
            figures[f"{prefix}{measure}"] = value
        if found.cost is not None and found.cost.flops is not None:
            figures[f"{prefix}{FLOPS}"] = found.cost.flops
    return figures
