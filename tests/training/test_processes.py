"""Two processes against one: the same gradients of the same batch, the same training, everything said and done once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sentence_transformers import SparseEncoder

from vocable.cli import GRACE, QUIET, main
from vocable.encoder.fuse import fuse
from vocable.errors import RecipeError
from vocable.training import processes
from vocable.training.batch_statistics import Monitor
from vocable.training.data import TrainingData
from vocable.training.objective import make_objective
from vocable.training.recipe import TrainingSettings, read_recipe
from vocable.training.train import train
from vocable.training.trainer import set_dropout

REGULARIZERS = {
    "query": {"name": "l1", "weight": 0.01, "ramp": "constant"},
    "document": {"name": "df_flops", "weight": 0.1, "ramp": "constant"},
    "joint": {"weight": 0.02, "ramp": "constant"},
    "overlap": {"weight": 0.02, "ramp": "constant"},
}
MEASURED = {"name": "wackiness_flops", "weight": 0.3, "ramp": "constant", "every": 4, "sample": 20}

# What each of two processes does: argv[1:] are the model, the texts, where to leave gradients, and a command.
SHARED = """
import json, sys

from vocable.cli import silence

silence()  # before the libraries are imported
sys.path.insert(0, sys.argv[1])
from test_processes import gradients
from torch.nn.parallel import DistributedDataParallel
from vocable.cli import main
from vocable.training import processes
import torch

torch.set_num_threads(1)
processes.join()
model, texts, place = sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
part = slice(0, 2) if processes.is_first() else slice(2, 4)
for micro_batch in (None, 1):
    found = gradients(model, [column[part] for column in texts], micro_batch, DistributedDataParallel)
    if processes.is_first():
        torch.save(found, f"{place}-{micro_batch}.pt")
sys.exit(main(sys.argv[5:]))
"""


def gradients(name: str, columns: list[list[str]], micro_batch: int | None, wrap=lambda model: model) -> dict:
    """The gradients of the objective over columns of texts, by parameter."""
    model = fuse(SparseEncoder(name, device="cpu")).train()
    set_dropout(model, 0.0)
    settings = TrainingSettings(steps=9, batch_size=4, micro_batch=micro_batch, regularizers=REGULARIZERS)
    objective = make_objective(model, settings, TrainingData(None), Monitor())
    objective.model = wrap(model)
    loss = objective([dict(model.preprocess(column)) for column in columns])
    torch.stack(list(loss.values())).sum().backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def start_two(*arguments: object) -> list[subprocess.Popen[str]]:
    """Start two processes as `torchrun` does, but without its own time to start."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    shared = {name: value for name, value in os.environ.items() if name not in QUIET}
    shared |= {"OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


@pytest.fixture
def recipe(backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path) -> Path:
    texts = sorted(set(toy_texts))[:40]
    for number in range(2):
        rows = [{"query": f"{number} {text}", "positive": f"chapter {i} {text}"} for i, text in enumerate(texts)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    values = {
        "model": str(backbones["bert"]),
        "data": {"examples": [str(tmp_path / f"{number}.jsonl") for number in range(2)]},
        "training": {
            "steps": 6,
            "batch_size": 8,
            "save_every": 4,
            "log_every": 1,
            "learning_rate": 1e-4,
            "dtype": "float32",  # bfloat16 is too coarse for weights to be compared
            "losses": [{"name": "info_nce", "queue": {"size": 20, "momentum": 0.5}}],
            "regularizers": REGULARIZERS | {"query": MEASURED},
        },
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(values), encoding="utf-8")
    return tmp_path / "recipe.yaml"


def log(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_two_processes_do_what_one_does(
    backbones: dict[str, Path], recipe: Path, toy_texts: list[str], tmp_path: Path
) -> None:
    texts = sorted(set(toy_texts))[:12]
    columns = [texts[:4], texts[4:8], texts[8:]]
    script, place = tmp_path / "shared.py", tmp_path / "gradients"
    script.write_text(SHARED, encoding="utf-8")
    command = ["train", recipe, "-o", tmp_path / "two"]
    two = start_two(script, Path(__file__).parent, backbones["bert"], json.dumps(columns), place, *command)
    assert main(["train", str(recipe), "-o", str(tmp_path / "one")]) == 0
    said = [process.communicate(timeout=300) for process in two]
    assert [process.returncode for process in two] == [0, 0], said
    written = f"written: {tmp_path / 'two'}\nnext: vocable evaluate {tmp_path / 'two'} --dataset SOURCE\n"
    assert [out for out, _ in said] == [written, ""]
    assert "of a probe of training queries" in said[0][1]
    assert said[1][1] == ""
    whole = gradients(str(backbones["bert"]), columns, None)
    largest = max(float(gradient.abs().max()) for gradient in whole.values())
    for micro_batch in (None, 1):
        found = torch.load(f"{place}-{micro_batch}.pt")
        assert found.keys() == whole.keys()
        for name, gradient in whole.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6 * largest, msg=name)
    one, two = log(tmp_path / "one"), log(tmp_path / "two")
    assert [line["step"] for line in two] == [line["step"] for line in one] == [1, 2, 3, 4, 5, 6]
    for ours, theirs in zip(two, one, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=2e-4)
    weights, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    for name, values in expected.items():
        np.testing.assert_allclose(weights[name], values, atol=2e-4, err_msg=name)


def test_a_batch_that_cannot_be_shared_is_refused(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "count", lambda: 3)
    with pytest.raises(RecipeError, match="batch_size: 8 examples cannot be shared equally by 3 processes"):
        train(read_recipe(recipe), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.jsonl", "1.jsonl", "recipe.yaml"]


def test_the_first_process_speaks_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", str(tmp_path / "none.yaml"), "-o", str(tmp_path / "out")]
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    assert main(command) == 2
    assert waited == []
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert main(command) == 2
    assert waited == [GRACE]
    assert capsys.readouterr().err.count("none.yaml") == 2
    with sys.stdout:
        assert sys.stdout.name == os.devnull
