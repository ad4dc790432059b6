"""Highlights: marks of the words of a text that match a query, and the excerpt around the best marks.

Without an explanation, the words of the query are marked, compared as BM25 compares them; with an explanation, the
terms that make the score. `publishing/page/excerpt.js` marks and cuts in the same way for a site without a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Literal, TypeAlias

from vocable.core.graphemes import boundary
from vocable.language.words import stems_of_word, word_spans, words_with_stems

EXCERPT = 300  # most characters of an excerpt
MARKED_CHARACTERS = 20_000  # characters at the beginning of a text that are searched for matches
BLANKS = " \n\t"
LONG_WORD = 30  # characters
Origin: TypeAlias = Literal["text", "expansion", "wacky"]


@dataclass(frozen=True)
class Mark:
    """Characters `start` to `end` of a text, the term that they spell, and its origin in the query."""

    start: int
    end: int
    term: str
    kind: Origin = "text"


@dataclass(frozen=True)
class Snippet:
    """Characters `start` to `end` of a document's text, with the marks of this part and the marks of the title."""

    start: int
    end: int
    text: str
    marks: tuple[Mark, ...] = ()
    title_marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class TextPart:
    """A part of a text; if it is a matching term, the `term` and its origin in the query.

    `hidden` is True outside the excerpt, else None.
    """

    text: str
    term: str | None = None
    kind: Origin | None = None
    hidden: bool | None = None


class QueryWords:
    """The words of a query as they are `typed`, each with its stems, and where texts have words with these stems."""

    def __init__(self, query: str, language: str) -> None:
        self.typed = {query[start:end]: stems_of_word(query[start:end], language) for start, end in word_spans(query)}
        self._stems, self._language = frozenset[str]().union(*self.typed.values()), language
        self._words_of: dict[str, dict[str, Set[str]]] = {}  # each text is read once

    def words_of(self, text: str) -> dict[str, Set[str]]:
        """Return the words of a text, as they are written, that share stems with the query, with these stems."""
        if text not in self._words_of:
            self._words_of[text] = words_with_stems(text, self._stems, self._language)
        return self._words_of[text]

    def typed_in(self, text: str) -> tuple[str, ...]:
        """Return the words of the query that a text has in any form.

        >>> QueryWords("where do cats eat fish", "english").typed_in("Fishes fear the cat")
        ('cats', 'fish')
        """
        stems = frozenset[str]().union(*self.words_of(text).values())
        return tuple(word for word, stems_of_it in self.typed.items() if not stems.isdisjoint(stems_of_it))


def word_marks(text: str, stems: Mapping[str, Set[str]]) -> list[Mark]:
    """Return the marks of the words of a text that are in `stems`, as they are written, with a stem of each.

    >>> word_marks("A cat, cats and 東京都", QueryWords("cat 東京都", "english").words_of("A cat, cats and 東京都"))
    [Mark(start=2, end=5, term='cat', kind='text'), Mark(start=7, end=11, term='cat', kind='text'), \
Mark(start=16, end=19, term='東京', kind='text')]
    """
    marks = list[Mark]()
    for start, end in word_spans(text[:MARKED_CHARACTERS], stems) if stems else []:
        term = min(stems[text[start:end]])
        if marks and start < marks[-1].end:  # names and pairs of characters overlap
            marks[-1] = replace(marks[-1], end=max(end, marks[-1].end))
        else:
            marks.append(Mark(start, end, term))
    return marks


def excerpt(
    text: str, marks: Sequence[Mark], weights: Mapping[str, float] | None = None, length: int = EXCERPT
) -> tuple[int, int]:
    """Return the start and end of the part of a text whose distinct marked terms weigh most.

    It is cut between words, in a text without blanks between graphemes.

    The part has at most `length` characters. `weights` has the weights of terms, by default all 1.

    >>> text = "one two three four five six seven"
    >>> start, end = excerpt(text, word_marks(text, {"five": {"five"}, "six": {"six"}}), length=12)
    >>> text[start:end]
    'five six'
    """
    if len(text) <= length:
        return 0, len(text)
    context = length // 10  # characters before the first mark
    most, first, last = -1.0, 0, 0
    # A window begins a little before each mark: the window whose distinct terms weigh most wins.
    starts = [0, *(mark.start for mark in marks)]  # the beginning of the text comes first, and wins a tie
    for number, at in enumerate(starts):
        until = at + length - context if number else length
        # `last` counts the marks that end in the window; windows begin later and later, so it only grows.
        while last < len(marks) and marks[last].end <= until:
            last += 1
        terms = {mark.term for mark in marks[max(0, number - 1) : last]}
        if (weight := sum(1.0 if weights is None else weights[term] for term in terms)) > most + 1e-9:
            most, first = weight, at
    # Begin after a blank between the start and the first mark.
    start = max(0, min(first - context, len(text) - length))
    blank = min((at for blank in BLANKS if (at := text.find(blank, start, first)) >= 0), default=-1) if start else -1
    start = blank + 1 if blank >= 0 else boundary(text, start)
    # End before a blank, but not before the first mark nor in the first half.
    end = min(len(text), start + length)
    nearest = max(first + 1, end - max(length // 2, LONG_WORD))  # a longer word is cut at the limit
    blank = max(text.rfind(blank, nearest, end + 1) for blank in BLANKS) if end < len(text) else -1
    return start, blank if blank >= 0 else boundary(text, end)


def snippet(
    text: str,
    marks: Sequence[Mark],
    weights: Mapping[str, float] | None = None,
    *,
    before: int = 0,
    title_marks: Sequence[Mark] = (),
) -> Snippet:
    """Return the excerpt of a text; the text follows the first `before` characters of the document."""
    start, end = excerpt(text, marks, weights)
    inside = [mark for mark in marks if start <= mark.start and mark.end <= end]
    moved = tuple(replace(mark, start=mark.start - start, end=mark.end - start) for mark in inside)
    return Snippet(before + start, before + end, text[start:end], moved, tuple(title_marks))


def parts(text: str, marks: Sequence[Mark], shown: tuple[int, int] | None = None) -> list[TextPart]:
    """Split a text into its marked words and the text between them; of overlapping marks only the first counts.

    Parts outside `shown`, the start and end of an excerpt, are hidden.

    >>> [(part.text, part.term, part.hidden) for part in parts("a fox ran away", [Mark(2, 5, "fox")], (0, 9))]
    [('a ', None, None), ('fox', 'fox', None), (' ran', None, None), (' away', None, True)]
    """
    start, end = shown or (0, len(text))
    result, done = [], 0
    for mark in [*marks, Mark(len(text), len(text), "")]:
        if mark.start < done:
            continue
        # The text before a mark, cut where the excerpt begins and ends.
        between = sorted({done, mark.start, *(at for at in (start, end) if done < at < mark.start)})
        pieces = [(*span, None, None) for span in pairwise(between)]
        for first, last, term, kind in chain(pieces, [(mark.start, mark.end, mark.term, mark.kind)]):
            if first < last:
                result.append(TextPart(text[first:last], term, kind, None if start <= first < end else True))
        done = mark.end
    return result
