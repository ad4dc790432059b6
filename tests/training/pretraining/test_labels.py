"""Pre-training by given labels: the query of a text of examples is its class."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vocable as vo
from tests.cli.command_line import done, refused
from vocable.adapt.stages import PretrainSettings
from vocable.data import Example
from vocable.errors import ArgumentError, DataError
from vocable.training.pretraining.windows import Cutter, LabelFinder, Windows, cut_texts, labelled, write_windows

SETTINGS: dict[str, Any] = {
    "labels": True, "steps": 4, "batch_size": 8, "max_length": 24, "log_every": 1, "save_every": 2,
    "learning_rate": 3e-3, "held_out": 4,
}  # fmt: skip
TOPICS = ("weather", "numbers", "music")
BEGINNINGS = ("librarian librarian", "twelve twelve queries", "see chapter")


@pytest.fixture(scope="module")
def examples(toy_texts: list[str]) -> list[Example]:
    """Each topic's texts begin alike, so that it can be learned; one text belongs to two topics."""
    texts = sorted(set(toy_texts))[:60]
    found = [Example(TOPICS[i % 3], f"{BEGINNINGS[i % 3]} {text}") for i, text in enumerate(texts)]
    return [*found, found[0]._replace(query=TOPICS[1])]


@pytest.mark.slow
def test_windows_have_the_class_of_their_text(
    backbones: dict[str, Path], examples: list[Example], tmp_path: Path
) -> None:
    tokenizer = vo.load(backbones["bert"], device="cpu").tokenizer
    long = Example("music", " ".join(one.positive for one in examples[:9]))
    given = [*examples, long]
    windows = write_windows(tmp_path, labelled(given), tokenizer, 24, LabelFinder(tokenizer))
    number = {topic: i for i, topic in enumerate(TOPICS)}
    expected: list[int] = []
    for one in given:  # a text's windows follow each other; the last of several may be too short to keep
        tokens = len(tokenizer(one.positive, add_special_tokens=False)["input_ids"])
        whole, rest = divmod(tokens, 22)
        expected += [number[one.query]] * max(1, whole + (rest + 2 >= 16))
    assert windows.class_count == 3
    assert len(windows) == len(expected) > len(given)
    assert [int(windows.labels(row)[0]) for row in range(len(windows))] == expected
    in_processes = cut_texts(labelled(given), Cutter(tokenizer, 24, LabelFinder(tokenizer)), here=0, workers=2)
    assert [int(words[0]) for _, words in in_processes if words is not None] == expected


def test_given_classes_are_learned_and_their_layer_is_dropped(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], examples: list[Example], tmp_path: Path
) -> None:
    file = tmp_path / "clicks.jsonl"
    file.write_bytes(b"".join(one.line for one in examples[:-1]))
    command = ["pretrain", backbones["bert"], file, "--labels", "--batch-size", 16, "--max-length", 24]
    command += ["--learning-rate", 3e-3, "--steps", 60, "-o", tmp_path / "out"]
    found = json.loads(done(capsys, *command, "--json"))
    before, after = (found["held_out"][when]["all"] for when in ("before", "after"))
    assert before["loss"] == pytest.approx(np.log(3), rel=1e-3)
    assert after["loss"] < 0.6 * before["loss"]
    assert found["classes"] == 3
    assert f"texts, of 3 classes, all ({after['tokens']})" in done(capsys, *command)
    assert not any("class_layer" in key for key in vo.load(tmp_path / "out").state_dict())
    (tmp_path / "one.jsonl").write_bytes(b"".join(one._replace(query="weather").line for one in examples))
    command[2], command[-1] = tmp_path / "one.jsonl", tmp_path / "other"
    assert "the same class" in refused(capsys, *command)
    assert "labels exclude teacher" in refused(capsys, *command, "--teacher", "x")


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    backbones: dict[str, Path], examples: list[Example], tmp_path: Path
) -> None:
    model = vo.load(backbones["bert"], device="cpu")
    expected = vo.pretrain(model, examples, work=tmp_path / "whole", **SETTINGS).state_dict()
    shutil.copytree(tmp_path / "whole", tmp_path / "resumed")
    shutil.rmtree(tmp_path / "resumed" / "checkpoint-4")
    found = vo.pretrain(model, [], work=tmp_path / "resumed", **SETTINGS).state_dict()
    assert all(torch.equal(found[key], value) for key, value in expected.items())
    assert Windows(tmp_path / "resumed" / "tokens").class_count == 3


def test_texts_without_labels_are_refused(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    model = vo.load(backbones["bert"], device="cpu")
    with pytest.raises(ArgumentError):
        vo.pretrain(model, toy_texts, **SETTINGS)
    with pytest.raises(DataError):
        vo.pretrain(model, [], **SETTINGS)
    for key, value in {"masking": "whole-word", "margin": 0.1}.items():
        with pytest.raises(ArgumentError):
            vo.pretrain(model, [], **SETTINGS, **{key: value})


def test_a_recipe_learns_from_labels(backbones: dict[str, Path], examples: list[Example], tmp_path: Path) -> None:
    file = tmp_path / "clicks.jsonl"
    file.write_bytes(b"".join(one.line for one in examples))
    recipe = {
        "model": str(backbones["bert"]),
        "pretrain": {"texts": [str(file)]} | SETTINGS,
        "data": {"examples": [str(file)]},
        "training": {"steps": 1, "batch_size": 2, "guard": "off"},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    model = vo.train(tmp_path / "recipe.yaml", tmp_path / "out")
    assert [step["classes"] for step in vo.provenance(model) if "classes" in step] == [3]
    assert PretrainSettings.model_validate(recipe["pretrain"]).labels
