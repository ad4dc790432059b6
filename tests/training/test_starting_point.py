"""The stages before the retrieval training: each does what its verb does, in the order that stages.py names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tests.by_parts import calibrate, expand, load_checkpoint, rescale, transfer
from vocable.adapt.alignment import align
from vocable.adapt.expand_vocabulary import frequent_words
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.terms import splitter
from vocable.errors import ModelError
from vocable.training.recipe import Recipe, make_recipe
from vocable.training.stages import carry_out_stages


@pytest.fixture
def texts(tmp_path: Path, toy_texts: list[str]) -> str:
    path = tmp_path / "texts.jsonl"
    lines = [json.dumps({"_id": str(i), "text": text}) for i, text in enumerate(toy_texts)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def recipe(model: Path, **stages: Any) -> Recipe:
    return make_recipe({"model": str(model), "data": {"examples": ["-"]}, "training": {"steps": 1}, **stages})


def test_without_a_stage_the_backbone_is_the_carry_out_stages(backbones: dict[str, Path], tmp_path: Path) -> None:
    assert carry_out_stages(recipe(backbones["bert"]), tmp_path) == str(backbones["bert"])


@pytest.mark.parametrize("target", ["bert", "albert"])
def test_transfer_rescale_and_calibrate_are_the_verbs_in_this_order(
    backbones: dict[str, Path], texts: str, toy_texts: list[str], tmp_path: Path, target: str
) -> None:
    stages = {
        "transfer": {"target": str(backbones[target]), "init": "mean"},
        "rescale": {"factor": 4},
        "calibrate": {"texts": texts, "activation_rate": 0.1},
    }
    found, tokenizer = load_checkpoint(carry_out_stages(recipe(backbones["roberta"], **stages), tmp_path))
    target_model, target_tokenizer = load_checkpoint(backbones[target])
    expected, source = load_checkpoint(backbones["roberta"])
    expected = transfer(expected, source, target_tokenizer, target_model=target_model, init="mean").mlm
    expected = rescale(expected, 4)
    expected = calibrate(expected, target_tokenizer, toy_texts, activation_rate=0.1).mlm
    assert tokenizer.get_vocab() == target_tokenizer.get_vocab()
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], tensor, rtol=0, atol=0)


def test_pre_training_knows_the_tokens_that_the_transfer_made(
    backbones: dict[str, Path], texts: str, tmp_path: Path
) -> None:
    stages = {
        "transfer": {"target": str(backbones["bert"]), "init": "random-new"},
        "pretrain": {
            "texts": [texts],
            "steps": 12,
            "batch_size": 8,
            "max_length": 16,
            "masking": "overlap-aware",
            "trainable": "embeddings",
            "learning_rate": 1e-2,
            "save_every": 6,
        },
    }
    found = AutoModelForMaskedLM.from_pretrained(carry_out_stages(recipe(backbones["roberta"], **stages), tmp_path))
    source = AutoModelForMaskedLM.from_pretrained(backbones["roberta"])
    # The transformer is frozen, and the held-out report tells shared and new tokens apart.
    layer = "roberta.encoder.layer.0.attention.self.query.weight"
    torch.testing.assert_close(found.state_dict()[layer], source.state_dict()[layer], rtol=0, atol=0)
    report = [json.loads(line) for line in (tmp_path / "pretrain" / "log.jsonl").read_text().splitlines()]
    kinds = {key for line in report for key in line if "new" in key or "shared" in key}
    assert any("new" in kind for kind in kinds)
    assert any("shared" in kind for kind in kinds)


def test_lower_casing_comes_before_the_rest(backbones: dict[str, Path], texts: str, tmp_path: Path) -> None:
    stages = {"lowercase": True, "calibrate": {"texts": texts, "shift": 0.5}}
    place = carry_out_stages(recipe(backbones["roberta"], **stages), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(place)
    assert tokenizer("The Fox")["input_ids"] == tokenizer("the fox")["input_ids"]
    assert len(align(AutoTokenizer.from_pretrained(backbones["roberta"]), tokenizer).new) == 0


def test_a_finished_starting_point_is_used_as_it_is(backbones: dict[str, Path], texts: str, tmp_path: Path) -> None:
    run = recipe(backbones["bert"], rescale={"factor": 2})
    place = carry_out_stages(run, tmp_path)
    weights = AutoModelForMaskedLM.from_pretrained(place).get_output_embeddings().weight
    original = AutoModelForMaskedLM.from_pretrained(backbones["bert"]).get_output_embeddings().weight
    np.testing.assert_array_equal(weights.detach() * 2, original.detach())
    (Path(place) / "marker").touch()
    assert carry_out_stages(run, tmp_path) == place
    assert (Path(place) / "marker").exists()


def test_a_semantic_transfer_onto_a_tokenizer_alone_is_refused(
    backbones: dict[str, Path], tokenizers: dict[str, Any], tmp_path: Path
) -> None:
    tokenizers["wordpiece"].save_pretrained(tmp_path / "alone")
    run = recipe(backbones["roberta"], transfer={"target": str(tmp_path / "alone")})
    with pytest.raises(ModelError, match="tokenizer alone: use 'subtoken'"):
        carry_out_stages(run, tmp_path / "work")


def test_words_are_expanded_to_pre_trained_and_calibrated(
    backbones: dict[str, Path], texts: str, toy_texts: list[str], tmp_path: Path
) -> None:
    pretrain = {"texts": [texts], "steps": 2, "batch_size": 4, "max_length": 24, "masking": "whole-word"}
    stages: dict[str, Any] = {
        "expand": {"texts": [texts], "size": 40, "splitter": "whitespace"},
        "calibrate": {"texts": texts, "activation_rate": 0.1},
    }
    found, tokenizer = load_checkpoint(carry_out_stages(recipe(backbones["roberta"], **stages), tmp_path / "a"))
    source, _ = load_checkpoint(backbones["roberta"])
    words = frequent_words(toy_texts, tokenizer, size=40, split=splitter(tokenizer, "whitespace")).words
    assert any(not word.isalnum() for word in words)
    expected = calibrate(expand(source, tokenizer, words), tokenizer, toy_texts, activation_rate=0.1).mlm
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], tensor, rtol=0, atol=0)

    (tmp_path / "words.txt").write_text("\n".join(words), encoding="utf-8")
    listed: dict[str, Any] = {"expand": {"words": "words.txt"}, "data_folder": str(tmp_path), "pretrain": pretrain}
    learned, _ = load_checkpoint(carry_out_stages(recipe(backbones["roberta"], **listed), tmp_path / "b"))
    before, after = output_vocabulary(expected), output_vocabulary(learned)
    assert before is not None
    assert after is not None
    assert before.terms == after.terms == tuple(words)
    assert not torch.equal(before.weight, after.weight)
