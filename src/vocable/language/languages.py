"""Languages of BM25's words: Snowball's stemmers, bm25s' stop words, and ICU's dictionaries of words.

A language is named in English or by its ISO 639 code. In scripts without spaces, words are pairs of characters, or with
`+icu` the words of ICU's dictionaries. With `+code`, identifiers of programs are also counted by their parts.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

import Stemmer

from vocable.errors import ArgumentError, require_extra

NAMES = (
    "arabic=ar armenian=hy basque=eu burmese=my catalan=ca chinese=zh czech=cs danish=da dutch=nl english=en "
    "esperanto=eo estonian=et finnish=fi french=fr german=de greek=el hindi=hi hungarian=hu indonesian=id "
    "irish=ga italian=it japanese=ja khmer=km korean=ko lao=lo lithuanian=lt nepali=ne norwegian=no persian=fa "
    "polish=pl portuguese=pt romanian=ro russian=ru serbian=sr sesotho=st spanish=es swedish=sv tamil=ta "
    "thai=th turkish=tr yiddish=yi"
)
CODES = dict(pair.split("=") for pair in NAMES.split())  # ISO 639
OTHER_NAMES = (
    "deutsch=german español=spanish français=french italiano=italian nederlands=dutch português=portuguese "
    "svenska=swedish dansk=danish norsk=norwegian türkçe=turkish polski=polish jp=japanese cn=chinese kr=korean"
)
# English words in texts of these languages are stemmed.
UNSPACED_LANGUAGES = {"burmese", "chinese", "japanese", "khmer", "korean", "lao", "thai"}
WITH_STOP_WORDS = {"da", "de", "en", "es", "fr", "it", "ko", "nl", "no", "pt", "ru", "sv", "tr", "zh"}
STOP = "a an and are as at be but by for if in into is it no not of on or such that the their then there these they"
ENGLISH_STOP_WORDS = frozenset([*STOP.split(), "this", "to", "was", "will", "with"])  # as in Lucene
SMALL_WORDS = (  # of English: BM25 counts them, but nobody misses them; the last are parts of "don't" and others
    "am been being can cannot could did do does doing from had has have having he her him his how me my our should she "
    "so some than them those us we were what when where which while who whom whose why would you your "
    "aren couldn didn doesn don hadn hasn haven isn let ll re shouldn ve wasn weren won wouldn"
)
ENGLISH, NO_LANGUAGE, ICU, CODE = "english", "none", "icu", "code"


class Language(NamedTuple):
    """The treatment of words: Snowball's `stemmer`, stop words, ICU's words in scripts without spaces, parts of names.

    `none` has neither stems nor stop words. `common` has the stop words and further words that say nothing of a topic.
    """

    name: str
    stemmer: str | None
    stop: frozenset[str]
    common: frozenset[str]
    icu: bool
    code: bool

    def stems(self, words: list[str]) -> list[str]:
        """Return the stem of each word."""
        return words if self.stemmer is None else Stemmer.Stemmer(self.stemmer).stemWords(words)


def languages() -> list[str]:
    """Return the names of the installed Snowball's languages, of the languages without spaces, and `none`."""
    return [*(name for name in CODES if name in UNSPACED_LANGUAGES or name in Stemmer.algorithms()), NO_LANGUAGE]


@lru_cache
def language_of(name: str) -> Language:
    """Return the language of a name or code, such as `german`, `de`, `de-AT`, `japanese+icu`, `english+code` or `none`.

    Raises:
        ArgumentError: the language is unknown, or ICU has no words for it.
        MissingExtraError: icu4py is not installed.

    >>> language_of("DE").name, "und" in language_of("german").stop, language_of("none").stems(["cats"])
    ('german', True, ['cats'])
    """
    # A name or a code with a region, and options after `+`.
    given = str(name).strip().lower()
    asked, *options = given.split("+")
    icu, parted = ICU in options, UNSPACED_LANGUAGES - {"korean"}
    code = asked.replace("_", "-").partition("-")[0]  # without a region
    language = next((known for known in languages() if asked == known or code == CODES.get(known)), None)
    if language is None:
        raise ArgumentError(f"language: unknown language {name!r}: {_near(asked)}")
    # Refuse options that do not exist, or not for this language.
    if other := next((option for option in options if option not in (ICU, CODE)), None):
        raise ArgumentError(f"language: there is no +{other}, but +{ICU} and +{CODE}")
    if icu and language not in parted:
        reason = "ICU leaves particles on Korean words" if language == "korean" else "its words need no dictionary"
        raise ArgumentError(f"language: {language} has no +{ICU} ({reason}), but {', '.join(sorted(parted))}")
    if icu:
        require_extra("icu4py.breakers", "icu")
    # A language without spaces takes English stems for words in Latin letters.
    full = "+".join([language, *(option for option in (ICU, CODE) if option in options)])
    if language == NO_LANGUAGE:
        return Language(name=full, stemmer=None, stop=frozenset(), common=frozenset(), icu=icu, code=CODE in options)
    stemmer = ENGLISH if language in UNSPACED_LANGUAGES else language
    stop = stop_words(CODES[language]) | stop_words(CODES[stemmer])
    common = stop.union(SMALL_WORDS.split()) if language == ENGLISH else stop
    return Language(name=full, stemmer=stemmer, stop=stop, common=common, icu=icu, code=CODE in options)


def _near(asked: str) -> str:
    """Return the hint about an unknown language."""
    other = dict(pair.split("=") for pair in OTHER_NAMES.split()).get(asked)
    near = [other] if other else get_close_matches(asked, [*languages(), *CODES.values()], 3)
    names = {name: f"{name} ({CODES[name]})" if name in CODES else name for name in languages()}
    meant = dict.fromkeys(next(names[name] for name in names if word in (name, CODES.get(name))) for word in near)
    if meant:
        return f"did you mean {' or '.join(meant)}?"
    return "give a name or code, as english (en), german (de), japanese+icu, english+code or none: see docs/bm25.md"


@lru_cache
def stop_words(code: str) -> frozenset[str]:
    """Return the stop words of a language's code; the set is empty for a language without stop words."""
    if code == "en":
        return ENGLISH_STOP_WORDS
    from bm25s.tokenization import Tokenizer  # which not every search needs

    return frozenset(Tokenizer(stopwords=code).stopwords if code in WITH_STOP_WORDS else ())


def icu_words(text: str) -> list[str]:
    """Return the words of a text in scripts without spaces, by ICU's dictionaries.

    >>> icu_words("ภาษาไทย")  # doctest: +SKIP
    ['ภาษา', 'ไทย']
    """
    return list(map(str, require_extra("icu4py.breakers", "icu").WordBreaker(text, "en")))
