"""wackiness: how little the expansion terms of models have to do with what they find."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from vocable.cli.options import Json, MaxLength, Output, Precision
from vocable.cli.output import show


def wackiness(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Models; bm25+rm3, query2doc:MODEL, doct5query:MODEL.")
    ],
    corpus: Annotated[str, typer.Option(metavar="SOURCE", help="The collection: a file, beir:DIR, pydocs: ...")],
    output: Output,
    queries: Annotated[str | None, typer.Option(metavar="SOURCE", help="The inputs, unless documents are.")] = None,
    role: Annotated[
        Literal["query", "document"], typer.Option(help="What is expanded: queries, or documents of the collection.")
    ] = "query",
    limit: Annotated[int | None, typer.Option(metavar="N", help="Inputs at most, drawn at random.")] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Documents that an input retrieves.")] = 100,
    idf: Annotated[Literal["log", "bm25"], typer.Option(help="log: log(n / df). bm25: BM25's, never 0.")] = "log",
    special: Annotated[bool, typer.Option(help="Special tokens such as [CLS] can be expansions.")] = True,
    splitter: Annotated[
        Literal["any", "words", "whitespace"],
        typer.Option(help="Where terms are words, not tokens: which words of a text are terms."),
    ] = "any",
    bins: Annotated[int, typer.Option(help="Points of the curve.")] = 100,
    whole_vocabulary: Annotated[
        bool, typer.Option("--whole-vocabulary", help="Bins of all terms, not of those that have a score.")
    ] = False,
    bootstrap: Annotated[int, typer.Option(metavar="N", help="Draws of the inputs; 0 for none.")] = 100,
    seed: Annotated[int, typer.Option(help="Decides what is drawn.")] = 0,
    names: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="More texts whose capitals say which words are names.")
    ] = None,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="Also with other choices.")] = False,
    card: Annotated[bool, typer.Option("--card", help="Also into the model's card, README.md in its folder.")] = False,
    dtype: Precision = "auto",
    max_length: MaxLength = None,
    vectors: Annotated[
        list[str] | None, typer.Option(metavar="VECTORS", help="Of one model: its documents, encoded already.")
    ] = None,
    query_vectors: Annotated[
        list[str] | None, typer.Option(metavar="VECTORS", help="Of one model: its queries, encoded already.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how wacky the expansions of models are.

    Wacky terms stand neither in an input nor in the documents that it finds.
    The report is index.html in the output folder, beside figures, scores of
    all terms (Parquet) and JSON. Repeated after a kill, it does not encode
    again what was encoded.

    Example: vocable wackiness vocable-mini --queries q.tsv --corpus d.tsv -o w
    """
    options = {name: value for name, value in locals().items() if name != "as_json"}
    from vocable.analysis.wackiness_report import wackiness as measure

    show(measure(**options), as_json)
