"""sample: a test collection made from a log of queries and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vocable.cli.options import Json, Output, SkipBad
from vocable.cli.output import counted, print_json
from vocable.errors import ArgumentError
from vocable.progress import progress


def sample(
    log: Annotated[str, typer.Argument(metavar="LOG", help="Place of queries and positives, perhaps with scores.")],
    output: Output,
    queries: Annotated[int, typer.Option(help="Queries, at most.")] = 900,
    clusters: Annotated[int, typer.Option(help="Groups of queries to draw from alike.")] = 100,
    kind: Annotated[
        Literal["hard", "plain"], typer.Option(help="hard: with levels of overlap and hard negatives.")
    ] = "hard",
    positives: Annotated[int, typer.Option(help="If hard: positives of a query, at most.")] = 3,
    negatives: Annotated[int, typer.Option(help="If hard: negatives of a query, at most.")] = 10,
    min_overlap: Annotated[float, typer.Option(help="Share of a query's words that a hard negative has.")] = 0.5,
    distractors: Annotated[int, typer.Option(help="Further queries of each group whose documents to add.")] = 0,
    embedding: Annotated[str, typer.Option(help="Dense model that makes the groups, or lexical.")] = "lexical",
    seed: Annotated[int, typer.Option(help="Decides groups and draws.")] = 0,
    rest: Annotated[
        Path | None, typer.Option(help="Also write the examples of all other queries here, to train on.")
    ] = None,
    skip_bad: SkipBad = 0,
    as_json: Json = False,
) -> None:
    """Make a test collection from a log of queries and answers.

    A BEIR folder whose queries come from all groups of similar queries alike,
    as many of low, middle and high word overlap with their documents.

    Example: vocable sample clicks.jsonl -o test-set --queries 300
    """
    from vocable.data import BadLines, read_examples
    from vocable.evaluation.testsets import Choice, choose, read_log, write_beir, write_rest
    from vocable.storage import refuse_taken

    refuse_taken(output)
    if rest is not None and log == "-":
        raise ArgumentError("--rest reads the log a second time, which standard input cannot give")
    choice = Choice(queries, clusters, kind, positives, negatives, min_overlap, distractors)
    bad = BadLines(skip_bad)
    with progress("log") as advance:
        found = read_log(advance(1) or example for example in read_examples(log, bad=bad))
    selection = choose(found, choice, embedding=embedding, seed=seed)
    left = None
    if rest is not None:
        left = write_rest(read_examples(log, bad=BadLines(skip_bad)), selection, rest)
    write_beir(selection, output)
    documents, levels = len(selection.documents()), selection.levels()
    if as_json:
        counts: dict[str, Any] = {"rest": left} if rest is not None else {}
        counts |= {"queries": len(selection.chosen), "documents": documents, "levels": levels, "bad_lines": bad.count}
        print_json({"output": str(output)} | counts)
        return
    overlap = f" ({', '.join(f'{count:,} of {level} overlap' for level, count in levels.items())})" if levels else ""
    print(f"{output}: {counted(len(selection.chosen), 'query', 'queries')}{overlap}, {counted(documents, 'document')}")
    if bad.count:
        print(f"{counted(bad.count, 'bad line')} left out, the first: {bad.first}")
    if rest is not None and left is not None:
        print(f"{rest}: {counted(left, 'example')} of other queries")
    print(f"measure on it: vocable evaluate vocable-mini --dataset beir:{output}")
