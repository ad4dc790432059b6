"""Commands that analyze: logits, term-weights, postings, wackiness, removal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from pydantic import AfterValidator, Field

from vocable.cli.declare import (
    Command,
    DType,
    MaxLength,
    Measures,
    Model,
    Numbers,
    Output,
    Seed,
    Texts,
    numbers,
    texts_of,
)

Stored = Annotated[
    list[str], typer.Argument(metavar="VECTORS"), Field(description="What vocable encode or index wrote.")
]
DocumentVectors = Annotated[
    list[str] | None,
    typer.Option(metavar="VECTORS"),
    Field(description="The documents, encoded already; may be repeated."),
]
QueryVectors = Annotated[
    list[str] | None,
    typer.Option(metavar="VECTORS"),
    Field(description="The queries, encoded already; may be repeated."),
]


def _kept(words: list[str]) -> list[int | None]:
    """The numbers of terms to keep; None for all."""
    parts = [part.strip() for word in words for part in word.split(",")]
    return [None if part == "all" else numbers([part])[0] for part in parts]


Kept = Annotated[
    list[str],
    typer.Option("--top-k", metavar="K,K..."),
    AfterValidator(_kept),
    Field(description="Terms kept per text, or all; each number is measured apart."),
]


class Logits(Command):
    """Measure a masked language model's logits.

    How much a term's score varies over the tokens, how large a token's best
    ones are, how many are not negative.

    Example: vocable logits bert-base-uncased texts.txt --clusters 50
    """

    verb: ClassVar[str] = "vocable.analysis.distributions:logits"
    model: Model
    texts: Texts
    top_k: Annotated[Numbers, Field(description="Numbers of a token's largest logits.")] = ["10", "100"]
    limit: Annotated[int, Field(ge=1, description="Texts to read.")] = 8000
    max_length: Annotated[int, Field(ge=1, description="Tokens per text.")] = 128
    clusters: Annotated[
        int | None, typer.Option(metavar="N"), Field(description="Also: do the logits tell N groups of texts apart?")
    ] = None
    embedding: Annotated[str, Field(description="Dense model that makes the groups, or lexical.")] = "lexical"

    def arguments(self) -> dict[str, Any]:
        """A stream of the texts, and the other fields."""
        return super().arguments() | {"texts": texts_of(self.texts)}


class TermWeights(Command):
    """Measure how a term's weights differ between texts.

    Example: vocable term-weights vectors --min-count 2,10
    """

    verb: ClassVar[str] = "vocable.analysis.distributions:term_weights"
    vectors: Stored
    min_count: Annotated[Numbers, Field(description="Texts that a term must be in.")] = ["1"]
    top_k: Kept = ["all"]


class Postings(Command):
    """Measure the postings lists that vectors make.

    Their lengths, over all terms and over those that are used, the longest ones,
    and how many terms a text has.

    Example: vocable postings vectors --top-k all,20,10
    """

    verb: ClassVar[str] = "vocable.analysis.distributions:postings"
    vectors: Stored
    top_k: Kept = ["all"]
    longest: Annotated[int, Field(ge=0, description="Longest lists to name.")] = 20
    model: Annotated[str | None, Field(description="Whose words the terms are, if it has moved.")] = None


class Wackiness(Command):
    """Measure how wacky the expansions of models are.

    Wacky terms stand neither in an input nor in the documents that it finds.
    The report is index.html in the output folder, beside figures, scores of
    all terms (Parquet) and JSON. Repeated after a kill, it does not encode
    again what was encoded.

    Example: vocable wackiness vocable-mini --queries q.tsv --corpus d.tsv -o w
    """

    verb: ClassVar[str] = "vocable.analysis.wackiness_report:wackiness"
    resumable: ClassVar[bool] = True
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL"),
        Field(description="Models; bm25+rm3, query2doc:MODEL, doct5query:MODEL."),
    ]
    corpus: Annotated[
        str, typer.Option(metavar="SOURCE"), Field(description="The collection: a file, beir:DIR, pydocs: ...")
    ]
    output: Output
    queries: Annotated[
        str | None, typer.Option(metavar="SOURCE"), Field(description="The inputs, unless documents are.")
    ] = None
    role: Annotated[
        Literal["query", "document"], Field(description="What is expanded: queries, or documents of the collection.")
    ] = "query"
    limit: Annotated[
        int | None, typer.Option(metavar="N"), Field(ge=1, description="Inputs at most, drawn at random.")
    ] = None
    k: Annotated[int, typer.Option("-k", "--k"), Field(ge=1, description="Documents that an input retrieves.")] = 100
    idf: Annotated[Literal["log", "bm25"], Field(description="log: log(n / df). bm25: BM25's, never 0.")] = "log"
    special: Annotated[bool, Field(description="Special tokens such as [CLS] can be expansions.")] = True
    splitter: Annotated[
        Literal["any", "words", "whitespace"],
        Field(description="Where terms are words, not tokens: which words of a text are terms."),
    ] = "any"
    bins: Annotated[int, Field(ge=1, description="Points of the curve.")] = 100
    whole_vocabulary: Annotated[bool, Field(description="Bins of all terms, not of those that have a score.")] = False
    bootstrap: Annotated[
        int, typer.Option(metavar="N"), Field(ge=0, description="Draws of the inputs; 0 for none.")
    ] = 100
    seed: Seed = 0
    names: Annotated[
        str | None,
        typer.Option(metavar="SOURCE"),
        Field(description="More texts whose capitals say which words are names."),
    ] = None
    sensitivity: Annotated[bool, Field(description="Also with other choices.")] = False
    card: Annotated[bool, Field(description="Also into the model's card, README.md in its folder.")] = False
    dtype: DType = "auto"
    max_length: MaxLength = None
    vectors: DocumentVectors = None
    query_vectors: QueryVectors = None


class Removal(Command):
    """Remove the wackiest expansions, and measure what is lost.

    Beside it, as many random ones are removed, again and again. Writes tables, a
    figure and a page. Repeated after a kill, it goes on where it stopped.

    Example: vocable removal vocable-mini beir:scifact -o removed
    """

    verb: ClassVar[str] = "vocable.analysis.removal:removal"
    resumable: ClassVar[bool] = True
    model: Model
    datasets: Annotated[
        list[str], typer.Argument(metavar="DATASET"), Field(description="beir:DIR, ir_datasets:NAME, pydocs:#test")
    ]
    output: Output
    scores: Annotated[
        Path | None, Field(description="What vocable wackiness wrote; by default made on the first dataset.")
    ] = None
    thresholds: Annotated[Numbers, Field(description="Numbers of terms to remove.")] = ["10", "100", "1000", "10000"]
    measures: Measures = None
    draws: Annotated[int, Field(ge=1, description="How often random terms are drawn.")] = 10
    role: Annotated[Literal["query", "document"], Field(description="Whose expansions are removed.")] = "query"
    seed: Seed = 0
    dtype: DType = "auto"
    max_length: MaxLength = None
    vectors: DocumentVectors = None
    query_vectors: QueryVectors = None


COMMANDS: list[type[Command]] = [Logits, TermWeights, Postings, Wackiness, Removal]
