"""The words that BM25 counts, over scripts."""

from __future__ import annotations

import sys
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.collection.index import index as index_of
from vocable.indexes.bm25 import RM3, BM25Index
from vocable.language.languages import languages
from vocable.language.words import names, stemmed, word_spans, words

EXPECTED = {
    "English": ("It's a state-of-the-art café, no. 42 (v2.0)!", "it state of the art café no 42 v2"),
    "German": ("Die Größe der Straße", "die größe der straße"),
    "Turkish": ("İstanbul'da IŞIK", "istanbul da işik"),
    "Greek": ("Ο ΟΔΥΣΣΕΎΣ", "οδυσσεύς"),
    "Russian": ("Ёлка и йод", "ёлка йод"),
    "Vietnamese": ("Tiếng Việt", "tiếng việt"),
    "Hindi": ("हिन्दी में किताब पढ़ना", "हिन्दी में किताब पढ़ना"),
    "Tamil": ("தமிழ் நூல்கள்", "தமிழ் நூல்கள்"),
    "Bengali": ("বাংলা বই", "বাংলা বই"),
    "Arabic": ("كِتَابٌ جديد", "كِتَابٌ جديد"),
    "Hebrew": ("שָׁלוֹם עולם", "שָׁלוֹם עולם"),
    "Persian, with a joiner between words": ("کتاب\u200cها", "کتاب ها"),
    "Sinhala, with a joiner in a letter": ("ශ්\u200dරී ලංකා", "ශ්රී ලංකා"),
    "Tibetan": ("བོད་སྐད", "བོད སྐད"),
    "Thai": ("น้ำดื่ม ๒๕๖๗", "น้ำ ำดื่ ดื่ม ๒๕๖๗"),
    "Lao": ("ນໍ້າ", "ນໍ້າ"),
    "Khmer": ("ទឹក ១២", "ទឹក ១២"),
    "Myanmar": ("မြန်မာ", "မြန် န်မာ"),
    "Chinese": ("我爱北京。", "我爱 爱北 北京"),
    "Chinese beside Latin and digits": ("用Python3写,第12章", "用 python3 写 第 12 章"),
    "Chinese beyond the first plane": ("𠮷野家", "𠮷野 野家"),
    "a Chinese character with a variation selector": ("葛\U000e0101城", "葛城"),
    "Japanese": ("東京タワー、々〇", "東京 京タ タワ ワー 々〇"),
    "Korean, whose particles are written onto words": ("학교에서 책을", "학교 교에 에서 책을"),
    "full width": ("ＡＢＣ１２３ ｆｏｘ＿ｘ", "abc123 fox_x"),
    "Katakana of half width": ("ﾃﾞｰﾀﾍﾞｰｽ ｶ", "デー ータ タベ ベー ース カ"),
    "Hangul of half width": ("ﾡﾢ", "ᄀᄁ"),
    "ligatures": ("oﬃce ﬁle", "office file"),
    "soft hyphens and word joiners": (
        "co\u00adop\u00aderate a\u2060b 東\u2060京 \ufeffno\u00ad",
        "cooperate ab 東京 no",
    ),
    "signs": ("❤️ 1️⃣ → ★", ""),
}
UNSPACED = ("THAI ", "LAO ", "MYANMAR ", "KHMER ", "TAI ", "NEW TAI ", "CJK ", "HIRAGANA ", "KATAKANA", "HANGUL ")
UNSPACED += (
    "BOPOMOFO ",
    "IDEOGRAPHIC ",
    "HALFWIDTH ",
    "HENTAIGANA ",
    "HANGZHOU ",
    "MASU ",
    "VERTICAL KANA ",
    "VERTICAL IDEOGRAPHIC ",
)
MARKS = ("Mn", "Mc")
STRANGE = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cn", "Co")), max_size=30)


def unspaced(character: str) -> bool:
    name = unicodedata.name(character, "")
    return name.startswith(UNSPACED) and unicodedata.category(character) not in ("Nd", "No", *MARKS)


def usual(character: str) -> str:
    """The usual form of a letter or digit of another width, or of a Latin ligature."""
    kind = unicodedata.decomposition(character).partition(">")[0]
    ligature = "\ufb00" <= character <= "\ufb06"
    if not ligature and (kind not in ("<wide", "<narrow") or not (character.isalnum() or character == "＿")):
        return character
    return unicodedata.normalize("NFKC", character)


def by_characters(text: str) -> list[str]:
    """The words of a text, as `words` gives them, found a character at a time and by the characters' names."""
    composed = unicodedata.normalize("NFC", text.lower()).replace("i\u0307", "i")
    composed = "".join(usual(character) for character in composed if character not in "\u00ad\u200b\u2060\ufeff")
    composed = "".join("'" if "\u02bb" <= character <= "\u02bd" else character for character in composed)
    kept = ""
    for before, character in pairwise(" " + composed):
        joined = character in "\u200c\u200d" and unicodedata.category(before) in MARKS
        kept += "" if joined or unicodedata.name(character, "").startswith("VARIATION SELECTOR-") else character
    runs: list[list[str]] = [[]]  # of letters with their marks
    for character in unicodedata.normalize("NFC", kept) + " ":
        if character.isalnum() or character == "_":
            runs[-1].append(character)
        elif unicodedata.category(character) in MARKS and runs[-1]:
            runs[-1][-1] += character
        elif runs[-1]:
            runs.append([])
    parts: list[list[str]] = []
    for run in runs:
        for before, letter in zip(["", *run], run, strict=False):
            if before and unspaced(before[0]) == unspaced(letter[0]):
                parts[-1].append(letter)
            else:
                parts.append([letter])
    found: list[str] = []
    for part in parts:
        if not unspaced(part[0][0]):
            found += [word for word in ["".join(part)] if len(word) > 1]
        else:
            found += map("".join, pairwise(part)) if len(part) > 1 else part
    return found


def names_by_characters(text: str) -> list[str]:
    """The names of a text, as `names` gives them: at each place the first kind that fits, by the characters."""
    text, found, at = f" {unicodedata.normalize('NFC', text.lower())} ", list[str](), 1

    def parts_from(start: int, sign: str) -> list[str]:
        """Runs of ASCII letters and digits with this sign between them."""
        runs = [""]
        for character in text[start:]:
            if character.isascii() and character.isalnum():
                runs[-1] += character
            elif character == sign and runs[-1]:
                runs.append("")
            else:
                break
        return runs if runs[-1] else runs[:-1]

    def ends(end: int, also: str = "") -> bool:
        return not (text[end].isalnum() or text[end] == "_" or text[end] in [*also])

    def name_at(start: int) -> str:
        if text[start - 1].isalnum() or text[start - 1] == "_" or not parts_from(start, " "):
            return ""
        first = parts_from(start, " ")[0]
        for sign in ("++", "#"):
            after = text[start + 1 + len(sign) :][:1]
            if len(first) == 1 and first.isalpha() and text.startswith(sign, start + 1):
                return f"{first}{sign}" if ends(start + 1 + len(sign)) or after.isdigit() else ""
        dotted = parts_from(start, ".")
        for kept in range(len(dotted), 1, -1):
            name, letters = ".".join(dotted[:kept]), all(len(part) == 1 and part.isalpha() for part in dotted[:kept])
            numbers = [dotted[0][dotted[0][0].isalpha() :], *dotted[1:kept]]
            if (letters or all(part.isdigit() for part in numbers)) and ends(start + len(name)):
                return name
        for sign in "&-":
            pair = parts_from(start, sign)[:2]
            name, sizes = sign.join(pair), [*map(len, pair)]
            if len(pair) < 2 or not pair[0][0].isalpha() or not ends(start + len(name), "-" if sign == "-" else ""):
                continue
            if sign == "&" and max(sizes) <= 2 and "".join(pair).isalpha():
                return name
            if sign == "-" and text[start - 1] != "-" and min(sizes) == 1 < max(sizes):
                return name
        return ""

    while at < len(text) - 1:
        name = name_at(at)
        kept = [one != "-" and (one != "." or not name.replace(".", "").isalpha()) for one in name]
        found += ["".join(one for one, is_kept in zip(name, kept, strict=True) if is_kept)] if name else []
        at += len(name) or 1
    return found


@given(st.text(alphabet="abcC19 .-&+#_é東\u0301", max_size=24))
def test_names_are_those_found_by_characters(text: str) -> None:
    assert names(text) == names_by_characters(text)


@pytest.mark.parametrize("name", ["C++", "c#", "F#", "AT&T", "R&D", "U.S.", "U.N.", "3.14", "v1.2.3", "e-mail", "IL-2"])
def test_a_name_finds_its_texts_before_others(name: str) -> None:
    others = ["a part of 1 and 2 by at", "the c of r and d", "14 or 2 or v1", "mail and il", "3 1 4"]
    index = BM25Index([*others, f"all of {name}, here", *others])
    assert index.search([name], k=1).rows[0].tolist() == [len(others)]


def test_spellings_of_a_name_find_each_other() -> None:
    assert names("e-mail U.S.A. F-16") == ["email", "usa", "f16"]
    assert names("node.js x_1 self.x 1-2 state-of-the-art notepad++ a.bc é-mail") == []


@pytest.mark.parametrize("script", EXPECTED)
def test_words_of_each_script(script: str) -> None:
    text, expected = EXPECTED[script]
    for form in ("NFC", "NFD"):
        assert words(unicodedata.normalize(form, text)) == [
            unicodedata.normalize("NFC", one) for one in expected.split()
        ]


def test_every_character_is_read_as_its_properties_say() -> None:
    names = {code: unicodedata.name(chr(code), "") for code in range(sys.maxunicode + 1)}
    many = ("CJK UNIFIED", "HANGUL SYLLABLE", "TANGUT", "EGYPTIAN")  # of these one in fifty
    named = [chr(code) for code, name in names.items() if name and not (code % 50 and name.startswith(many))]
    texts = [f"ab{one}cd 東{one} {one}{one}" for one in named]
    other = [f"U+{ord(one):04X}" for one, text in zip(named, texts, strict=True) if words(text) != by_characters(text)]
    assert not other


@pytest.mark.parametrize("apostrophe", "'\u2019\u02bb\u02bc\u02bd\u2018")
def test_an_apostrophe_that_is_a_letter_is_found_by_the_others(apostrophe: str) -> None:
    ukrainian, uzbek = f"комп{apostrophe}ютер", f"o{apostrophe}zbek"
    assert (words(ukrainian), words(uzbek)) == (["комп", "ютер"], ["zbek"])
    text = f"Новий {ukrainian} ще"
    assert [text[start:end] for start, end in word_spans(text)] == ["Новий", "комп", "ютер", "ще"]
    index = BM25Index([ukrainian, "інший"])
    for typed in ("комп'ютер", "комп’ютер", "компʼютер"):
        assert index.search([typed], 2).hits(0)[0][0] == "0"


def test_a_zero_width_space_within_a_word_is_left_out() -> None:
    assert words("ice\u200bberg") == ["iceberg"]


@given(STRANGE)
def test_words_are_those_found_by_characters(text: str) -> None:
    assert words(text) == by_characters(text)


def test_single_letters_are_words_if_asked_for() -> None:
    assert words("a B to 7", letters=True) == ["a", "b", "to", "7"]
    assert words("α न 中 x中文y", letters=True) == ["α", "न", "中", "x", "中文", "y"]
    assert words("α न 中 x中文y") == ["中", "中文"]


@given(STRANGE)
def test_composed_and_decomposed_texts_have_equal_words(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert stemmed([composed]) == stemmed([decomposed]) == stemmed([text])


@given(st.lists(STRANGE, min_size=1, max_size=5), STRANGE)
def test_composed_and_decomposed_texts_have_equal_vectors(texts: list[str], query: str) -> None:
    composed, decomposed = ([unicodedata.normalize(form, one) for one in [*texts, query]] for form in ("NFC", "NFD"))
    one, other = BM25Index(composed[:-1]), BM25Index(decomposed[:-1])
    assert one.vocabulary == other.vocabulary
    assert (one.query_vectors(composed) != one.query_vectors(decomposed)).nnz == 0
    rankings = [index.search(asked[-1:], k=5) for index, asked in ((one, decomposed), (other, composed))]
    assert rankings[0].rows.tolist() == rankings[1].rows.tolist()
    assert rankings[0].scores.tolist() == rankings[1].scores.tolist()


TEXTS = ["ทะเลสาบและแม่น้ำ", "हिन्दी में किताब पढ़ना", "東京の図書館", "도서관에서 책을", "café au lait"]
FOUND = {"แม่น้ำ": 0, "किताब": 1, "図書館": 2, "도서관": 3, "cafe\u0301": 4, "猫": None}


def test_texts_of_all_scripts_are_found() -> None:
    index, collection = BM25Index(TEXTS), index_of("vocable-mini-doc", TEXTS, bm25=True)
    rm3 = RM3(index, TEXTS, fb_docs=1)
    for query, row in FOUND.items():
        hits = [] if row is None else [row]
        assert index.search([query], k=1).rows[0].tolist() == (hits or [-1])
        assert index.search(rm3.expand([query]), k=1).rows[0].tolist() == (hits or [-1])
        assert [int(name) for name, _ in collection.search([query], 1, weights="bm25=1").hits(0)] == hits


def test_stop_words_and_stems_of_another_language() -> None:
    text = unicodedata.normalize("NFD", "La liberté était à nous, les libertés")
    assert stemmed([text], "french") == [["libert", "libert"]]
    assert stemmed(["The the cats"], "none") == [["the", "the", "cats"]]
    assert stemmed([]) == []


def test_every_stemmer_leaves_something_of_every_word() -> None:
    texts = [text for text, _ in EXPECTED.values()]
    for language in languages():
        assert all(all(some) for some in stemmed(texts, language)), language
