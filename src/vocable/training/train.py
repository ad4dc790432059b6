"""Train retrievers by recipes: the verb `train`, which checks a recipe before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vocable.core.figures import check_figure, save_figure
from vocable.errors import ArgumentError
from vocable.training.recipe_files import read_recipe

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from vocable.training.recipe import Recipe
    from vocable.training.variants import TrainingResults


def train(
    recipe: Recipe | str | Path,
    output: str | Path,
    *,
    variant: str | None = None,
    variants: Sequence[str] | str | None = None,
    overrides: Sequence[str] = (),
    sweep: str | None = None,
    figure: str | Path | None = None,
    resume: bool = True,
) -> SparseEncoder | TrainingResults:
    """Train a retriever by a recipe.

    An interrupted run resumes from its last checkpoint when repeated; a finished run is used as it is.

    Args:
        recipe: a YAML file, or the name of a recipe that `vocable recipes` lists; in Python also the result of
            `vocable.read_recipe`.
        output: output folder (written atomically); for several runs the folder that holds their folders.
        variant: train this variant of the recipe.
        variants: train these variants, or all, into OUTPUT/NAME and evaluate them.
        overrides: change a key of the recipe, after the variant: KEY=VALUE.
        sweep: train each variant with each of these values of a key, and evaluate: KEY=VALUE,VALUE,...
        figure: with `sweep`: file for quality against FLOPS, .png or .svg.
        resume: continue unfinished work; otherwise discard it. Finished runs stay.

    Returns:
        the model; for several runs their results, which the first process also writes to OUTPUT/results.json.

    Raises:
        ArgumentError: the output is something else or another recipe made it, or arguments exclude each other.
        RecipeError: the recipe is invalid, or needs data, devices or code that are not shipped.
        DataError, ModelError: a source or model of the recipe cannot be read.
        CollapseError: the guard has stopped the run, now or in an earlier call.
    """
    # One run of a recipe, or several runs of a file.
    if variant is not None and variants is not None:
        raise ArgumentError("give `variant` for one, or `variants` for several, not both")
    if figure is not None and sweep is None:
        raise ArgumentError("figure draws a sweep: give sweep, as KEY=VALUE,VALUE,...")
    several = variants is not None or sweep is not None
    if not isinstance(recipe, str | Path):
        if several or variant is not None or overrides:
            raise ArgumentError("variants, overrides and a sweep need the file or name of a recipe, not a `Recipe`")
        single = recipe
    else:
        single = read_recipe(recipe) if several else read_recipe(recipe, overrides, variant)
    # The imports, which load PyTorch, follow the checks.
    from vocable.training.run import carry_out

    output = Path(output)
    if not several:
        return carry_out(single, output, resume=resume)
    from vocable.training import distributed
    from vocable.training.variants import effectiveness_against_flops, plan_runs, train_planned

    # The names of the variants; None stands for all.
    given = [variants] if isinstance(variants, str) else variants or []
    listed = [name.strip() for text in given for name in text.split(",")]
    names = [variant] if variant is not None else None if listed == ["all"] else listed
    if figure is not None:
        check_figure(figure)
    plan = plan_runs(str(recipe), names, overrides, sweep)
    results = train_planned(plan, output, partial(carry_out, resume=resume))
    if figure is not None and distributed.is_first():
        save_figure(effectiveness_against_flops(results), figure)
    return results
