"""inference-free: a model whose queries are looked up."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from vocable.cli.options import Json, Output
from vocable.cli.output import print_json
from vocable.errors import ArgumentError
from vocable.progress import progress


def inference_free(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="vocable-mini, a folder, or a Hub id.")],
    output: Output,
    weights: Annotated[
        Literal["idf", "ones"], typer.Option(help="Of a query's tokens: by a corpus, or all the same.")
    ] = "idf",
    corpus: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Texts whose document frequencies give the IDF.")
    ] = None,
    formula: Annotated[
        Literal["bm25", "log"], typer.Option(help="log(1 + (n - df + 0.5) / (df + 0.5)), or log(n / df).")
    ] = "bm25",
    trainable: Annotated[bool, typer.Option("--trainable", help="Let a later training move the weights.")] = False,
    as_json: Json = False,
) -> None:
    """Give a model queries that need no encoder.

    A query is its distinct tokens, each with a weight that is looked up, and
    documents are encoded as before. Train the result for good rankings.

    Example: vocable inference-free vocable-mini --corpus pydocs: -o out
    """
    if (weights == "idf") != (corpus is not None):
        raise ArgumentError("--weights idf needs --corpus PLACE, and --weights ones has none")
    from vocable.data import read_texts
    from vocable.encoder.load import load, save_model
    from vocable.encoder.roles import inference_free as look_queries_up
    from vocable.encoder.roles import static_embedding
    from vocable.storage import refuse_taken

    refuse_taken(output)
    texts = None if corpus is None else read_texts(corpus)  # a place that is not there is known at once
    with progress("texts") as advance:
        counted = None if texts is None else (text for text in texts if advance(1) is None)
        made = look_queries_up(load(model), counted, weights=weights, formula=formula, trainable=trainable)
    save_model(made, output)
    table = static_embedding(made, "query")
    tokens = 0 if table is None else int((table.weight > 0).sum())
    if as_json:
        settings = {"weights": weights, "corpus": corpus, "formula": formula if corpus else None}
        print_json({"output": str(output), **settings, "trainable": trainable, "tokens": tokens})
    else:
        print(f"{output}: {tokens:,} tokens have a weight, and no encoder reads a query")
        print(f"next: vocable evaluate {output} --dataset PLACE, or a recipe with model: {output}")
