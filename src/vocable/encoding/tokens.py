"""Tokens as text: the surface of each token, and the families of tokenizers, which mark words in different ways.

The surface of a token is its text, without the spelling of its tokenizer's family. A new family is an entry of
`FAMILIES`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vocable.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SPACE_MARK = "▁"  # U+2581, SentencePiece's space
BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
# A token begins a word, continues a word, has no letter or digit, is not valid UTF-8, or is a control token.
CLASSES = ("word", "continuation", "punctuation", "bytes", "special")
PRINTED = {*range(33, 127), *range(161, 173), *range(174, 256)}  # bytes that byte-level BPE writes as themselves
OTHERS = [byte for byte in range(256) if byte not in PRINTED]  # are written as the characters from U+0100
CHARACTERS = {byte: chr(byte if byte in PRINTED else 256 + OTHERS.index(byte)) for byte in range(256)}
BYTE_OF = {character: byte for byte, character in CHARACTERS.items()}

UNUSED = re.compile(r"[\[<]unused[ _-]?\d+[\]>]|madeupword\d+", re.IGNORECASE)
# Common spellings of special tokens, for an output vocabulary, which does not list them.
SPECIAL_TOKEN = re.compile(r"[\[<](cls|sep|pad|unk|mask|bos|eos|/?s|\d+)[\]>]|<\|.*\|>", re.IGNORECASE)


class Surface(NamedTuple):
    """A token as text."""

    text: str  # text; for the kind "bytes", the spelling of byte-level BPE
    initial: bool  # begins a word: has the mark of a space, or lacks the mark of a continuation
    kind: str  # one of `CLASSES`


def backend_of(tokenizer: PreTrainedTokenizerBase | Tokenizer) -> Any:
    """Return the `tokenizers` object of a tokenizer; raise `ModelError` for a tokenizer in Python."""
    backend = tokenizer if isinstance(tokenizer, Tokenizer) else getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"{type(tokenizer).__name__} is not made with the tokenizers library: save it as a fast tokenizer"
        )
    return backend


def token_surfaces(
    tokenizer: PreTrainedTokenizerBase | Tokenizer, special: Collection[int] | None = None
) -> list[Surface | None]:
    """Return the surface of every id, None for unused ids.

    `special` are the ids of special tokens, by default the ids that a tokenizer of transformers lists.

    Raises:
        ModelError: tokens cannot be read as text.
    """
    (family, model), backend = family_of(tokenizer), backend_of(tokenizer)
    special = set(tokenizer.all_special_ids) if special is None else special  # type: ignore[union-attr]
    added, vocabulary = backend.get_added_tokens_decoder(), backend.get_vocab()
    surfaces: list[Surface | None] = [None] * (1 + max(vocabulary.values(), default=-1))
    for token, i in vocabulary.items():
        if i in special or (i in added and added[i].special):
            surfaces[i] = Surface(token, False, "special")
        elif i in added:  # spelled as plain text in every family
            surfaces[i] = _surface(token.removeprefix(" "), token.startswith(" "))
        else:
            surfaces[i] = family.read(token, model)
    return surfaces


def _surface(text: str, initial: bool) -> Surface:
    if not any(character.isalnum() for character in text):
        return Surface(text, initial, "punctuation")
    return Surface(text, initial, "word" if initial else "continuation")


def _wordpiece(token: str, model: dict[str, Any]) -> Surface:
    text = token.removeprefix(model["continuing_subword_prefix"])
    return _surface(text, text == token)


def _byte_level(token: str, model: dict[str, object]) -> Surface:
    if not BYTE_OF.keys() >= set(token):  # not made by merges: spelled as plain text
        return _surface(token, False)
    return _bytes_surface(bytes(BYTE_OF[character] for character in token))


def _sentencepiece(token: str, model: dict[str, object]) -> Surface:
    fallback = BYTE_FALLBACK.fullmatch(token)
    if fallback:
        return _bytes_surface(bytes([int(fallback[1], 16)]))
    text = token.removeprefix(SPACE_MARK)
    return _surface(text.replace(SPACE_MARK, " "), text != token)


def _bytes_surface(spelled: bytes) -> Surface:
    initial = spelled.startswith(b" ")
    spelled = spelled.removeprefix(b" ")
    try:
        return _surface(spelled.decode(), initial)
    except UnicodeDecodeError:
        return Surface("".join(CHARACTERS[byte] for byte in spelled), initial, "bytes")


class TokenizerFamily(NamedTuple):
    """A family of tokenizers: a test for its tokenizers, and the spelling of its tokens."""

    name: str
    recognizes: Callable[[dict[str, object], str], bool]  # from the model in the tokenizer's file, other steps as JSON
    read: Callable[[str, dict[str, object]], Surface]  # surface of a token that is neither special nor added
    word_mark: str = ""  # begins tokens that begin a word
    continuation_mark: str = ""  # begins tokens that continue a word

    @property
    def marks_continuations(self) -> bool:
        """True if tokens that begin a word have no mark, and the others have one."""
        return bool(self.continuation_mark)


WORDPIECE = TokenizerFamily(
    "WordPiece", lambda model, steps: bool(model.get("continuing_subword_prefix")), _wordpiece, continuation_mark="##"
)
FAMILIES = (  # the first that recognizes a tokenizer
    WORDPIECE,
    TokenizerFamily("byte-level BPE", lambda model, steps: '"ByteLevel"' in steps, _byte_level, CHARACTERS[ord(" ")]),
    TokenizerFamily("SentencePiece", lambda model, steps: SPACE_MARK in steps, _sentencepiece, SPACE_MARK),
)
WORD_MARKS = tuple(family.word_mark for family in FAMILIES if family.word_mark)
CONTINUATION_MARKS = tuple(family.continuation_mark for family in FAMILIES if family.continuation_mark)


def family_of(tokenizer: PreTrainedTokenizerBase | Tokenizer) -> tuple[TokenizerFamily, dict[str, object]]:
    """Return the family of a tokenizer, and the description of its model."""
    described = json.loads(backend_of(tokenizer).to_str())
    steps = json.dumps([described[step] for step in ("normalizer", "pre_tokenizer", "decoder")], ensure_ascii=False)
    for family in FAMILIES:
        if family.recognizes(described["model"], steps):
            return family, described["model"]
    raise ModelError(f"the tokens of this {described['model']['type']} tokenizer do not tell where words begin")


def bare_marks(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the ids of tokens that spell only white space, such as the mark of a word's beginning."""
    return {i for i, unit in enumerate(token_surfaces(tokenizer)) if unit and not unit.text.strip()}


def special_ids(vocabulary: Mapping[str, int], special: Collection[int], size: int | None = None) -> NDArray[np.int64]:
    """Return the ids below `size` of `special` and unused tokens, such as [unused7], or without a token, ascending.

    `size` is by default the highest id plus one.
    """
    ordinary = np.zeros(max(size or 0, 1 + max(vocabulary.values(), default=-1)), dtype=bool)
    ordinary[[i for token, i in vocabulary.items() if not UNUSED.fullmatch(token)]] = True
    ordinary[[i for i in special if i < len(ordinary)]] = False
    return np.flatnonzero(~ordinary[:size])


def special_columns_of(terms: Sequence[str]) -> NDArray[np.int64]:
    """Return the columns of terms that are spelled as special or unused tokens, ascending."""
    return np.flatnonzero([bool(SPECIAL_TOKEN.fullmatch(term) or UNUSED.fullmatch(term)) for term in terms])
