"""What an output term is: a proper name, a stop word, a piece of a word ... ("Understanding Wacky Weights: A Dissection
of SPLADE's Learned Term Importance", table 3, groups the wackiest terms of a model like this by eye).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from bm25s.stopwords import STOPWORDS_EN_PLUS

from vocable.adapt.surfaces import Surface
from vocable.errors import check_texts

KINDS = (
    "proper name",
    "stop word",
    "punctuation",
    "non-Latin",
    "tokenizer artefact",
    "sub-word",
    "number",
    "other word",
)
STOP_WORDS = frozenset(word for word in STOPWORDS_EN_PLUS if len(word) > 1) | {"a", "i"}
ARTEFACT = re.compile(r"\[unused\d+\]|<.*>|\[[A-Z]+\]", re.DOTALL)
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n+")
WORD = re.compile(r"[^\W\d_]{2,}")


def term_kind(surface: Surface, names: Collection[str] = ()) -> str:
    """The kind of a term, the first of these that it is.

    | kind | what is one |
    |:--|:--|
    | tokenizer artefact | special and unused tokens, bytes that are no character, Latin letters other than a and I |
    | punctuation | no letter and no digit |
    | non-Latin | has a letter of another script |
    | stop word | one of the English list of bm25s (`STOPWORDS_EN_PLUS`), in any case |
    | sub-word | goes on with a word |
    | number | digits and no letter |
    | proper name | one of `names` |
    | other word | all others |

    Args:
        surface: what the term stands for in a text (`vocable.adapt.surfaces`).
        names: the proper names in lower case, from `proper_names`.

    >>> kinds = [term_kind(Surface(text, True, "word"), {"edmund"}) for text in ("Edmund", "She", "б", "1985", "D")]
    >>> kinds, term_kind(Surface("ing", False, "continuation"))
    (['proper name', 'stop word', 'non-Latin', 'number', 'tokenizer artefact'], 'sub-word')
    """
    text, letters = surface.text, [character for character in surface.text if character.isalpha()]
    whole = surface.kind == "word"
    if surface.kind in ("special", "bytes") or ARTEFACT.fullmatch(text):
        return "tokenizer artefact"
    if not any(character.isalnum() for character in text):
        return "punctuation"
    if not all(map(_latin, letters)):
        return "non-Latin"
    if whole and text.lower() in STOP_WORDS:
        return "stop word"
    if not whole:
        return "sub-word"
    if not letters:
        return "number"
    if len(text) == 1:
        return "tokenizer artefact"
    return "proper name" if text.lower() in names else "other word"


def term_kinds(surfaces: Sequence[Surface], names: Collection[str] = ()) -> list[str]:
    """The kind of each of v terms, by column."""
    return [term_kind(surface, names) for surface in surfaces]


def proper_names(texts: Iterable[str], *, share: float = 0.8, least: int = 3) -> set[str]:
    """The words, in lower case, that texts write with a capital letter where others have none.

    A word counts where it is not the first of its sentence, and where at least half of the sentence's other words begin
    with a small letter: headings and texts in capitals say nothing. It is a proper name if it counts `least` times and
    in `share` of these begins with a capital letter and goes on with small ones (an acronym is not). So a name that the
    texts do not have is not known, and of texts in small letters none is.

    >>> sorted(proper_names(["We met Edmund. He and Edmund met us.", "So did Edmund and Will: we will."] * 3))
    ['edmund']
    """
    check_texts(texts)
    seen, capital = Counter[str](), Counter[str]()
    for text in texts:
        for sentence in SENTENCE_END.split(text):
            _, *words = WORD.findall(sentence) or [""]
            if 2 * sum(word[0].islower() for word in words) < len(words):
                continue
            for word in words:
                seen[word.lower()] += 1
                capital[word.lower()] += word.istitle()
    return {word for word, count in seen.items() if count >= least and capital[word] >= share * count}


def _latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith("LATIN")
