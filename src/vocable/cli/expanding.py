"""expand: whole words as output terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vocable.cli.options import Json, Output
from vocable.cli.output import print_json
from vocable.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from vocable.adapt.expand import FrequentWords


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
    as_json: Json = False,
) -> None:
    """Give a model whole words as output terms.

    The tokenizer stays: what the model reads is cut as before, and what it
    gives are words, as many as you like.

    Example: vocable expand vocable-mini --texts texts.txt --min-count 3 -o out
    """
    _check_options(texts, words, size, min_count, init, target)
    from vocable.adapt.expand import expand as widen
    from vocable.adapt.expand import read_words
    from vocable.adapt.provenance import save_expanded
    from vocable.encoder.load import load_checkpoint, load_target
    from vocable.encoder.output_vocabulary import output_vocabulary
    from vocable.storage import refuse_taken

    refuse_taken(output)
    listed = [] if words is None else read_words(words)
    mlm, tokenizer = load_checkpoint(model)
    onto = None if target is None else load_target(target)
    found = _counted(tokenizer, texts, size, min_count, splitter) if texts else None
    try:
        made = widen(mlm, tokenizer, found.words if found else listed, init=init, target=onto, seed=seed)
    except ArgumentError as error:
        raise (error if words is None else DataError(str(error), place=str(words))) from error
    figures = {} if found is None else _figures(found)
    save_expanded(made, tokenizer, output, source=model, init=init, splitter=splitter, figures=figures)
    layer = output_vocabulary(made)
    count = 0 if layer is None else len(layer.terms)
    if as_json:
        print_json({"output": str(output), "words": count, "init": init, "splitter": splitter, **figures})
        return
    if found is not None:
        print(f"{found.covered:.1%} of the words of the texts, {found.tokens_per_word:.2f} tokens a word")
        if found.passed_over:
            print(f"passed over, because the tokenizer cannot spell them: {found.passed_over:,} words")
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


def _counted(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], size: int | None, min_count: int | None, name: str
) -> FrequentWords:
    from vocable.adapt.expand import frequent_words
    from vocable.data import read_texts
    from vocable.encoder.terms import splitter
    from vocable.progress import progress

    streams = [read_texts(place) for place in texts]  # a place that is not there is known at once
    asked = {name: value for name, value in (("size", size), ("min_count", min_count)) if value is not None}
    with progress("texts") as advance:

        def told(given: Iterable[str]) -> Iterator[str]:
            for text in given:
                yield text
                advance(1)

        return frequent_words(told(chain.from_iterable(streams)), tokenizer, split=splitter(tokenizer, name), **asked)


def _figures(found: FrequentWords) -> dict[str, float]:
    return {
        "covered": found.covered,
        "tokens_per_word": found.tokens_per_word,
        "passed_over": found.passed_over,
    }
