"""How the source's tokenizer would cut a token of another vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from vocable.adapt.surfaces import Surface, surfaces


def cut(tokenizer: PreTrainedTokenizerBase, units: Sequence[Surface | None]) -> list[list[int]]:
    """The tokens of `tokenizer` that spell each unit; none for special tokens, lone bytes and characters it lacks.

    A unit that begins a word is cut as a word of its own. One that goes on with a word is, too, but its first piece is
    then the one that goes on, where there is such a token: a tokenizer marks every word as begun.
    """
    plain = [unit if unit and unit.kind not in ("special", "bytes") else None for unit in units]
    texts = [f" {unit.text}" if unit and unit.initial else unit.text if unit else "" for unit in plain]
    encoded = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"] if texts else []
    pieces = surfaces(tokenizer)
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
    """The tokens that spell each word where it begins with a space; none for what `tokenizer` cannot spell at all."""
    left_out = bare_marks(tokenizer).union(tokenizer.all_special_ids)
    return [
        [i for i in ids if i not in left_out] for ids in cut(tokenizer, [Surface(word, True, "word") for word in words])
    ]


def bare_marks(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that spell white space alone, such as the mark of a word's beginning."""
    return {i for i, unit in enumerate(surfaces(tokenizer)) if unit and not unit.text.strip()}
