"""Arguments and options that several commands share, and functions that read their values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from typing_extensions import Doc, TypedDict

from vocable.encoding.pooling import PoolingName
from vocable.errors import ArgumentError
from vocable.options import Count, CountOrZero, Device, Share

if TYPE_CHECKING:
    from vocable.encoding.protocol import EncodingModel


def _checked_model(name: str) -> str:
    """Return the name of a model; raise `ModelError` for a folder without a model, before libraries are imported."""
    from vocable.encoding.graph import is_exported
    from vocable.encoding.hub import check_model

    if Path(name).is_dir() and not is_exported(name):
        check_model(name)
    return name


def _checked_place(name: str) -> str:
    """Check the name of a model, unless it is the place of an index, and return it."""
    from vocable.engines.protocols import holds_index

    return name if holds_index(name) else _checked_model(name)


Model: TypeAlias = Annotated[str, typer.Argument(help="vocable-mini, a folder, or a Hub id.", callback=_checked_model)]
ModelOrIndex: TypeAlias = Annotated[
    str, typer.Argument(metavar="MODEL", help="vocable-mini, a folder, a Hub id; or an index.", callback=_checked_place)
]
Texts: TypeAlias = Annotated[
    Sequence[str], typer.Argument(help="Sources of texts, such as a file, a folder or pydocs:.")
]
Corpus: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="CORPUS", help="A file, a folder, beir:DIR, ir_datasets:NAME, hf:NAME, pydocs: or - (stdin)."
    ),
]
Place: TypeAlias = Annotated[str, typer.Argument(help="A folder made by vocable index, or another place of an index.")]
Vectors: TypeAlias = Annotated[
    Sequence[str], typer.Argument(metavar="VECTORS", help="Output of vocable encode, or several shards of it.")
]
Output: TypeAlias = Annotated[Path, typer.Option("-o", "--output", help="Output folder (written atomically).")]
Lines: TypeAlias = Annotated[Path, typer.Option("-o", "--output", help="Output JSON Lines file (written atomically).")]
Results: TypeAlias = Annotated[Count, typer.Option("-k", "--k", help="Number of results per query.")]
Measures: TypeAlias = Annotated[
    Sequence[str] | None,
    typer.Option(
        "-m", "--measures", metavar="NAME", help="Measures of ir_measures; nDCG@10, R@1000 and RR@10 by default."
    ),
]
Seed: TypeAlias = Annotated[CountOrZero, Doc("Seed of the random choices.")]
SkipBad: TypeAlias = Annotated[CountOrZero, Doc("Number of malformed lines to skip; one more is an error.")]
Wacky: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="SCORES", help="Mark the wacky terms, by the scores of vocable measure-wackiness."),
]
WackyShare: TypeAlias = Annotated[Share | None, Doc("Share of the scored terms that counts as wacky, 0.1 by default.")]


class Loading(TypedDict, total=False):
    """Options of `vocable.load`."""

    pooling: Annotated[PoolingName | None, Doc("By default the model's own (docs/head.md).")]
    activation: Annotated[
        Literal["relu", "log1p_relu"] | None,
        Doc("relu: log(1 + ReLU(x)); log1p_relu: the logarithm of 1 + that; by default the model's own."),
    ]
    new_head: Annotated[bool, Doc("Add a new masked-language-model head, replacing any other.")]
    special_terms: Annotated[bool, Doc("Keep special and unused tokens, such as [CLS] and [UNK], as terms.")]
    device: Device


def keywords(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a command's `locals()` into keywords for the verb with the same parameters and record."""
    return {**{name: value for name, value in arguments.items() if name != "options"}, **arguments["options"]}


def read_text(text: str) -> str:
    """Return the text itself; for a text such as @FILE, return the content of the file.

    Raises:
        ArgumentError: the file does not exist, is a device, or is not UTF-8.
    """
    if not text.startswith("@"):
        return text
    if Path(text[1:]).is_char_device():  # pipes are fine
        raise ArgumentError(f"{text[1:]}: not a regular file")
    try:
        return Path(text[1:]).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ArgumentError(f"{text[1:]}: no such file (a text that begins with @ names one)") from error
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{text[1:]}: not UTF-8") from error


def texts_of(sources: Sequence[str]) -> Iterator[str]:
    """Iterate over the texts of all sources; every source must exist."""
    from vocable.data import read_texts

    return chain.from_iterable([read_texts(source) for source in sources])


def wacky_terms(scores: Path | None, share: float | None, model: EncodingModel) -> Collection[str] | None:
    """Return the terms to mark as wacky; None without scores."""
    if scores is None:
        if share is not None:
            raise ArgumentError("--wacky-share goes with --wacky FILE")
        return None
    from vocable import terms
    from vocable.encoding.term_scores import read_wacky_terms

    return read_wacky_terms(scores, terms(model), **({} if share is None else {"share": share}))
