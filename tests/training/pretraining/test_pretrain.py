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

import vocable
from tests.by_parts import expand, pretrain
from vocable.adapt.expand_vocabulary import frequent_words
from vocable.adapt.stages import PretrainSettings
from vocable.cli import main
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.torch_models.asymmetric import positions
from vocable.torch_models.fuse import without_logits
from vocable.torch_models.output_vocabulary import output_vocabulary
from vocable.training.callbacks import set_dropout
from vocable.training.pretraining.mlm import MaskedWindows, MaskingTask, collate
from vocable.training.pretraining.windows import write_windows

SETTINGS: dict[str, Any] = {"texts": ["-"], "batch_size": 4, "max_length": 24, "log_every": 1, "save_every": 2}


def fresh(folder: Path) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForMaskedLM.from_pretrained(folder)
    return model


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def log(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_weights_that_are_not_finite_end_a_run_and_leave_nothing(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(toy_texts), encoding="utf-8")
    command = ["pretrain", str(backbones["bert"]), str(tmp_path / "texts.txt"), "-o", str(tmp_path / "out")]
    command += ["--steps", "4", "--batch-size", "4", "--max-length", "24", "--save-every", "1"]
    assert main([*command, "--learning-rate", "1e300"]) == 2
    assert "not finite: lower learning_rate from 1e+300" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


@pytest.mark.parametrize("steps", [1, 3])
def test_fewer_steps_than_lines_of_the_log_leave_a_log_of_the_first_and_the_last(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: int
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(toy_texts), encoding="utf-8")
    command = ["pretrain", str(backbones["bert"]), str(tmp_path / "texts.txt"), "-o", str(tmp_path / "out")]
    command += ["--batch-size", "4", "--max-length", "24", "--held-out", "0", "--steps", str(steps)]
    assert main(command) == 0
    lines = (tmp_path / "out" / "pretrain.jsonl").read_text(encoding="utf-8").splitlines()
    losses = {line["step"]: line["loss"] for line in map(json.loads, lines)}
    assert sorted(losses) == sorted({1, steps})
    noun = "1 step" if steps == 1 else "3 steps"
    assert f"pretrain: {noun}, 0." in capsys.readouterr().err


@pytest.mark.parametrize("architecture", ["bert", "roberta", "albert", "modernbert"])
def test_loss_and_gradients_are_the_stock_model_s(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], architecture: str,
    toy_texts: list[str], tmp_path: Path,
) -> None:  # fmt: skip
    family = {"bert": "wordpiece", "albert": "unigram"}.get(architecture, "byte-level")
    tokenizer, mlm = tokenizers[family], fresh(backbones[architecture]).eval()
    settings = PretrainSettings(steps=2, **SETTINGS)
    windows = write_windows(tmp_path, toy_texts, tokenizer, 24)
    masker = MaskingTask(tokenizer, settings, mlm.config.vocab_size, None)
    schedule = MaskedWindows(windows, np.arange(len(windows)), masker, 8, seed=0)
    batch = collate([schedule[i] for i in range(6)], tokenizer.pad_token_id)
    assert not batch["attention_mask"].all()
    expected = mlm(**batch).loss
    expected.backward()
    gradients = {name: p.grad.clone() for name, p in mlm.named_parameters() if p.grad is not None}
    mlm.zero_grad()
    with without_logits(mlm) as decoder:
        loss, count = masker.loss(mlm, dict(batch), decoder)
        loss.backward()
    assert count == int((batch["labels"] != -100).sum())
    torch.testing.assert_close(loss, expected)
    for name, parameter in mlm.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-6)


def test_loss_falls_and_the_stock_head_is_back(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    mlm = fresh(backbones["bert"])
    settings = PretrainSettings(steps=40, learning_rate=3e-3, **{**SETTINGS, "batch_size": 16, "save_every": 40})
    result = pretrain(mlm, tokenizer, toy_texts, settings, tmp_path)
    assert result.mlm is not mlm
    mlm = result.mlm
    assert not mlm.training
    assert mlm.get_output_embeddings().weight is mlm.get_input_embeddings().weight
    assert mlm(input_ids=torch.tensor([[2, 9, 3]])).logits.shape == (1, 3, mlm.config.vocab_size)
    losses = [entry["loss"] for entry in log(tmp_path) if "loss" in entry]
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:5])
    assert np.mean(losses[-5:]) < np.log(len(tokenizer))  # better than guessing evenly
    assert result.before.keys() == result.after.keys() == {"all"}
    assert result.after["all"].tokens == result.before["all"].tokens > 30
    assert result.after["all"].loss < 0.9 * result.before["all"].loss
    assert result.after["all"].accuracy > result.before["all"].accuracy
    [last] = [entry for entry in log(tmp_path) if "held_out_loss" in entry]
    assert last["step"] == 40
    assert last["held_out_loss"] == pytest.approx(result.after["all"].loss)


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    settings = PretrainSettings(steps=4, dropout=0.1, gradient_accumulation=2, **SETTINGS)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    expected = weights(pretrain(fresh(backbones["bert"]), tokenizer, toy_texts, settings, whole, seed=7).mlm)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "checkpoint-4")
    halfway = weights(fresh(resumed / "checkpoint-2"))
    # The tokens are on disk: a resumed run does not need the texts.
    found = weights(pretrain(fresh(backbones["bert"]), tokenizer, [], settings, resumed, seed=7).mlm)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6)
    assert any(not torch.equal(halfway[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("architecture", "train_bias"),
    [("bert", False), ("bert", True), ("distilbert", True), ("roberta", False), ("albert", True), ("modernbert", False),
     ("electra", False)],
)  # fmt: skip
def test_only_embeddings_learn_if_so_asked(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], tmp_path: Path,
    architecture: str, train_bias: bool,
) -> None:  # fmt: skip
    family = {"roberta": "byte-level", "modernbert": "byte-level", "albert": "unigram"}.get(architecture, "wordpiece")
    mlm = fresh(backbones[architecture])
    names = {id(parameter): name for name, parameter in mlm.named_parameters()}
    learning = {names[id(mlm.get_input_embeddings().weight)]}
    if train_bias:
        learning.add(names[id(mlm.get_output_embeddings().bias)])
    before = {name: parameter.detach().clone() for name, parameter in mlm.named_parameters()}
    settings = PretrainSettings(steps=2, trainable="embeddings", train_bias=train_bias, learning_rate=0.01, **SETTINGS)
    mlm = pretrain(mlm, tokenizers[family], toy_texts[:40], settings, tmp_path).mlm
    assert {name for name, value in mlm.named_parameters() if not torch.equal(value, before[name])} == learning
    assert all(parameter.requires_grad for parameter in mlm.parameters())
    assert mlm.get_output_embeddings().weight is mlm.get_input_embeddings().weight


@pytest.mark.parametrize("tied", [True, False])
def test_only_the_head_learns_if_so_asked(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path, tied: bool
) -> None:
    mlm = AutoModelForMaskedLM.from_pretrained(backbones["bert"], tie_word_embeddings=tied)
    before = {name: value.detach().clone() for name, value in mlm.named_parameters()}
    settings = PretrainSettings(steps=2, trainable="head", learning_rate=0.01, **SETTINGS)
    mlm = pretrain(mlm, tokenizer, toy_texts[:40], settings, tmp_path).mlm
    changed = {name for name, value in mlm.named_parameters() if not torch.equal(value, before[name])}
    head = {name for name in before if name.startswith("cls.")}
    if tied:
        assert changed == head | {"bert.embeddings.word_embeddings.weight"}
    else:
        assert changed == head - {"cls.predictions.bias"}  # which is not the decoder's
    assert all(parameter.requires_grad for parameter in mlm.parameters())


def test_of_an_untied_model_both_matrices_learn(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    mlm = AutoModelForMaskedLM.from_pretrained(backbones["bert"], tie_word_embeddings=False)
    decoder, embeddings = mlm.get_output_embeddings(), mlm.get_input_embeddings()
    assert decoder.weight is not embeddings.weight
    before = decoder.weight.detach().clone(), embeddings.weight.detach().clone()
    settings = PretrainSettings(steps=2, trainable="embeddings", learning_rate=0.01, **SETTINGS)
    mlm = pretrain(mlm, tokenizer, toy_texts[:40], settings, tmp_path).mlm
    decoder, embeddings = mlm.get_output_embeddings(), mlm.get_input_embeddings()
    assert not torch.equal(decoder.weight, before[0])
    assert not torch.equal(embeddings.weight, before[1])


def test_new_tokens_are_reported_apart_and_a_resumed_run_says_the_same(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    new = np.arange(10, len(tokenizer), 2)
    settings = PretrainSettings(steps=4, masking="overlap-aware", trainable="embeddings", dropout=0.1, **SETTINGS)
    options: dict[str, Any] = {"new_tokens": new, "seed": 5}
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    expected = pretrain(fresh(backbones["bert"]), tokenizer, toy_texts, settings, whole, **options)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "checkpoint-4")
    found = pretrain(fresh(backbones["bert"]), tokenizer, [], settings, resumed, **options)
    assert found.before == expected.before
    assert found.before.keys() == found.after.keys() == {"shared", "new"}
    for group, guesses in expected.after.items():
        assert found.after[group] == pytest.approx(guesses, abs=1e-5)
    assert [line["step"] for line in log(resumed) if "held_out_loss_new" in line] == [2, 4]
    assert [line["step"] for line in log(resumed) if "loss" in line] == [1, 2, 3, 4]
    for name, value in weights(expected.mlm).items():
        torch.testing.assert_close(found.mlm.state_dict()[name], value, rtol=0, atol=1e-6)


def test_after_bfloat16_the_model_computes_in_its_own_type_again(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    settings = PretrainSettings(steps=1, dtype="bfloat16", **SETTINGS)
    mlm = pretrain(fresh(backbones["bert"]), tokenizer, toy_texts, settings, tmp_path).mlm
    mlm.save_pretrained(tmp_path / "saved")
    ids = torch.tensor([[2, 9, 11, 3]])
    assert torch.equal(mlm(input_ids=ids).logits, fresh(tmp_path / "saved").eval()(input_ids=ids).logits)


def test_overlap_aware_masking_needs_new_tokens(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    mlm, settings = fresh(backbones["bert"]), PretrainSettings(steps=1, masking="overlap-aware", **SETTINGS)
    with pytest.raises(ArgumentError):
        pretrain(mlm, tokenizer, ["a fox"], settings, tmp_path)
    with pytest.raises(ModelError, match="99999"):
        pretrain(mlm, tokenizer, ["a fox"], settings, tmp_path, new_tokens=[5, 99999])
    assert not list(tmp_path.iterdir())


def test_a_finished_run_is_not_run_again(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    settings = PretrainSettings(steps=2, **SETTINGS)
    expected = weights(pretrain(fresh(backbones["bert"]), tokenizer, toy_texts, settings, tmp_path).mlm)
    found = weights(pretrain(fresh(backbones["bert"]), tokenizer, [], settings, tmp_path).mlm)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_tokenizer_without_a_mask_is_refused(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path
) -> None:
    maskless = PreTrainedTokenizerFast(tokenizer_object=tokenizers["wordpiece"]._tokenizer, pad_token="[PAD]")
    with pytest.raises(ModelError):
        pretrain(fresh(backbones["bert"]), maskless, ["a fox"], PretrainSettings(steps=1, **SETTINGS), tmp_path)


def test_a_corpus_without_text_is_refused(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    with pytest.raises(DataError):
        pretrain(fresh(backbones["bert"]), tokenizer, [" "], PretrainSettings(steps=1, **SETTINGS), tmp_path)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
def test_windows_end_where_the_model_does(
    backbones: dict[str, Path], architecture: str, toy_texts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = vocable.load(str(backbones[architecture]))
    model.tokenizer.model_max_length = 10**30  # as of a tokenizer that names no length
    most, text = positions(model[0]), " ".join(toy_texts)
    trained = vocable.pretrain(model, [text] * 8, steps=2, batch_size=2, held_out=0, max_length=most + 20)
    assert f"the model has {most} positions" in caplog.text
    assert len(trained.tokenizer(text)["input_ids"]) > most


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


@pytest.mark.parametrize(("architecture", "rate"), [("bert", 0.1), ("modernbert", 0.0)])
def test_dropout_of_none_is_that_of_the_configuration(
    backbones: dict[str, Path], toy_texts: list[str], architecture: str, rate: float
) -> None:
    model = vocable.load(str(backbones[architecture]))
    weights = [
        vocable.pretrain(model, toy_texts, steps=2, batch_size=4, max_length=24, held_out=0, dropout=dropout)[0]
        .auto_model.get_output_embeddings()
        .weight
        for dropout in (None, rate, 0.3)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


WORDS: dict[str, Any] = {**SETTINGS, "masking": "whole-word"}


def expanded(folder: Path, tokenizer: PreTrainedTokenizerFast, texts: list[str], size: int = 1000) -> PreTrainedModel:
    return expand(fresh(folder), tokenizer, frequent_words(texts, tokenizer, size=size).words)


@pytest.mark.parametrize(
    ("architecture", "family"), [("bert", "wordpiece"), ("roberta", "byte-level"), ("albert", "unigram")]
)
def test_words_are_learned_from_what_is_around_them(
    backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], tmp_path: Path,
    architecture: str, family: str,
) -> None:  # fmt: skip
    tokenizer = tokenizers[family]
    mlm = expanded(backbones[architecture], tokenizer, toy_texts)
    layer = output_vocabulary(mlm)
    assert layer is not None
    before = layer.weight.detach().clone()
    settings = PretrainSettings(steps=30, learning_rate=3e-3, **{**WORDS, "batch_size": 16, "save_every": 30})
    result = pretrain(mlm, tokenizer, toy_texts, settings, tmp_path)
    assert settings.masking_rate == 0.15
    layer = output_vocabulary(result.mlm)
    assert layer is not None
    assert not torch.equal(layer.weight, before)
    assert result.before.keys() == result.after.keys() == {"all", "first sub-word", "later sub-words"}
    assert result.after["all"].loss < 0.95 * result.before["all"].loss
    assert result.words is not None
    assert result.words.words > 1000
    [last] = [line for line in log(tmp_path) if "held_out_loss" in line]
    assert last["held_out_accuracy_later_sub-words"] == pytest.approx(result.after["later sub-words"].accuracy)
    ids = torch.tensor([[2, 9, 3]])
    assert result.mlm(input_ids=ids).logits.shape == (1, 3, len(layer.terms))


def test_a_resumed_run_of_whole_words_ends_where_an_uninterrupted_one_does(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    settings = PretrainSettings(steps=4, dropout=0.1, schedule="linear", schedule_steps=9, **WORDS)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    first, again = (expanded(backbones["bert"], tokenizer, toy_texts, 60) for _ in range(2))
    expected = pretrain(first, tokenizer, [*toy_texts, "?!"], settings, whole, seed=7)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "checkpoint-4")
    found = pretrain(again, tokenizer, [], settings, resumed, seed=7)
    for name, value in weights(expected.mlm).items():
        torch.testing.assert_close(found.mlm.state_dict()[name], value, rtol=0, atol=1e-6)
    assert found.words == expected.words
    assert found.words is not None
    assert found.words.without >= 1
    for group, guesses in expected.after.items():
        assert found.after[group] == pytest.approx(guesses, abs=1e-5)


@pytest.mark.parametrize(("schedule", "steps"), [("linear", 10), ("linear", None), ("cosine", 10)])
def test_the_rate_is_that_of_the_beginning_of_a_longer_run(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path,
    schedule: Any, steps: int | None,
) -> None:  # fmt: skip
    settings = PretrainSettings(
        steps=4, schedule=schedule, schedule_steps=steps, warmup_share=0.2, learning_rate=1e-3, **SETTINGS
    )
    pretrain(fresh(backbones["bert"]), tokenizer, toy_texts, settings, tmp_path)
    found = [line["learning_rate"] for line in log(tmp_path) if "loss" in line]
    total = steps or 4
    rising = int(np.ceil(0.2 * total))
    expected = []
    for step in range(4):
        left = (step - rising) / (total - rising)
        falling = 1 - left if schedule == "linear" else 0.5 * (1 + np.cos(np.pi * left))
        expected.append(1e-3 * (step / rising if step < rising else falling))
    assert found == pytest.approx(expected, abs=1e-9)


def test_in_one_pass_the_data_may_run_out(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    # 100 texts, of which 10 are held out, last for 22 steps of 4, or in two passes for 45.
    for steps, passes, enough in ((23, 1, 22), (46, 2, 45)):
        settings = PretrainSettings(steps=steps, passes=passes, **SETTINGS)
        message = f"{90 * passes}, enough for {enough} steps: add texts, or allow more passes$"
        with pytest.raises(DataError, match=message):
            pretrain(fresh(backbones["bert"]), tokenizer, toy_texts[:100], settings, tmp_path)
    allowed = PretrainSettings(steps=2, passes=1, **SETTINGS)
    assert pretrain(fresh(backbones["bert"]), tokenizer, toy_texts[:100], allowed, tmp_path).after["all"].tokens > 0


def test_whole_words_need_words_and_words_are_masked_whole(
    backbones: dict[str, Path], tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ArgumentError):
        pretrain(fresh(backbones["bert"]), tokenizer, toy_texts, PretrainSettings(steps=1, **WORDS), tmp_path)
    mlm = expanded(backbones["bert"], tokenizer, toy_texts)
    with pytest.raises(ModelError):
        pretrain(mlm, tokenizer, toy_texts, PretrainSettings(steps=1, **SETTINGS), tmp_path)
    assert not list(tmp_path.iterdir())
