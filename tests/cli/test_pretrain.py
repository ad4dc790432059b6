"""pretrain, calibrate and vocabulary on the command line: what they print, write and refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

import vocable as vo
from vocable.cli import main


@pytest.fixture
def corpus(tmp_path: Path, toy_texts: list[str]) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in toy_texts[:60]), encoding="utf-8")
    return path


@pytest.fixture
def transferred(backbones: dict[str, Path], tmp_path: Path) -> Path:
    """A model that says which of its tokens are new."""
    folder = tmp_path / "transferred"
    folder.mkdir()
    for path in backbones["bert"].iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "transfer.json").write_text(json.dumps({"new_tokens": list(range(10, 60))}), encoding="utf-8")
    return folder


def run(capsys: pytest.CaptureFixture[str], *command: object, status: int = 0) -> str:
    assert main([str(word) for word in command]) == status
    printed = capsys.readouterr()
    return printed.err.splitlines()[-1] if status else printed.out.strip()


def test_a_transferred_model_stays_one(
    capsys: pytest.CaptureFixture[str], transferred: Path, corpus: Path, tmp_path: Path
) -> None:
    adapted, calibrated = tmp_path / "adapted", tmp_path / "calibrated"
    options = ["--steps", 2, "--batch-size", 4, "--masking", "overlap-aware", "--trainable", "embeddings"]
    values = json.loads(run(capsys, "pretrain", transferred, corpus, "-o", adapted, *options, "--json"))
    assert values["steps"] == 2
    assert values["held_out"].keys() == {"before", "after"}
    assert values["held_out"]["before"].keys() == values["held_out"]["after"].keys() == {"shared", "new"}
    assert values["held_out"]["after"]["new"].keys() == {"tokens", "loss", "accuracy"}
    kept = [json.loads(line) for line in (adapted / "pretrain.jsonl").read_text().splitlines()]
    losses = [line["held_out_loss_new"] for line in kept if "held_out_loss_new" in line]
    assert losses[-1] == pytest.approx(values["held_out"]["after"]["new"]["loss"])
    again = run(capsys, "pretrain", adapted, corpus, "-o", tmp_path / "further", *options)
    assert [line.partition(" (")[0] for line in again.splitlines()[1:3]] == [
        "held-out tokens, shared",
        "held-out tokens, new",
    ]
    text = run(capsys, "calibrate", adapted, corpus, "-o", calibrated, "--activation-rate", 0.02, "--level", "token")
    assert "-> 2.00%\nactive terms of a token: mean " in text
    of_the_first = ["--activation-rate", 0.1, "--pooling", "cls", "--json"]
    found = json.loads(run(capsys, "calibrate", adapted, corpus, "-o", tmp_path / "first", *of_the_first))
    assert (found["pooling"], found["rate_after"]) == ("cls", pytest.approx(0.1, abs=0.01))
    shutil.rmtree(tmp_path / "first")
    for folder in (adapted, calibrated):
        new = vo.new_tokens(vo.load(folder))
        assert new is not None
        assert new.tolist() == list(range(10, 60))
    assert {path.name for path in tmp_path.iterdir()} == {
        "adapted", "calibrated", "corpus.jsonl", "further", "transferred",
    }  # fmt: skip


def test_what_is_active_is_told(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    command = ["calibrate", backbones["bert"], corpus, "-o", tmp_path / "out", "--shift", 1, "--json"]
    values = json.loads(run(capsys, *command))
    size = len(AutoTokenizer.from_pretrained(backbones["bert"]))
    assert (values["level"], values["shift"]) == ("pooled", 1.0)
    assert values["rate_after"] < values["rate_before"]
    for when in ("before", "after"):
        assert values[f"mean_{when}"] == pytest.approx(size * values[f"rate_{when}"])
        assert values[f"p99_{when}"] > values[f"mean_{when}"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--masking", "overlap-aware"], "overlap-aware masking needs to know the new tokens: pre-train a model that"),
        (["--train-bias"], "--train-bias goes with trainable: embeddings"),
        (["--steps", 0], "--steps must be at least 1, not 0"),
        (["--new-token-weight", 0], "--new-token-weight: Input should be greater than 0, not 0.0"),
    ],
)
def test_impossible_pretraining_is_refused(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path,
    options: list[object], line: str,
) -> None:  # fmt: skip
    command = ["pretrain", backbones["bert"], corpus, "-o", tmp_path / "out", "--steps", 1, *options]
    assert run(capsys, *command, status=2).startswith(f"vocable: {line}")


def test_a_probe_of_empty_lines_is_named(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path
) -> None:
    empty, output = tmp_path / "empty.txt", tmp_path / "out"
    empty.write_text("\n \n\n", encoding="utf-8")
    said = run(capsys, "calibrate", backbones["bert"], empty, "-o", output, "--activation-rate", 0.05, status=2)
    assert said == f"vocable: {empty}: no text to probe with"
    assert not output.exists()


def test_vocabulary_writes_a_tokenizer(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lines = run(capsys, "vocabulary", corpus, "-o", out, "--size", 120).splitlines()
    assert lines[3].split()[0] == "120"
    assert lines[4] == f"written: {out}"
    assert len(AutoTokenizer.from_pretrained(out)) == 120
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "out"]
    assert run(capsys, "vocabulary", corpus, "-o", out, "--size", 120).splitlines()[:4] == lines[:4]
    assert "other settings (sizes)" in run(capsys, "vocabulary", corpus, "-o", out, "--size", 140, status=2)


def test_vocabulary_compares_sizes(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    rows = json.loads(run(capsys, "vocabulary", corpus, "--size", "100,140", "--json"))
    assert [row["size"] for row in rows] == [100, 140]
    assert rows[1]["tokens_per_word"] < rows[0]["tokens_per_word"]
    table = run(capsys, "vocabulary", corpus, "--size", "100", "--size", "140").splitlines()
    assert table[0].split() == ["rare"]
    assert table[1].split() == ["size", "tokens/word", "tokens"]
    assert [line.split()[:2] for line in table[3:]] == [
        [str(row["size"]), f"{row['tokens_per_word']:.3f}"] for row in rows
    ]
    one = json.loads(
        run(capsys, "vocabulary", corpus, "-o", tmp_path / "out", "--size", 300, "--algorithm", "bpe", "--json")
    )
    assert one["output"] == str(tmp_path / "out")
    assert np.isclose(one["tokens_per_word"], one["tokens"] / one["words"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "Missing option '--size'"),
        (["--size", "100,200", "-o", "o"], "give one size with output, or several to compare"),
        (["--size", "100,x"], "Invalid value for '--size': numbers with commas between, as 10,100"),
    ],
)
def test_impossible_vocabularies_are_refused(
    capsys: pytest.CaptureFixture[str], corpus: Path, options: list[str], line: str
) -> None:
    assert run(capsys, "vocabulary", corpus, *options, status=2).startswith(f"vocable: {line}")
