"""Training examples from texts alone: the inverse cloze task (Lee et al. 2019, arXiv 1906.00300).

A query is a part of a text, of one of three kinds: keywords, one or two sentences, or a span of the length of an
abstract. The random numbers depend on the text alone, so that all runs and processes make the same examples. A teacher
should score the pairs, since keywords also fit other texts.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from random import Random
from typing import NamedTuple

from bm25s.stopwords import STOPWORDS_EN

TEXT_WORDS = (50, 400)  # least and most words of a text
SENTENCE_WORDS = (5, 60)  # of a query of sentences
SPAN_WORDS = (25, 90)  # of a long query, at most half of the text
KEYWORD = re.compile(r"[a-z][a-z0-9-]{2,}")
BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z(])")


class Cloze(NamedTuple):
    """A query and the text that it was taken from."""

    query: str
    positive: str


def cloze(text: str) -> Cloze | None:
    """Return an example made of a text; None if it has fewer than 50 or more than 400 words, or unfit sentences.

    >>> cloze("too short")
    """
    words = text.split()
    if not TEXT_WORDS[0] <= len(words) <= TEXT_WORDS[1]:
        return None
    rng = Random(blake2b(text.encode(), digest_size=8).digest())
    make = rng.choices([_keywords, _sentences, _span], weights=[30, 35, 35])[0]
    return make(text, rng)


def _keywords(text: str, rng: Random) -> Cloze | None:
    """Return a query of two to six words from the longer half, which are rarer."""
    found = sorted({*KEYWORD.findall(text.lower())} - {*STOPWORDS_EN}, key=lambda word: (-len(word), word))
    found = found[: max(6, len(found) // 2)]
    if len(found) < 2:
        return None
    return Cloze(" ".join(rng.sample(found, min(rng.randint(2, 6), len(found)))), text)


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
