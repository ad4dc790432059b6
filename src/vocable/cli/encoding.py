"""encode and index: a corpus in, vectors or a searchable collection out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    parse_shard,
)
from vocable.cli.output import counted, print_json
from vocable.progress import progress

if TYPE_CHECKING:
    from vocable.data import BadLines
    from vocable.encoder.encode import TextEncoder
    from vocable.encoder.stream import StreamProgress

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
    from vocable.data import BadLines, Document, read_corpus, read_queries
    from vocable.encoder.encode import TextEncoder
    from vocable.encoder.load import load
    from vocable.encoder.stream import encode_stream

    part, bad = parse_shard(shard), BadLines(skip_bad)
    documents = (
        read_corpus(corpus, bad=bad)
        if role == "document"
        else (Document(query.id, query.text) for query in read_queries(corpus, bad=bad))
    )
    encoder = TextEncoder(
        load(model), role, top_k=top_k, min_weight=min_weight, mass=mass, dtype=dtype, max_length=max_length
    )
    with progress("encode") as advance:
        done = encode_stream(
            encoder, documents, output, model=model_name(model), source=corpus, shard=part, advance=advance
        )
    _report(output, done, encoder, bad, as_json)


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


def _report(output: Path, done: StreamProgress, encoder: TextEncoder, bad: BadLines, as_json: bool) -> None:
    rate = done.texts / done.seconds if done.seconds else 0.0
    if as_json:
        values: dict[str, Any] = {"output": str(output), "texts": done.texts, "seconds": done.seconds}
        counts = {"truncated": done.truncated, "empty": done.empty, "bad_lines": bad.count}
        print_json(values | {"texts_per_second": rate} | counts)
        return
    print(f"{output}: {counted(done.texts, 'text')}, {rate:,.0f} texts/s")
    if done.truncated:
        print(f"{counted(done.truncated, 'text')} cut at {encoder.max_length} tokens")
    if done.empty:
        print(f"{counted(done.empty, 'text')} without an active term")
    if bad.count:
        print(f"{counted(bad.count, 'bad line')} left out, the first: {bad.first}")
