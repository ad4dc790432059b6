"""Queries with phrases and exclusions: what is syntax, what is text, and which documents fulfil them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.errors import ArgumentError
from vocable.language.query_syntax import TypedQuery, parse_query

SYNTAX = {
    'how to "split a text" now': TypedQuery("how to split a text now", phrases=("split a text",)),
    '"dijkstra"': TypedQuery("dijkstra", phrases=("dijkstra",)),
    "“curly quotes”": TypedQuery("curly quotes", phrases=("curly quotes",)),
    "„unten“ und oben": TypedQuery("unten und oben", phrases=("unten",)),
    '"first one", "second one".': TypedQuery("first one, second one.", phrases=("first one", "second one")),
    'what is "foo"?': TypedQuery("what is foo?", phrases=("foo",)),
    'x = "hello"': TypedQuery("x = hello", phrases=("hello",)),
    '"a \\"quoted\\" word"': TypedQuery('a "quoted" word', phrases=('a "quoted" word',)),
    "jaguar -car": TypedQuery("jaguar", words=("car",)),
    "-car jaguar": TypedQuery("jaguar", words=("car",)),
    "jaguar -car, -cars": TypedQuery("jaguar ,", words=("car", "cars")),
    "join -os.path": TypedQuery("join", absent=("os.path",)),
    "art -state-of-the-art": TypedQuery("art", absent=("state-of-the-art",)),
    'trees -"red black"': TypedQuery("trees", absent=("red black",)),
    "run -don't": TypedQuery("run", absent=("don't",)),
    "東京 -猫": TypedQuery("東京", words=("猫",)),
    "किताब -हिन्दी": TypedQuery("किताब", words=("हिन्दी",)),
    "5.25\" or 3\" \"floppy disk\"": TypedQuery("5.25\" or 3\" floppy disk", phrases=("floppy disk",)),
    "list.sort -snake_case": TypedQuery("list.sort", words=("snake_case",)),
}  # fmt: skip
TEXT = [
    "", " two  blanks ", "state-of-the-art", "e-mail", "-1", "- 1", "x -1", "-0.5 degrees", "COVID -19", "a - b",
    "x -y",
    "--flag", "git --amend", "ls -l", "gcc -O2", "-std=c++17", "-I/usr/include", "-> int", "f(-x)", "a-", "-",
    '5" disk', '5" and 3" disks', '6\'2" tall', 'an "unbalanced quote', 'a quote" alone', '"', '""', '" "',
    '" padded "',
    'print("hello")', '<a href="x">', '{"key": 1}', '"""docstring"""', '"word"s', 'say "++" now', '-"++"', "C:\\dir\\n",
    "r'\\d+'", "−word", "–word", "(-word)", "-@name", "-#tag",
]  # fmt: skip


@pytest.mark.parametrize("typed", SYNTAX)
def test_phrases_and_exclusions_are_read(typed: str) -> None:
    assert parse_query(typed) == SYNTAX[typed]


@pytest.mark.parametrize("typed", TEXT)
def test_a_hyphen_or_quote_that_is_no_syntax_stays_text(typed: str) -> None:
    assert parse_query(typed) == TypedQuery(typed)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (r"a \"quote\"", 'a "quote"'),
        (r"find \-name x", "find -name x"),
        (r'\-"a b"', '-"a b"'),
        (r"a\-b \d", r"a\-b \d"),
    ],
)
def test_a_backslash_escapes_quotes_and_hyphens(typed: str, text: str) -> None:
    assert parse_query(typed) == TypedQuery(text)


@pytest.mark.parametrize("typed", ["-car", '-"a phrase" -car', "-car ?!"])
def test_a_query_of_exclusions_alone_is_an_error(typed: str) -> None:
    with pytest.raises(ArgumentError) as error:
        parse_query(typed)
    message = str(error.value)
    assert ["only excludes words" in message, "plain" in message, "\n" in message] == [True, True, False]


@given(st.text())
def test_a_text_without_quotes_and_hyphens_stays_as_it_is(text: str) -> None:
    plain = re.sub(r'["“”„\\-]', "", text)
    assert parse_query(plain) == TypedQuery(plain)


@given(st.text(alphabet='ab1 "\\.\n“'), st.text(alphabet='ab1 -"\\.\n“'))
def test_conditions_are_parts_of_what_was_typed(start: str, text: str) -> None:
    query, typed = parse_query(f"{start} word {text}"), f"{start} word {text}".replace("\\", "")  # without escapes
    conditions = *query.phrases, *query.words, *query.absent
    assert all(condition.replace("\\", "") in typed for condition in conditions)


WORDS = st.lists(st.sampled_from(["a", "bb", "cat", "the", "Cats", "12", "été"]), min_size=1, max_size=12)


@given(WORDS, WORDS, st.sampled_from([" ", ", ", "-", "\n"]))
def test_a_phrase_is_a_run_of_words(document: list[str], phrase: list[str], between: str) -> None:
    folded, wanted = [word.lower() for word in document], [word.lower() for word in phrase]
    has = any(folded[start : start + len(wanted)] == wanted for start in range(len(folded)))
    text = between.join(document)
    assert (TypedQuery("", phrases=(" ".join(phrase),)).unmet("", text, "english") is None) == has
    assert (TypedQuery("", phrases=(" ".join(phrase),)).unmet(text, "x", "english") is None) == has
    assert (TypedQuery("", absent=(" ".join(phrase),)).unmet(text, "x", "english") is None) != has


@pytest.mark.parametrize(
    ("phrase", "text", "has"),
    [
        ("Search Trees", "Balanced search-trees.", True),
        ("search tree", "search trees", False),  # words as they are spelled
        ("state of the art", "The state of the art", True),  # stop words count
        ("os.path.join", "import os; os.path.join(a)", True),
        ("path.join", "os.path.joined", False),
        ("item 1", "see item 1: it", True),
        ("item 1", "see item 12", False),
        ("cafe\u0301", "the CAFÉ", True),  # composed as BM25's words are
        ("cafe", "the café", False),
        ("東京都", "東京都の猫", True),
        ("東京都", "東京、京都", False),  # pairs of characters would match
        ("猫", "東京都の猫だ", True),
        ("ＡＢ", "ab", True),
        ("coop", "co\u00adop", True),  # soft hyphens do not count
    ],
)
def test_words_of_phrases_are_compared_as_spelled(phrase: str, text: str, has: bool) -> None:
    assert (TypedQuery("", phrases=(phrase,)).unmet("", text, "english") is None) == has


def test_a_phrase_does_not_go_from_the_title_into_the_text() -> None:
    assert TypedQuery("", phrases=("binary trees",)).unmet("Binary", "trees", "english") is not None


@pytest.mark.parametrize(
    ("word", "language", "text", "has"),
    [
        ("cat", "english", "Cats sleep", True),  # in each of its forms
        ("cats", "none", "a cat", False),
        ("Katze", "german", "die Katzen", True),
        ("the", "english", "the fox", True),  # a stop word, as it is spelled
        ("the", "english", "a fox", False),
        ("car", "english", "a cartoon", False),
        ("element", "english+code", "getElementById()", True),
        ("element", "english", "getElementById()", False),
    ],
)
def test_excluded_words_are_compared_as_bm25_compares_them(word: str, language: str, text: str, has: bool) -> None:
    assert (TypedQuery("x", words=(word,)).unmet("", text, language) is not None) == has
