"""Known items of whole pages: queries from their beginning, their middle and their end, for `benchmarks/signals.py`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from random import Random

import numpy as np
from ir_measures import Qrel

from vocable.data import Document, Query, read_corpus
from vocable.encoding.windows import SENTENCE
from vocable.evaluation.dataset import Dataset

BEHIND, AHEAD = 600, 300  # words; the models read about 400 and 200 of a page that is cut
SENTENCE_WORDS = range(8, 31)
KINDS = ("headings from behind", "sentences from behind", "sentences of the beginning")


def known_items(folder: Path, most: int) -> Iterator[Dataset]:
    """Yield the queries of each kind, and the pages of a folder, each one document without the queries' texts.

    Of each page with a section that begins behind the first 600 words, one such heading and one sentence below another
    are drawn and taken out of the page; so is one sentence of the first 300 words. Headings are unique in the folder.

    Args:
        folder: a folder of pages, read as `vocable index` reads it.
        most: the number of pages, drawn at random.
    """
    sections = [*read_corpus(folder)]
    titles = Counter(section.title.casefold() for section in sections if section.title)
    pages = [(file, [*of]) for file, of in groupby(sections, lambda section: str(section.fields["file"]))]
    documents, asked = list[Document](), {kind: dict[str, str]() for kind in KINDS}
    for file, of in Random(0).sample(pages, min(most, len(pages))):
        texts, drawn = [[section.title or "", section.text] for section in of], Random(file)
        words = np.cumsum([0, *(len(section.full.split()) for section in of)])
        behind = [number for number in range(1, len(of)) if words[number] >= BEHIND and "~" not in of[number].id]
        named = [one for one in behind if titles[texts[one][0].casefold()] == 1 and " " in texts[one][0].strip()]
        if named:
            number = drawn.choice(named)
            asked[KINDS[0]][file] = texts[number][0]
            texts[number][0] = ""
            behind.remove(number)
        ahead = [number for number in range(len(of)) if behind and words[number + 1] <= AHEAD]
        for kind, among in zip(KINDS[1:], (behind, ahead), strict=True):
            if found := [(number, one) for number in among for one in _sentences(texts[number][1])]:
                number, sentence = drawn.choice(found)
                asked[kind][file] = sentence
                texts[number][1] = texts[number][1].replace(sentence, "")
        documents.append(Document(file, "\n\n".join(part for pair in texts for part in pair if part)))
    for kind, queries in asked.items():
        judgments = [Qrel(file, file, 1) for file in queries]
        yield Dataset(kind, documents, [Query(file, query) for file, query in queries.items()], judgments)


def _sentences(text: str) -> Iterator[str]:
    for one in SENTENCE.split(text):
        if len(one.split()) in SENTENCE_WORDS and re.fullmatch(r"[A-Z][^|`=_{}<>]+\.", one.strip()):
            yield one.strip()
