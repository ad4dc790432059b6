"""Training examples from texts alone: the inverse cloze task (Lee et al. 2019, arXiv 1906.00300), and random crops.

A cloze query is a part of a text: keywords, one or two sentences, or a span as long as an abstract. A teacher should
score the pairs, since keywords also fit other texts. Crops are two spans of a text, drawn independently, so that they
may overlap (Contriever, Izacard et al. 2022, arXiv 2112.09118, section 3.1). The random numbers depend on the text
alone, and for crops on the pass, so that all runs and processes make the same examples.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from random import Random
from typing import NamedTuple

from bm25s.stopwords import STOPWORDS_EN

TEXT_WORDS = (50, 400)  # least and most words of a text
SENTENCE_WORDS = (5, 60)  # least and most words of a query of sentences
SPAN_WORDS = (25, 90)  # least and most words of a long query, which is at most half of the text
CROP_SHARES = (0.05, 0.5)  # least and largest share of a text's words in a crop
SHORTEST_CROPPED = 8  # words
KEYWORD = re.compile(r"[a-z][a-z0-9-]{2,}")
BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z(])")


class Cloze(NamedTuple):
    """A query and the text that it was taken from, or another crop of that text."""

    query: str
    positive: str


def cloze(text: str) -> Cloze | None:
    """Make an example of a text; return None if it has fewer than 50 or more than 400 words, or unfit sentences.

    >>> cloze("too short")
    """
    words = text.split()
    if not TEXT_WORDS[0] <= len(words) <= TEXT_WORDS[1]:
        return None
    rng = _random(text)
    make = rng.choices([_keywords, _sentences, _span], weights=[30, 35, 35])[0]
    return make(text, rng)


def crops(text: str, turn: int = 0) -> Cloze | None:
    """Return two independent random spans of a text, new in each pass `turn`; None if it has fewer than 8 words.

    >>> crops("too short")
    """
    words, rng = text.split(), _random(text, turn)
    return None if len(words) < SHORTEST_CROPPED else Cloze(_crop(words, rng), _crop(words, rng))


def _crop(words: list[str], rng: Random) -> str:
    length = max(1, round(rng.uniform(*CROP_SHARES) * len(words)))
    first = rng.randint(0, len(words) - length)
    return " ".join(words[first : first + length])


def _random(text: str, turn: int = 0) -> Random:
    return Random(blake2b(text.encode(), digest_size=8, salt=turn.to_bytes(16, "little")).digest())


def _keywords(text: str, rng: Random) -> Cloze | None:
    """Return a query of two to six words from the longer half of the keywords, which are rarer."""
    words = sorted({*KEYWORD.findall(text.lower())} - {*STOPWORDS_EN}, key=lambda word: (-len(word), word))
    keywords = words[: max(6, len(words) // 2)]
    if len(keywords) < 2:
        return None
    return Cloze(" ".join(rng.sample(keywords, min(rng.randint(2, 6), len(keywords)))), text)


def _sentences(text: str, rng: Random) -> Cloze | None:
    """Return a query of one or two sentences, often the first, which the text then lacks."""
    sentences = BETWEEN_SENTENCES.split(text)
    count = rng.choice((1, 1, 2))
    first = rng.choice((0, rng.randrange(len(sentences))))
    query = " ".join(sentences[first : first + count])
    rest = sentences[:first] + sentences[first + count :]
    if not rest or not SENTENCE_WORDS[0] <= len(query.split()) <= SENTENCE_WORDS[1]:
        return None
    return Cloze(query, " ".join(rest))


def _span(text: str, rng: Random) -> Cloze:
    """Return a query of consecutive words, which the text then lacks."""
    words = text.split()
    length = rng.randint(SPAN_WORDS[0], min(SPAN_WORDS[1], len(words) // 2))
    first = rng.randint(0, len(words) - length)
    return Cloze(" ".join(words[first : first + length]), " ".join(words[:first] + words[first + length :]))
