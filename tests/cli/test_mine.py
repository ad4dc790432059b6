"""mine and score on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vocable.cli import main


@pytest.fixture
def pairs(tmp_path: Path, toy_texts: list[str]) -> Path:
    texts = sorted(set(toy_texts))[:12]
    path = tmp_path / "pairs.jsonl"
    lines = [json.dumps({"query": text[:15], "positive": text}) + "\n" for text in texts]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_mine_then_score(
    backbones: dict[str, Path], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, hard, scored = str(backbones["bert"]), str(tmp_path / "hard.jsonl"), str(tmp_path / "scored.jsonl")
    assert main(["mine", model, str(pairs), "-o", hard, "--negatives", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"output": hard, "examples": 12, "negatives": 36, "left_out": 0}
    assert main(["teacher-scores", model, hard, "-o", scored, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"output": scored, "examples": 12, "negatives": 36, "left_out": 0}
    rows = [json.loads(line) for line in Path(scored).read_text(encoding="utf-8").splitlines()]
    assert all(len(row["negatives"]) == 3 and len(row["scores"]) == 4 for row in rows)


def test_what_is_said(
    backbones: dict[str, Path], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, hard = str(backbones["bert"]), str(tmp_path / "hard.jsonl")
    assert main(["mine", model, str(pairs), "-o", hard, "--negatives", "11", "--to-rank", "11", "--with-scores"]) == 0
    few = capsys.readouterr().out
    assert "left out" in few  # the positive itself has one of the eleven ranks
    assert f"written: {hard}" in few
    assert main(["teacher-scores", model, str(pairs), "-o", str(tmp_path / "scored.jsonl")]) == 0
    assert capsys.readouterr().out.startswith("12 examples, ")


def test_mistakes(backbones: dict[str, Path], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["mine", str(backbones["bert"]), str(pairs), "-o", str(tmp_path / "out.jsonl")]
    line = "vocable: there must be at least 1 negative for an example, not 0"
    assert main([*command, "--negatives", "0"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert main(["teacher-scores", str(tmp_path / "none"), str(pairs), "-o", str(tmp_path / "out.jsonl")]) == 2
    assert "none: no such model folder" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.jsonl"]
