"""Commands that train, and prepare data to train on: train, recipes, mine, teacher-scores, make-testset, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from pydantic import Field

from vocable.cli import mining, sampling, training
from vocable.cli.declare import Command, Model, imported

Examples = Annotated[
    str, typer.Argument(metavar="EXAMPLES"), Field(description="Source of queries, positives, perhaps negatives.")
]
Lines = Annotated[
    Path, typer.Option("-o", "--output"), Field(description="JSON lines file; there only when it is whole.")
]


class Mine(Command):
    """Find hard negatives with the model's own index.

    Takes the best hits that are no answers. An example with too few is left
    out. Repeated after a kill, it goes on where it stopped.

    Example: vocable mine my-model pairs.jsonl -o hard.jsonl
    """

    verb: ClassVar[str] = "vocable.training.mine:mine"
    resumable: ClassVar[bool] = True
    model: Model
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

    def run(self) -> Any:
        """Mine with the loaded model."""
        given = self.arguments()
        ranks = given.pop("from_rank"), given.pop("to_rank")
        model = imported("vocable.encoder.load:load")(given.pop("model"))
        return imported(self.verb)(model, **given, ranks=ranks)


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


class Demo(Command):
    """See it all work, on Python's documentation.

    Indexes, searches, explains, compares with BM25, fine-tunes and measures again.

    Example: vocable demo
    """

    verb: ClassVar[str] = "vocable.demo:demo"
    output: Annotated[Path, typer.Option("-o", "--output"), Field(description="Folder that keeps index and model.")] = (
        Path("vocable-demo")
    )


COMMANDS: list[type[Command]] = []
OLD = [training.train, training.recipes, mining.mine, mining.score, sampling.sample, training.demo]
