"""How much of a text's surface a vocabulary keeps: upper case, accents, and tokens that repeat each other.

"Why Advanced Encoders Lag on Sparse Retrieval?" (paper 001, §1) finds the cause in vocabularies that keep all of it:
one word is then several terms ("Token", "token", "Ġtoken"), which do not match each other in a sparse vector.
"""

from __future__ import annotations

import unicodedata

from transformers import PreTrainedTokenizerBase

from vocable.adapt.surfaces import surfaces

# Words and their counterparts, which a tokenizer that normalizes cannot tell apart.
CASES = [(word, word.lower()) for word in ("The", "London", "USA", "A", "B", "Q", "Z")]
ACCENTS = [("café", "cafe"), ("naïve", "naive"), ("über", "uber"), ("é", "e"), ("ñ", "n"), ("å", "a")]


def is_cased(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether upper case makes a difference to the tokens of a text."""
    return _tells_apart(tokenizer, CASES)


def keeps_accents(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether accents make a difference to the tokens of a text."""
    return _tells_apart(tokenizer, ACCENTS)


def redundancy(tokenizer: PreTrainedTokenizerBase) -> float:
    """The share of tokens that only repeat another one's form: as many could go if surface forms were folded.

    Tokens have the same form when their texts are equal in lower case and without accents, whether or not they begin a
    word. Special tokens and bytes that are no text do not count. It is 0 for an empty vocabulary.

    Raises:
        ModelError: a tokenizer whose tokens cannot be read as text (`surfaces`).
    """
    kept = [surface.text for surface in surfaces(tokenizer) if surface and surface.kind not in ("special", "bytes")]
    return 1 - len({folded(text) for text in kept}) / len(kept) if kept else 0.0


def folded(text: str) -> str:
    """The text in lower case and without accents.

    >>> folded("Ångström")
    'angstrom'
    """
    return without_accents(text.lower())


def without_accents(text: str) -> str:
    """The text without combining marks, as BERT's uncased tokenizer takes them away.

    >>> without_accents("Ångström")
    'Angstrom'
    """
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def _tells_apart(tokenizer: PreTrainedTokenizerBase, pairs: list[tuple[str, str]]) -> bool:
    ids = [tokenizer(list(side), add_special_tokens=False)["input_ids"] for side in zip(*pairs, strict=True)]
    return bool(ids[0] != ids[1])
