r"""The syntax of a typed query: `"a phrase"` must occur in a hit, and `-word` must not.

| typed | means |
|:--|:--|
| `"binary tree"`, `“binary tree”` | the words stand in this order in the title or in the text, as they are spelled |
| `-word` | no form of the word, as BM25 compares words; in lower case |
| `-"binary tree"`, `-os.path` | not these words in this order |
| `\"`, `\-word` | a literal quote or hyphen |
| `state-of-the-art`, `5" disk`, `print("x")` | text: a hyphen or quote in a word, a quote without another |
| `-1`, `- x`, `-x`, `-O2`, `-Recurse`, `--flag`, `-std=c++17` | text: numbers, and options of commands |

A quote opens after white space and closes before it, or before punctuation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vocable.core.tables import shortened
from vocable.errors import ArgumentError
from vocable.language.languages import CODE
from vocable.language.phrases import SpelledText
from vocable.language.words import stemmed, unspaced, words

QUOTED = r'["“„](?P<phrase>(?!\s)(?:\\.|[^"“”„\\])+)(?<!\s)["“”]'
PLAIN_WORD = r"(?<=-)(?P<word>(?![A-Za-z]\d*\b(?![-.']))[^\W\d_](?:[^\s!-/:-@\[-^`{-~]|[-.'](?=\w))*)"
TYPED = re.compile(rf"(?<!\S)(?P<minus>-)?(?:{QUOTED}|{PLAIN_WORD})(?=[.,;:!?)]*(?!\S))", re.DOTALL)
ESCAPED = re.compile(r'\\(["“”„])|(?<!\S)\\(?=-\w|-["“„])')
SHOWN_QUERY = 60  # characters of a query in a message


@dataclass(frozen=True)
class TypedQuery:
    """The `text` that a model and BM25 read, the `phrases` of a hit, and words and phrases that no hit has.

    >>> parse_query('trees "binary search" -python, -"red black"')
    TypedQuery(text='trees binary search ,', phrases=('binary search',), words=('python',), absent=('red black',))
    """

    text: str
    phrases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # excluded in each of their forms
    absent: tuple[str, ...] = ()  # excluded phrases

    def __bool__(self) -> bool:
        """Return whether the query has conditions."""
        return bool(self.phrases or self.words or self.absent)

    def __str__(self) -> str:
        """Return the conditions as a line.

        >>> print(parse_query('trees "binary search" -python'))
        only hits with "binary search", without python (`plain` takes quotes and hyphens as text)
        """
        phrases, absent = ([f'"{phrase}"' for phrase in named] for named in (self.phrases, self.absent))
        conditions = [f"with {' and '.join(phrases)}"] if phrases else []
        conditions += [f"without {' and '.join([*self.words, *absent])}"] if self.words or absent else []
        return f"only hits {', '.join(conditions)} (`plain` takes quotes and hyphens as text)" if conditions else ""

    def unmet(self, title: str, text: str, language: str) -> str | None:
        """Return what a document does not fulfil, None if it fulfils all; words are compared in a language.

        >>> query = parse_query('"search trees" -cat')
        >>> query.unmet("Search-Trees", "", "english"), query.unmet("Trees", "search", "english")
        (None, 'it lacks the phrase "search trees"')
        >>> query.unmet("", "search trees for cats", "english")
        'it has the excluded word "cat"'
        """
        parts = SpelledText(title), SpelledText(text)

        def has(phrase: str) -> bool:
            spelled = SpelledText(phrase)
            return any(part.has(spelled) for part in parts)

        if lacking := next((phrase for phrase in self.phrases if not has(phrase)), None):
            return f'it lacks the phrase "{lacking}"'
        if present := next(filter(has, self.absent), None):
            return f'it has the excluded phrase "{present}"'
        if self.words:
            stems = {stem for part_stems in stemmed([title, text], language) for stem in part_stems}
            for word, word_stems in zip(self.words, stemmed(self.words, language), strict=True):
                # BM25 knows no stop words: they are compared as they are spelled.
                if stems.intersection(word_stems) if word_stems else has(word):
                    return f'it has the excluded word "{word}"'
        return None

    def required_stems(self, language: str) -> list[str]:
        """Return stems that BM25 counts in each document with the phrases, without pairs of characters.

        >>> parse_query('the "search trees of" cats').required_stems("english")
        ['search', 'tree']
        """
        whole = language.replace(f"+{CODE}", "")  # a name may be written without the capitals that part it
        spelled = [word for phrase in self.phrases for word in words(phrase)]  # "3-14" has the phrase "3.14"
        stems = dict.fromkeys(stem for word_stems in stemmed(spelled, whole) for stem in word_stems)
        return [stem for stem in stems if not unspaced(stem)]


def parse_query(typed: str) -> TypedQuery:
    r"""Return the text and the conditions of a query; raise `ArgumentError` for a query of exclusions alone.

    >>> parse_query("state-of-the-art -1 --flag 5\" disk").text
    'state-of-the-art -1 --flag 5" disk'
    >>> parse_query(r'a \"literal quote\"').text
    'a "literal quote"'
    """
    phrases, excluded, absent = list[str](), list[str](), list[str]()

    def read(match: re.Match[str]) -> str:
        phrase = match["phrase"]
        wanted = match["word"] if phrase is None else ESCAPED.sub(r"\1", phrase)
        # What is no word, or looks like a flag of a command, stays text.
        if not words(wanted, letters=True) or (phrase is None and wanted != wanted.lower()):
            return match[0]  # such as "++" or -Recurse
        if not match["minus"]:
            phrases.append(wanted)
            return wanted
        # A word is excluded in each of its forms, a phrase only as it is.
        one_word = phrase is None and len(words(wanted, letters=True)) == 1
        (excluded if one_word else absent).append(wanted)
        return ""

    text = TYPED.sub(read, typed)
    text = ESCAPED.sub(lambda escaped: escaped[1] or "", text)
    # The rest must have a word to search for.
    if excluded or absent:
        text = " ".join(text.split())
        if not words(text, letters=True):
            shown = shortened(typed, SHOWN_QUERY)
            raise ArgumentError(
                f"the query {shown} only excludes words: add a word to find, or search it as `plain` text"
            )
    return TypedQuery(text, tuple(phrases), tuple(excluded), tuple(absent))
