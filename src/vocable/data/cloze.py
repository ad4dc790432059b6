"""Training examples made of texts alone: a part of a text asks for the rest of it.

An inverse cloze task (Lee et al. 2019, arXiv 1906.00300) with three kinds of query, as people ask: keywords, a sentence
or two, a span as long as an abstract. What a text asks is decided by the text itself, so that every run and every
process makes the same examples. A teacher has to say how well a query and a text go together: keywords fit others, too.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from random import Random
from typing import NamedTuple

from bm25s.stopwords import STOPWORDS_EN

LEAST = 50  # words of a text, and at most 400, that gives an example
MOST = 400
SENTENCE = (5, 60)  # words of a query of sentences
SPAN = (25, 90)  # words of a long query, which is at most half of its text
WORD = re.compile(r"[a-z][a-z0-9-]{2,}")
BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z(])")


class Cloze(NamedTuple):
    """A query and the text that it was taken from."""

    query: str
    positive: str


def cloze(text: str) -> Cloze | None:
    """What a text asks; None for one of fewer than 50 words, of more than 400, or whose sentences do not serve.

    >>> cloze("too short")
    """
    words = text.split()
    if not LEAST <= len(words) <= MOST:
        return None
    rng = Random(blake2b(text.encode(), digest_size=8).digest())
    make = rng.choices([_keywords, _sentences, _span], weights=[30, 35, 35])[0]
    return make(text, rng)


def _keywords(text: str, rng: Random) -> Cloze | None:
    """Two to six of the longer half of the words, which are the rarer ones."""
    found = sorted({*WORD.findall(text.lower())} - {*STOPWORDS_EN}, key=lambda word: (-len(word), word))
    found = found[: max(6, len(found) // 2)]
    if len(found) < 2:
        return None
    return Cloze(" ".join(rng.sample(found, min(rng.randint(2, 6), len(found)))), text)


def _sentences(text: str, rng: Random) -> Cloze | None:
    """One sentence or two, often the first, taken out of the text."""
    sentences = BETWEEN_SENTENCES.split(text)
    count = rng.choice((1, 1, 2))
    first = rng.choice((0, rng.randrange(len(sentences))))
    query = " ".join(sentences[first : first + count])
    rest = sentences[:first] + sentences[first + count :]
    if not rest or not SENTENCE[0] <= len(query.split()) <= SENTENCE[1]:
        return None
    return Cloze(query, " ".join(rest))


def _span(text: str, rng: Random) -> Cloze:
    """A run of words, taken out of the text."""
    words = text.split()
    length = rng.randint(SPAN[0], min(SPAN[1], len(words) // 2))
    first = rng.randint(0, len(words) - length)
    return Cloze(" ".join(words[first : first + length]), " ".join(words[:first] + words[first + length :]))
