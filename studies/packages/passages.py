"""Passages of pages: whole sentences up to a number of words, in English, each text once."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vocable.data.pages.blocks import Page
from vocable.data.pydocs import SENTENCE_END
from vocable.language.languages import stop_words

FEWEST, ENOUGH, MOST = 30, 40, 90  # words of a passage: at least, from which it ends at a sentence, at most
LETTERS = 0.75  # share of letters and spaces in a sentence, at least
COMMON = 0.18  # share of stop words in an English passage, at least
SHINGLE = 4  # words
BANDS, ROWS = 3, 2  # of MinHash: texts with a Jaccard similarity of 0.8 share a band in 19 of 20 cases
_rng = np.random.default_rng(0)
FACTORS = (_rng.integers(0, 2**31, BANDS * ROWS, np.uint32) * 2 + 1)[:, None]
WORD = re.compile(r"[a-z]+")
STOP = stop_words("en") | {"you", "can", "from", "has", "have", "when", "which", "its", "your", "may", "should", "we"}


class Passage(NamedTuple):
    """A passage, the title of its page, the heading of its section, and its number in the section, from 1."""

    text: str
    page: str
    heading: str
    number: int


def passages(page: Page) -> Iterator[Passage]:
    """Yield the English passages of a page, which do not cross headings."""
    heading, number, kept = page.title, 0, list[str]()
    for block in (*page.blocks, None):
        if block is None or block.level:
            for text in _packed(kept):
                number += 1
                if is_english(text):
                    yield Passage(text, page.title, heading, number)
            heading, number, kept = block.text if block else "", 0, []
        else:
            kept += sentences(block.text)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a block of lines, without rows of tables and without what is mostly signs.

    >>> list(sentences("It is so, e.g. here. Then not.\\n- an item\\n[(1, 2), {3: 4}]"))
    ['It is so, e.g. here.', 'Then not.', 'an item']
    """
    for line in text.split("\n"):
        start = 0
        for end in [*(stop.end() for stop in SENTENCE_END.finditer(line)), len(line)]:
            sentence = line[start:end].strip(" \t-*")
            if sentence and sentence.count("|") < 2 and is_prose(sentence):
                yield " ".join(sentence.split())
            start = end


def is_prose(text: str) -> bool:
    """Return whether most characters are letters and spaces.

    >>> is_prose("it is so."), is_prose("[(1, 2), {3: 4}]")
    (True, False)
    """
    return sum(character.isalpha() or character == " " for character in text) >= LETTERS * len(text)


def _packed(units: list[str]) -> Iterator[str]:
    """Yield texts of 30 to 90 words made of whole sentences."""
    pack, size = list[str](), 0
    for unit in units:
        words = unit.count(" ") + 1
        if size + words > MOST or size >= ENOUGH:
            if size >= FEWEST:
                yield " ".join(pack)
            pack, size = [], 0
        if words <= MOST:
            pack.append(unit)
            size += words
    if size >= FEWEST:
        yield " ".join(pack)


def is_english(text: str) -> bool:
    """Return whether enough words of a text are stop words of English.

    >>> is_english("the list of the files is in a folder"), is_english("die Liste der Dateien ist in einem Ordner")
    (True, False)
    """
    words = WORD.findall(text.lower())
    return sum(word in STOP for word in words) >= COMMON * max(1, len(words))


class Unseen:
    """Texts that were met, by MinHash of their shingles (Broder, 1997); numbers and punctuation do not count."""

    def __init__(self) -> None:
        self._bands: set[bytes] = set()

    def add(self, text: str) -> bool:
        """Return whether no text was so similar before, and add it."""
        bands = signature(text)
        if not self._bands.isdisjoint(bands):
            return False
        self._bands.update(bands)
        return True


def signature(text: str) -> list[bytes]:
    """Return the bands of a text's MinHash; two texts are near duplicates if they share one."""
    words = WORD.findall(text.lower())
    shingles = {" ".join(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1))}
    hashes = np.array([zlib.crc32(shingle.encode()) for shingle in shingles], np.uint32)
    least = (FACTORS * (hashes ^ (hashes >> np.uint32(15)))).min(1)
    return [bytes([band]) + least[band * ROWS : (band + 1) * ROWS].tobytes() for band in range(BANDS)]
