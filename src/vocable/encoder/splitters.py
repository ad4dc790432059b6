"""The words of a text, as a tokenizer's normalization leaves them, and where they stand in it.

    words         letters, digits, marks and underscores in a row
    whitespace    whatever stands between white space

A word is normalized as the model's tokenizer normalizes a text (an uncased one lower-cases it), so that two spellings
are one word if the model reads them as one. Any function that gives the same may take their place, in Python. It
cannot be named in a recipe, on the command line or in a model's folder: to import what a name says is to run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tokenizers import PreTokenizedString, Regex, pre_tokenizers
from transformers import PreTrainedTokenizerBase

from vocable.errors import ArgumentError, ModelError


class Word(NamedTuple):
    """A normalized word and the characters of the text that it is: `text[start:end]`."""

    text: str
    start: int
    end: int


Splitter = Callable[[str], Iterable[Word]]
# Some normalizers write spaces as U+2581 already.
PATTERNS: dict[str, str] = {"words": r"\w+", "whitespace": r"[^\s▁]+"}


def splitter(tokenizer: PreTrainedTokenizerBase, name: str = "words") -> Splitter:
    """The named splitter for the texts that `tokenizer` reads; its words come in the order of the text.

    Raises:
        ArgumentError: no such splitter.
        ModelError: a tokenizer without a backend of the `tokenizers` library.
    """
    if name not in PATTERNS:
        raise ArgumentError(f"splitter must be one of {', '.join(PATTERNS)}, not {name!r}")
    normalizer = _backend_normalizer(tokenizer)
    cutter = pre_tokenizers.Split(Regex(PATTERNS[name]), "removed", invert=True)

    def split(text: str) -> list[Word]:
        pieces = PreTokenizedString(text)
        if normalizer is not None:
            pieces.normalize(normalizer.normalize)
        cutter.pre_tokenize(pieces)
        return [Word(word, start, end) for word, (start, end), _ in pieces.get_splits("original", "char")]

    return split


def normal_form(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], str]:
    """What the tokenizer's normalization makes of a word: words with the same form are one to the model.

    Raises:
        ModelError: a tokenizer without a backend of the `tokenizers` library.
    """
    normalizer = _backend_normalizer(tokenizer)
    return (lambda word: word) if normalizer is None else normalizer.normalize_str


def _backend_normalizer(tokenizer: PreTrainedTokenizerBase) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"{type(tokenizer).__name__} is not made with the tokenizers library: save it as a fast one")
    return backend.normalizer
