"""evaluate and compare: quality and cost, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vocable.cli.options import Json, Measures, Precision
from vocable.cli.output import print_json, print_table

if TYPE_CHECKING:
    from vocable.evaluation import Comparison
    from vocable.evaluation.grid import SearchGrid

Markdown = Annotated[bool, typer.Option("--markdown", help="Print a markdown table.")]


def evaluate(
    systems: Annotated[list[str], typer.Argument(metavar="MODEL_OR_RUN...", help="Models, or TREC run files.")],
    dataset: Annotated[str, typer.Option(metavar="PLACE", help="beir:DIR, ir_datasets:NAME or pydocs:#test.")],
    measures: Measures = None,
    bm25: Annotated[bool, typer.Option("--bm25", help="Also evaluate BM25.")] = False,
    rm3: Annotated[bool, typer.Option("--rm3", help="Also evaluate BM25 with RM3, feedback from its results.")] = False,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="Also evaluate each system fused with BM25.")] = False,
    dtype: Precision = "auto",
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="SETTINGS", help='Ways to search, as "query_top_k=5,10 rescore=100"; may be repeated.'),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="With --grid: quality against FLOPS, .png or .svg.")] = None,
    per_query: Annotated[Path | None, typer.Option(help="Write every query's values to this TSV file.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSON file for vocable compare.")] = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Measure the quality and cost of models and runs.

    With several, each is tested against the first (paired t-test). With --grid
    a model encodes once and is searched in many ways (see docs/pruning.md).

    Example: vocable evaluate vocable-mini --dataset beir:scifact --bm25
    """
    from vocable.evaluation import evaluate as run

    found = run(
        systems,
        dataset,
        measures,
        bm25=bm25,
        rm3=rm3,
        hybrid=hybrid,
        grid=grid,
        figure=figure,
        per_query=per_query,
        output=output,
        dtype=dtype,
    )
    _print(found, markdown, as_json)
    written = [str(file) for file in (figure, per_query, output) if file is not None]
    if written and not (markdown or as_json):
        print(f"written: {', '.join(written)}")


def compare(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT.json...", help="What evaluate -o wrote.")],
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Set stored evaluations side by side.

    Each is tested against the first (paired t-test).

    Example: vocable compare before.json after.json
    """
    from vocable.evaluation import compare as set_side_by_side

    _print(set_side_by_side(results), markdown, as_json)


def _print(found: Comparison | SearchGrid, markdown: bool, as_json: bool) -> None:
    if as_json:
        print_json(found.to_json())
    else:
        print(found.markdown()) if markdown else print_table(found.table())
