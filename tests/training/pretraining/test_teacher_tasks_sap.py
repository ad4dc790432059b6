from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.cli.command_line import done, refused
from vocable.encoding.terms import terms
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models.fuse import without_logits
from vocable.torch_models.sparse_encoder import save_model
from vocable.training.pretraining.teacher_tasks import AlignmentTask, squared_difference

SETTINGS: dict[str, Any] = {
    "steps": 4, "batch_size": 4, "max_length": 24, "log_every": 1, "save_every": 2, "learning_rate": 3e-3,
}  # fmt: skip


@pytest.fixture(scope="module")
def student(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that reads bytes and has the terms of the WordPiece teacher."""
    folder = tmp_path_factory.mktemp("student") / "model"
    moved = vo.transfer(vo.load(backbones["modernbert"], device="cpu"), str(backbones["bert"]), head_only=True)
    save_model(moved, folder)
    return folder


@given(st.integers(1, 4), st.integers(1, 30), st.integers(0, 1000))
def test_the_loss_is_that_of_terms_that_either_has(b: int, v: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = rng.normal(-0.5, 1, (2, b, v)).round(1)
    errors = [
        (x - y) ** 2 for one, other in zip(ours, theirs, strict=True) for x, y in zip(one, other, strict=True)
        if x > 0 or y > 0
    ]  # fmt: skip
    leaf = torch.tensor(ours, requires_grad=True)
    loss, count = squared_difference(leaf, torch.tensor(theirs))
    assert count == len(errors)
    assert loss.item() == pytest.approx(np.mean(errors) if errors else 0)
    loss.backward()
    either = (ours > 0) | (theirs > 0)
    np.testing.assert_allclose(leaf.grad, 2 * (ours - theirs) * either / max(1, len(errors)))


def test_the_teacher_reads_with_its_own_tokenizer(
    backbones: dict[str, Path], student: Path, toy_texts: list[str]
) -> None:
    reader = vo.load(student)
    teacher = AlignmentTask(reader.tokenizer, str(backbones["bert"]), terms(reader), "cpu", "float32").target
    stock = SparseEncoder(str(backbones["bert"]), device="cpu")
    features = stock.preprocess(toy_texts[:5])
    mask = features["attention_mask"].bool()
    with torch.inference_mode():
        logits = stock[0].auto_model(**features).logits.masked_fill(~mask[:, :, None], -torch.inf)
    torch.testing.assert_close(teacher(toy_texts[:5]), logits.amax(dim=1), rtol=1e-5, atol=1e-5)


def test_a_model_is_no_difference_from_itself(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    model = vo.load(backbones["bert"], device="cpu").eval()
    mlm, tokenizer = model[0].auto_model, model.tokenizer
    task = AlignmentTask(tokenizer, str(backbones["bert"]), terms(model), "cpu", "float32")
    batch = tokenizer(toy_texts[:4], return_tensors="pt", padding=True)
    with torch.inference_mode(), without_logits(mlm) as decoder:
        loss, count = task.loss(mlm, dict(batch), decoder)
    assert count > 0
    assert float(loss) < 1e-9


@pytest.mark.slow
def test_the_logits_of_a_model_become_its_teacher_s(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], student: Path, corpus: Path, tmp_path: Path
) -> None:
    command = ["pretrain", student, corpus, "--teacher", backbones["bert"], "--batch-size", 8, "--max-length", 24]
    command += ["--learning-rate", 3e-3, "-o", tmp_path / "out", "--steps", 60]
    found = json.loads(done(capsys, *command, "--json"))["held_out"]
    before, after = found["before"]["all"], found["after"]["all"]
    assert before.keys() == {"terms", "loss"}
    assert before["terms"] > 10
    assert after["loss"] < 0.6 * before["loss"]
    logged = [json.loads(line) for line in (tmp_path / "out" / "pretrain.jsonl").read_text().splitlines()]
    [last] = [line for line in logged if "held_out_loss" in line]
    assert last["held_out_loss"] == pytest.approx(after["loss"])
    adapted = vo.load(tmp_path / "out")
    assert [step["verb"] for step in vo.provenance(adapted)] == ["transfer", "pretrain"]
    assert vo.provenance(adapted)[-1]["teacher"] == str(backbones["bert"])
    lines = done(capsys, *command).splitlines()
    assert lines[1].startswith("held-out texts (")
    assert lines[1].endswith("the mean squared difference of logits")


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    backbones: dict[str, Path], student: Path, toy_texts: list[str], tmp_path: Path
) -> None:
    settings = SETTINGS | {"teacher": str(backbones["bert"])}
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    expected = vo.pretrain(vo.load(student, device="cpu"), toy_texts, work=whole, **settings).state_dict()
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "checkpoint-4")
    found = vo.pretrain(vo.load(student, device="cpu"), [], work=resumed, **settings).state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("quiet_libraries")
def test_a_teacher_of_other_terms_is_refused(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    command = ["pretrain", backbones["modernbert"], corpus, "--teacher", backbones["bert"], "--steps", 2]
    said = refused(capsys, *command, "-o", tmp_path / "out")
    assert "output terms differ" in said
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ModelError):
        AlignmentTask(vo.load(backbones["bert"]).tokenizer, str(tmp_path / "absent"), ["a"], "cpu", "float32")


def test_nothing_is_masked_before_a_teacher(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    with pytest.raises(ArgumentError):
        vo.pretrain(vo.load(backbones["bert"]), toy_texts, steps=2, teacher="vocable-mini", masking="whole-word")
