"""Read what words of the command line name: texts, files and scores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from vocable.errors import ArgumentError

if TYPE_CHECKING:
    from vocable.encoding.protocol import EncodingModel


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
            raise ArgumentError("--wacky-share goes with --wacky SCORES")
        return None
    from vocable import terms
    from vocable.encoding.term_scores import read_wacky_terms

    return read_wacky_terms(scores, terms(model), **({} if share is None else {"share": share}))
