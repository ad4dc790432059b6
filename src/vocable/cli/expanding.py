"""expand: whole words as output terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vocable.cli.options import Json, NewHead, Output
from vocable.cli.output import print_json
from vocable.errors import ArgumentError
from vocable.progress import progress


def expand(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A masked language model: a folder or a Hub id.")],
    output: Output,
    texts: Annotated[
        list[str] | None,
        typer.Option(metavar="PLACE", help="Take the most frequent words of these texts; may be repeated."),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Of texts: how many words, 100,000 by default.")] = None,
    min_count: Annotated[int | None, typer.Option(help="Of texts: leave out words seen less often.")] = None,
    words: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead: a word a line, or in .jsonl a JSON string.")
    ] = None,
    splitter: Annotated[
        Literal["words", "whitespace"], typer.Option(help="words: letters, digits, marks and _ in a row.")
    ] = "words",
    init: Annotated[
        Literal["mean", "semantic", "random"], typer.Option(help="mean: of the decoder's rows of a word's tokens.")
    ] = "mean",
    target: Annotated[
        str | None, typer.Option(help="For semantic: a model that has words as tokens, a folder or a Hub id.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the random initialization.")] = 0,
    new_head: NewHead = False,
    as_json: Json = False,
) -> None:
    """Give a model whole words as output terms.

    The tokenizer stays: what the model reads is cut as before, and what it
    gives are words, as many as you like.

    Example: vocable expand vocable-mini --texts texts.txt --min-count 3 -o out
    """
    _check_options(texts, words, size, min_count, init, target)
    from vocable.adapt.expand import expand as widen
    from vocable.encoder.load import load, save_model
    from vocable.encoder.provenance import provenance
    from vocable.storage import refuse_taken

    refuse_taken(output)
    counts = {name: value for name, value in (("size", size), ("min_count", min_count)) if value is not None}
    options: dict[str, Any] = {"splitter": splitter, "init": init, "target": target, "seed": seed, **counts}
    if texts:
        with progress("texts") as advance:
            corpus = _counted(texts, advance)  # a place that is not there is known at once
            made = widen(load(model, new_head=new_head), texts=corpus, **options)
    else:
        made = widen(load(model, new_head=new_head), words, **options)
    save_model(made, output)
    step = provenance(made)[-1]
    count = step["words"]
    if as_json:
        keys = ("words", "init", "splitter", "covered", "tokens_per_word", "passed_over")
        print_json({"output": str(output), **{key: step[key] for key in keys if key in step}})
        return
    if "covered" in step:
        print(f"{step['covered']:.1%} of the words of the texts, {step['tokens_per_word']:.2f} tokens per word")
        if step["passed_over"]:
            print(f"passed over, because the tokenizer cannot spell them: {step['passed_over']:,} words")
    print(f"{output}: {count:,} words as terms: {init}")
    print("its terms are not its tokens: vocable.load reads it, stock loaders give the model it was made from")
    print(f"next: vocable pretrain {output} TEXTS -o DIR --steps 500 --masking whole-word")


def _check_options(
    texts: list[str] | None,
    words: Path | None,
    size: int | None,
    min_count: int | None,
    init: str,
    target: str | None,
) -> None:
    if (not texts) == (words is None):
        raise ArgumentError("give either --texts, to take the most frequent words of, or --words, a file of them")
    if words is not None and not (size is None and min_count is None):
        raise ArgumentError("--size and --min-count go with --texts: all words of a file are taken")
    if (init == "semantic") != (target is not None):
        raise ArgumentError("--init semantic and --target go together")


def _counted(texts: list[str], advance: Callable[[int], object]) -> Iterator[str]:
    from vocable.data import read_texts

    streams = [read_texts(place) for place in texts]
    return (text for text in chain.from_iterable(streams) if advance(1) is None)
