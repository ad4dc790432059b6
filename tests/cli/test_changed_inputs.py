"""A changed weight, line or judgment before every command that keeps its work: the old result is never given."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.cli.command_line import done, refused
from vocable.cli import main

# Commands in a folder with `model`, `pairs.jsonl`, `texts.txt`, `data` (BEIR) and `recipe.yaml`, and what they read.
COMMANDS = {
    "train": ("train recipe.yaml", "weight line judgment"),
    "train-variants": ("train recipe.yaml --variants a", "weight line judgment"),
    "mine": ("mine model pairs.jsonl --negatives 1 --from-rank 1", "weight line"),
    "teacher-scores": ("teacher-scores model pairs.jsonl", "weight line"),
    "pretrain": ("pretrain model texts.txt --steps 1 --batch-size 2 --max-length 16", "weight text"),
    "rescale": ("rescale model --factor 2", "weight"),
    "calibrate": ("calibrate model texts.txt --activation-rate 0.05", "weight text"),
    "expand-vocabulary": ("expand-vocabulary model --texts texts.txt --size 20", "weight text"),
    "make-inference-free": ("make-inference-free model --texts texts.txt", "weight text"),
    "train-vocabulary": ("train-vocabulary texts.txt --size 120", "text"),
    "ablate": ("ablate model beir:data --thresholds 1 --draws 2", "weight document judgment"),
    "measure-wackiness": ("measure-wackiness model --queries beir:data --corpus beir:data", "weight document"),
    "encode": ("encode model texts.txt", "weight text"),
    "index": ("index model texts.txt", "weight text"),
    "select": ("select model --dataset beir:data", "weight document judgment"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, beir: Path, toy_texts: list[str]) -> Path:
    """A folder with all inputs, in which the commands run."""
    shutil.copytree(model, tmp_path / "model")
    shutil.copytree(beir, tmp_path / "data")
    texts = sorted(set(toy_texts))[:40]
    rows = [
        {"query": " ".join(text.split()[:3]), "positive": text, "negatives": [texts[n - 1]]}
        for n, text in enumerate(texts)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    recipe = {
        "model": "model",
        "data": {"examples": ["pairs.jsonl"]},
        "training": {"steps": 1, "batch_size": 4},
        "evaluation": {"dataset": "beir:data", "every": None},
        "variants": {"a": {}},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def change(what: str) -> Path:
    """Change a bias of the model, or a word or a judgment of a file, and return its path."""
    if what == "weight":
        path = Path("model/model.safetensors")
        weights = load_file(path)
        bias = next(name for name in sorted(weights) if name.endswith("bias") and weights[name].ndim == 1)
        save_file({**weights, bias: weights[bias] + 0.01}, path, {"format": "pt"})
        return path
    files = {"line": "pairs.jsonl", "text": "texts.txt", "document": "data/corpus.jsonl", "judgment": "data/qrels.tsv"}
    old, new = ("d5\t1", "d6\t1") if what == "judgment" else (" the ", " another ")
    path = Path(files[what])
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_changed_input_is_refused_under_the_name_of_a_finished_output(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, reads = COMMANDS[name]
    command = [*words.split(), "-o", "out"]
    assert main(command) == 0
    made = {file: file.read_bytes() for file in Path().glob("out*/**/*") if file.is_file()}
    for what in reads.split():
        before = {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()}
        path = change(what)
        assert re.search(
            r"out\S* was made (from inputs that have changed|with other settings \()", refused(capsys, *command)
        ), what
        path.write_bytes(before[path])
    done(capsys, *command)  # as the inputs were, the output is believed
    assert {file: file.read_bytes() for file in made} == made
