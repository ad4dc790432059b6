"""The variants of a recipe and sweeps over a key: which runs they are, their figures, and those that a paper prints.

Each run is left in OUTPUT/NAME, and OUTPUT/results.json has the figures of those that are done. The same call goes on
after a kill. A sweep makes several runs of each variant, one per value of a key.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from sentence_transformers import SparseEncoder

from vocable.data import tolerating
from vocable.encoder.load import load
from vocable.errors import ArgumentError, RecipeError, require_extra
from vocable.figures import Panel, Point, draw_panels
from vocable.storage import finished, read_record, write_record
from vocable.tables import NONE, Table, Tabular, short
from vocable.training import distributed
from vocable.training.callbacks import evaluations
from vocable.training.recipe import Recipe, Variant, read_recipe, work_settings
from vocable.training.recipe_files import load_yaml, recipe_file, scalar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = "results.json"
FLOPS = "FLOPS"


def read_sweep(text: str) -> tuple[str, list[Any]]:
    """Read a sweep written `KEY=VALUE,VALUE,...`; the values are YAML, parts with keys of their own among them.

    >>> read_sweep("training.regularizers.document=0.001,3e-3")
    ('training.regularizers.document', [0.001, 0.003])
    """
    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise RecipeError(f"--sweep {text}: expected key=value,value,...")
    return key, list(map(scalar, load_yaml(f"[{values}]", f"--sweep {text}")))


def label(value: Any) -> str:
    """Return what a swept value is called where there is little room; of a part, the values of its keys.

    >>> label(0.003), label({"query": 0.001, "document": 0.0005}), label(None)
    ('0.003', '0.001/0.0005', 'null')
    """
    if isinstance(value, dict | list):
        return "/".join(label(part) for part in (value.values() if isinstance(value, dict) else value))
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class RunResult:
    """The figures of one run: ours {measure: value}, the published {measure or column: value} and their source.

    Of several datasets each of our measures has the dataset's name in front. In a sweep, `curve` is what the runs are
    called that differ in the swept key alone, and `swept` is that key with this run's value.
    """

    measured: dict[str, float]
    published: dict[str, float] = field(default_factory=dict)
    source: str = ""
    curve: str = ""
    swept: dict[str, Any] = field(default_factory=dict)


class TrainingResults(Tabular, dict[str, RunResult]):
    """The results of several runs by their names, in the order in which they were asked for."""

    def table(self, title: str = "") -> Table:
        """Return one row per run: what was measured, then what is published, under `paper:` and the column's name."""
        ours = list(dict.fromkeys(key for result in self.values() for key in result.measured))
        theirs = list(dict.fromkeys(key for result in self.values() for key in result.published))
        rows = []
        for name, result in self.items():
            measured, published = result.measured, result.published
            written = {key: short(value) if key.endswith(FLOPS) else f"{value:.4f}" for key, value in measured.items()}
            printed = [f"{published[key]:g}" if key in published else NONE for key in theirs]
            rows.append([name, *(written.get(key, NONE) for key in ours), *printed])
        return Table(title, ["variant", *ours, *(f"paper: {key}" for key in theirs)], rows)

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON values, as they stand in results.json, under `runs`."""
        return {"runs": {name: asdict(result) for name, result in self.items()}}


def effectiveness_against_flops(results: Mapping[str, RunResult]) -> Figure:
    """Draw each measure against FLOPS, one curve a variant and one point a swept value (Jang et al. 2026, figure 2).

    Each dataset has a panel, and their mean stands in front of several. Points of a curve are joined in the order of
    the sweep. FLOPS is logarithmic, so that a run without any shared term has no place and is left out.

    Raises:
        ArgumentError: nothing was swept or measured.
        MissingExtraError: matplotlib is not installed.
    """
    require_extra("matplotlib", "figures")
    shown = [result for result in results.values() if result.swept]
    names = [key.rpartition(" ") for result in shown for key in result.measured]
    datasets, measures = (list(dict.fromkeys(name[part] for name in names)) for part in (0, 2))
    titled = {dataset: [dataset] for dataset in datasets}
    if len(datasets) > 1:
        titled = {f"mean of {len(datasets)} datasets": datasets} | titled
    panels = [
        Panel(title, measure, _curves(shown, group, measure))
        for measure in measures
        if measure != FLOPS
        for title, group in titled.items()
    ]
    if not panels:
        raise ArgumentError("nothing to draw: no run of a sweep has been measured")
    return draw_panels(panels, ", ".join(dict.fromkeys(key for result in shown for key in result.swept)))


def _curves(results: Iterable[RunResult], datasets: Sequence[str], measure: str) -> dict[str, list[Point]]:
    """The points of each curve, means over the datasets, in the order of the results."""
    found: dict[str, list[Point]] = defaultdict(list)
    for result in results:
        costs, values = ([f"{dataset} {name}".lstrip() for dataset in datasets] for name in (FLOPS, measure))
        if result.measured.keys() >= {*costs, *values}:
            flops, value = (fmean(result.measured[key] for key in keys) for keys in (costs, values))
            if flops > 0:
                found[result.curve].append(Point(flops, value, ", ".join(map(label, result.swept.values()))))
    return found


class PlannedRun(NamedTuple):
    """A recipe to carry out, and all that its result has before anything is measured."""

    recipe: Recipe
    result: RunResult


def train_planned(
    plan: dict[str, PlannedRun], output: Path, carry_out: Callable[[Recipe, Path], SparseEncoder]
) -> TrainingResults:
    """Train the runs of a plan into folders of `output`, and measure each on its recipe's evaluation datasets.

    That a recipe needs what is not shipped, or OUTPUT/NAME was made by another recipe, is known before the first is
    trained.
    """
    for name, (recipe, _) in plan.items():
        recipe.check_needs()
        finished(output / name, **work_settings(recipe))
    distributed.join()
    path = output / RESULTS
    read = partial(read_record, path, dict[str, RunResult], error=RecipeError)
    results: dict[str, RunResult] = distributed.by_first(lambda: read() if path.exists() else {})
    for name, (recipe, result) in plan.items():
        done = finished(output / name, **work_settings(recipe))
        model = None if done else carry_out(recipe, output / name)
        if not done or name not in results:
            model = model or load(output / name, trust_remote_code=recipe.trust_remote_code)
            measured = distributed.by_first(partial(_measured, model, recipe))
            results[name] = replace(result, measured=measured)
            if distributed.is_first():
                write_record(path, results)
    return TrainingResults({name: results[name] for name in plan})


def plan_runs(
    path: str | Path, names: Sequence[str] | None, overrides: Sequence[str] = (), sweep: str | None = None
) -> dict[str, PlannedRun]:
    """Return the runs of variants, once or with each value of a sweep, by the names of their folders.

    A figure that is published of a variant is none of a run with another value. A run of a sweep is called after the
    variant, the key's last part and the value: `k8-document-0.001`.

    The names of the variants stand in the order in which to train them; None is all. With a sweep, no name at all is
    the recipe itself. Overrides come after the keys of the variant, the values of the sweep last of all.
    """
    known = read_recipe(path).variants
    # An unknown one is refused when it is read.
    variants = known if names is None else {name: known.get(name, Variant()) for name in names}
    if sweep is None:
        if not variants:
            raise RecipeError(f"{path}: the recipe has no variants")
        return {
            name: PlannedRun(read_recipe(path, overrides, name), RunResult({}, variant.published, variant.source))
            for name, variant in variants.items()
        }
    plan: dict[str, PlannedRun] = {}
    key, values = read_sweep(sweep)
    chosen: list[str | None] = [*variants]
    for name in chosen or [None]:
        for value in values:
            recipe = read_recipe(path, [*overrides, f"{key}={json.dumps(value)}"], name)
            if recipe.evaluation is None:
                raise RecipeError(f"{path}: a sweep compares runs: name the datasets of evaluation")
            run = run_name(name, key, value)
            if run in plan:
                raise RecipeError(f"--sweep {key}: two values are called {label(value)}")
            plan[run] = PlannedRun(recipe, RunResult({}, curve=name or recipe_file(path).stem, swept={key: value}))
    return plan


def run_name(variant: str | None, key: str, value: Any) -> str:
    """Return a name for the folder of a run.

    >>> run_name("k8", "training.regularizers.document", 0.001), run_name(None, "model", "my/Model")
    ('k8-document-0.001', 'model-my-model')
    """
    words = [variant or "", key.rpartition(".")[2], label(value)]
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower()).strip("-.")


def _measured(model: SparseEncoder, recipe: Recipe) -> dict[str, float]:
    """The measures of the recipe and FLOPS on each of its datasets."""
    figures: dict[str, float] = {}
    with tolerating(recipe.data.skip_bad):
        for prefix, evaluation in evaluations(model, recipe):
            figures |= {f"{prefix}{measure}": value for measure, value in evaluation.values.items()}
            if evaluation.cost is not None and evaluation.cost.flops is not None:
                figures[f"{prefix}{FLOPS}"] = evaluation.cost.flops
    return figures
