"""Variants of a recipe and sweeps over a key: their runs, measured and published figures.

Each run is in OUTPUT/NAME, and OUTPUT/results.json has the figures of the finished runs.
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
from typing import TYPE_CHECKING, Any, TypeAlias

from sentence_transformers import SparseEncoder

from vocable.core.figures import Panel, Point, draw_panels
from vocable.core.steps import record_so_far
from vocable.core.storage import RECIPE, finished, write_record
from vocable.core.tables import NONE, Table, Tabular, short
from vocable.data import tolerating
from vocable.errors import ArgumentError, RecipeError, require_extra
from vocable.training import distributed
from vocable.training.callbacks import evaluations
from vocable.training.recipe import Recipe, Variant
from vocable.training.recipe_files import load_yaml, read_recipe, recipe_file, scalar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = "results.json"
FLOPS = "FLOPS"


def read_sweep(text: str) -> tuple[str, list[Any]]:
    """Read a sweep `KEY=VALUE,VALUE,...`, with values in YAML, possibly mappings.

    >>> read_sweep("training.regularizers.document=0.001,3e-3")
    ('training.regularizers.document', [0.001, 0.003])
    """
    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise RecipeError(f"sweep {text}: expected KEY=VALUE,VALUE,...")
    return key, list(map(scalar, load_yaml(f"[{values}]", f"sweep {text}")))


def label(value: Any) -> str:
    """Return a short name of a swept value; a mapping is named by the values of its keys.

    >>> label(0.003), label({"query": 0.001, "document": 0.0005}), label(None)
    ('0.003', '0.001/0.0005', 'null')
    """
    if isinstance(value, dict | list):
        return "/".join(label(part) for part in (value.values() if isinstance(value, dict) else value))
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class RunResult:
    """Figures of a run."""

    measured: dict[str, float]  # by measure; with several datasets, by dataset and measure
    published: dict[str, float] = field(default_factory=dict)  # by measure or column
    source: str = ""  # source of the published figures
    curve: str = ""  # in a sweep: a name shared by the runs that differ only in the swept key
    swept: dict[str, Any] = field(default_factory=dict)  # the swept key, and its value


class TrainingResults(Tabular, dict[str, RunResult]):
    """The results of several runs by name, in the order of the call."""

    def table(self, title: str = "") -> Table:
        """Return a row per run: measured figures, then published figures under `paper: NAME`."""
        measures = list(dict.fromkeys(key for result in self.values() for key in result.measured))
        columns = list(dict.fromkeys(key for result in self.values() for key in result.published))
        rows = []
        for name, result in self.items():
            measured, published = result.measured, result.published
            written = {key: short(value) if key.endswith(FLOPS) else f"{value:.4f}" for key, value in measured.items()}
            printed = [f"{published[key]:g}" if key in published else NONE for key in columns]
            rows.append([name, *(written.get(key, NONE) for key in measures), *printed])
        return Table(title, ["variant", *measures, *(f"paper: {key}" for key in columns)], rows)

    def to_json(self) -> dict[str, object]:
        return {"runs": {name: asdict(result) for name, result in self.items()}}


def effectiveness_against_flops(results: Mapping[str, RunResult]) -> Figure:
    """Draw each measure against FLOPS, with a curve per variant and a point per value (Jang et al. 2026, figure 2).

    Each dataset has a panel; with several, their mean comes first. Points are joined in the order of the sweep. The
    FLOPS axis is logarithmic, so a run without shared terms is left out.
    """
    require_extra("matplotlib", "figures")
    shown = [result for result in results.values() if result.swept]
    names = [key.rpartition(" ") for result in shown for key in result.measured]
    datasets, measures = (list(dict.fromkeys(name[part] for name in names)) for part in (0, 2))
    titled = {dataset: [dataset] for dataset in datasets}
    if len(datasets) > 1:
        titled = {f"mean of {len(datasets)} datasets": datasets} | titled
    measures = [measure for measure in measures if measure != FLOPS]
    panels = [
        Panel(title, measure, _curves(shown, group, measure)) for measure in measures for title, group in titled.items()
    ]
    if not panels:
        raise ArgumentError("nothing to draw: no run of a sweep has been measured")
    return draw_panels(panels, ", ".join(dict.fromkeys(key for result in shown for key in result.swept)))


def _curves(results: Iterable[RunResult], datasets: Sequence[str], measure: str) -> dict[str, list[Point]]:
    """Return the points of each curve, means over the datasets, in the order of the results."""
    curves: dict[str, list[Point]] = defaultdict(list)
    for result in results:
        costs, values = ([f"{dataset} {name}".lstrip() for dataset in datasets] for name in (FLOPS, measure))
        if result.measured.keys() >= {*costs, *values}:
            flops, value = (fmean(result.measured[key] for key in keys) for keys in (costs, values))
            if flops > 0:
                curves[result.curve].append(Point(flops, value, ", ".join(map(label, result.swept.values()))))
    return curves


PlannedRuns: TypeAlias = dict[str, tuple[Recipe, RunResult]]  # by the name of a run; results without measured figures


def train_planned(
    plan: PlannedRuns, output: Path, carry_out: Callable[[Recipe, Path], SparseEncoder]
) -> TrainingResults:
    """Train the runs of a plan into folders of `output`, and evaluate each on the datasets of its recipe."""
    for name, (recipe, _) in plan.items():  # unmet needs and folders of other recipes are refused first
        recipe.check_needs()
        finished(output / name, recipe.made_from(), name=RECIPE)
    distributed.join()
    path = output / RESULTS
    results: dict[str, RunResult] = distributed.by_first(lambda: record_so_far(path, dict[str, RunResult]))
    for name, (recipe, result) in plan.items():
        if name in results and finished(output / name, recipe.made_from(), name=RECIPE):
            continue
        model = carry_out(recipe, output / name)  # a finished model is loaded
        results[name] = replace(result, measured=distributed.by_first(partial(_measured, model, recipe)))
        if distributed.is_first():
            write_record(path, results)
    return TrainingResults({name: results[name] for name in plan})


def plan_runs(
    path: str | Path, names: Sequence[str] | None, overrides: Sequence[str] = (), sweep: str | None = None
) -> PlannedRuns:
    """Return the runs of variants, by the names of their folders; a sweep has a run for each variant and value.

    The variants are trained in the order of `names`; None stands for all. A sweep without names sweeps the recipe
    itself. Overrides are applied after the keys of the variant, and the values of the sweep last.
    """
    known = read_recipe(path).variants  # an unknown variant is refused where its recipe is read
    variants = known if names is None else {name: known.get(name, Variant()) for name in names}
    # A run for each variant.
    if sweep is None:
        if not variants:
            raise RecipeError(f"{path}: the recipe has no variants")
        return {
            name: (read_recipe(path, overrides, name), RunResult({}, variant.published, variant.source))
            for name, variant in variants.items()
        }
    # A run for each variant and value, or for the recipe and each value.
    plan: PlannedRuns = {}
    key, values = read_sweep(sweep)
    bases: list[str | None] = [*variants]
    for name in bases or [None]:
        for value in values:
            recipe = read_recipe(path, [*overrides, f"{key}={json.dumps(value)}"], name)
            if recipe.evaluation is None:
                raise RecipeError(f"{path}: a sweep needs evaluation.datasets")
            run = run_name(name, key, value)
            if run in plan:
                raise RecipeError(f"sweep {key}: two values have the name {label(value)}")
            plan[run] = recipe, RunResult({}, curve=name or recipe_file(path).stem, swept={key: value})
    return plan


def run_name(variant: str | None, key: str, value: Any) -> str:
    """Return the name of the folder of a run.

    >>> run_name("k8", "training.regularizers.document", 0.001), run_name(None, "model", "my/Model")
    ('k8-document-0.001', 'model-my-model')
    """
    words = [variant or "", key.rpartition(".")[2], label(value)]
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower()).strip("-.")


def _measured(model: SparseEncoder, recipe: Recipe) -> dict[str, float]:
    figures: dict[str, float] = {}
    with tolerating(recipe.data.skip_bad):
        for prefix, evaluation in evaluations(model, recipe.evaluation, recipe.place) if recipe.evaluation else ():
            figures |= {f"{prefix}{measure}": value for measure, value in evaluation.values.items()}
            if evaluation.cost is not None and evaluation.cost.flops is not None:
                figures[f"{prefix}{FLOPS}"] = evaluation.cost.flops
    return figures
