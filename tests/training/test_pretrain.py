from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerFast

from vocable.encoder.fuse import without_logits
from vocable.errors import DataError, ModelError
from vocable.training.dropout import set_dropout
from vocable.training.masking import IGNORED
from vocable.training.pretrain import _Collate, _MaskedTrainer, _MaskedWindows, pretrain
from vocable.training.recipe import Pretraining
from vocable.training.windows import write_windows

SETTINGS: dict[str, Any] = {"texts": ["-"], "batch_size": 4, "max_length": 24, "log_every": 1, "save_every": 2}


@pytest.fixture
def tokenizer(tokenizers: dict[str, PreTrainedTokenizerFast]) -> PreTrainedTokenizerFast:
    return tokenizers["wordpiece"]


def fresh(folder: Path) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForMaskedLM.from_pretrained(folder)
    return model


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def log(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("architecture", ["bert", "roberta", "albert", "modernbert"])
def test_loss_and_gradients_are_the_stock_model_s(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], architecture: str,
    toy_texts: list[str], tmp_path: Path,
) -> None:  # fmt: skip
    family = {"bert": "wordpiece", "albert": "unigram"}.get(architecture, "byte-level")
    tokenizer, mlm = tokenizers[family], fresh(backbones[architecture]).eval()
    settings = Pretraining(steps=2, **SETTINGS)
    windows = write_windows(tmp_path, toy_texts, tokenizer, 24)
    schedule = _MaskedWindows(windows, tokenizer, settings, mlm.config.vocab_size, seed=0)
    batch = _Collate(tokenizer)([schedule[i] for i in range(6)])
    assert not batch["attention_mask"].all()
    expected = mlm(**batch).loss
    expected.backward()
    gradients = {name: p.grad.clone() for name, p in mlm.named_parameters() if p.grad is not None}
    mlm.zero_grad()
    trainer = _MaskedTrainer.__new__(_MaskedTrainer)  # the loss alone: no run is started
    with without_logits(mlm) as decoder:
        trainer.decoder = decoder
        loss = trainer.compute_loss(mlm, dict(batch))
        loss.backward()
    torch.testing.assert_close(loss, expected)
    for name, parameter in mlm.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-6)


def test_batches_are_padded_on_the_right(
    tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    windows = write_windows(tmp_path, toy_texts, tokenizer, 24)
    schedule = _MaskedWindows(windows, tokenizer, Pretraining(steps=1, **SETTINGS), len(tokenizer), seed=0)
    items = [schedule[i] for i in range(4)]
    batch = _Collate(tokenizer)(items)
    for row, item in enumerate(items):
        s = len(item.input_ids)
        assert (
            batch["input_ids"][row].tolist()
            == [*item.input_ids, *[tokenizer.pad_token_id] * (24 - s)][: batch["input_ids"].shape[1]]
        )
        assert batch["labels"][row, :s].tolist() == item.labels.tolist()
        assert (batch["labels"][row, s:] == IGNORED).all()
        assert batch["attention_mask"][row].sum() == s


def test_the_schedule_shows_every_window_once_an_epoch_under_new_masks(
    tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    texts = [f"{text} {i}" for i, text in enumerate(toy_texts[:20])]
    windows = write_windows(tmp_path, texts, tokenizer, 64)
    settings = Pretraining(steps=10, **SETTINGS)
    schedule = _MaskedWindows(windows, tokenizer, settings, len(tokenizer), seed=0)
    assert len(schedule) == 40

    def original(index: int) -> tuple[int, ...]:
        item = schedule[index]
        return tuple(np.where(item.labels == IGNORED, item.input_ids, item.labels))

    epochs = [[original(index) for index in range(start, start + 20)] for start in (0, 20)]
    everything = sorted(tuple(windows[i]) for i in range(20))
    assert sorted(epochs[0]) == sorted(epochs[1]) == everything
    assert epochs[0] != epochs[1]
    masks = [{original(i): tuple(schedule[i].labels) for i in range(start, start + 20)} for start in (0, 20)]
    assert masks[0] != masks[1]
    again = _MaskedWindows(windows, tokenizer, settings, len(tokenizer), seed=0)
    assert all(np.array_equal(again[i].input_ids, schedule[i].input_ids) for i in (39, 3, 20))
    other = _MaskedWindows(windows, tokenizer, settings, len(tokenizer), seed=1)
    assert [other[i].input_ids.tolist() for i in range(20)] != [schedule[i].input_ids.tolist() for i in range(20)]
    special = set(tokenizer.all_special_ids)
    assert not special & {int(label) for i in range(40) for label in schedule[i].labels if label != IGNORED}


def test_loss_falls_and_the_stock_head_is_back(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    mlm = fresh(backbones["bert"])
    settings = Pretraining(steps=40, learning_rate=3e-3, **{**SETTINGS, "batch_size": 16, "save_every": 40})
    result = pretrain(mlm, tokenizer, toy_texts, settings, tmp_path)
    assert result is mlm
    assert not mlm.training
    assert mlm.get_output_embeddings().weight is mlm.get_input_embeddings().weight
    assert mlm(input_ids=torch.tensor([[2, 9, 3]])).logits.shape == (1, 3, mlm.config.vocab_size)
    losses = [entry["loss"] for entry in log(tmp_path) if "loss" in entry]
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:5])
    assert np.mean(losses[-5:]) < np.log(len(tokenizer))  # better than guessing evenly


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    settings = Pretraining(steps=4, dropout=0.1, gradient_accumulation=2, **SETTINGS)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    expected = weights(pretrain(fresh(backbones["bert"]), tokenizer, toy_texts, settings, whole, seed=7))
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "checkpoint-4")
    halfway = weights(fresh(resumed / "checkpoint-2"))
    # The tokens are on disk: a resumed run does not need the texts.
    found = weights(pretrain(fresh(backbones["bert"]), tokenizer, [], settings, resumed, seed=7))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6)
    assert any(not torch.equal(halfway[name], value) for name, value in expected.items())


def test_a_finished_run_is_not_run_again(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    settings = Pretraining(steps=2, **SETTINGS)
    expected = weights(pretrain(fresh(backbones["bert"]), tokenizer, toy_texts, settings, tmp_path))
    found = weights(pretrain(fresh(backbones["bert"]), tokenizer, [], settings, tmp_path))
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_tokenizer_without_a_mask_is_refused(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path
) -> None:
    maskless = PreTrainedTokenizerFast(tokenizer_object=tokenizers["wordpiece"]._tokenizer, pad_token="[PAD]")
    with pytest.raises(ModelError, match="no mask token"):
        pretrain(fresh(backbones["bert"]), maskless, ["a fox"], Pretraining(steps=1, **SETTINGS), tmp_path)


def test_a_corpus_without_text_is_refused(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="no text to learn from"):
        pretrain(fresh(backbones["bert"]), tokenizer, [" "], Pretraining(steps=1, **SETTINGS), tmp_path)


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta", "albert", "modernbert", "electra"])
def test_dropout_of_zero_makes_training_mode_deterministic(backbones: dict[str, Path], architecture: str) -> None:
    model = fresh(backbones[architecture]).train()
    ids = torch.arange(5, 25)[None]
    if architecture not in ("albert", "modernbert"):  # their own rates are zero
        assert not torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)
    set_dropout(model, 0.0)
    assert torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)
    torch.testing.assert_close(model(input_ids=ids).logits, model.eval()(input_ids=ids).logits)
    set_dropout(model, 0.5)
    assert not torch.equal(model.train()(input_ids=ids).logits, model(input_ids=ids).logits)
