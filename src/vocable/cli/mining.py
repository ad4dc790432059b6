"""mine and score: hard negatives and teacher scores for training examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vocable.cli.options import Json
from vocable.cli.output import counted, print_json

Examples = Annotated[str, typer.Argument(metavar="EXAMPLES", help="Place of query, positive and perhaps negatives.")]
Lines = Annotated[Path, typer.Option("-o", "--output", help="JSON lines; there only when it is whole.")]


def mine(
    model: Annotated[str, typer.Argument(help="vocable-mini, a folder, or a Hub id.")],
    examples: Examples,
    output: Lines,
    corpus: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Documents to search; by default the examples' positives.")
    ] = None,
    index: Annotated[Path | None, typer.Option(help="A folder that vocable index made, in place of a corpus.")] = None,
    negatives: Annotated[int, typer.Option(help="Negatives of an example.")] = 8,
    from_rank: Annotated[int, typer.Option(help="The first rank that a negative may have.")] = 1,
    to_rank: Annotated[int, typer.Option(help="The last one.")] = 100,
    margin: Annotated[
        float | None, typer.Option(help="A negative scores below the positive's score less this.")
    ] = None,
    relative_margin: Annotated[
        float | None, typer.Option(metavar="M", help="A negative scores below (1 - M) of the positive's score.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Also write the model's scores.")] = False,
    as_json: Json = False,
) -> None:
    """Find hard negatives with the model's own index.

    Takes the best hits that are no answers. An example with too few is left
    out. Repeated after a kill, it goes on where it stopped.

    Example: vocable mine my-model pairs.jsonl -o hard.jsonl
    """
    from vocable.encoder.load import load
    from vocable.training.mine import mine as find

    done = find(
        load(model),
        examples,
        output,
        corpus=corpus,
        index=index,
        negatives=negatives,
        ranks=(from_rank, to_rank),
        margin=margin,
        relative_margin=relative_margin,
        scores=scores,
    )
    too_few = done.read - done.written
    if as_json:
        values = {"queries": done.read, "negatives": done.negatives, "too_few": too_few}
        print_json({"output": str(output)} | values)
        return
    print(f"{output}: {counted(done.written, 'example')} with {negatives} hard negatives each")
    if too_few:
        print(f"{counted(too_few, 'example')} with fewer left out")


def score(
    model: Annotated[str, typer.Argument(help="A cross-encoder, or a dense or sparse encoder: a folder or a Hub id.")],
    examples: Examples,
    output: Lines,
    kind: Annotated[
        Literal["cross", "dense", "sparse"] | None, typer.Option(help="What the model is, if it does not say so.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Add a teacher's scores to examples.

    Of the positive and of each negative. Repeated after a kill, it goes on
    where it stopped.

    Example: vocable score my-teacher hard.jsonl -o scored.jsonl
    """
    from vocable.training.mine import score as add
    from vocable.training.teachers import load_scoring_model

    done = add(load_scoring_model(model, kind), examples, output)
    pairs = done.written + done.negatives
    if as_json:
        print_json({"output": str(output), "examples": done.written, "scores": pairs})
    else:
        print(f"{output}: {counted(done.written, 'example')}, {counted(pairs, 'score')}")
