"""train, and what goes with it: recipes and the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vocable.cli.options import Json, Output
from vocable.cli.output import print_json, print_table, show
from vocable.errors import ArgumentError


def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of one of vocable recipes.")],
    output: Output,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which of the recipe's variants to train.")
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Train several into OUTPUT/NAME and measure them: all, or a,b,c."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key; may be repeated.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="KEY=V1,V2,...", help="Train one run a value into OUTPUT and measure them."),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw a sweep's effectiveness against FLOPS: a name in .png or .svg.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with an unfinished run, or start anew.")] = True,
    as_json: Json = False,
) -> None:
    """Train a retriever as a recipe says.

    Repeated after a kill, it goes on where it stopped.

    Example: vocable train pydocs -o my-model --set training.steps=200
    """
    from vocable.training.recipe_yaml import recipe_file

    path = recipe_file(recipe)
    if variant is not None and variants is not None:
        raise ArgumentError("give --variant for one, or --variants for several, not both")
    if figure is not None and sweep is None:
        raise ArgumentError("--figure draws a sweep: give --sweep KEY=VALUE,VALUE,...")
    if variants is not None or sweep is not None:
        names = [variant] if variant is not None else _names(variants)
        _train_several(path, names, output, overrides or [], sweep, figure, resume, as_json)
        return
    from vocable.training.recipe import read_recipe
    from vocable.training.train import train as carry_out

    carry_out(read_recipe(path, overrides or (), variant), output, resume=resume)
    if as_json:
        print_json({"output": str(output)})
    else:
        print(f"{output}: trained; measure it: vocable evaluate {output} --dataset PLACE")


def recipes(
    name: Annotated[str | None, typer.Argument(help="The recipe to print; without it, all are listed.")] = None,
    as_json: Json = False,
) -> None:
    """List the shipped recipes and their variants, or print one.

    Those with a * need data, devices or code that is not shipped.

    Example: vocable recipes pydocs
    """
    from vocable.training.recipe_yaml import recipes as listed

    show(listed(name), as_json)


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder that keeps index and model.")] = Path(
        "vocable-demo"
    ),
) -> None:
    """See it all work, on Python's documentation.

    Indexes, searches, explains, compares with BM25, fine-tunes and measures again.

    Example: vocable demo
    """
    from vocable.demo import run

    run(output)


def _names(variants: str | None) -> list[str] | None:
    """The variants that `--variants` names; None for all."""
    if variants == "all":
        return None
    return [] if variants is None else [name.strip() for name in variants.split(",")]


def _train_several(
    path: Path,
    names: list[str] | None,
    output: Path,
    overrides: list[str],
    sweep: str | None,
    figure: Path | None,
    resume: bool,
    as_json: bool,
) -> None:
    from vocable.analysis import figures
    from vocable.training import processes, variants

    if figure is not None:
        figures.check_figure(figure)
    results = variants.train_variants(path, names, output, overrides=overrides, sweep=sweep, resume=resume)
    if figure is not None and processes.is_first():
        figures.save_figure(figures.effectiveness_against_flops(results), figure)
    if as_json:
        print_json(variants.as_json(results))
        return
    grid = variants.side_by_side(results, path.stem)
    print_table(grid)
