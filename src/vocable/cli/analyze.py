"""Commands that analyze logits, stored vectors and the terms that a model adds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from annotated_types import Ge
from typing_extensions import Doc, Unpack

import vocable as vo
from vocable.cli.command import Outcome, command
from vocable.cli.options import Measures, Model, Output, SkipBad, Texts, Vectors, keywords, texts_of
from vocable.options import Count, CountOrZero, Device
from vocable.training_options import ExpansionStudy, WackinessOptions

MaxTerms = Annotated[
    Sequence[Count | None], typer.Option(metavar="K,K...", help="Terms kept per text, or all; each is measured.")
]


@command("Analyze", reads=True)
def analyze_logits(
    model: Model,
    texts: Texts,
    top_k: Annotated[Sequence[Count], Doc("Numbers of a token's largest logits to average.")] = (10, 100),
    limit: Annotated[Count | None, Doc("Largest number of texts.")] = 8000,
    max_length: Annotated[Count, Doc("Tokens per text.")] = 128,
    clusters: Annotated[
        int | None, Ge(2), Doc("Also measure how well the logits separate this many groups of texts.")
    ] = None,
    embedding: Annotated[str, Doc("Dense model that groups the texts, or lexical.")] = "lexical",
    device: Device = None,
) -> Outcome:
    """Measure a masked language model's logits.

    The variance of a term's score over the tokens, the size of a token's
    largest logits, the share of logits that are not negative.

    Example: vocable analyze-logits bert-base-uncased texts.txt --clusters 50
    """
    return Outcome(vo.analyze_logits(**locals() | {"texts": texts_of(texts)}))


@command("Analyze")
def analyze_weights(
    vectors: Vectors,
    min_count: Annotated[Sequence[Count], Doc("Least number of texts with a term; each is measured.")] = (1,),
    max_terms: MaxTerms = (None,),
) -> Outcome:
    """Measure how a term's weights differ between texts.

    Example: vocable analyze-weights vectors --min-count 2,10
    """
    return Outcome(vo.analyze_weights(list(vectors), min_count=min_count, max_terms=max_terms))


@command("Analyze")
def analyze_postings(
    vectors: Vectors,
    max_terms: MaxTerms = (None,),
    longest: Annotated[CountOrZero, Doc("Number of the longest postings lists to print.")] = 20,
    model: Annotated[str | None, Doc("Model of the vectors, for the names of the terms, if it has moved.")] = None,
) -> Outcome:
    """Measure the postings lists of vectors.

    Their lengths, over all terms and over the terms used, the longest lists,
    and the number of terms per text.

    Example: vocable analyze-postings vectors --max-terms all,20,10
    """
    return Outcome(vo.analyze_postings(list(vectors), max_terms=max_terms, longest=longest, model=model))


@command("Analyze", resumable=True)
def measure_wackiness(
    models: Annotated[
        Sequence[str], typer.Argument(metavar="MODEL", help="Models; bm25+rm3, query2doc:MODEL, doct5query:MODEL.")
    ],
    corpus: Annotated[str, typer.Option(metavar="SOURCE", help="The collection: a file, beir:DIR, pydocs: ...")],
    output: Output,
    queries: Annotated[str | None, typer.Option(metavar="SOURCE", help="Inputs, if they are queries.")] = None,
    role: Annotated[
        Literal["query", "document"], Doc("Texts whose expansions are measured: queries, or the documents of --corpus.")
    ] = "query",
    limit: Annotated[Count | None, Doc("Largest number of inputs, drawn at random.")] = None,
    names: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Further texts whose capitals tell which words are names.")
    ] = None,
    sensitivity: Annotated[bool, Doc("Also measure with each setting changed, one at a time.")] = False,
    card: Annotated[bool, Doc("Also write the result into the models' cards, README.md in their folders.")] = False,
    skip_bad: SkipBad = 0,
    **options: Unpack[WackinessOptions],
) -> Outcome:
    """Measure how wacky the expansions of models are.

    Wacky terms occur neither in an input nor in the documents that it finds.
    The report is index.html in the output folder, with figures, scores of all
    terms (Parquet) and JSON. A repeated run reuses what was encoded.

    Example: vocable measure-wackiness MODEL --queries q.tsv --corpus d.tsv -o w
    """
    return Outcome(vo.measure_wackiness(**keywords(locals())), [output])


@command("Analyze", resumable=True)
def ablate(
    model: Model,
    datasets: Annotated[
        Sequence[str], typer.Argument(metavar="DATASET", help="beir:DIR, ir_datasets:NAME, pydocs:#test")
    ],
    output: Output,
    scores: Annotated[
        Path | None, Doc("Output of vocable measure-wackiness; measured on the first dataset by default.")
    ] = None,
    thresholds: Annotated[Sequence[Count], Doc("Numbers of terms to remove.")] = (10, 100, 1000, 10000),
    measures: Measures = None,
    draws: Annotated[int, Ge(2), Doc("Number of random draws per threshold.")] = 10,
    control: Annotated[
        Literal["frequency", "number"], Doc("Random terms of the same frequencies, or only of the same number.")
    ] = "frequency",
    role: Annotated[Literal["query", "document"], Doc("Texts whose expansions are removed.")] = "query",
    skip_bad: SkipBad = 0,
    **options: Unpack[ExpansionStudy],
) -> Outcome:
    """Remove the wackiest expansions, and measure the loss.

    Compared with the same number of random terms, drawn several times. Writes
    tables, a figure and a page. An interrupted run resumes when repeated.

    Example: vocable ablate vocable-mini beir:scifact -o removed
    """
    return Outcome(vo.ablate(**keywords(locals())), [output])
