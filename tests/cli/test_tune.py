"""The command `tune`: what it prints, and its mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import done, refused
from tests.tuning.small import FIGURES, small_figures, write_corpus
from vocable.cli import main


@pytest.fixture
def command(
    model: str, tmp_path: Path, toy_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str, Path, str, Path]:
    """A small tuning of 60 documents."""
    for place, figure, value in small_figures():
        monkeypatch.setattr(place, figure, value)
    pages = write_corpus(tmp_path / "pages.jsonl", toy_texts, 60)
    return "tune", model, pages, "-o", tmp_path / "out"


@pytest.mark.slow
def test_tune_says_what_it_learned_and_what_may_follow(
    command: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    few = "60 documents: questions for 6 steps"
    plan = json.loads(done(capsys, *command, "--dry-run", "--json", warning=few))
    assert (plan["documents"], plan["steps"]) == (60, FIGURES["TRAINING_STEPS"])
    assert "60, 0 of them repeated" in done(capsys, *command, "--dry-run", warning=few)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()
    capsys.readouterr()
    assert main([str(word) for word in command]) == 0
    shown = capsys.readouterr().out
    for said in ("questions learned from in 6 steps", "Judged queries tell what it gained here: vocable evaluate"):
        assert said in shown, said
    assert f"vocable index {tmp_path}/out {tmp_path}/pages.jsonl" in shown.replace("\n", " ").replace("  ", " ")
    # The same again finds the result, in another process without PyTorch.
    words = json.dumps([[str(word) for word in command]])
    code = "import json, sys; from vocable.cli import main; end = main(*json.loads(sys.argv[1]))"
    code += "; print(end, [name for name in ('torch', 'transformers') if name in sys.modules])"
    repeated = subprocess.run([sys.executable, "-c", code, words], capture_output=True, text=True, check=True)
    there = "already there, made with the same settings: "
    assert repeated.stdout == shown.replace("written: ", there) + "0 []\n"
    kept = json.loads((tmp_path / "out" / "tuning.json").read_text(encoding="utf-8"))
    assert json.loads(done(capsys, *command, "--json")) == kept | {"output": str(tmp_path / "out")}
    assert "other settings (seed)" in refused(capsys, *command, "--seed", 1)


def test_mistakes_are_one_line(command: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, model, pages, *output = command
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(pages.read_text(encoding="utf-8").splitlines()[:1]), encoding="utf-8")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"_id": "1", "text": "x"}\n{"_id"', encoding="utf-8")
    for arguments, says in (
        ((model, few), "titles and texts are too short: they give about 4 questions"),
        ((model, bad), "bad.jsonl:2"),
        ((model, tmp_path / "none"), "none"),
        ((tmp_path / "no-model", pages), "no such model folder"),
        ((model, pages, "--minutes", "0"), "minutes"),
        ((model, pages, "--minutes", "0.00001"), "at least"),
        ((model, pages, "--queries", tmp_path / "none.tsv"), "none.tsv"),
        ((model, pages, "--generator", tmp_path / "no-writer"), "no-writer"),
    ):
        capsys.readouterr()
        assert main([str(word) for word in ("tune", *arguments, *output)]) == 2, says
        captured = capsys.readouterr()
        *before, line = captured.err.splitlines()
        assert all("plan: " in one or "\r" in one for one in before), captured.err  # nothing long was done
        assert line.startswith("vocable: ")
        assert says in line
        assert captured.out == ""
        assert not (tmp_path / "out").exists()
        assert not (tmp_path / "out.partial").exists(), says
