"""Marks of words, and excerpts: brute force over all places of an excerpt."""

from __future__ import annotations

import re

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from vocable.explanation.highlights import (
    EXCERPT,
    MARKED_CHARACTERS,
    Mark,
    QueryWords,
    excerpt,
    parts,
    snippet,
    word_marks,
)
from vocable.language.languages import ENGLISH_STOP_WORDS, language_of, stop_words
from vocable.language.words import names, stemmed, word_spans, words

WORDS = ["fox", "foxes", "Reads", "the", "naïve", "東京都", "हिन्दी", "x", "isn't"]
TEXTS = st.lists(st.sampled_from([*WORDS, "nothing", "about", "ต้นไม้"]), max_size=120).map(" ".join)


@given(st.one_of(TEXTS, st.text()))
def test_spans_are_the_words(text: str) -> None:
    spans = word_spans(text)
    if text.lower() == text and text.isprintable() and not re.search("[\u0300-\u036f\u200c\u200d\ufe00-\ufe0f]", text):
        kept = [text[start:end] for start, end in spans]
        assert [one for word in kept if not names(word) for one in words(word)] == words(text)
        assert [one for word in kept for one in names(word)] == names(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)


@given(TEXTS)
def test_marked_words_have_a_stem_of_the_query(text: str) -> None:
    words_of = QueryWords("The fox reads naïve हिन्दी", "english").words_of(text)
    marked = [text[mark.start : mark.end] for mark in word_marks(text, words_of)]
    assert marked == [word for word in text.split() if word in ("fox", "foxes", "Reads", "naïve", "हिन्दी")]
    assert word_marks(text, {}) == []


@given(TEXTS, st.sampled_from(["english", "german", "english+code", "none"]))
def test_words_of_a_query_are_in_a_text_that_has_their_stems(text: str, language: str) -> None:
    query = "The fox reads naïve 東京都 foxes night getFox fox"
    typed = [*dict.fromkeys(query[start:end] for start, end in word_spans(query))]
    there = {*stemmed([text], language)[0]}
    words = QueryWords(query, language)
    assert words.typed_in(text) == tuple(
        word for word, stems in zip(typed, stemmed(typed, language), strict=True) if there & {*stems}
    )
    for mark in word_marks(text, words.words_of(text)):
        assert mark.term in there


def test_pairs_of_characters_are_one_mark() -> None:
    words = QueryWords("東京都", "english")
    assert word_marks("私は東京都に", words.words_of("私は東京都に")) == [Mark(2, 5, "東京")]
    assert word_marks("x" * MARKED_CHARACTERS + " fox", {"fox": {"fox"}}) == []


def test_a_name_is_one_mark() -> None:
    words, text = QueryWords("e-mail in C++ 3.14?", "english"), "C++11 sends E-Mail and mail, 3.14"
    marks = word_marks(text, words.words_of(text))
    assert [text[mark.start : mark.end] for mark in marks] == ["C++", "E-Mail", "mail", "3.14"]


@example("nothing " * 30 + "fox reads", 20)
@example("東京" * 300, 50)
@given(TEXTS, st.integers(10, 200))
def test_an_excerpt_has_the_most_terms_of_any(text: str, length: int) -> None:
    marks = word_marks(text, QueryWords("fox reads naïve 東京都", "english").words_of(text))
    start, end = excerpt(text, marks, length=length)
    assert end - start <= length
    if len(text) <= length:
        assert (start, end) == (0, len(text))
        return
    spaced = " " in text[start:end]
    assert not spaced or start == 0 or text[start - 1] == " "
    assert not spaced or end == len(text) or text[end] == " "
    inside = {mark.term for mark in marks if start <= mark.start and mark.end <= end}
    room = length - length // 10 - 8  # less the context before it, and a cut word after it
    for first in range(len(text)):
        assert len({mark.term for mark in marks if first <= mark.start and mark.end <= first + room}) <= len(inside)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("東京 " + "都の猫は本を読む" * 100, EXCERPT),
        ("x" + "\N{WOMAN}\u200d\N{PERSONAL COMPUTER}" * 200, EXCERPT - 2),
        ("e\u0301" * 200 + " end", EXCERPT),
        ("one two " * 100, EXCERPT - EXCERPT % 4 - 1),
        ("a " + "x" * 1000, EXCERPT),
    ],
)
def test_an_excerpt_is_cut_near_the_limit_at_whole_graphemes(text: str, shown: int) -> None:
    assert excerpt(text, []) == (0, shown)
    start, end = excerpt(text, [Mark(600, 601, "x")]) if len(text) > 700 else (0, shown)
    assert EXCERPT - 8 <= end - start <= EXCERPT
    assert not regex.match(r"\p{M}|\u200d", text[start:])
    assert not regex.match(r"\p{M}|\u200d", text[end:])


def test_heavier_terms_win() -> None:
    text = "fox owl " + "nothing " * 60 + "night"
    marks = word_marks(text, {word: {word} for word in ("fox", "owl", "night")})
    for weights, there in (({"fox": 1.0, "owl": 1.0, "night": 3.0}, "night"), (None, "fox owl")):
        start, end = excerpt(text, marks, weights)
        assert there in text[start:end]


@given(TEXTS, TEXTS)
def test_parts_are_the_text_and_a_snippet_its_part(before: str, text: str) -> None:
    marks = word_marks(text, {"fox": {"fox"}, "reads": {"read"}})
    shown = excerpt(text, marks)
    found = parts(text, marks, shown)
    assert "".join(one.text for one in found) == text
    assert "".join(one.text for one in found if not one.hidden) == text[slice(*shown)]
    assert [one.text for one in found if one.term] == [text[mark.start : mark.end] for mark in marks]
    part, whole = snippet(text, marks, before=len(before)), before + text
    assert whole[part.start : part.end] == part.text
    assert len(part.text) <= EXCERPT
    assert all(stemmed([part.text[mark.start : mark.end]]) == [[mark.term]] for mark in part.marks)


def test_english_stop_words_are_those_of_bm25s() -> None:
    from bm25s.tokenization import Tokenizer

    assert (
        frozenset(Tokenizer(stopwords="english").stopwords)
        == ENGLISH_STOP_WORDS
        == stop_words("en")
        == language_of("english").stop
    )
