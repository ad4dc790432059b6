"""Align two vocabularies: find the tokens that are the same unit, and cut the tokens of one with the other tokenizer.

Two tokens are the same unit if their surfaces (`encoding/tokens.py`) have the same text (with case) and both or neither
begin a word. Two special tokens are the same unit if they have the same role ([CLS] is <s>, [SEP] is </s>). The overlap
does not count special tokens. It reproduces the overlaps with bert-base-uncased that Geng and Yang 2026 print (§5.2 and
§6.4: 56.4, 59.6 and 60.9 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from vocable.encoding.tokens import CLASSES, Surface, bare_marks, family_of, token_surfaces


def cut(tokenizer: PreTrainedTokenizerBase, units: Sequence[Surface | None]) -> list[list[int]]:
    """Return the tokens of `tokenizer` that spell each unit; no tokens for special units, bytes and unknown characters.

    Each unit is cut as a word, so that the tokenizer marks its first piece as the beginning of a word. For a unit that
    continues a word, the continuation with the same text replaces that piece, if the vocabulary has it.
    """
    plain = [unit if unit and unit.kind not in ("special", "bytes") else None for unit in units]
    # A blank marks the beginning of a word.
    texts = ["" if unit is None else " " * unit.initial + unit.text for unit in plain]
    encoded = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"] if texts else []
    pieces, cut_units = token_surfaces(tokenizer), []
    continuations = {piece.text: i for i, piece in enumerate(pieces) if piece and not piece.initial}
    for unit, encoded_ids in zip(plain, encoded, strict=True):
        ids = [i for i in encoded_ids if i != tokenizer.unk_token_id]
        first = pieces[ids[0]] if ids else None
        if unit and not unit.initial and first and first.initial:
            ids[:1] = [continuations.get(first.text, ids[0])] if first.text else []
        cut_units.append(ids)
    return cut_units


def cut_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[list[int]]:
    """Return the tokens that spell each word after a space; no tokens for a word that `tokenizer` cannot spell."""
    left_out = bare_marks(tokenizer).union(tokenizer.all_special_ids)
    pieces = cut(tokenizer, [Surface(word, True, "word") for word in words])
    return [[i for i in ids if i not in left_out] for ids in pieces]


# Role of a special token -> its substitute in tokenizers without a token for it.
ROLES = {"pad": None, "unk": None, "cls": "bos", "sep": "eos", "mask": None}


class Matched(NamedTuple):
    """The target tokens of a class, and how many of them the source also has."""

    matched: int
    total: int


class Alignment(NamedTuple):
    """The source token that is the same unit, for each target token. Ids are ascending."""

    source_of: NDArray[np.int64]  # [v'], -1 where the token is new
    kinds: NDArray[np.str_]  # [v'], the `kind` of each target token's surface; empty for unused ids

    @property
    def classes(self) -> dict[str, Matched]:
        """Counts by class: word, continuation, punctuation, bytes, special."""
        had = self.source_of >= 0
        return {name: Matched(int(had[self.kinds == name].sum()), int((self.kinds == name).sum())) for name in CLASSES}

    @property
    def overlap(self) -> float:
        """Share of the target vocabulary that the source also has; special tokens count as new."""
        return len(self.anchors) / max(int((self.kinds != "").sum()), 1)

    @property
    def shared(self) -> NDArray[np.int64]:
        """Ids of the target tokens that the source also has."""
        return np.flatnonzero(self.source_of >= 0)

    @property
    def new(self) -> NDArray[np.int64]:
        """Ids of the target tokens that the source lacks."""
        return np.flatnonzero(self.source_of < 0)

    @property
    def anchors(self) -> NDArray[np.int64]:
        """Ids of the shared target tokens except special ones."""
        return np.flatnonzero((self.source_of >= 0) & (self.kinds != "special"))


def align(source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> Alignment:
    """Find each target token's counterpart in the source vocabulary.

    Raises:
        ModelError: tokens that cannot be read as text (`token_surfaces`).
    """
    ids = {_key(unit): i for i, unit in enumerate(token_surfaces(source)) if unit and unit.kind != "special"}
    bare = family_of(target)[0].marks_continuations  # a target token that begins a word has no mark
    crossing = family_of(source)[0].marks_continuations != bare
    units = token_surfaces(target)
    source_of = np.full(len(units), -1, dtype=np.int64)
    for i, unit in enumerate(units):
        if unit and unit.kind != "special":
            keys = [_key(unit)]
            # WordPiece splits at punctuation, so its `,` may follow a space or not. In another family it matches the
            # unmarked `,`, and `Ġ,` only if the family has no unmarked `,`.
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
        token_id: int | None = getattr(tokenizer, f"{name}_token_id", None)
        if token_id is not None:
            return token_id
    return None


def _key(unit: Surface) -> tuple[str, bool, bool]:
    return unit.text, unit.initial, unit.kind == "bytes"
