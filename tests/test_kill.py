"""kill -9 at a bad moment, then the same command: nothing lost, nothing doubled, nothing half-made in sight."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from vocable.cli import QUIET, main
from vocable.encoder import stream
from vocable.search.collection import open_index
from vocable.vectors import read_vectors

# The command line, but the process kills itself when a function is called for the n-th time: argv[1:4] are the module,
# the function and n, the rest is the command.
KILLED = """
import os, signal, sys
from importlib import import_module

from vocable.cli import main
from vocable.cli import silence

silence()  # before the libraries are imported
from vocable.encoder import stream
from vocable.encoder import encode as precision

precision.native_bfloat16 = lambda device: False  # as in the process of the tests
stream.PART_SIZE = 8
place, name, times = import_module(sys.argv[1]), sys.argv[2], int(sys.argv[3])
owner, _, name = name.rpartition(".")
owner = getattr(place, owner) if owner else place
function, calls = getattr(owner, name), []

def counted(*arguments, **named):
    calls.append(name)
    if len(calls) == times:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments, **named)

setattr(owner, name, counted)
sys.exit(main(sys.argv[4:]))
"""


REGULARIZERS = {  # both keep a state of their own, and the second has measured at step 3 when it is killed at step 6
    "document": {"name": "df_flops", "weight": 0.3},
    "query": {"name": "wackiness_flops", "weight": 0.3, "every": 3, "sample": 30, "k": 5},
}


@contextmanager
def killed(module: str, function: str, times: int, *command: object) -> Iterator[None]:
    """Start a command, do something else meanwhile, and see it killed."""
    arguments = [sys.executable, "-c", KILLED, module, function, str(times), *map(str, command)]
    environment = {name: value for name, value in os.environ.items() if name not in QUIET} | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        yield
        output, errors = process.communicate(timeout=300)
    assert (process.returncode, output, errors) == (-signal.SIGKILL, b"", b"")


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PART_SIZE", 8)


@pytest.fixture
def corpus(tmp_path: Path, toy_texts: list[str]) -> Path:
    """30 documents: four parts, the last one short."""
    path = tmp_path / "corpus.jsonl"
    rows = [{"_id": f"d{i}", "text": text} for i, text in enumerate(sorted(set(toy_texts))[:30])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_encode(backbones: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    command = ["encode", str(backbones["bert"]), str(corpus), "-o"]
    with killed("vocable.encoder.stream", "write_vectors", 3, *command, tmp_path / "out"):
        assert main([*command, str(tmp_path / "whole")]) == 0
    assert names(tmp_path) == ["corpus.jsonl", "out.partial", "whole"]
    assert main([*command, str(tmp_path / "out")]) == 0
    assert names(tmp_path) == ["corpus.jsonl", "out", "whole"]
    assert names(tmp_path / "out") == names(tmp_path / "whole")
    found, expected = read_vectors(tmp_path / "out"), read_vectors(tmp_path / "whole")
    assert list(found.ids) == list(expected.ids) == [f"d{i}" for i in range(30)]
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(found.matrix, part), getattr(expected.matrix, part))


def test_index(backbones: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    command = ["index", str(backbones["bert"]), str(corpus), "--bm25", "-o"]
    # Once while it encodes, once when all but the lexical index is there.
    with killed("vocable.encoder.stream", "replacing", 2, *command, tmp_path / "out"):
        assert main([*command, str(tmp_path / "whole")]) == 0
    assert names(tmp_path) == ["corpus.jsonl", "out.partial", "whole"]
    with killed("vocable.search.collection", "_complete", 1, *command, tmp_path / "out"):
        pass
    assert names(tmp_path) == ["corpus.jsonl", "out.partial", "whole"]
    assert main([*command, str(tmp_path / "out")]) == 0
    assert names(tmp_path) == ["corpus.jsonl", "out", "whole"]
    assert names(tmp_path / "out") == names(tmp_path / "whole")
    found, expected = open_index(tmp_path / "out"), open_index(tmp_path / "whole")
    assert found.texts.equals(expected.texts)
    for one, other in ((found.postings, expected.postings), (found.bm25, expected.bm25)):
        assert one is not None
        assert other is not None
        for name, array in other.arrays().items():
            np.testing.assert_array_equal(one.arrays()[name], array)


def test_mine(backbones: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    texts = [json.loads(line)["text"] for line in corpus.read_text(encoding="utf-8").splitlines()]
    pairs = [{"query": f"{text[:15]}?", "positive": text} for text in texts * 10]  # two chunks
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    command = [
        "mine",
        str(backbones["bert"]),
        str(tmp_path / "pairs.jsonl"),
        "--corpus",
        str(corpus),
        "--with-scores",
        "-o",
    ]
    # Once while it encodes, once in the middle of the second chunk.
    with killed("vocable.encoder.stream", "write_vectors", 3, *command, tmp_path / "out"):
        assert main([*command, str(tmp_path / "whole")]) == 0
    assert names(tmp_path) == ["corpus.jsonl", "out.partial", "pairs.jsonl", "whole"]
    with killed("vocable.training.mine", "Miner._mined", 280, *command, tmp_path / "out"):
        pass
    assert names(tmp_path) == ["corpus.jsonl", "out.partial", "pairs.jsonl", "whole"]
    assert main([*command, str(tmp_path / "out")]) == 0
    assert names(tmp_path) == ["corpus.jsonl", "out", "pairs.jsonl", "whole"]
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_score(backbones: dict[str, Path], tmp_path: Path, toy_texts: list[str]) -> None:
    pairs = [{"query": text[:15], "positive": text, "negatives": [toy_texts[0]]} for text in toy_texts]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    command = ["teacher-scores", str(backbones["bert"]), str(tmp_path / "pairs.jsonl"), "-o"]
    with killed("vocable.training.mine", "_scored", 2, *command, tmp_path / "out"):
        assert main([*command, str(tmp_path / "whole")]) == 0
    assert names(tmp_path) == ["out.partial", "pairs.jsonl", "whole"]
    assert main([*command, str(tmp_path / "out")]) == 0
    assert names(tmp_path) == ["out", "pairs.jsonl", "whole"]
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_train(backbones: dict[str, Path], tmp_path: Path, toy_texts: list[str]) -> None:
    pairs = [{"query": text, "positive": f"chapter {i} {text}"} for i, text in enumerate(sorted(set(toy_texts))[:40])]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    training = {"steps": 8, "batch_size": 8, "save_every": 2, "log_every": 1, "learning_rate": 1e-3, "dropout": 0.1}
    recipe = {
        "model": str(backbones["bert"]),
        "data": {"examples": [str(tmp_path / "pairs.jsonl")]},
        "training": training | {"regularizers": REGULARIZERS},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    command = ["train", str(tmp_path / "recipe.yaml"), "-o"]
    # At the sixth step, when its model is written but its checkpoint is not yet whole.
    save = ("transformers.trainer", "Trainer._save_rng_state", 3)
    with killed(*save, *command, tmp_path / "out"):
        assert main([*command, str(tmp_path / "whole")]) == 0
    assert names(tmp_path) == ["out.partial", "pairs.jsonl", "recipe.yaml", "whole"]
    assert names(tmp_path / "out.partial" / "train")[-1] == "checkpoint-6"
    assert main([*command, str(tmp_path / "out")]) == 0
    assert names(tmp_path) == ["out", "pairs.jsonl", "recipe.yaml", "whole"]
    found, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "whole"))
    assert found.keys() == expected.keys()
    for name, weights in expected.items():
        np.testing.assert_array_equal(found[name], weights, err_msg=name)
    logs = [(tmp_path / name / "log.jsonl").read_text(encoding="utf-8").splitlines() for name in ("out", "whole")]
    steps = [[line["step"] for line in map(json.loads, log) if "loss" in line] for log in logs]
    assert steps == [list(range(1, 9))] * 2
