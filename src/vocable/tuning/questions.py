"""Make questions from documents that come without questions: their titles and sentences.

A word is a run of characters between spaces, or a pair of characters in scripts without spaces. The random numbers of a
question depend only on the seed, the kind and the document. So the same documents give the same questions in any order
and in any process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from random import Random
from typing import Literal, NamedTuple, TypeAlias, get_args

from vocable.data import Document
from vocable.language.words import spaced_pieces, words

# With keywords, too, the model alone gained the same, and the hybrid gained nothing.
QuestionKind: TypeAlias = Literal["title", "sentence"]
QUESTION_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
TITLE_WORDS = (2, 25)  # fewest and most words of a title that is a question
QUESTION_WORDS = (4, 50)  # words of a query that has one or two sentences
KEPT_WORDS = 8  # words that a document keeps at least
PART_WORDS, WORDS_BEFORE = 90, 30  # words of the part of a document that is learned, and words of it before the query
# Includes Devanagari, Chinese and Japanese, Khmer and Burmese; Thai and Lao separate sentences by spaces.
SENTENCE_BREAKS = re.compile(r"(?<=[.!?।])\s+|(?<=[。！？።។။])|(?<=[\u0e00-\u0eff])\s+(?=[\u0e00-\u0eff])|\n\s*\n")


class Question(NamedTuple):
    """A query, and the document that answers it; the document lacks the words of the query."""

    kind: QuestionKind
    query: str
    document: Document
    part: Document  # the document from shortly before the place of the query: the training reads only its beginning


def distinct(documents: Iterable[Document]) -> tuple[list[Document], int]:
    """Return the documents without duplicates and empty documents, and the number of these.

    A duplicate has the words of an earlier document.

    >>> documents = [Document("a", "A cat."), Document("b", "a  cat"), Document("c", "")]
    >>> [document.id for document in distinct(documents)[0]]
    ['a']
    """
    kept: dict[bytes, Document] = {}
    count = 0
    for document in documents:
        count += 1
        if text := " ".join(words(document.full, letters=True)):
            kept.setdefault(blake2b(text.encode(), digest_size=16).digest(), document)
    return [*kept.values()], count - len(kept)


def question(document: Document, kind: QuestionKind, seed: int = 0) -> Question | None:
    """Return a question of this kind that the document answers, or None if the document does not suit the kind.

    - `title`: the title of the document, which the document then lacks.
    - `sentence`: one or two of its sentences, often the first, or a third of its only sentence; the document then lacks
      these words.

    >>> page = Document("1", "Press the red button twice. The machine stops at once, and the lamp goes out.")
    >>> question(page, "sentence", seed=1).query
    'Press the red button twice.'
    """
    digest = blake2b(f"{seed} {kind} {document.id}".encode(), digest_size=8).digest()
    return _MAKERS[kind](document, Random(digest))


def _title(document: Document, rng: Random) -> Question | None:
    if not TITLE_WORDS[0] <= len(spaced_pieces(document.title)) <= TITLE_WORDS[1] or _few(document.text):
        return None
    untitled = document._replace(title="")
    return Question("title", document.title, untitled, untitled)


def _sentence(document: Document, rng: Random) -> Question | None:
    sentences = [sentence for sentence in SENTENCE_BREAKS.split(document.text) if sentence.strip()]
    count = rng.choice((1, 1, 2))
    first = rng.choice((0, rng.randrange(max(1, len(sentences)))))
    if len(sentences) == 1:
        sentences, count, first = _cut(sentences[0], rng)
    query = " ".join(sentences[first : first + count])
    left = sentences[:first] + sentences[first + count :]
    rest = " ".join(left)
    if not QUESTION_WORDS[0] <= len(spaced_pieces(query)) <= QUESTION_WORDS[1] or _few(rest) or query in rest:
        return None
    part = document._replace(text=" ".join(left[_start(left, first) :]))
    return Question("sentence", query, document._replace(text=rest), part)


def _cut(sentence: str, rng: Random) -> tuple[list[str], int, int]:
    """Cut a third of a sentence off its beginning or end; return both pieces, 1, and the number of the shorter one."""
    pieces, first = spaced_pieces(sentence), rng.randrange(2)
    third = min(len(pieces) // 3, QUESTION_WORDS[1])
    cut = len(pieces) - third if first else third
    return ["".join(pieces[:cut]).strip(), "".join(pieces[cut:]).strip()], 1, first


def _start(sentences: list[str], place: int) -> int:
    """Return the number of the sentence where the part around `place` begins; near the end of a text it begins earlier.

    >>> _start(["A short sentence."] * 100, 50)
    40
    """
    lengths = [len(spaced_pieces(sentence)) for sentence in sentences]
    start, least = place, max(WORDS_BEFORE, PART_WORDS - sum(lengths[place:]))
    while start and sum(lengths[start:place]) < least:
        start -= 1
    return start


def _few(text: str) -> bool:
    return len(spaced_pieces(text)) < KEPT_WORDS


_MAKERS = {"title": _title, "sentence": _sentence}
