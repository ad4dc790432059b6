"""What each token of a vocabulary stands for in a text, whichever family the tokenizer belongs to.

Three families spell the same unit in three ways: WordPiece marks what continues a word (`##ing`), byte-level BPE and
SentencePiece mark what begins one (`Ġthe`, `▁the`), and byte-level BPE writes the bytes of UTF-8 as printable
characters (`cafÃ©` for café). A surface is the unit without the spelling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from vocable.errors import ModelError

SPACE_MARK = "▁"  # U+2581, SentencePiece's space
BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
SPELLED: dict[int, str] = bytes_to_unicode()  # how byte-level BPE writes each byte
BYTE_OF = {character: byte for byte, character in SPELLED.items()}


class Surface(NamedTuple):
    """A token as text.

    `kind` is one of
        special       a control token, by whatever name
        bytes         bytes that are no valid UTF-8 alone; `text` has them as byte-level BPE spells them
        punctuation   no letter and no digit
        word          begins a word
        continuation  goes on with one
    """

    text: str
    initial: bool  # begins a word: it carries the mark of a space, or lacks the mark of a continuation
    kind: str


def surfaces(tokenizer: PreTrainedTokenizerBase) -> list[Surface | None]:
    """The surface of every token id; None where no token has the id.

    Raises:
        ModelError: a tokenizer without a backend of the `tokenizers` library, or one whose tokens do not tell where
            words begin.
    """
    read = _reader(tokenizer)
    special = set(tokenizer.all_special_ids)
    added = tokenizer.added_tokens_decoder
    found: list[Surface | None] = [None] * (1 + max(tokenizer.get_vocab().values(), default=-1))
    for token, i in tokenizer.get_vocab().items():
        if i in special or (i in added and added[i].special):
            found[i] = Surface(token, False, "special")
        elif i in added:  # stands for itself, whatever the family's spelling
            found[i] = _surface(token.removeprefix(" "), token.startswith(" "))
        else:
            found[i] = read(token)
    return found


def marks_continuations(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the vocabulary is of WordPiece's kind, which marks what continues a word instead of what begins one."""
    return bool(getattr(_backend(tokenizer).model, "continuing_subword_prefix", None))


def _backend(tokenizer: PreTrainedTokenizerBase) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"{type(tokenizer).__name__} is not made with the tokenizers library: save it as a fast one")
    return backend


def _reader(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], Surface]:
    """How a token of this tokenizer's family is read."""
    backend = _backend(tokenizer)
    prefix = getattr(backend.model, "continuing_subword_prefix", None)
    if prefix:
        return lambda token: _surface(token.removeprefix(prefix), not token.startswith(prefix))
    described = json.loads(backend.to_str())
    steps = json.dumps([described[step] for step in ("normalizer", "pre_tokenizer", "decoder")], ensure_ascii=False)
    if '"ByteLevel"' in steps:
        return _byte_level
    if SPACE_MARK in steps:
        return _sentencepiece
    raise ModelError(f"the tokens of this {described['model']['type']} tokenizer do not tell where words begin")


def _surface(text: str, initial: bool) -> Surface:
    if not any(character.isalnum() for character in text):
        return Surface(text, initial, "punctuation")
    return Surface(text, initial, "word" if initial else "continuation")


def _byte_level(token: str) -> Surface:
    if not BYTE_OF.keys() >= set(token):  # never made by merges: stands for itself
        return _surface(token, False)
    return _bytes_surface(bytes(BYTE_OF[character] for character in token))


def _sentencepiece(token: str) -> Surface:
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
        return Surface("".join(SPELLED[byte] for byte in spelled), initial, "bytes")
