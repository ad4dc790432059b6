"""Commands that train, and prepare data to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from vocable import imported
from vocable.cli.declare import Command, Loading, Output

Examples = Annotated[str, typer.Argument(help="Source of queries, positives, perhaps negatives.")]
Lines = Annotated[Path, typer.Option("-o", "--output", help="JSON lines file; there only when it is whole.")]


class Mine(Loading):
    """Find hard negatives with the model's own index.

    Takes the best hits that are no answers. An example with too few is left
    out. Repeated after a kill, it goes on where it stopped.

    Example: vocable mine my-model pairs.jsonl -o hard.jsonl
    """

    resumable: ClassVar[bool] = True
    examples: Examples
    output: Lines

    def arguments(self) -> dict[str, Any]:
        """The loaded model and the other fields."""
        rule = (self.negatives, self.from_rank, self.to_rank, self.margin, self.relative_margin)
        imported("vocable.training.mine:NegativeRule")(*rule)  # which says what cannot be before the model is read
        return super().arguments()


class TeacherScores(Command):
    """Add a teacher's scores to examples.

    Of the positive and of each negative. Repeated after a kill, it goes on
    where it stopped.

    Example: vocable teacher-scores my-teacher hard.jsonl -o scored.jsonl
    """

    resumable: ClassVar[bool] = True
    model: Annotated[str, typer.Argument(help="A cross-encoder, or a dense or sparse encoder: a folder or Hub id.")]
    examples: Examples
    output: Lines

    def arguments(self) -> dict[str, Any]:
        """The loaded teacher and the other fields."""
        load = imported("vocable.training.teachers:load_scoring_model")
        return {"model": load(self.model, self.kind, self.device), "examples": self.examples, "output": self.output}


class MakeTestset(Command):
    """Make a test collection from a log of queries and answers.

    A BEIR folder whose queries come from all groups of similar queries alike,
    as many of low, middle and high word overlap with their documents.

    Example: vocable make-testset clicks.jsonl -o test-set --queries 300
    """

    writes: ClassVar[tuple[str, ...]] = ("output", "train_output")
    next_step: ClassVar[str] = "vocable evaluate vocable-mini --dataset beir:{output}"
    log: Annotated[str, typer.Argument(help="Source of queries and positives, perhaps with scores.")]
    output: Output


class Train(Command):
    """Train a retriever as a recipe says.

    Repeated after a kill, it goes on where it stopped.

    Example: vocable train pydocs -o my-model --set training.steps=200
    """

    python_only: ClassVar[tuple[str, ...]] = ("overrides",)
    resumable: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ("output", "figure")
    next_step: ClassVar[str] = "vocable evaluate {output} --dataset SOURCE"
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of one of vocable recipes.")]
    output: Output
    variant: Annotated[str | None, typer.Option(metavar="NAME")]
    variants: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Train these, or all, into OUTPUT/NAME and measure them."),
    ]
    set: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Change a key.")] = None
    sweep: Annotated[str | None, typer.Option(metavar="KEY=V1,V2,...")]

    def arguments(self) -> dict[str, Any]:
        """The values, as the verb calls them."""
        given = super().arguments()
        names = [name.strip() for some in self.variants or [] for name in some.split(",")]
        return given | {"variants": "all" if names == ["all"] else names or None, "overrides": given.pop("set") or ()}

    def following(self) -> str:
        """Several runs have been measured already."""
        return "" if self.variants or self.sweep else self.next_step

    def call(self) -> Any:
        """Train; a single model says nothing."""
        result = super().call()
        return result if hasattr(result, "to_json") else None


class Recipes(Command):
    """List the built-in recipes, or print one.

    Those with a * need data, devices or code that vocable does not bring.

    Example: vocable recipes pydocs
    """

    name: Annotated[str | None, typer.Argument(help="The recipe to print; without it, all are listed.")]


class Demo(Command):
    """See it all work, on Python's documentation.

    Indexes, searches, explains, compares with BM25, fine-tunes and measures again;
    with --serve a page shows the index in the browser.

    Example: vocable demo
    """

    resumable: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ()
    has_json: ClassVar[bool] = False
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder that keeps index and model.")]


COMMANDS: list[type[Command]] = [Demo, Train, Recipes, Mine, TeacherScores, MakeTestset]
