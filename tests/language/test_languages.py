"""Languages of BM25's words: stems, stop words, and the words of ICU's dictionaries."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import Stemmer
from bm25s import stopwords
from hypothesis import given
from hypothesis import strategies as st

import vocable
from vocable.data import Document
from vocable.errors import ArgumentError, MissingExtraError, VectorsError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.evaluate import evaluate
from vocable.indexes.bm25 import BM25Index
from vocable.language.languages import CODES, WITH_STOP_WORDS, language_of, languages, stop_words
from vocable.language.words import stemmed, words

# Each by hand: the text, and its words in the order of the text.
EXPECTED = {
    "german": ("Die Häuser der großen Städte und der Straßen", "haus gross stadt strass"),
    "french": ("Les chevaux couraient dans la forêt", "cheval cour forêt"),
    "spanish": ("Los gatos dormían en las casas", "gat dorm cas"),
    "russian": ("Книги и книгами", "книг книг"),
    "turkish": ("kitaplar ve kitaplık", "kitap kitaplık"),
    "italian": ("I gatti dormivano nelle case", "gatt dorm cas"),
    "chinese": ("我们的文件名称", "我们 们的 的文 文件 件名 名称"),
    "japanese": ("ファイルのsettings", "ファ ァイ イル ルの set"),
    "korean": ("파일을 저장", "파일 일을 저장"),
    "thai": ("ภาษาไทย", "ภา าษ ษา าไ ไท ทย"),
    "none": ("The cats sat", "the cats sat"),
}
ICU_WORDS = {
    "chinese": ("我们在北京大学学习设置", "我们 在 北京 大学 学习 设置"),
    "japanese": ("東京都でファイルを保存する", "東京 都 で ファイル を 保存 する"),
    "thai": ("ภาษาไทยเป็นภาษา", "ภาษา ไทย เป็น ภาษา"),
    "lao": ("ພາສາລາວ", "ພາສາ ລາວ"),
    "khmer": ("ភាសាខ្មែរ", "ភាសាខ្មែរ"),
    "burmese": ("မြန်မာဘာသာ", "မြန်မာဘာသာ"),
}


@pytest.mark.parametrize("language", EXPECTED)
def test_words_of_each_language(language: str) -> None:
    text, expected = EXPECTED[language]
    dropped = language_of(language).stop
    assert stemmed([text], language) == [[word for word in expected.split() if word not in dropped]]


@pytest.mark.parametrize("language", ICU_WORDS)
def test_words_of_icu_are_those_of_its_breaker(language: str) -> None:
    pytest.importorskip("icu4py")
    text, expected = ICU_WORDS[language]
    dropped = language_of(language).stop
    assert stemmed([text], f"{language}+icu") == [[word for word in expected.split() if word not in dropped]]


def test_icu_words_in_place_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in that cuts after three letters."""
    library = ModuleType("icu4py.breakers")
    library.WordBreaker = lambda text, locale: [text[:3], text[3:]]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "icu4py", ModuleType("icu4py"))
    monkeypatch.setitem(sys.modules, "icu4py.breakers", library)
    assert words("東京都庁 abc", icu=True) == ["東京都", "庁", "abc"]
    assert words("東京都도서관 x1", icu=True) == ["東京都", "도서", "서관", "x1"]


def test_a_language_of_icu_without_icu_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    language_of.cache_clear()
    monkeypatch.setitem(sys.modules, "icu4py.breakers", None)
    with pytest.raises(MissingExtraError, match=r"icu4py .*vocable\[icu\]"):
        BM25Index(["東京都"], language="japanese+icu")


def test_languages_are_those_of_the_libraries() -> None:
    assert {name for name in Stemmer.algorithms() if not name.endswith("porter")} <= CODES.keys()
    lists = {name.removeprefix("STOPWORDS_").lower() for name in dir(stopwords) if name.startswith("STOPWORDS_")}
    assert {code for name, code in CODES.items() if name in lists | {"english"}} == WITH_STOP_WORDS
    assert all(bool(stop_words(code)) == (code in WITH_STOP_WORDS) for code in CODES.values())
    assert [language_of(code).name for code in CODES.values() if language_of(code).name in languages()] == [*CODES]


@given(st.sampled_from(sorted({*CODES} & {*Stemmer.algorithms()})), st.lists(st.text(st.characters(categories=["L"]))))
def test_stems_are_those_of_snowball(language: str, texts: list[str]) -> None:
    plain, dropped = stemmed(texts, "none"), language_of(language).stop
    stemmer = Stemmer.Stemmer(language)
    assert stemmed(texts, language) == [[stemmer.stemWord(one) for one in some if one not in dropped] for some in plain]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("germn", r"german \(de\)"),
        ("deutsch", r"german \(de\)"),
        ("jp", r"japanese \(ja\)"),
        ("klingon", "english.*icu.*none"),
    ],
)
def test_an_unknown_language_names_near_ones(wrong: str, near: str) -> None:
    with pytest.raises(ArgumentError, match=f"unknown language '{wrong}.*({near})"):
        language_of(wrong)


@pytest.mark.parametrize("wrong", ["korean+icu", "ko+icu", "english+icu", "none+icu"])
def test_icu_is_refused_where_it_does_not_part_words(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icu4py.breakers", None)  # is not looked for
    with pytest.raises(ArgumentError):
        language_of(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getElementById(x)", "getelementbyid get element by id"),
        ("snake_case __init__ MAX_K2", "snake_case snake case __init__ max_k2 max"),
        ("XMLHttpRequest parseURL utf8 v2", "xmlhttprequest xml http request parseurl parse url utf8 utf v2"),
        ("plain Words naïve", "plain words naïve"),
    ],
)
def test_identifiers_are_also_counted_by_their_parts(text: str, expected: str) -> None:
    assert stemmed([text], "none+code") == [expected.split()]
    assert language_of("japanese+code").name == "japanese+code"
    assert set(stemmed([text], "english")[0]) <= set(stemmed([text], "english+code")[0])
    with pytest.raises(ArgumentError):
        language_of("english+codes")


@pytest.mark.parametrize("code", ["de-DE", "de_AT", "DE"])
def test_a_region_is_left_out(code: str) -> None:
    assert language_of(code).name == "german"


DOCUMENTS = [Document("1", "Die Katzen schlafen."), Document("2", "Der Hund bellt."), Document("3", "Die Stadt.")]


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_an_index_keeps_its_language(place: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": one.id, "text": one.text}) + "\n" for one in DOCUMENTS))
    output = tmp_path / "index" if place == "folder" else None
    with vocable.index("vocable-mini", corpus, output, bm25=True, language="de") as index:
        assert index.settings.language == "german"

        def found(query: str) -> list[str]:
            return [name for name, _ in index.search([query], weights="bm25=1").hits(0)]

        assert found("Katze") == ["1"]
        assert found("die") == []
        index.add([Document("4", "Zwei Städte, eine Katze")])
        assert sorted(found("katze")) == ["1", "4"]
        assert sorted(found("Stadt")) == ["3", "4"]
        index.delete(["1"])
        assert found("katzen") == ["4"]
    if output is not None:
        with vocable.open_index(output) as index:
            assert (index.settings.language, found("katzen")) == ("german", ["4"])
        with pytest.raises(ArgumentError):
            vocable.index("vocable-mini", corpus, output, bm25=True)


def test_an_index_without_a_language_is_english(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"_id": "1", "text": "the cats"}\n')
    vocable.index("vocable-mini", corpus, tmp_path / "index", bm25=True).close()
    with vocable.open_index(tmp_path / "index") as index:
        assert index.settings.language == "english"
    with vocable.index("vocable-mini", corpus, tmp_path / "index", bm25=True, language="en") as index:
        assert index.search(["cat"], weights="bm25=1").hits(0)


def test_settings_without_a_language_are_refused() -> None:
    index = BM25Index(["les chats"], language="french")
    settings = {name: value for name, value in index.settings.items() if name != "language"}
    with pytest.raises(VectorsError):
        BM25Index.from_arrays(index.arrays(), {**index.header(), "settings": settings}, "here")


def test_evaluation_in_a_language() -> None:
    from ir_measures import Qrel

    from vocable.data import Query

    dataset = Dataset("toy", DOCUMENTS, [Query("q", "Katze")], [Qrel("q", "1", 1)])
    [english], [german] = (
        evaluate("bm25", dataset, ["RR@10"], language=language, time_queries=0).evaluations for language in ("en", "de")
    )
    assert (english.values["RR@10"], german.values["RR@10"]) == (0.0, 1.0)
    for systems in ("bm25+rm3", "vocable-mini"):
        with pytest.raises(ArgumentError):
            evaluate(systems, dataset, language="de")


def test_a_language_needs_bm25(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        vocable.index("vocable-mini", "pydocs:", tmp_path / "index", language="de", bm25=False)
