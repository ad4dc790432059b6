"""removal: what a model's wackiest expansion terms are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vocable.cli.options import Json, MaxLength, Measures, Output, Precision, parse_numbers
from vocable.cli.output import show


def removal(
    model: Annotated[str, typer.Argument(help="vocable-mini, a folder, or a Hub id.")],
    datasets: Annotated[
        list[str], typer.Argument(metavar="DATASET...", help="beir:DIR, ir_datasets:NAME, pydocs:#test")
    ],
    output: Output,
    scores: Annotated[
        Path | None, typer.Option(help="What vocable wackiness wrote; by default made on the first dataset.")
    ] = None,
    thresholds: Annotated[str, typer.Option(metavar="N,N...", help="Terms to remove.")] = "10,100,1000,10000",
    measures: Measures = None,
    draws: Annotated[int, typer.Option(help="How often random terms are drawn.")] = 10,
    role: Annotated[Literal["query", "document"], typer.Option(help="Whose expansions are removed.")] = "query",
    seed: Annotated[int, typer.Option(help="Decides what is drawn.")] = 0,
    dtype: Precision = "auto",
    max_length: MaxLength = None,
    vectors: Annotated[
        list[str] | None, typer.Option(metavar="VECTORS", help="Of one dataset: its documents, encoded already.")
    ] = None,
    query_vectors: Annotated[
        list[str] | None, typer.Option(metavar="VECTORS", help="Of one dataset: its queries, encoded already.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove the wackiest expansions, and measure what is lost.

    Beside it, as many random ones are removed, again and again. Writes tables, a
    figure and a page. Repeated after a kill, it goes on where it stopped.

    Example: vocable removal vocable-mini beir:scifact -o removed
    """
    options: dict[str, Any] = {name: value for name, value in locals().items() if name != "as_json"}
    from vocable.analysis.removal import removal as remove

    options["thresholds"] = parse_numbers(thresholds, "--thresholds")
    show(remove(**options), as_json)
