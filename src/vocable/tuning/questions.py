"""Make questions from documents that come without questions, in the kinds that people ask.

A word is a run of characters between spaces, or a pair of characters in scripts without spaces. The random numbers of a
question depend only on the seed, the kind and the document. So the same documents give the same questions in any order
and in any process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from math import log
from random import Random
from typing import Literal, NamedTuple, TypeAlias, get_args

from vocable.data import Document
from vocable.language.languages import stop_words
from vocable.language.words import spaced_pieces, words

Kind: TypeAlias = Literal["title", "keywords", "sentence", "passage"]
QUESTION_KINDS: tuple[Kind, ...] = get_args(Kind)
TITLE_WORDS = (2, 25)  # fewest and most words of a title that is a question
KEYWORDS = (2, 5)  # words of a keyword query
QUESTION_WORDS = (4, 50)  # words of a query that has one or two sentences
PASSAGE_WORDS = (25, 80)  # words of a query as long as an abstract, at most half of the text
KEPT_WORDS = 8  # words that a document keeps at least
DIGITS = re.compile(r"[\d_]+")
# Includes Devanagari, Chinese and Japanese, Khmer and Burmese; Thai and Lao separate sentences by spaces.
SENTENCE_BREAKS = re.compile(r"(?<=[.!?।])\s+|(?<=[。！？።។။])|(?<=[\u0e00-\u0eff])\s+(?=[\u0e00-\u0eff])|\n\s*\n")


class Question(NamedTuple):
    """A query, and the document that answers it; the document lacks the words of the query."""

    kind: Kind
    query: str
    document: Document


class Rarity:
    """The inverse document frequencies of the words of a collection."""

    def __init__(self, texts: Iterable[str]) -> None:
        frequencies: dict[str, int] = {}
        count = 0
        for text in texts:
            count += 1
            for word in {*words(text)}:
                frequencies[word] = frequencies.get(word, 0) + 1
        self._documents, self._frequencies = max(count, 1), frequencies

    def __call__(self, word: str) -> float:
        """Return ln(1 + n / df) of a word in n documents; an unknown word has df = 1."""
        return log(1 + self._documents / self._frequencies.get(word, 1))


def question(document: Document, kind: Kind, rarity: Rarity, seed: int = 0) -> Question | None:
    """Return a question of this kind that the document answers, or None if the document does not suit the kind.

    - `title`: the title of the document, which the document then lacks.
    - `keywords`: two to five of its words; rare words, and words that are frequent in the text, are more probable.
    - `sentence`: one or two of its sentences, often the first, which the document then lacks.
    - `passage`: consecutive words, as long as an abstract, which the document then lacks.

    >>> page = Document("1", "Press the red button twice. The machine stops at once, and the lamp goes out.")
    >>> question(page, "sentence", Rarity([page.full]), seed=1).query
    'Press the red button twice.'
    """
    digest = blake2b(f"{seed} {kind} {document.id}".encode(), digest_size=8).digest()
    return _MAKERS[kind](document, rarity, Random(digest))


def _title(document: Document, rarity: Rarity, rng: Random) -> Question | None:
    if not TITLE_WORDS[0] <= len(spaced_pieces(document.title)) <= TITLE_WORDS[1] or _few(document.text):
        return None
    return Question("title", document.title, document._replace(title=""))


def _keywords(document: Document, rarity: Rarity, rng: Random) -> Question | None:
    counts: dict[str, int] = {}
    for word in words(document.full):
        if word not in stop_words("en") and not DIGITS.fullmatch(word):
            counts[word] = counts.get(word, 0) + 1
    if len(counts) < KEYWORDS[0]:
        return None
    wanted = min(rng.randint(*KEYWORDS), len(counts))
    # The largest of u^(1/w) with u uniform are a weighted sample without replacement (Efraimidis and Spirakis 2006).
    keys = {word: rng.random() ** (1 / (rarity(word) * count**0.5)) for word, count in counts.items()}
    chosen = sorted(keys, key=keys.__getitem__, reverse=True)[:wanted]
    return Question("keywords", " ".join(word for word in counts if word in chosen), document)


def _sentence(document: Document, rarity: Rarity, rng: Random) -> Question | None:
    sentences = [sentence for sentence in SENTENCE_BREAKS.split(document.text) if sentence.strip()]
    count, first = rng.choice((1, 1, 2)), rng.choice((0, rng.randrange(max(1, len(sentences)))))
    query, rest = " ".join(sentences[first : first + count]), " ".join(sentences[:first] + sentences[first + count :])
    if not QUESTION_WORDS[0] <= len(spaced_pieces(query)) <= QUESTION_WORDS[1] or _few(rest) or query in rest:
        return None
    return Question("sentence", query, document._replace(text=rest))


def _passage(document: Document, rarity: Rarity, rng: Random) -> Question | None:
    parts = spaced_pieces(document.text)
    if len(parts) // 2 < PASSAGE_WORDS[0]:
        return None
    length = rng.randint(PASSAGE_WORDS[0], min(PASSAGE_WORDS[1], len(parts) // 2))
    first = rng.randint(0, len(parts) - length)
    query, rest = (
        "".join(parts[first : first + length]).strip(),
        "".join(parts[:first] + parts[first + length :]).strip(),
    )
    return None if query in rest else Question("passage", query, document._replace(text=rest))


def _few(text: str) -> bool:
    return len(spaced_pieces(text)) < KEPT_WORDS


_MAKERS = {"title": _title, "keywords": _keywords, "sentence": _sentence, "passage": _passage}
