"""Align two vocabularies: find the tokens that are the same unit, and cut the tokens of one by the other tokenizer.

The surface of a token is its text, without the spelling of its tokenizer's family. Two tokens are the same unit if they
have the same text (with case) and both or neither begin a word; special tokens if they have the same role ([CLS] is
<s>, [SEP] is </s>). The overlap does not count special tokens, which reproduces the overlaps with bert-base-uncased of
Geng and Yang 2026 (§5.2 and §6.4: 56.4, 59.6 and 60.9 %).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from vocable.encoder.terms import backend_of
from vocable.errors import ModelError

SPACE_MARK = "▁"  # U+2581, SentencePiece's space
BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
# Begins a word, continues a word, has no letter or digit, is not valid UTF-8 by itself, is a control token.
CLASSES = ("word", "continuation", "punctuation", "bytes", "special")
SPELLED: dict[int, str] = bytes_to_unicode()  # byte -> its character in byte-level BPE
BYTE_OF = {character: byte for byte, character in SPELLED.items()}


class Surface(NamedTuple):
    """A token as text."""

    text: str  # of bytes, in the spelling of byte-level BPE
    initial: bool  # begins a word: has the mark of a space, or lacks the mark of a continuation
    kind: str  # one of `CLASSES`


def token_surfaces(tokenizer: PreTrainedTokenizerBase) -> list[Surface | None]:
    """Return the surface of every id, None for unused ids; raises `ModelError` if tokens cannot be read as text."""
    family, model = _family(tokenizer)
    special = set(tokenizer.all_special_ids)
    added = tokenizer.added_tokens_decoder
    found: list[Surface | None] = [None] * (1 + max(tokenizer.get_vocab().values(), default=-1))
    for token, i in tokenizer.get_vocab().items():
        if i in special or (i in added and added[i].special):
            found[i] = Surface(token, False, "special")
        elif i in added:  # spelled as plain text in every family
            found[i] = _surface(token.removeprefix(" "), token.startswith(" "))
        else:
            found[i] = family.read(token, model)
    return found


def _surface(text: str, initial: bool) -> Surface:
    if not any(character.isalnum() for character in text):
        return Surface(text, initial, "punctuation")
    return Surface(text, initial, "word" if initial else "continuation")


def _wordpiece(token: str, model: dict[str, Any]) -> Surface:
    text = token.removeprefix(model["continuing_subword_prefix"])
    return _surface(text, text == token)


def _byte_level(token: str, model: dict[str, Any]) -> Surface:
    if not BYTE_OF.keys() >= set(token):  # not made by merges: spelled as plain text
        return _surface(token, False)
    return _bytes_surface(bytes(BYTE_OF[character] for character in token))


def _sentencepiece(token: str, model: dict[str, Any]) -> Surface:
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


class TokenizerFamily(NamedTuple):
    """A family of tokenizers: its recognition, and the spelling of its tokens."""

    name: str
    recognizes: Callable[[dict[str, Any], str], bool]  # from the model in the tokenizer's file, other steps as JSON
    read: Callable[[str, dict[str, Any]], Surface]  # surface of a token that is neither special nor added
    marks_continuations: bool = False  # marks tokens that continue a word instead of those that begin one


FAMILIES = (  # the first that recognizes a tokenizer
    TokenizerFamily("WordPiece", lambda model, steps: bool(model.get("continuing_subword_prefix")), _wordpiece, True),
    TokenizerFamily("byte-level BPE", lambda model, steps: '"ByteLevel"' in steps, _byte_level),
    TokenizerFamily("SentencePiece", lambda model, steps: SPACE_MARK in steps, _sentencepiece),
)


def _family(tokenizer: PreTrainedTokenizerBase) -> tuple[TokenizerFamily, dict[str, Any]]:
    """Return the family of a tokenizer, and the description of its model."""
    described = json.loads(backend_of(tokenizer).to_str())
    steps = json.dumps([described[step] for step in ("normalizer", "pre_tokenizer", "decoder")], ensure_ascii=False)
    for family in FAMILIES:
        if family.recognizes(described["model"], steps):
            return family, described["model"]
    raise ModelError(f"the tokens of this {described['model']['type']} tokenizer do not tell where words begin")


def cut(tokenizer: PreTrainedTokenizerBase, units: Sequence[Surface | None]) -> list[list[int]]:
    """Return the tokens of `tokenizer` that spell each unit; none for special tokens, bytes and unknown characters.

    Each unit is cut as a word. A tokenizer marks the first piece of a word as its beginning; for a unit that continues
    a word, the continuation with the same text takes its place, if there is one.
    """
    plain = [unit if unit and unit.kind not in ("special", "bytes") else None for unit in units]
    texts = [f" {unit.text}" if unit and unit.initial else unit.text if unit else "" for unit in plain]
    encoded = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"] if texts else []
    pieces = token_surfaces(tokenizer)
    continuations = {piece.text: i for i, piece in enumerate(pieces) if piece and not piece.initial}
    found = []
    for unit, encoded_ids in zip(plain, encoded, strict=True):
        ids = [i for i in encoded_ids if i != tokenizer.unk_token_id]
        first = pieces[ids[0]] if ids else None
        if unit and not unit.initial and first and first.initial:
            ids[:1] = [continuations.get(first.text, ids[0])] if first.text else []
        found.append(ids)
    return found


def cut_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[list[int]]:
    """Return the tokens that spell each word after a space; none for a word that `tokenizer` cannot spell."""
    left_out = bare_marks(tokenizer).union(tokenizer.all_special_ids)
    pieces = cut(tokenizer, [Surface(word, True, "word") for word in words])
    return [[i for i in ids if i not in left_out] for ids in pieces]


def bare_marks(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the tokens that spell only white space, such as the mark of a word's beginning."""
    return {i for i, unit in enumerate(token_surfaces(tokenizer)) if unit and not unit.text.strip()}


# Role of a special token -> its substitute in tokenizers without a token for it.
ROLES = {"pad": None, "unk": None, "cls": "bos", "sep": "eos", "mask": None}


class Matched(NamedTuple):
    """Number of target tokens of a class, and of those that the source has, too."""

    matched: int
    total: int


class Alignment(NamedTuple):
    """The source token that is the same unit, for each target token."""

    source_of: NDArray[np.int64]  # [v'], -1 where the token is new
    kinds: NDArray[np.str_]  # [v'], the `kind` of each target token's surface; empty for unused ids

    @property
    def classes(self) -> dict[str, Matched]:
        """Counts by class: word, continuation, punctuation, bytes, special."""
        had = self.source_of >= 0
        return {name: Matched(int(had[self.kinds == name].sum()), int((self.kinds == name).sum())) for name in CLASSES}

    @property
    def overlap(self) -> float:
        """Share of the target vocabulary that the source has, too; special tokens count as new."""
        return len(self.anchors) / max(int((self.kinds != "").sum()), 1)

    @property
    def shared(self) -> NDArray[np.int64]:
        """Ids of the target tokens that the source has, too; rising."""
        return np.flatnonzero(self.source_of >= 0)

    @property
    def new(self) -> NDArray[np.int64]:
        """Ids of the target tokens that the source lacks; rising."""
        return np.flatnonzero(self.source_of < 0)

    @property
    def anchors(self) -> NDArray[np.int64]:
        """Ids of the shared target tokens except special ones; rising."""
        return np.flatnonzero((self.source_of >= 0) & (self.kinds != "special"))


def align(source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> Alignment:
    """Find each target token's counterpart in the source vocabulary.

    Raises:
        ModelError: tokens that cannot be read as text (`token_surfaces`).
    """
    ids = {_key(unit): i for i, unit in enumerate(token_surfaces(source)) if unit and unit.kind != "special"}
    bare = _family(target)[0].marks_continuations  # a target token that begins a word has no mark
    crossing = _family(source)[0].marks_continuations != bare
    units = token_surfaces(target)
    source_of = np.full(len(units), -1, dtype=np.int64)
    for i, unit in enumerate(units):
        if unit and unit.kind != "special":
            keys = [_key(unit)]
            # WordPiece splits at punctuation, so its `,` may follow a space or not. In another family it matches the
            # unmarked `,`, and `Ġ,` only if there is no unmarked one.
            if crossing and unit.initial == bare and unit.kind == "punctuation" and len(unit.text) == 1:
                keys.insert(0, _key(unit._replace(initial=not bare)))
            source_of[i] = next((ids[key] for key in keys if key in ids), -1)
    for role in ROLES:
        of_source, of_target = role_id(source, role), role_id(target, role)
        if of_source is not None and of_target is not None:
            source_of[of_target] = of_source
    return Alignment(source_of, np.array([unit.kind if unit else "" for unit in units]))


def role_id(tokenizer: PreTrainedTokenizerBase, role: str) -> int | None:
    """Return the id of the token with this role ("pad", "unk", "cls", "sep", "mask") or of its substitute, or None."""
    for name in (role, ROLES[role]):
        found: int | None = getattr(tokenizer, f"{name}_token_id", None)
        if found is not None:
            return found
    return None


def _key(unit: Surface) -> tuple[str, bool, bool]:
    return unit.text, unit.initial, unit.kind == "bytes"
