"""Which tokens of two vocabularies are the same unit.

Two tokens are the same unit when they have the same text (bytes decoded, case kept) and both begin a word or neither
does: `Ġfoo`, `▁foo` and `foo` of WordPiece; `foo` of byte-level BPE, `foo` of SentencePiece and `##foo`. Two classes
need a rule of their own.

Punctuation. WordPiece tokenizers split at every mark, so their bare `,` says nothing about a space before it. Between
WordPiece and the other families a bare single character that is no letter or digit is therefore the bare one of the
other side, its spaced one (`Ġ,`) only where there is no other.

Special tokens are the same when they have the same role, whatever they are called: [CLS] is <s>, [SEP] is </s>. A
vocabulary's overlap does not count them: with this reading the overlaps with bert-base-uncased that the Vocabulary
Transfer paper prints (§5.2 and §6.4: 56.4, 59.6 and 60.9 %) come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from vocable.adapt.surfaces import Surface, marks_continuations, surfaces

CLASSES = ("word", "continuation", "punctuation", "bytes", "special")
# Each role and the one that stands in for it where a tokenizer has no token of its own for it.
ROLES = {"pad": None, "unk": None, "cls": "bos", "sep": "eos", "mask": None}

Key = tuple[str, bool, bool]


class Matched(NamedTuple):
    """How many of a class of target tokens the source has, too."""

    matched: int
    total: int


class Alignment(NamedTuple):
    """For each target token the source token that is the same unit."""

    source_of: NDArray[np.int64]  # [v'], -1 where the token is new
    kinds: NDArray[np.str_]  # [v'], the `kind` of each target token's surface; empty where no token has the id

    @property
    def classes(self) -> dict[str, Matched]:
        """How many of the word, continuation, punctuation, bytes and special tokens of the target the source has."""
        had = self.source_of >= 0
        return {name: Matched(int(had[self.kinds == name].sum()), int((self.kinds == name).sum())) for name in CLASSES}

    @property
    def overlap(self) -> float:
        """Share of the target vocabulary that the source has, too; special tokens never count as had."""
        return len(self.anchors) / max(int((self.kinds != "").sum()), 1)

    @property
    def shared(self) -> NDArray[np.int64]:
        """The ids of the target tokens that the source has, too; rising."""
        return np.flatnonzero(self.source_of >= 0)

    @property
    def new(self) -> NDArray[np.int64]:
        """The ids of the target tokens that the source has not; rising."""
        return np.flatnonzero(self.source_of < 0)

    @property
    def anchors(self) -> NDArray[np.int64]:
        """The ids of the target tokens that the source has, too, special ones left out; rising."""
        return np.flatnonzero((self.source_of >= 0) & (self.kinds != "special"))


def align(source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> Alignment:
    """Find each target token's counterpart in the source vocabulary.

    Raises:
        ModelError: a tokenizer whose tokens cannot be read as text (`surfaces`).
    """
    ids = {_key(surface): i for i, surface in enumerate(surfaces(source)) if surface and surface.kind != "special"}
    crossing = marks_continuations(source) != marks_continuations(target)
    bare = marks_continuations(target)  # whether a target token is bare when it begins a word, or when it does not
    target_surfaces = surfaces(target)
    source_of = np.full(len(target_surfaces), -1, dtype=np.int64)
    for i, surface in enumerate(target_surfaces):
        if surface and surface.kind != "special":
            keys = _keys(surface, flipped_first=crossing and surface.initial == bare)
            source_of[i] = next((ids[key] for key in keys if key in ids), -1)
    for role in ROLES:
        of_source, of_target = role_id(source, role), role_id(target, role)
        if of_source is not None and of_target is not None:
            source_of[of_target] = of_source
    return Alignment(source_of, np.array([surface.kind if surface else "" for surface in target_surfaces]))


def role_id(tokenizer: PreTrainedTokenizerBase, role: str) -> int | None:
    """The id of the token with this role ("pad", "unk", "cls", "sep", "mask"), or of its stand-in; None without one."""
    for name in (role, ROLES[role]):
        found: int | None = getattr(tokenizer, f"{name}_token_id", None)
        if found is not None:
            return found
    return None


def _key(surface: Surface) -> Key:
    return surface.text, surface.initial, surface.kind == "bytes"


def _keys(surface: Surface, *, flipped_first: bool) -> Iterator[Key]:
    """Where to look a token up: a bare mark of punctuation first among those that are bare on the other side."""
    if flipped_first and surface.kind == "punctuation" and len(surface.text) == 1:
        yield _key(surface._replace(initial=not surface.initial))
    yield _key(surface)
