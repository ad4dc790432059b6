"""encode and index: a corpus in, vectors or a searchable collection out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vocable.cli.options import (
    Json,
    Mass,
    MaxLength,
    MinWeight,
    Output,
    Precision,
    SkipBad,
    TopK,
    model_name,
)
from vocable.cli.output import print_json

if TYPE_CHECKING:
    from vocable.encoder.stream import EncodedCorpus

Model = Annotated[str, typer.Argument(help="vocable-mini, a folder, or a Hub id.")]
Corpus = Annotated[str, typer.Argument(help="A file, beir:DIR, ir_datasets:NAME, hf:NAME, pydocs: or - (stdin).")]


def encode(
    model: Model,
    corpus: Corpus,
    output: Output,
    role: Annotated[Literal["query", "document"], typer.Option(help="Encode as queries or documents.")] = "document",
    shard: Annotated[str, typer.Option(help="3/8: the third of eight parts of the corpus.")] = "1/1",
    top_k: TopK = None,
    min_weight: MinWeight = 0.0,
    mass: Mass = None,
    dtype: Precision = "auto",
    max_length: MaxLength = None,
    skip_bad: SkipBad = 0,
    as_json: Json = False,
) -> None:
    """Encode a corpus into Parquet files of vectors.

    Repeated after a kill, it goes on where it stopped.

    Example: vocable encode vocable-mini corpus.jsonl -o vectors
    """
    from vocable.data import BadLines, read_corpus, read_queries
    from vocable.encoder.load import load
    from vocable.encoder.stream import encode_corpus, parse_shard

    part = parse_shard(shard)
    BadLines(skip_bad)
    (read_corpus if role == "document" else read_queries)(corpus)  # what is not there is known before the model is read
    done = encode_corpus(
        load(model),
        corpus,
        output,
        role=role,
        shard=part,
        top_k=top_k,
        min_weight=min_weight,
        mass=mass,
        dtype=dtype,
        max_length=max_length,
        skip_bad=skip_bad,
        name=model_name(model),
    )
    _report(output, done, as_json)


def index(
    model: Model,
    corpus: Corpus,
    output: Output,
    bm25: Annotated[bool, typer.Option("--bm25", help="Also build the lexical index, for search --hybrid.")] = False,
    top_k: TopK = None,
    min_weight: MinWeight = 0.0,
    mass: Mass = None,
    dtype: Precision = "auto",
    max_length: MaxLength = None,
    skip_bad: SkipBad = 0,
    as_json: Json = False,
) -> None:
    """Encode a corpus and make it searchable.

    Repeated after a kill, it goes on where it stopped.

    Example: vocable index vocable-mini pydocs: -o python-docs --bm25
    """
    from vocable.search.collection import index as build

    built = build(
        model,
        corpus,
        output,
        bm25=bm25,
        top_k=top_k,
        min_weight=min_weight,
        mass=mass,
        dtype=dtype,
        max_length=max_length,
        skip_bad=skip_bad,
    )
    print_json(built.to_json()) if as_json else print(built)


def _report(output: Path, done: EncodedCorpus, as_json: bool) -> None:
    if as_json:
        print_json({"output": str(output), **done.to_json()})
    else:
        print(f"{output}: {done}")
