from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, SparseEncoder
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import vocable as vo
from tests.cli.command_line import done, refused
from vocable.adapt.stages import PretrainSettings
from vocable.torch_models.fuse import without_logits
from vocable.training.pretraining.mlm import collate
from vocable.training.pretraining.teacher_tasks import ClassTask, classify_windows
from vocable.training.pretraining.windows import Windows, write_windows
from vocable.training.teachers import dense_teacher

SETTINGS: dict[str, Any] = {
    "steps": 4, "batch_size": 8, "max_length": 24, "classes": 5, "log_every": 1, "save_every": 2, "learning_rate": 3e-3,
}  # fmt: skip


def settings(dense: str, **changed: Any) -> PretrainSettings:
    return PretrainSettings.model_validate({"texts": ["-"], "teacher": dense} | SETTINGS | changed)


def test_classes_are_clusters_of_what_the_teacher_makes_of_the_texts(
    backbones: dict[str, Path], dense: str, toy_texts: list[str], tmp_path: Path
) -> None:
    tokenizer, texts = vo.load(backbones["modernbert"], device="cpu").tokenizer, sorted(set(toy_texts))
    windows = write_windows(tmp_path, texts, tokenizer, 24)
    rows = np.arange(3, len(windows), 2)
    classify_windows(windows, rows, tokenizer, dense_teacher(dense, 24), settings(dense), 0)
    read = [tokenizer.decode(windows[row], skip_special_tokens=True) for row in rows]
    embeddings = SentenceTransformer(dense, device="cpu").encode(read, normalize_embeddings=True)
    every = np.array([windows.labels(row)[0] for row in range(len(windows))])
    labels = every[rows]
    assert sorted(set(labels)) == list(range(5))
    assert (np.delete(every, rows) == -1).all()
    assert adjusted_rand_score(labels, KMeans(5, n_init=4, random_state=0).fit_predict(embeddings)) > 0.9
    unasked: Any = None
    again = Windows(tmp_path)
    classify_windows(again, rows, tokenizer, unasked, settings(dense), 0)
    assert np.array_equal([again.labels(row)[0] for row in range(len(again))], every)


@pytest.mark.parametrize(("pooling", "activation"), [("max", "relu"), ("sum", "relu"), ("max", "log1p_relu")])
def test_the_loss_is_that_of_the_class_given_the_vector(
    backbones: dict[str, Path], toy_texts: list[str], pooling: str, activation: Any
) -> None:
    model = vo.load(backbones["bert"], pooling=pooling, activation=activation, device="cpu").eval()
    mlm, tokenizer = model[0].auto_model, model.tokenizer
    task = ClassTask(mlm, model[1], mlm.config.vocab_size, 3)
    torch.nn.init.normal_(task.layer.weight)
    torch.nn.init.normal_(task.layer.bias)
    rng, classes = np.random.default_rng(0), np.array([2, 0, 1, 1])
    ids = [np.array(tokenizer(text)["input_ids"]) for text in toy_texts[:4]]
    batch = collate([task(one, rng, classes[i : i + 1]) for i, one in enumerate(ids)], tokenizer.pad_token_id)
    stock = SparseEncoder(str(backbones["bert"]), device="cpu")
    stock[1].pooling_strategy, stock[1].activation_function = pooling, activation
    with torch.inference_mode(), without_logits(mlm) as decoder:
        loss, count = task.loss(mlm, batch, decoder)
        vectors = stock.encode(toy_texts[:4], convert_to_sparse_tensor=False)
        expected = torch.nn.functional.cross_entropy(task.layer(vectors), torch.from_numpy(classes))
    assert count == 4
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)
    assert (task(ids[0], rng, classes[:1], "later").labels == -100).all()


def test_the_classes_are_learned_and_their_layer_is_dropped(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], dense: str, toy_texts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(sorted(set(toy_texts))), encoding="utf-8")
    command = ["pretrain", backbones["bert"], tmp_path / "texts.txt", "--teacher", dense, "--classes", 4]
    command += ["--batch-size", 16, "--max-length", 24, "--learning-rate", 3e-3, "--steps", 60, "-o", tmp_path / "out"]
    found = json.loads(done(capsys, *command, "--json"))["held_out"]
    before, after = found["before"]["all"], found["after"]["all"]
    assert before["loss"] == pytest.approx(np.log(4), rel=1e-3)
    assert after["loss"] < 0.6 * before["loss"]
    assert after["accuracy"] > 0.7
    assert done(capsys, *command).splitlines()[1].startswith(f"held-out texts, of 4 classes, all ({after['tokens']})")
    kept = load_file(tmp_path / "out" / "model.safetensors").keys()
    assert kept == load_file(backbones["bert"] / "model.safetensors").keys()
    assert vo.provenance(vo.load(tmp_path / "out"))[-1]["classes"] == 4


@pytest.mark.slow
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    backbones: dict[str, Path], dense: str, toy_texts: list[str], tmp_path: Path
) -> None:
    given, whole, resumed = SETTINGS | {"teacher": dense}, tmp_path / "whole", tmp_path / "resumed"
    for name in ("bert", "modernbert"):
        expected = vo.pretrain(
            vo.load(backbones[name], device="cpu"), toy_texts, work=whole / name, **given
        ).state_dict()
        shutil.copytree(whole / name, resumed / name)
        shutil.rmtree(resumed / name / "checkpoint-4")
        found = vo.pretrain(vo.load(backbones[name], device="cpu"), [], work=resumed / name, **given).state_dict()
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("quiet_libraries")
def test_what_cannot_be_sorted_is_refused(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], dense: str, corpus: Path, tmp_path: Path
) -> None:
    command = ["pretrain", backbones["bert"], corpus, "--steps", 2, "-o", tmp_path / "out", "--classes"]
    assert "needs a dense teacher" in refused(capsys, *command, 4)
    said = refused(capsys, *command, 41, "--teacher", dense)
    assert "41 classes of 40 windows: add texts, take more steps, or ask for fewer classes" in said
    assert "classes" in refused(capsys, *command, 1, "--teacher", dense)
    assert "no such" in refused(capsys, *command, 4, "--teacher", "absent")
    assert "vocable-mini is a sparse encoder: name a dense encoder" in refused(
        capsys, *command, 4, "--teacher", "vocable-mini"
    )
    alike = tmp_path / "alike.txt"
    alike.write_text("the same text\n" * 50)
    command[2] = alike
    assert "5 classes of texts that make 1: ask for fewer" in refused(capsys, *command, 5, "--teacher", dense)
    assert list(tmp_path.iterdir()) == [alike]
