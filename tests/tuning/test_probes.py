"""What a tuning measures before its plan: the look at the vocabulary, and the speed of the machine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from sentence_transformers import SparseEncoder
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vocable.data import Document
from vocable.encoding.hub import locate
from vocable.errors import ModelError
from vocable.evaluation.cost import spread
from vocable.language.words import spaced_pieces
from vocable.tuning.plan import check_vocabulary
from vocable.tuning.probes import VOCABULARY_TEXTS, measure_speed, read_words

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
