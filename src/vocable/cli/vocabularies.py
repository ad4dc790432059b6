"""vocabulary: a normalized vocabulary trained on a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vocable.cli.options import Json, parse_numbers
from vocable.cli.output import print_json, print_table
from vocable.errors import ArgumentError

if TYPE_CHECKING:
    from rich.table import Table

    from vocable.adapt.vocabulary import Fragmentation


def vocabulary(
    texts: Annotated[list[str], typer.Argument(metavar="TEXTS...", help="Places of texts to learn from.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the tokenizer; there only when it is whole.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Tokens of the vocabulary, special ones included.")] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="N,N...", help="Instead: compare vocabularies of these sizes.")
    ] = None,
    model: Annotated[Literal["wordpiece", "bpe"], typer.Option(help="bpe knows every character.")] = "wordpiece",
    as_json: Json = False,
) -> None:
    """Train a normalized vocabulary on texts.

    Lower-case and without accents, for `vocable transfer` to move a model onto.
    With --sizes nothing is written: the table says how many tokens a word is
    cut into, and what share of the tokens the texts have too rarely to learn.

    Example: vocable vocabulary texts.txt -o vocabulary --size 20000
    """
    if (size is None) == (sizes is None) or (size is None) != (output is None):
        raise ArgumentError("give either --size with -o, or --sizes")
    asked = [size] if size is not None else parse_numbers(sizes or "", "--sizes")
    from vocable.adapt.vocabulary import count_words, fragmentation, train_vocabulary
    from vocable.data import read_texts
    from vocable.progress import progress
    from vocable.storage import refuse_taken, replacing_folder

    if output is not None:
        refuse_taken(output)
    streams = [read_texts(place) for place in texts]  # a place that is not there is known at once
    with progress("texts") as advance:
        words = count_words(_told(chain.from_iterable(streams), advance))
    tokenizers = [train_vocabulary(words, number, model=model) for number in asked]
    found = [fragmentation(tokenizer, words) for tokenizer in tokenizers]
    if output is None:
        print_json([one._asdict() for one in found]) if as_json else print_table(_table(found))
        return
    with replacing_folder(output) as unfinished:
        tokenizers[0].save_pretrained(unfinished)
    if as_json:
        print_json({"output": str(output)} | found[0]._asdict())
    else:
        print(f"{output}: {size:,} tokens, {found[0].tokens_per_word:.2f} to a word, {found[0].rare:.1%} of them rare")


def _told(texts: Iterable[str], advance: Callable[[int], object]) -> Iterator[str]:
    for text in texts:
        yield text
        advance(1)


def _table(found: Sequence[Fragmentation]) -> Table:
    from rich.table import Table

    table = Table(box=None)
    for column in ("size", "tokens/word", "rare tokens"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(f"{one.size:,}", f"{one.tokens_per_word:.3f}", f"{one.rare:.1%}")
    return table
