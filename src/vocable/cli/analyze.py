"""Commands that analyze: logits, term-weights, postings, wackiness, removal."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from vocable.cli.declare import Command, Measures, Model, Numbers, Output, Reading, Texts, numbers

Stored = Annotated[list[str], typer.Argument(metavar="VECTORS", help="What vocable encode or index wrote.")]


def _kept(words: list[str]) -> list[int | None]:
    """The numbers of terms to keep; None for all."""
    parts = [part.strip() for word in words for part in word.split(",")]
    return [None if part == "all" else numbers([part])[0] for part in parts]


Kept = Annotated[
    list[str],
    typer.Option(
        "--max-terms",
        metavar="K,K...",
        callback=_kept,
        help="Terms kept per text, or all; each number is measured apart.",
    ),
]


class AnalyzeLogits(Reading):
    """Measure a masked language model's logits.

    How much a term's score varies over the tokens, how large a token's best
    ones are, how many are not negative.

    Example: vocable analyze-logits bert-base-uncased texts.txt --clusters 50
    """

    model: Model
    texts: Texts
    top_k: Numbers


class AnalyzeWeights(Command):
    """Measure how a term's weights differ between texts.

    Example: vocable analyze-weights vectors --min-count 2,10
    """

    vectors: Stored
    min_count: Numbers
    max_terms: Kept = ["all"]


class AnalyzePostings(Command):
    """Measure the postings lists that vectors make.

    Their lengths, over all terms and over those that are used, the longest ones,
    and how many terms a text has.

    Example: vocable analyze-postings vectors --max-terms all,20,10
    """

    vectors: Stored
    max_terms: Kept = ["all"]


class MeasureWackiness(Command):
    """Measure how wacky the expansions of models are.

    Wacky terms stand neither in an input nor in the documents that it finds.
    The report is index.html in the output folder, beside figures, scores of
    all terms (Parquet) and JSON. Repeated after a kill, it does not encode
    again what was encoded.

    Example: vocable measure-wackiness vocable-mini --queries q.tsv --corpus d.tsv -o w
    """

    resumable: ClassVar[bool] = True
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Models; bm25+rm3, query2doc:MODEL, doct5query:MODEL.")
    ]
    corpus: Annotated[str, typer.Option(metavar="SOURCE", help="The collection: a file, beir:DIR, pydocs: ...")]
    output: Output
    k: Annotated[int, typer.Option("-k", "--k")]


class Ablate(Command):
    """Remove the wackiest expansions, and measure what is lost.

    Beside it, as many random ones are removed, again and again. Writes tables, a
    figure and a page. Repeated after a kill, it goes on where it stopped.

    Example: vocable ablate vocable-mini beir:scifact -o removed
    """

    resumable: ClassVar[bool] = True
    model: Model
    datasets: Annotated[list[str], typer.Argument(metavar="DATASET", help="beir:DIR, ir_datasets:NAME, pydocs:#test")]
    output: Output
    thresholds: Numbers
    measures: Measures


COMMANDS: list[type[Command]] = [AnalyzeLogits, AnalyzeWeights, AnalyzePostings, MeasureWackiness, Ablate]
