"""train, pretrain, calibrate, and what goes with them: recipes and the demonstration."""

from __future__ import annotations

import os
import shutil
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vocable.cli.options import Json, Output
from vocable.cli.output import WIDTH, print_json, shortened
from vocable.errors import ArgumentError, RecipeError

if TYPE_CHECKING:
    from vocable.training.recipe import Pretraining

PROBE_TEXTS = 1000  # read for calibrate, which uses the first 256 that are not empty

Checkpoint = Annotated[str, typer.Argument(metavar="MODEL", help="A masked language model: a folder or a Hub id.")]


def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of one of vocable recipes.")],
    output: Output,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key; may be repeated.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with an unfinished run, or start anew.")] = True,
    as_json: Json = False,
) -> None:
    """Train a retriever as a recipe says.

    Repeated after a kill, it goes on where it stopped.

    Example: vocable train pydocs -o my-model --set training.steps=200
    """
    path = _recipe_file(recipe)
    from vocable.training.recipe import read_recipe
    from vocable.training.train import train as carry_out

    carry_out(read_recipe(path, overrides or ()), output, resume=resume)
    if as_json:
        print_json({"output": str(output)})
    else:
        print(f"{output}: trained; measure it: vocable evaluate {output} --dataset PLACE")


def recipes(
    name: Annotated[str | None, typer.Argument(help="The recipe to print; without it, all are listed.")] = None,
    as_json: Json = False,
) -> None:
    """List the shipped recipes, or print one.

    Example: vocable recipes pydocs
    """
    if name is not None:
        text = _shipped_recipe(name).read_text(encoding="utf-8")
        print_json({"name": name, "recipe": text}) if as_json else print(text, end="")
        return
    about = {path.stem: _first_comment(path) for path in _shipped_recipes()}
    if as_json:
        print_json(about)
        return
    width = max(map(len, about)) + 2
    for stem, comment in about.items():
        print(f"{stem:{width}}{shortened(comment, WIDTH - width)}")


def pretrain(
    model: Checkpoint,
    texts: Annotated[list[str], typer.Argument(metavar="TEXTS...", help="Places of texts to learn from.")],
    output: Output,
    steps: Annotated[int, typer.Option(help="Optimizer steps.")],
    batch_size: Annotated[int, typer.Option(help="Texts of a step.")] = 32,
    max_length: Annotated[int, typer.Option(help="Tokens of a text.")] = 128,
    masking_rate: Annotated[float, typer.Option(help="Share of the tokens to guess.")] = 0.3,
    learning_rate: Annotated[float, typer.Option(help="Peak of the cosine schedule.")] = 3e-4,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 200,
    seed: Annotated[int, typer.Option(help="Decides order, masks and dropout.")] = 0,
    as_json: Json = False,
) -> None:
    """Adapt a model by masked language modelling.

    Repeated after a kill, it goes on where it stopped.

    Example: vocable pretrain bert-base-uncased texts.txt -o out --steps 1000
    """
    from vocable.adapt.checkpoint import load_checkpoint, save_checkpoint
    from vocable.data import read_texts
    from vocable.training.pretrain import pretrain as adapt
    from vocable.unfinished import claim, partial_of, refuse_occupied

    settings = _pretraining(
        texts=texts,
        steps=steps,
        batch_size=batch_size,
        max_length=max_length,
        masking_rate=masking_rate,
        learning_rate=learning_rate,
        save_every=save_every,
    )
    refuse_occupied(output)
    mlm, tokenizer = load_checkpoint(model)
    streams = [read_texts(place) for place in texts]  # a place that is not there is known at once
    work = partial_of(output)
    claim(work, {"model": model, "seed": seed, **settings.model_dump()})
    adapt(mlm, tokenizer, (text for stream in streams for text in stream), settings, work / "run", seed=seed)
    shutil.rmtree(work / "whole", ignore_errors=True)
    save_checkpoint(mlm, tokenizer, work / "whole")
    os.replace(work / "whole", output)
    shutil.rmtree(work)
    if as_json:
        print_json({"output": str(output), "steps": steps})
    else:
        print(f"{output}: pre-trained for {steps:,} steps; next: vocable calibrate {output} TEXTS -o DIR")


def calibrate(
    model: Checkpoint,
    texts: Annotated[str, typer.Argument(help="Place of the probe texts; the first 256 are used.")],
    output: Output,
    activation_rate: Annotated[float | None, typer.Option(help="Share of the vocabulary to be active.")] = None,
    shift: Annotated[float | None, typer.Option(help="Lower the output bias by this, in logits.")] = None,
    as_json: Json = False,
) -> None:
    """Choose how much of the vocabulary is active.

    The output bias is shifted, so that a text makes a chosen share of the terms active.

    Example: vocable calibrate adapted texts.txt -o out --activation-rate 0.05
    """
    if (activation_rate is None) == (shift is None):
        raise ArgumentError("give either --activation-rate or --shift")
    from vocable.adapt.calibrate import calibrate as shift_bias
    from vocable.adapt.checkpoint import load_checkpoint, save_checkpoint
    from vocable.data import read_texts
    from vocable.unfinished import refuse_occupied

    refuse_occupied(output)
    mlm, tokenizer = load_checkpoint(model)
    probe = list(islice(read_texts(texts), PROBE_TEXTS))
    found = shift_bias(mlm, tokenizer, probe, activation_rate=activation_rate, shift=shift)
    save_checkpoint(found.mlm, tokenizer, output)
    if as_json:
        rates = {"rate_before": found.rate_before, "rate_after": found.rate_after}
        print_json({"output": str(output), "shift": found.shift} | rates)
    else:
        print(f"{output}: bias lowered by {found.shift:.3f}, active {found.rate_before:.2%} -> {found.rate_after:.2%}")


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


def _recipe_file(recipe: str) -> Path:
    """A recipe's path: its own, or that of the shipped one with this name."""
    path = Path(recipe)
    return path if path.is_file() or path.suffix in (".yaml", ".yml") else _shipped_recipe(recipe)


def _shipped_recipe(name: str) -> Path:
    found = {path.stem: path for path in _shipped_recipes()}
    if name not in found:
        raise RecipeError(f"no recipe {name!r}: name a YAML file, or one of {', '.join(found)}")
    return found[name]


def _shipped_recipes() -> list[Path]:
    return sorted(Path(str(files("vocable") / "recipes")).glob("*.yaml"))


def _first_comment(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()


def _pretraining(**values: object) -> Pretraining:
    """The settings, checked; `ArgumentError` names the option."""
    from pydantic import ValidationError

    from vocable.training.recipe import Pretraining

    try:
        return Pretraining.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        raise ArgumentError(f"{option}: {first['msg']}, not {first['input']!r}") from error
