"""Commands that train, and prepare data to train on: train, recipes, mine, teacher-scores, make-testset, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from pydantic import Field

from vocable.cli.declare import Command, Loading, Output, Seed, SkipBad, imported

Examples = Annotated[
    str, typer.Argument(metavar="EXAMPLES"), Field(description="Source of queries, positives, perhaps negatives.")
]
Lines = Annotated[
    Path, typer.Option("-o", "--output"), Field(description="JSON lines file; there only when it is whole.")
]


class Mine(Loading):
    """Find hard negatives with the model's own index.

    Takes the best hits that are no answers. An example with too few is left
    out. Repeated after a kill, it goes on where it stopped.

    Example: vocable mine my-model pairs.jsonl -o hard.jsonl
    """

    verb: ClassVar[str] = "vocable.training.mine:mine"
    resumable: ClassVar[bool] = True
    examples: Examples
    output: Lines
    corpus: Annotated[
        str | None, typer.Option(metavar="SOURCE"), Field(description="Documents to search; else all positives.")
    ] = None
    index: Annotated[Path | None, Field(description="What vocable index made, in place of a corpus.")] = None
    negatives: Annotated[int, Field(ge=1, description="Negatives per example.")] = 8
    from_rank: Annotated[int, Field(ge=1, description="The first rank that a negative may have.")] = 1
    to_rank: Annotated[int, Field(ge=1, description="The last one.")] = 100
    margin: Annotated[float | None, Field(description="A negative scores below the positive's score less this.")] = None
    relative_margin: Annotated[
        float | None, typer.Option(metavar="M"), Field(description="... below (1 - M) of the positive's score.")
    ] = None
    with_scores: Annotated[bool, Field(description="Also write the model's scores.")] = False


class TeacherScores(Command):
    """Add a teacher's scores to examples.

    Of the positive and of each negative. Repeated after a kill, it goes on
    where it stopped.

    Example: vocable teacher-scores my-teacher hard.jsonl -o scored.jsonl
    """

    verb: ClassVar[str] = "vocable.training.mine:teacher_scores"
    resumable: ClassVar[bool] = True
    model: Annotated[
        str, typer.Argument(), Field(description="A cross-encoder, or a dense or sparse encoder: a folder or Hub id.")
    ]
    examples: Examples
    output: Lines
    kind: Annotated[
        Literal["cross", "dense", "sparse"] | None, Field(description="What the model is, if it does not say so.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The loaded teacher and the other fields."""
        load = imported("vocable.training.teachers:load_scoring_model")
        return {"model": load(self.model, self.kind), "examples": self.examples, "output": self.output}


class MakeTestset(Command):
    """Make a test collection from a log of queries and answers.

    A BEIR folder whose queries come from all groups of similar queries alike,
    as many of low, middle and high word overlap with their documents.

    Example: vocable make-testset clicks.jsonl -o test-set --queries 300
    """

    verb: ClassVar[str] = "vocable.evaluation.testsets:make_testset"
    writes: ClassVar[tuple[str, ...]] = ("output", "rest")
    next_step: ClassVar[str] = "vocable evaluate vocable-mini --dataset beir:{output}"
    log: Annotated[
        str, typer.Argument(metavar="LOG"), Field(description="Source of queries and positives, perhaps with scores.")
    ]
    output: Output
    queries: Annotated[int, Field(ge=1, description="Queries, at most.")] = 900
    clusters: Annotated[int, Field(ge=2, description="Groups of queries to draw from alike.")] = 100
    kind: Annotated[Literal["hard", "plain"], Field(description="hard: with levels of overlap and hard negatives.")] = (
        "hard"
    )
    positives: Annotated[int, Field(ge=1, description="If hard: positives of a query, at most.")] = 3
    negatives: Annotated[int, Field(ge=1, description="If hard: negatives of a query, at most.")] = 10
    min_overlap: Annotated[
        float, Field(gt=0, le=1, description="Share of a query's words that a hard negative has.")
    ] = 0.5
    distractors: Annotated[int, Field(ge=0, description="Further queries of each group whose documents to add.")] = 0
    embedding: Annotated[str, Field(description="Dense model that makes the groups, or lexical.")] = "lexical"
    seed: Seed = 0
    rest: Annotated[
        Path | None, Field(description="Also write the examples of all other queries here, to train on.")
    ] = None
    skip_bad: SkipBad = 0


class Train(Command):
    """Train a retriever as a recipe says.

    Repeated after a kill, it goes on where it stopped.

    Example: vocable train pydocs -o my-model --set training.steps=200
    """

    verb: ClassVar[str] = "vocable.training.train:train"
    resumable: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ("output", "figure")
    next_step: ClassVar[str] = "vocable evaluate {output} --dataset SOURCE"
    recipe: Annotated[str, typer.Argument(), Field(description="A YAML file, or the name of one of vocable recipes.")]
    output: Output
    variant: Annotated[
        str | None, typer.Option(metavar="NAME"), Field(description="Which of the recipe's variants to train.")
    ] = None
    variants: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME"),
        Field(description="Train these, or all, into OUTPUT/NAME and measure them; may be repeated."),
    ] = None
    set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE"), Field(description="Change a key; may be repeated.")
    ] = None
    sweep: Annotated[
        str | None,
        typer.Option(metavar="KEY=V1,V2,..."),
        Field(description="Train a run per value into OUTPUT and measure them."),
    ] = None
    figure: Annotated[
        Path | None, Field(description="Draw a sweep's effectiveness against FLOPS: a name in .png or .svg.")
    ] = None
    resume: Annotated[bool, Field(description="Go on with an unfinished run, or start anew.")] = True

    def arguments(self) -> dict[str, Any]:
        """The fields, as the verb calls them."""
        given = super().arguments()
        names = [name.strip() for some in self.variants or [] for name in some.split(",")]
        return given | {"variants": "all" if names == ["all"] else names or None, "overrides": given.pop("set") or ()}

    def call(self) -> Any:
        """Train; a single model says nothing."""
        result = super().call()
        return result if hasattr(result, "to_json") else None


class Recipes(Command):
    """List the shipped recipes and their variants, or print one.

    Those with a * need data, devices or code that is not shipped.

    Example: vocable recipes pydocs
    """

    verb: ClassVar[str] = "vocable.training.recipe_yaml:recipes"
    name: Annotated[
        str | None, typer.Argument(), Field(description="The recipe to print; without it, all are listed.")
    ] = None


class Demo(Command):
    """See it all work, on Python's documentation.

    Indexes, searches, explains, compares with BM25, fine-tunes and measures again.

    Example: vocable demo
    """

    verb: ClassVar[str] = "vocable.demo:demo"
    writes: ClassVar[tuple[str, ...]] = ()
    has_json: ClassVar[bool] = False
    output: Annotated[Path, typer.Option("-o", "--output"), Field(description="Folder that keeps index and model.")] = (
        Path("vocable-demo")
    )


COMMANDS: list[type[Command]] = [Demo, Train, Recipes, Mine, TeacherScores, MakeTestset]
