"""The registry of stages: its order, its sources, and steps that print as the command line does; lower-cased input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, BertTokenizer

import vocable as vo
from vocable.adapt.lowercase import lowercased
from vocable.adapt.stages import STAGES, RescaleSettings, stage


def test_stages_come_in_the_order_of_the_papers() -> None:
    names = ["lowercase", "transfer", "expand", "rescale", "pretrain", "calibrate", "queries"]
    assert [one.name for one in STAGES] == names


def test_a_stage_names_the_sources_that_its_settings_have() -> None:
    assert stage("rescale").texts(RescaleSettings(factor="auto", texts="pydocs:")) == ["pydocs:"]
    assert stage("rescale").texts(RescaleSettings(factor=2)) == []
    assert stage("lowercase").texts(True) == []


@pytest.mark.slow
def test_a_step_prints_itself_after_the_model_was_saved(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    model = vo.load(str(backbones["bert"]))
    rescaled = vo.rescale(model, "auto", texts=toy_texts)
    step = vo.provenance(rescaled)[-1]
    assert f"> {step['factor']}" in str(step)
    assert len(str(step).splitlines()) >= 2 + len(step["trials"])
    assert step.to_json()["factor"] == step["factor"] > 0
    moved = vo.provenance(vo.transfer(model, str(backbones["roberta"])))[-1]
    assert f"{moved['overlap']:.1%}" in str(moved)
    shifted = vo.provenance(vo.calibrate(model, toy_texts, shift=-0.5))[-1]
    assert "0.500" in str(shifted).splitlines()[0]


@pytest.mark.parametrize("family", ["wordpiece", "byte-level", "unigram"])
def test_case_makes_no_difference_and_lower_case_is_as_before(
    tokenizers: dict[str, Any], family: str, tmp_path: Path
) -> None:
    tokenizer = tokenizers[family]
    lowercased(tokenizer).save_pretrained(tmp_path)
    lowered = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("The OLD fox reads Books", "an owl in Ålesund", "see chapter 7"):
        expected = tokenizer(text.lower())["input_ids"]
        assert lowered(text)["input_ids"] == lowered(text.upper())["input_ids"] == expected
    assert lowered.get_vocab() == tokenizer.get_vocab()


def test_the_tokenizer_itself_is_left_alone(tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers["byte-level"]
    before = tokenizer("The Fox")["input_ids"]
    lowercased(tokenizer)
    assert tokenizer("The Fox")["input_ids"] == before != tokenizer("the fox")["input_ids"]


def test_a_cased_bert_tokenizer_stays_lowered_when_it_is_loaded(tmp_path: Path) -> None:
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Fox", "fox"])}
    lowercased(BertTokenizer(vocab=vocabulary, do_lower_case=False)).save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).tokenize("Fox fox FOX") == ["fox"] * 3
