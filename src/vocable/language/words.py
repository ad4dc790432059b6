"""Segmentation of texts in any script into the words that BM25 counts.

All lexical components use it: BM25, its query expanders, the word statistics of a collection, and the teacher `bm25`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Set
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

from vocable.core.progress import track
from vocable.data.texts import Texts, as_texts
from vocable.language.languages import icu_words, language_of

WORD, LETTERS = re.compile(r"\w\w+"), re.compile(r"\w+")
# Texts with these characters need `_Patterns`. Latin, Greek, Cyrillic and most symbols have none of them.
COMPLEX = "[\u00ad\u02bb-\u02bd\u0300-\u036f\u0483-\u1dff\u200b-\u200d\u2060\u20d0-\u20ff\u2c00-\U0010ffff]"
INVISIBLE = "\u00ad\u200b\u2060\ufeff"  # soft hyphen, zero-width space and word joiners, anywhere in a word
APOSTROPHES = re.compile("[\u02bb-\u02bd]")  # letters of Ukrainian, Uzbek and others, often typed as ' or U+2019
# Full-width Latin letters and digits, half-width Katakana and Hangul, and ligatures are other forms of letters (NFKC).
FORMS = re.compile("[\ufb00-\ufb06\uff10-\uff19\uff21-\uff3a\uff3f\uff41-\uff5a\uff66-\uffdc]+")
NAME_IN_CODE = re.compile(r"[A-Za-z_][A-Za-z0-9_]+")
NAME_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# Names that signs tell from others: C++, F#, AT&T, U.S., 3.14, and beside a single letter or digit: e-mail, IL-2.
NAME_WITH_SIGNS = (
    r"\b(?:[{0}](?:\+\+|#)(?![^\W\d])|(?:(?:[{0}]\.)+[{0}]|[{0}]{{1,2}}&[{0}]{{1,2}}|[{0}]?[0-9]+(?:\.[0-9]+)+"
    r"|(?<!-)(?:[{0}]-[{0}0-9]{{2,}}|[{0}][{0}0-9]++-[{0}0-9])(?!-))(?!\w))"
)
LOWER_NAME = re.compile(NAME_WITH_SIGNS.format("a-z"))
TYPED_NAME = re.compile(NAME_WITH_SIGNS.format("A-Za-z"))
OPTIONAL_SIGNS = re.compile(r"-|(?<![0-9])\.(?![0-9])")  # email is e-mail, USA is U.S.A., but 314 is not 3.14
VOICED = "\uff9e\uff9f"  # half-width marks of Katakana
# Scripts without spaces between words, and Korean, which attaches particles to its words. They are cut into pairs of
# characters (bigrams), as by Lucene's CJKAnalyzer.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul Jamo
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x3000, 0x31FF),  # Hiragana, Katakana, Bopomofo, Hangul letters, ideographic marks
    (0x3400, 0x9FFF),  # Han
    (0xA960, 0xA97F),  # Hangul Jamo Extended-A
    (0xA9E0, 0xA9FF),  # Myanmar Extended-B
    (0xAA60, 0xAADF),  # Myanmar Extended-A, Tai Viet
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),  # Han, compatibility
    (0xFF66, 0xFFDC),  # half-width Katakana and Hangul
    (0x1AFF0, 0x1B16F),  # Kana supplement and extensions
    (0x20000, 0x323AF),  # Han extensions
)
HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff\uffa0-\uffdc]")
MARKS = (0x300, 0x1FFFF)  # range that contains all combining marks except the supplementary variation selectors


class _Patterns(NamedTuple):
    """Patterns that segment non-ASCII text."""

    ignored: re.Pattern[str]  # invisible characters, variation selectors, and joiners after a mark
    unspaced: re.Pattern[str]  # a letter of a script without spaces, with its marks
    run: re.Pattern[str]  # letters, digits, underscores, and the marks on them
    word: re.Pattern[str]  # a run of two or more letters
    part: re.Pattern[str]  # longest part of a run that is entirely in scripts without spaces, or entirely in others


def stemmed(texts: Texts, language: str = "english", progress: bool = False) -> list[list[str]]:
    """Return the stemmed words of each text, in order, without stop words and single letters.

    Words are lower-cased and in Unicode's composed form (NFC), with letters of another width as the usual ones and
    without invisible characters; combining marks belong to their letters. Scripts without spaces and Korean yield
    overlapping pairs of characters; an isolated character is a word. With `+icu`, scripts without spaces yield ICU's
    words instead, but Korean does not.

    >>> stemmed(["The cats sat.", "हिन्दी में किताब", "東京都の猫", ""])
    [['cat', 'sat'], ['हिन्दी', 'में', 'किताब'], ['東京', '京都', '都の', 'の猫'], []]
    >>> stemmed(["Die Katzen saßen."], "german")
    [['katz', 'sass']]
    >>> stemmed(["getElementById HTTP_server2"], "english+code")
    [['getelementbyid', 'get', 'element', 'id', 'http_server2', 'http', 'server']]
    """
    words_of_texts = counted_words(texts, language, progress)
    stems = stems_of(words_of_texts, language)
    return [[stems[word] for word in text_words] for text_words in words_of_texts]


@lru_cache(maxsize=1 << 16)
def stems_of_word(word: str, language: str = "english") -> frozenset[str]:
    """Return the stems of a word as it is written: several of an identifier or a script without spaces, or none.

    >>> sorted(stems_of_word("Cats")), sorted(stems_of_word("the")), sorted(stems_of_word("getById", "english+code"))
    (['cat'], [], ['get', 'getbyid', 'id'])
    """
    return frozenset(stemmed([word], language)[0])


def words_with_stems(text: str, stems: Set[str], language: str) -> dict[str, Set[str]]:
    """Return the different words of a text, as they are written, that have some of `stems`, with these stems.

    >>> sorted(words_with_stems("Cats and a cat sat", {"cat"}, "english"))
    ['Cats', 'cat']
    """
    if not stems:
        return {}
    written = {text[start:end] for start, end in word_spans(text)}
    shared = ((word, stems & stems_of_word(word, language)) for word in written)
    return {word: common for word, common in shared if common}


def counted_words(texts: Texts, language: str, progress: bool = False) -> list[list[str]]:
    """Return the counted words of each text, not stemmed: all but stop words and single letters, then the names."""
    spoken = language_of(language)
    texts = as_texts(texts)
    return [
        [word for word in words(text, icu=spoken.icu, code=spoken.code) if word not in spoken.stop] + names(text)
        for text in (track(texts, "words") if progress else texts)
    ]


def names(text: str) -> list[str]:
    """Return the names of a text that signs tell from others, in lower case, in order.

    `words` loses them: it leaves out signs and single letters. Without their hyphens and dots, e-mail is email and
    U.S. is US; numbers keep their dots.

    >>> names("C++11 or F#? AT&T and the U.S. by e-mail: IL-2, v1.2.3 of 3.14, node.js")
    ['c++', 'f#', 'at&t', 'us', 'email', 'il2', 'v1.2.3', '3.14']
    """
    text = text.lower()
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return [OPTIONAL_SIGNS.sub("", name) for name in LOWER_NAME.findall(text)]


def stems_of(words_of_texts: Iterable[Iterable[str]], language: str) -> dict[str, str]:
    """Return the stem of each word of texts."""
    distinct = list(dict.fromkeys(chain.from_iterable(words_of_texts)))
    return dict(zip(distinct, language_of(language).stems(distinct), strict=True))


def words(
    text: str,
    *,
    letters: bool = False,
    pairs: bool = True,
    icu: bool = False,
    code: bool = False,
    cased: bool = False,
) -> list[str]:
    """Return the words of a text, in order, unstemmed and with stop words.

    `letters` keeps single letters, and `cased` keeps upper case. `icu` takes words of ICU's dictionaries instead of
    pairs of characters, except in Korean; without `pairs` each character is a word. `code` also takes the parts of
    identifiers.

    >>> words("Der Süden Chinas: 中国南方, ภาษาไทย")
    ['der', 'süden', 'chinas', '中国', '国南', '南方', 'ภา', 'าษ', 'ษา', 'าไ', 'ไท', 'ทย']
    """
    if code:
        text = NAME_IN_CODE.sub(_with_parts, text)
    text = text if cased else text.lower()
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).replace("i\u0307", "i")  # lower-cased Turkish İ, as in Lucene
    # One pattern is enough for texts of most languages.
    if text.isascii() or not re.search(COMPLEX, text):
        return (LETTERS if letters else WORD).findall(text)
    # In other scripts, forms of a letter get one spelling, and signs that are not seen leave.
    patterns, text = _patterns(), APOSTROPHES.sub("'", text)
    text = FORMS.sub(lambda letters: unicodedata.normalize("NFKC", letters[0]), patterns.ignored.sub("", text))
    text = unicodedata.normalize("NFC", text)
    if not patterns.unspaced.search(text):
        return (patterns.run if letters else patterns.word).findall(text)
    # Parts in scripts without spaces are cut into words of a dictionary, pairs or characters.
    result = list[str]()
    for part in chain.from_iterable(map(patterns.part.findall, patterns.run.findall(text))):
        if not pairs and patterns.unspaced.match(part):
            result += patterns.unspaced.findall(part)
        elif patterns.unspaced.match(part):
            for word in icu_words(part) if icu else [part]:
                result += [word] if icu and not HANGUL.match(word) else _pairs(patterns.unspaced.findall(word))
        elif letters or len(part) > 1:
            result.append(part)
    return result


def word_spans(text: str, among: Collection[str] | None = None) -> list[tuple[int, int]]:
    """Return the start and end of each word and name of a text, in order; names and pairs of characters overlap others.

    With `among`, only words that are spelled so.

    >>> for text in "Chinas 中国南", "in C++ by e-mail":
    ...     print([text[start:end] for start, end in word_spans(text)])
    ['Chinas', '中国', '国南']
    ['in', 'C++', 'by', 'e-mail', 'mail']
    """
    spans = [match.span() for match in TYPED_NAME.finditer(text)]
    if text.isascii() or not re.search(COMPLEX, text):
        spans += [match.span() for match in WORD.finditer(text)]
    else:
        spans += _complex_spans(text)
    return sorted((start, end) for start, end in spans if among is None or text[start:end] in among)


def _complex_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each word of a text that needs `_Patterns`."""
    patterns, spans = _patterns(), list[tuple[int, int]]()
    for run in patterns.run.finditer(APOSTROPHES.sub("'", text)):
        for part in patterns.part.finditer(run[0]):
            at = run.start() + part.start()
            letters = [match.span() for match in patterns.unspaced.finditer(part[0])]
            pairs = [(first, last) for (first, _), (_, last) in pairwise(letters)] or [(0, len(part[0]))]
            spans += [(at + first, at + last) for first, last in pairs]
    return spans


def _with_parts(identifier: re.Match[str]) -> str:
    """Return an identifier and its parts, as `getElementById get Element By Id`."""
    parts = NAME_PART.findall(identifier[0])
    return " ".join([identifier[0], *parts]) if len(parts) > 1 else identifier[0]


def _pairs(characters: list[str]) -> list[str]:
    return list(map("".join, pairwise(characters))) if len(characters) > 1 else characters


def unspaced(word: str) -> bool:
    """Return whether a word's script is cut into pairs of characters.

    >>> unspaced("中国"), unspaced("Chinas")
    (True, False)
    """
    return not word.isascii() and _patterns().unspaced.match(word) is not None


def spaced_pieces(text: str) -> list[str]:
    """Return the words of a text with the space before each, and pairs of characters in scripts without spaces.

    Joined, the pieces are the text with single blanks for its white space. Punctuation belongs to the piece before it.

    >>> spaced_pieces("Press twice. 按两次，红色"), spaced_pieces("ปุ่ม")
    ([' Press', ' twice.', ' 按两', '次，', '红色'], [' ปุ่ม'])
    """
    if text.isascii() or not re.search(COMPLEX, text):
        return [f" {word}" for word in text.split()]
    patterns, result = _patterns(), list[str]()
    for word in text.split():
        pieces = [""]
        for part in patterns.part.findall(word):
            letters = patterns.unspaced.findall(part)
            if not letters and not re.search(r"\w", part):
                pieces[-1] += part
                continue
            pieces += ["".join(letters[at : at + 2]) for at in range(0, len(letters), 2)] or [part]
        first, *others = pieces if pieces[0] else pieces[1:]  # begins with the punctuation before the word, if any
        result += [f" {first}", *others]
    return result


@lru_cache(maxsize=1)
def _patterns() -> _Patterns:
    marks = _class(code for code in range(*MARKS) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    letters = _class(
        code
        for first, last in UNSPACED
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)) in ("Lo", "Lm", "Nl") and chr(code) not in VOICED
    )
    marks += VOICED + INVISIBLE  # `word_spans` and `spaced_pieces` read a text as it is written
    return _Patterns(
        ignored=re.compile(rf"[{INVISIBLE}]|[\u200c\u200d](?<=[{marks}].)|[\ufe00-\ufe0f\U000e0100-\U000e01ef]"),
        unspaced=re.compile(rf"[{letters}][{marks}]*"),
        run=re.compile(rf"\w[\w{marks}]*"),
        word=re.compile(rf"\w[\w{marks}]+"),
        part=re.compile(rf"(?:[{letters}][{marks}]*)+|[^{letters}]+"),
    )


def _class(codes: Iterable[int]) -> str:
    """Return ascending code points as the content of a character class of a regular expression."""
    spans: list[list[int]] = []
    for code in codes:
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in spans)
