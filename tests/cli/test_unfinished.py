"""Work that another command has begun is never deleted, whatever is asked to be written in its place."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml
from transformers import AutoTokenizer

from tests.cli.command_line import done, refused

pytestmark = pytest.mark.usefixtures("quiet_libraries")

SENTENCE = "an old fox reads twelve books about sparse vectors at night"
ONE_SHOT = (
    *("calibrate", "rescale", "transfer", "expand-vocabulary", "train-vocabulary", "make-inference-free", "prune"),
    "make-testset",
)
RESUMABLE = ("index", "encode", "pretrain", "train", "measure-wackiness", "ablate", "mine", "teacher-scores")


@pytest.fixture
def commands(backbones: dict[str, Path], tmp_path: Path) -> dict[str, list[object]]:
    """Every command that writes a folder or works on a file in one, ready but for its output."""
    bert, texts, words = backbones["bert"], tmp_path / "texts.txt", tmp_path / "words.txt"
    texts.write_text("\n".join(f"{SENTENCE} {number}" for number in range(8)), encoding="utf-8")
    words.write_text("fox\nbooks", encoding="utf-8")
    corpus, examples, recipe = tmp_path / "corpus.tsv", tmp_path / "examples.jsonl", tmp_path / "recipe.yaml"
    corpus.write_text("".join(f"d{number}\t{SENTENCE} {number}\n" for number in range(8)), encoding="utf-8")
    rows = [{"query": f"fox {number}", "positive": f"{SENTENCE} {number}"} for number in range(8)]
    examples.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    training = {"steps": 1, "batch_size": 2}
    recipe.write_text(yaml.safe_dump({"model": str(bert), "data": {"examples": [str(examples)]}, "training": training}))
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    (beir / "corpus.jsonl").write_text(json.dumps({"_id": "d0", "title": "", "text": SENTENCE}) + "\n")
    (beir / "queries.jsonl").write_text(json.dumps({"_id": "q0", "text": "fox"}) + "\n")
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    return {
        "calibrate": ["calibrate", bert, texts, "--shift", "1"],
        "rescale": ["rescale", bert, "--factor", "2"],
        "transfer": ["transfer", bert, "--target", backbones["electra"]],
        "expand-vocabulary": ["expand-vocabulary", bert, "--words", words],
        "train-vocabulary": ["train-vocabulary", texts, "--size", "60"],
        "make-inference-free": ["make-inference-free", bert, "--weights", "ones"],
        "prune": ["prune", tmp_path / "vectors", "--max-terms", "2"],
        "make-testset": ["make-testset", examples, "--queries", "2"],
        "index": ["index", bert, corpus],
        "encode": ["encode", bert, corpus],
        "pretrain": ["pretrain", bert, texts, "--steps", "1"],
        "train": ["train", recipe],
        "measure-wackiness": ["measure-wackiness", bert, "--role", "document", "--corpus", corpus, "-k", "2"],
        "ablate": ["ablate", bert, f"beir:{beir}", "--thresholds", "1"],
        "mine": ["mine", bert, examples, "--corpus", corpus],
        "teacher-scores": ["teacher-scores", bert, examples],
    }


def begin(output: Path, settings: str) -> dict[str, bytes]:
    """Unfinished work on `output`, and what is in it."""
    work = output.with_name(f"{output.name}.partial")
    (work / "train").mkdir(parents=True)
    (work / settings).write_text("{}", encoding="utf-8")
    (work / "train" / "checkpoint").write_bytes(b"ten hours")
    return found(work)


def found(work: Path) -> dict[str, bytes]:
    return {path.relative_to(work).as_posix(): path.read_bytes() for path in work.rglob("*") if path.is_file()}


@pytest.mark.parametrize("settings", ["recipe.json", "settings.json"])
@pytest.mark.parametrize("name", ONE_SHOT + RESUMABLE)
def test_unfinished_work_of_another_command_is_left_as_it_is(
    name: str,
    settings: str,
    commands: dict[str, list[object]],
    backbones: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "out"
    if name == "prune":
        done(capsys, "encode", backbones["bert"], tmp_path / "corpus.tsv", "-o", tmp_path / "vectors")
    before = begin(output, settings)
    line = refused(capsys, *commands[name], "-o", output)
    if name in ONE_SHOT:
        assert line == (
            f"vocable: {output}.partial is the unfinished work of another command: "
            "finish or remove it, or name another output"
        )
    else:
        assert "out.partial" in line
        assert "remove it" in line
    assert found(tmp_path / "out.partial") == before
    assert not output.exists()
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("name", ["index", "measure-wackiness"])
def test_a_finished_command_repeated_leaves_the_work_of_another(
    name: str, commands: dict[str, list[object]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    done(capsys, *commands[name], "-o", output)
    assert not (tmp_path / "out.partial").exists()
    before = begin(output, "recipe.json")
    done(capsys, *commands[name], "-o", output)
    assert found(tmp_path / "out.partial") == before


def test_starting_anew_throws_away_a_training_alone(
    commands: dict[str, list[object]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = begin(tmp_path / "out", "settings.json")
    line = refused(capsys, *commands["train"], "-o", tmp_path / "out", "--no-resume")
    assert "out.partial already exists and is something else" in line
    assert found(tmp_path / "out.partial") == before


def test_what_one_shot_commands_write_has_the_mode_of_any_folder(
    commands: dict[str, list[object]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "any").mkdir()
    done(capsys, *commands["train-vocabulary"], "-o", tmp_path / "deep" / "out")
    assert stat.S_IMODE((tmp_path / "deep" / "out").stat().st_mode) == stat.S_IMODE((tmp_path / "any").stat().st_mode)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert len(AutoTokenizer.from_pretrained(tmp_path / "deep" / "out")) == 60
