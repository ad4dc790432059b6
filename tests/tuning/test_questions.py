"""Questions made of documents: the words that leave the document, the documents that suit none, and the numbers."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data import Document
from vocable.language.words import spaced_pieces
from vocable.tuning.questions import (
    KEPT_WORDS,
    PART_WORDS,
    QUESTION_KINDS,
    QUESTION_WORDS,
    TITLE_WORDS,
    WORDS_BEFORE,
    QuestionKind,
    distinct,
    question,
)

ENGLISH = st.text(alphabet="abc xyz.!? \n", max_size=400)
SCRIPTS = st.text(
    alphabet=st.sampled_from([*"的一是在。！？ 猫犬。", *"ไทยภาษา ", *"дом и лес. ", *"\n\n\t\u200b1_"]), max_size=300
)
DOCUMENTS = st.builds(
    Document,
    st.text(alphabet="abc123/é", min_size=1, max_size=9),
    st.one_of(ENGLISH, SCRIPTS, st.text(max_size=300)),
    st.one_of(st.just(""), st.text(alphabet="ab c", max_size=60)),
    st.just({"n": 1}),
)
LONG = "Line {0} has ten words that differ from all other lines."


ZH = "按两次红色按钮。机器会立即停止，灯也会熄灭。编译器在程序运行之前把源代码翻译成机器指令。请在使用前充电。" * 2
UNSPACED_TEXTS = {
    "Chinese": ("安全使用说明", ZH + "电池在两小时内充满，并且可以使用三天。请不要把机器放在阳光下，也不要放在水里。"),
    "Japanese": (
        "安全な使い方",
        "赤いボタンを二回押してください。機械はすぐに止まり、ランプが消えます。電池は二時間で充電され、三日間使えます。"
        * 3,
    ),
    "Thai": (
        "คู่มือการใช้งาน",
        "กดปุ่มสีแดงสองครั้ง เครื่องจะหยุดทันที และไฟจะดับลง แบตเตอรี่ชาร์จเต็มภายในสองชั่วโมง และใช้งานได้สามวัน " * 3,
    ),
}


@pytest.mark.parametrize("language", UNSPACED_TEXTS)
def test_scripts_without_spaces_give_questions_of_every_kind(language: str) -> None:
    title, text = UNSPACED_TEXTS[language]
    for kind in QUESTION_KINDS:
        document = Document("1", text[: len(text) // 3 + 1], title)
        found = [one for seed in range(8) if (one := question(document, kind, seed)) is not None]
        assert found, kind
        for one in found if kind == "sentence" else []:
            assert 8 <= len(one.query) <= 170
            assert one.query.replace(" ", "") in document.text.replace(" ", "")
            kept = [len("".join(words.split())) for words in (one.query, one.document.text, document.text)]
            assert kept[0] + kept[1] == kept[2]


def page(lines: int = 12, identifier: str = "p", title: str = "A title of words") -> Document:
    return Document(identifier, " ".join(LONG.format(number) for number in range(lines)), title, {"n": 1})


@pytest.mark.slow
@given(DOCUMENTS, st.sampled_from(QUESTION_KINDS), st.integers(0, 5))
def test_a_question_is_asked_of_what_the_document_then_lacks(document: Document, kind: QuestionKind, seed: int) -> None:
    found = question(document, kind, seed)
    if found is None:
        return
    assert found.kind == kind
    assert found.query.strip()
    rest = found.document
    assert (rest.id, rest.fields) == (document.id, document.fields)
    texts = (document.full, found.query, rest.full)
    before, asked, after = ([piece.strip() for piece in spaced_pieces(text)] for text in texts)
    # Nothing is lost and nothing invented: the words of both are those of the document.
    assert sorted(asked + after) == sorted(before)
    assert len(spaced_pieces(rest.text)) >= KEPT_WORDS
    if kind == "title":
        assert (found.query, rest.title, rest.text) == (document.title, "", document.text)
    else:
        assert rest.title == document.title
        assert found.query not in rest.text  # even where the text says it twice
    least, most = {"title": TITLE_WORDS, "sentence": QUESTION_WORDS}[kind]
    assert least <= len(asked) <= most


@given(st.lists(DOCUMENTS, min_size=2, max_size=6, unique_by=lambda one: one.id), st.integers(0, 3), st.randoms())
def test_a_question_depends_on_seed_kind_and_document_alone(
    documents: list[Document], seed: int, random: Random
) -> None:
    jobs = [(document, kind) for document in documents for kind in QUESTION_KINDS]
    first = {(document.id, kind): question(document, kind, seed) for document, kind in jobs}
    random.shuffle(jobs)
    assert {(document.id, kind): question(document, kind, seed) for document, kind in jobs} == first


def test_other_seeds_and_ids_give_other_questions() -> None:
    one = page(30)
    for kind in QUESTION_KINDS[1:]:
        by_seed = [question(one, kind, seed) for seed in range(20)]
        by_id = [question(one._replace(id=f"{i}"), kind) for i in range(20)]
        for found in (by_seed, by_id):
            assert len({made.query for made in found if made is not None}) > 5


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (Document("d", "", ""), "title"),
        (Document("d", "", ""), "sentence"),
        (Document("d", "One two three four five six seven eight.", "Word"), "title"),  # one word asks nothing
        (Document("d", "One two three four five six seven.", "Two words"), "title"),  # nothing would be left to find
        (Document("d", "One two three four five six seven eight.", " ".join("abc" for _ in range(26))), "title"),
        (Document("d", "A single sentence of eleven words gives no third of four."), "sentence"),
        (Document("d", "Too short. " * 30), "sentence"),
        (Document("d", "Again and again and again. " * 20), "sentence"),  # which it still says then
    ],
)
def test_documents_that_suit_no_question_have_none(document: Document, kind: QuestionKind) -> None:
    assert [question(document, kind, seed) for seed in range(8)] == [None] * 8


def test_the_limits_of_what_suits_a_kind() -> None:
    text = "One two three four five six seven eight."
    for title in ("Two words", " ".join(["word"] * TITLE_WORDS[1])):
        found = question(Document("d", text, title), "title")
        assert found is not None
        assert found.query == title


@pytest.mark.parametrize("count", [12, 14, 30, 149, 400])
def test_an_only_sentence_gives_a_third_of_itself(count: int) -> None:
    parts = [f"w{number}" for number in range(count)]
    queries = set()
    for seed in range(12):
        cut = question(Document("d", " ".join(parts)), "sentence", seed)
        assert cut is not None
        queries.add(cut.query)
        assert sorted(cut.query.split() + cut.document.text.split()) == sorted(parts)
        assert cut.part == cut.document
    third = min(count // 3, QUESTION_WORDS[1])
    assert queries == {" ".join(parts[:third]), " ".join(parts[-third:])}


@pytest.mark.parametrize("seed", range(30))
def test_the_part_of_a_document_surrounds_the_place_of_the_question(seed: int) -> None:
    document = page(60)
    asked = question(document, "sentence", seed)
    assert asked is not None
    assert (asked.part.id, asked.part.title) == (document.id, document.title)
    assert asked.document.text.endswith(asked.part.text)  # the rest from there
    before = asked.document.text.removesuffix(asked.part.text)
    place = len(document.text.partition(asked.query)[0].split())
    distance, following = place - len(before.split()), len(asked.document.text.split()) - place
    sentence = len(LONG.split())
    assert distance == min(place, -(-max(WORDS_BEFORE, PART_WORDS - following) // sentence) * sentence)


def test_a_sentence_is_often_the_first() -> None:
    one = page(12)
    found = [question(one, "sentence", seed) for seed in range(400)]
    starts = [made.query.split()[1] for made in found if made is not None]
    assert len(starts) == 400
    assert 0.45 < starts.count("0") / 400 < 0.65  # every other time, and one of twelve at random
    sentences = [made.query.count(".") for made in found if made is not None]
    assert {*sentences} == {1, 2}
    assert 0.55 < sentences.count(1) / 400 < 0.8


@given(st.lists(st.text(alphabet="ab. \u200bA猫", max_size=6), max_size=20))
def test_distinct_documents_have_different_words(texts: list[str]) -> None:
    kept, left = distinct(Document(f"{row}", text) for row, text in enumerate(texts))
    keys = [" ".join(text.lower().replace(".", " ").replace("\u200b", " ").split()) for text in texts]
    first = [f"{row}" for row, key in enumerate(keys) if key and key not in keys[:row]]
    if "猫" not in "".join(texts):  # whose runs are cut into pairs
        assert [one.id for one in kept] == first
    assert len(kept) + left == len(texts)
