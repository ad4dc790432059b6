"""logits, term-weights, postings and prune: what a model's scores and vectors look like, and smaller vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vocable.cli.options import Json, Mass, MinWeight, Output, TopK, parse_numbers
from vocable.cli.output import print_json, show
from vocable.errors import ArgumentError

Vectors = Annotated[Path, typer.Argument(metavar="VECTORS", help="What vocable encode wrote.")]
Stored = Annotated[
    list[str], typer.Argument(metavar="VECTORS...", help="What vocable encode or index wrote; several shards.")
]
Kept = Annotated[
    str, typer.Option("--top-k", metavar="K,K...", help="Terms kept of a text, measured apart; all for all.")
]


def logits(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A masked language model: a folder or a Hub id.")],
    texts: Annotated[str, typer.Argument(metavar="TEXTS", help="Source of texts.")],
    top_k: Annotated[str, typer.Option(metavar="K,K...", help="Numbers of a token's largest logits.")] = "10,100",
    limit: Annotated[int, typer.Option(help="Texts to read.")] = 8000,
    max_length: Annotated[int, typer.Option(help="Tokens of a text.")] = 128,
    clusters: Annotated[
        int | None, typer.Option(metavar="N", help="Also: do the logits tell N groups of texts apart?")
    ] = None,
    embedding: Annotated[str, typer.Option(help="Dense model that makes the groups, or lexical.")] = "lexical",
    as_json: Json = False,
) -> None:
    """Measure a masked language model's logits.

    How much a term's score varies over the tokens, how large a token's best
    ones are, how many are not negative.

    Example: vocable logits bert-base-uncased texts.txt --clusters 50
    """
    from vocable.analysis.distributions import logits as measure
    from vocable.data import read_texts

    options: dict[str, Any] = {"limit": limit, "max_length": max_length, "clusters": clusters, "embedding": embedding}
    show(measure(model, read_texts(texts), top_k=parse_numbers(top_k, "--top-k"), **options), as_json)


def term_weights(
    vectors: Stored,
    min_count: Annotated[str, typer.Option(metavar="N,N...", help="Texts that a term must be in.")] = "1",
    top_k: Kept = "all",
    as_json: Json = False,
) -> None:
    """Measure how much the weights of a term differ between texts.

    Example: vocable term-weights vectors --min-count 2,10
    """
    from vocable.analysis.distributions import term_weights as measure

    show(measure(vectors, min_count=parse_numbers(min_count, "--min-count"), top_k=_kept(top_k)), as_json)


def postings(
    vectors: Stored,
    top_k: Kept = "all",
    longest: Annotated[int, typer.Option(help="Longest lists to name.")] = 20,
    model: Annotated[str | None, typer.Option(help="Whose words the terms are, if it has moved.")] = None,
    as_json: Json = False,
) -> None:
    """Measure the postings lists that vectors make.

    Their lengths, over all terms and over those that are used, the longest ones,
    and how many terms a text has.

    Example: vocable postings vectors --top-k all,20,10
    """
    from vocable.analysis.distributions import postings as measure

    show(measure(vectors, top_k=_kept(top_k), longest=longest, model=model), as_json)


def _kept(text: str) -> list[int | None]:
    """The numbers of "all,20,10"."""
    return [None if part == "all" else parse_numbers(part, "--top-k")[0] for part in text.split(",")]


def prune(
    vectors: Vectors,
    output: Output,
    top_k: TopK = None,
    min_weight: MinWeight = 0.0,
    mass: Mass = None,
    wacky: Annotated[
        Path | None, typer.Option(metavar="SCORES", help="Remove the wackiest expansion terms: of vocable wackiness.")
    ] = None,
    wackiest: Annotated[int | None, typer.Option(metavar="N", help="With --wacky: so many terms.")] = None,
    texts: Annotated[
        str | None, typer.Option(metavar="PLACE", help="With --wacky: what was encoded, whose own terms stay.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --wacky: what encoded it, if it has moved.")] = None,
    as_json: Json = False,
) -> None:
    """Keep only the heaviest terms of stored vectors.

    Of queries or of documents. A term stays if it meets every limit, and with
    --wacky if it is none of the wackiest or stands in the text itself.

    Example: vocable prune vectors -o small --top-k 20
    """
    from vocable.storage import refuse_taken
    from vocable.vectors import check_limits
    from vocable.vectors import prune as prune_vectors

    limits: dict[str, Any] = {"top_k": top_k, "min_weight": min_weight, "mass": mass}
    if wacky is not None:
        check_limits(**limits)
        refuse_taken(output)
        if wackiest is None or texts is None:
            raise ArgumentError("--wacky needs --wackiest N and --texts SOURCE")
        from vocable.analysis.removal import open_wacky_pruner

        limits["then"] = open_wacky_pruner(vectors, wacky, wackiest=wackiest, texts=texts, model=model)
    elif any(option is not None for option in (wackiest, texts, model)):
        raise ArgumentError("--wackiest, --texts and --model go with --wacky")
    elif top_k is None and mass is None and not min_weight:
        raise ArgumentError("give --top-k, --min-weight, --mass or --wacky")
    before, after = prune_vectors(vectors, output=output, **limits)
    if as_json:
        print_json({"output": str(output), "postings_before": before, "postings": after})
    else:
        print(f"{output}: {after:,} of {before:,} postings kept")
