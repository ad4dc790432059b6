"""The plan of a tuning: the look at the vocabulary, and the arithmetic of minutes, documents and steps."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vocable.core.storage import read_record, write_record
from vocable.data import Document
from vocable.encoding.hub import locate
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.evaluation.cost import spread
from vocable.language.words import spaced_pieces
from vocable.tuning.plan import (
    EXPORT_STEPS,
    FEWEST_SEARCHED,
    FEWEST_STEPS,
    FULL_BATCHES,
    LEAST_STEPS,
    MOST_SEARCHED,
    RESERVE,
    TRAINING_STEPS,
    VOCABULARY_TEXTS,
    Plan,
    Reading,
    TuningSpeed,
    check_questions,
    check_vocabulary,
    make_plan,
    measure_speed,
    read_words,
    warn_of_few_steps,
)
from vocable.tuning.recipe import QUESTIONS_PER_STEP

TEXTS = {
    "English": "Press the red button twice. The machine stops at once, and the lamp goes out. A compiler translates "
    "source code into machine instructions before the program runs.",
    "German": "Drücken Sie zweimal auf den roten Knopf. Die Maschine hält sofort an, und die Lampe erlischt. Ein "
    "Übersetzer wandelt den Quelltext vor der Ausführung in Maschinenbefehle um.",
    "Russian": "Дважды нажмите красную кнопку. Машина сразу остановится, и лампа погаснет. Компилятор переводит "
    "исходный текст программы в машинные команды.",
    "Chinese": "按两次红色按钮。机器会立即停止，灯也会熄灭。编译器在程序运行之前把源代码翻译成机器指令。",
    "Japanese": "赤いボタンを二回押してください。機械はすぐに止まり、ランプが消えます。",
    "Korean": "빨간 버튼을 두 번 누르세요. 기계가 즉시 멈추고 램프가 꺼집니다.",
    "Arabic": "اضغط على الزر الأحمر مرتين. تتوقف الآلة على الفور وينطفئ المصباح.",
}


@pytest.fixture(scope="module")
def built_in() -> PreTrainedTokenizerBase:
    """The tokenizer of the built-in model."""
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(locate("vocable-mini"))
    return found


def reading(documents: int = 5_000, repeated: int = 0, questions: float = 6.0) -> Reading:
    return Reading(documents, repeated, 80, 1.2, 0.0, questions)


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_of_the_vocabulary(built_in: PreTrainedTokenizerBase, language: str) -> None:
    found = read_words([Document(f"{i}", TEXTS[language]) for i in range(3)], 2, built_in)
    assert (found.documents, found.repeated, found.words) == (5, 2, len(spaced_pieces(TEXTS[language])))
    if language == "English":
        assert found.tokens_per_word < 1.3
        check_vocabulary("vocable-mini", found)
        return
    unit = "character" if language in ("Chinese", "Japanese", "Thai", "Korean") else "word"
    with pytest.raises(ModelError, match=f"^vocable-mini: .*{found.tokens_per_word:.1f} .*{unit}"):
        check_vocabulary("vocable-mini", found)


def test_pieces_are_counted_word_by_word(tokenizer: PreTrainedTokenizerBase, toy_texts: list[str]) -> None:
    documents = [Document(f"{i}", f"{text} 123 4_5") for i, text in enumerate(sorted(set(toy_texts))[:30])]
    found = read_words(documents, 0, tokenizer)
    own = [word for one in documents for word in re.findall(r"[^\W\d_]\w*", one.text.lower())]
    pieces = [piece for word in own for piece in tokenizer.tokenize(word)]
    assert found.tokens_per_word == pytest.approx(len(pieces) / len(own))
    assert found.unknown == pieces.count("[UNK]") / len(pieces)
    check_vocabulary("toy", found)
    strange = read_words([Document("1", "☃ ʘʘʘ ǂǂǂ ʞʞʞ")], 0, tokenizer)
    assert strange.unknown == 1.0
    with pytest.raises(ModelError):
        check_vocabulary("toy", strange)


def test_numbers_alone_say_nothing_of_a_language(tokenizer: PreTrainedTokenizerBase) -> None:
    found = read_words([Document("1", "1 22 333 2024")], 0, tokenizer)
    assert (found.tokens_per_word, found.unknown) == (0, 0)
    check_vocabulary("toy", found)


def test_words_of_many_documents_are_read_from_a_sample(tokenizer: PreTrainedTokenizerBase) -> None:
    documents = [Document(f"{i}", f"the old fox {i}") for i in range(5_000)]
    sample = [documents[row] for row in spread(5_000, VOCABULARY_TEXTS)]
    found = read_words(documents, 0, tokenizer)
    assert found == replace(read_words(sample, 0, tokenizer), documents=5_000)


@given(
    st.integers(300, 300_000),
    st.floats(0.2, 30.0),
    st.floats(5, 5_000),
    st.floats(0.01, 200),
    st.floats(0.1, 500),
)
def test_the_plan_stays_within_the_minutes_and_its_bounds(
    documents: int, questions: float, rate: float, step: float, minutes: float
) -> None:
    speed, repeated = TuningSpeed(rate, step), documents // 10
    found = reading(documents, repeated, questions)
    try:
        plan = make_plan(found, speed, minutes)
    except ArgumentError as error:
        [least] = map(int, re.findall(r"at least (\d+)", str(error)))
        assert least > minutes
        plan = make_plan(found, speed, least)  # the minutes that it names are enough
        assert minutes <= (plan.expected_minutes / RESERVE) * 1.001
    assert plan.expected_minutes <= plan.minutes * (1 if plan.steps <= LEAST_STEPS else RESERVE) * 1.001
    assert min(FEWEST_SEARCHED, documents - repeated) <= plan.collection <= min(MOST_SEARCHED, documents - repeated)
    assert 1 <= plan.steps <= TRAINING_STEPS
    made = questions * plan.collection * 0.8
    assert plan.steps <= max(1, FULL_BATCHES * made / QUESTIONS_PER_STEP)
    encoded = 2 * plan.collection / rate
    assert plan.expected_minutes == pytest.approx((encoded + plan.steps * step) / 60)


@given(st.floats(5, 5_000), st.floats(0.01, 200), st.floats(0.1, 500))
def test_more_minutes_are_never_worse(rate: float, step: float, minutes: float) -> None:
    speed = TuningSpeed(rate, step)
    try:
        plan = make_plan(reading(50_000), speed, minutes)
    except ArgumentError:
        assume(False)
    more = make_plan(reading(50_000), speed, 2 * minutes)
    assert more.collection >= plan.collection
    assert more.steps >= min(plan.steps, FEWEST_STEPS)


def test_a_plan_by_hand() -> None:
    speed = TuningSpeed(100.0, 6.0)
    plan = make_plan(reading(5_000), speed, 60)
    # 60 minutes x 0.85 = 3060 s; 0.4 of it would encode 61,200 texts twice; all 5,000 take 100 s.
    assert plan.collection == 5_000
    assert plan.steps == min(TRAINING_STEPS, int((3060 - 100) / 6), int(0.97 * 24_000) // QUESTIONS_PER_STEP)
    with pytest.raises(ArgumentError, match=f" {ceil((40 + FEWEST_STEPS * 6) / 0.85 / 60)} "):
        make_plan(reading(5_000), speed, 0.8)


def test_the_stages_of_a_plan_have_its_seconds() -> None:
    plan = make_plan(reading(5_000), TuningSpeed(100.0, 6.0), 60)
    stages = plan.stages(asked=False, graph=True)
    assert stages == {"train": 6.0 * plan.steps, "export-model": 6.0 * EXPORT_STEPS, "before": 50.0, "after": 50.0}
    assert list(plan.stages(asked=True, graph=True)) == ["before", "train", "export-model", "after"]
    assert list(plan.stages(asked=False, graph=False)) == ["train", "before", "after"]


def test_a_short_time_takes_fewer_steps_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    speed = TuningSpeed(100.0, 6.0)  # 40 s of encoding
    for minutes, steps in ((3, 10), (1.3, 4), (0.9, 2)):
        plan = make_plan(reading(5_000), speed, minutes)
        assert min(plan.steps, FEWEST_STEPS) == steps
        caplog.clear()
        warn_of_few_steps(plan)
        assert [f"{minutes:g} minutes" in one and f"{steps} step" in one for one in caplog.messages] == [True] * (
            steps < FEWEST_STEPS
        )
    few = make_plan(reading(300, questions=0.5), TuningSpeed(1_000.0, 0.1), 60)
    caplog.clear()
    warn_of_few_steps(few)  # there are no more questions
    assert (few.steps, caplog.messages) == (1, [])


def test_a_plan_is_kept_and_shown(tmp_path) -> None:
    plan = make_plan(reading(5_000, 7), TuningSpeed(100.0, 6.0), 60)
    write_record(tmp_path / "plan.json", plan)
    assert read_record(tmp_path / "plan.json", Plan) == plan
    shown = str(plan)
    for figure in (
        "5,000",
        "7 of them",
        f"{plan.steps:,} steps",
        "100 texts/s",
        "60 minutes",
        "600 questions",
        "0.012",
    ):
        assert figure in shown
    assert plan.to_json()["expected_minutes"] == plan.expected_minutes


@pytest.mark.parametrize(
    ("documents", "questions", "asked", "gain"),
    [(300, 6.0, 60, 0.0380), (1_000, 6.0, 200, 0.0208), (3_000, 6.0, 600, 0.0120), (9_000, 6.0, 600, 0.0120),
     (1_000, 0.1, 100, 0.0294)],
)  # fmt: skip
def test_the_plan_says_which_gain_its_exam_can_show(documents: int, questions: float, asked: int, gain: float) -> None:
    plan = make_plan(reading(documents, questions=questions), TuningSpeed(100.0, 1.0), 60)
    assert plan.exam_questions == asked
    assert plan.visible_gain == pytest.approx(gain, abs=5e-5)


def test_too_few_questions_name_what_helps() -> None:
    check_questions(reading(300, questions=0.32))
    with pytest.raises(DataError, match=r"95 questions.*96.*queries of people or a generator"):
        check_questions(reading(310, repeated=10, questions=0.319))


def test_a_plan_that_exceeds_the_free_memory_is_refused() -> None:
    plan = make_plan(reading(), TuningSpeed(100.0, 6.0, 0.5), 60)
    plan.check_memory()
    with pytest.raises(ArgumentError, match=r"100000\.0 GB"):
        replace(plan, speed=TuningSpeed(100.0, 6.0, 1e5)).check_memory()


def test_the_measured_speed_leaves_the_model_as_it_was(
    backbones: dict[str, Path], toy_model: SparseEncoder, toy_texts: list[str]
) -> None:
    before = {name: weight.detach().clone() for name, weight in toy_model.named_parameters()}
    length = toy_model[0].document_length
    documents = [Document(f"{i}", text) for i, text in enumerate(toy_texts[:40])]
    speed = measure_speed(str(backbones["bert"]), toy_model, documents, "cpu")
    assert speed.texts_per_second > 0
    assert speed.seconds_per_step > 0
    assert 0.1 < speed.gigabytes < 20
    assert toy_model[0].document_length == length
    for name, weight in toy_model.named_parameters():
        assert weight.grad is None
        assert (weight == before[name]).all()
    assert not toy_model.training
