"""Two processes against one: the same gradients and training, and everything said, measured and stopped once."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sentence_transformers import SparseEncoder
from torch.nn.parallel import DistributedDataParallel

from tests.forks import start_two
from vocable.cli import GRACE, main
from vocable.encoding.load import load
from vocable.errors import CollapseError, DataError, LostProcessError, RecipeError
from vocable.torch_models.fuse import fuse
from vocable.torch_models.provenance import provenance
from vocable.training import callbacks, distributed
from vocable.training.callbacks import set_dropout
from vocable.training.data import TrainingData
from vocable.training.objective import Monitor, make_objective
from vocable.training.recipe import TrainingSettings
from vocable.training.recipe_files import read_recipe
from vocable.training.train import train

REGULARIZERS = {
    "query": {"name": "l1", "weight": 0.01, "ramp": "constant"},
    "document": {"name": "df_flops", "weight": 0.1, "ramp": "constant"},
    "joint": {"weight": 0.02, "ramp": "constant"},
    "overlap": {"weight": 0.02, "ramp": "constant"},
}

PRETRAIN = [
    "pretrain",
    "--steps",
    "6",
    "--batch-size",
    "8",
    "--max-length",
    "32",
    "--save-every",
    "3",
    "--log-every",
    "1",
]
PRETRAIN += ["--learning-rate", "1e-4", "--dtype", "float32", "--held-out", "4"]


def gradients(name: str, columns: list[list[str]], micro_batch: int | None, wrap=lambda model: model) -> dict:
    """The gradients of the objective over columns of texts, by parameter."""
    model = fuse(SparseEncoder(name, device="cpu")).train()
    set_dropout(model, 0.0)
    settings = TrainingSettings(steps=9, batch_size=4, micro_batch=micro_batch, regularizers=REGULARIZERS)
    objective = make_objective(model, settings, TrainingData(None))
    objective.model = wrap(model)
    loss = objective([dict(model.preprocess(column)) for column in columns])
    torch.stack(list(loss.values())).sum().backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def work(rank: int, model: str, texts: list[list[str]], folder: Path) -> int:
    """Compute gradients, and train, pretrain and measure; what a process has to say is in a file of its rank."""
    distributed.join()
    for micro_batch in (None, 1):
        part = slice(0, 2) if rank == 0 else slice(2, 4)
        found = gradients(model, [column[part] for column in texts], micro_batch, DistributedDataParallel)
        if rank == 0:
            torch.save(found, folder / f"gradients-{micro_batch}.pt")
    status = main(["train", str(folder / "shared.yaml"), "-o", str(folder / "two")])
    status |= main([*PRETRAIN, model, str(folder / "texts.txt"), "-o", str(folder / "pretrained-two")])
    status |= main(["train", str(folder / "staged.yaml"), "-o", str(folder / "staged-two")])

    recipe, said, measured = folder / "stopped.yaml", [], []
    seen, evaluate_system = Monitor.see, callbacks.evaluate_system

    def spoil(who: int) -> None:  # one process alone sees figures of a collapse
        def see(self: Monitor, *arguments: Any) -> None:
            seen(self, *arguments)
            if rank == who:
                self.newest = replace(self.newest, loss=1e6)

        Monitor.see = see

    def counted(*arguments: Any, **options: Any) -> Any:
        evaluation = evaluate_system(*arguments, **options)
        measured.append(Path(arguments[1]).name)
        return evaluation

    def reason(*arguments: Any, **options: Any) -> str | None:
        try:
            train(*arguments, **options)
        except (CollapseError, DataError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    callbacks.evaluate_system = counted
    for who in (0, 0, 1):  # the second time it is the folder that says so
        spoil(who)
        said.append(reason(read_recipe(recipe), folder / f"spoiled-{who}"))
    Monitor.see = seen
    results = train(recipe, folder / "runs", variants=["two"], overrides=["training.steps=1"])
    missing = ["training.steps=1", "evaluation.datasets=[beir:nowhere]"]
    said.append(reason(recipe, folder / "missing", variants=["one"], overrides=missing))
    alone = {
        name: evaluate_system(load(folder / "runs" / name), f"beir:{folder / 'toy'}", ["nDCG@10"]).values
        for name in results
    }
    found = {"said": said, "alone": alone, "measured": measured, "results": results.to_json()["runs"]}
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    return status


def write_shared(folder: Path, model: Path, toy_texts: list[str]) -> Path:
    """A recipe with all that a batch shared by processes has to get right."""
    texts = sorted(set(toy_texts))[:40]
    for number in range(2):
        rows = [{"query": f"{number} {text}", "positive": f"chapter {i} {text}"} for i, text in enumerate(texts)]
        (folder / f"{number}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    values = {
        "model": str(model),
        "data": {"examples": [str(folder / f"{number}.jsonl") for number in range(2)]},
        "training": {
            "steps": 6,
            "batch_size": 8,
            "save_every": 4,
            "log_every": 1,
            "learning_rate": 1e-4,
            "dtype": "float32",  # bfloat16 is too coarse for weights to be compared
            "losses": [{"name": "info_nce", "queue": {"size": 20, "momentum": 0.5}}],
            "regularizers": REGULARIZERS,
        },
    }
    path = folder / "shared.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def write_stopped(folder: Path, model: Path, toy_texts: list[str]) -> None:
    """A recipe to be spoiled, with variants that are measured."""
    texts = sorted(set(toy_texts))[:40]
    lines = {
        "corpus.jsonl": [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(texts)],
        "queries.jsonl": [json.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(texts[:4])],
        "qrels.tsv": ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(4))],
    }
    (folder / "toy").mkdir()
    for name, content in lines.items():
        (folder / "toy" / name).write_text("\n".join(content), encoding="utf-8")
    values = {
        "model": str(model),
        "data_folder": str(folder),
        "data": {"examples": ["0.jsonl"]},
        "training": {"steps": 14, "batch_size": 4, "save_every": 4, "log_every": 1},
        "evaluation": {"datasets": ["beir:toy"], "every": None},
        "variants": {"one": {}, "two": {"set": {"training.learning_rate": 1e-3}}},
    }
    (folder / "stopped.yaml").write_text(json.dumps(values), encoding="utf-8")


def write_staged(folder: Path, model: Path, toy_texts: list[str]) -> Path:
    """A recipe with what comes before, in and after a pre-training."""
    (folder / "texts.txt").write_text("\n".join(sorted(set(toy_texts))), encoding="utf-8")
    learning = {"learning_rate": 1e-4, "dtype": "float32", "log_every": 1, "save_every": 2}
    values = {
        "model": str(model),
        "data_folder": str(folder),
        "rescale": {"factor": 2},
        "pretrain": {"texts": ["texts.txt"], "steps": 4, "batch_size": 8, "max_length": 32, **learning},
        "calibrate": {"texts": "texts.txt", "activation_rate": 0.1},
        "data": {"examples": ["0.jsonl"]},
        "training": {"steps": 2, "batch_size": 4, **learning},
    }
    path = folder / "staged.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def columns(toy_texts: list[str]) -> list[list[str]]:
    texts = sorted(set(toy_texts))[:12]
    return [texts[:4], texts[4:8], texts[8:]]


@pytest.fixture(scope="module")
def both(
    backbones: dict[str, Path],
    columns: list[list[str]],
    toy_texts: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[tuple[str, str]]]:
    """The folder with what two processes and one have made, and what each of the two has said."""
    folder = tmp_path_factory.mktemp("both")
    recipe = write_shared(folder, backbones["bert"], toy_texts)
    write_stopped(folder, backbones["bert"], toy_texts)
    staged = write_staged(folder, backbones["bert"], toy_texts)
    two = start_two(work, str(backbones["bert"]), columns, folder)
    texts = str(folder / "texts.txt")
    assert main(["train", str(recipe), "-o", str(folder / "one")]) == 0
    assert main([*PRETRAIN, str(backbones["bert"]), texts, "-o", str(folder / "pretrained-one")]) == 0
    assert main(["train", str(staged), "-o", str(folder / "staged-one")]) == 0
    said = [process.communicate() for process in two]
    assert [process.wait() for process in two] == [0, 0], said
    return folder, said


def log(folder: Path, name: str = "log.jsonl") -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def test_two_processes_do_what_one_does(
    backbones: dict[str, Path], columns: list[list[str]], both: tuple[Path, list[tuple[str, str]]]
) -> None:
    folder, said = both
    written = f"written: {folder / 'two'}\nnext: vocable evaluate {folder / 'two'} --dataset SOURCE\n"
    written += "pre-trained for 6 steps\n{}\n"
    written += f"written: {folder / 'pretrained-two'}\n"
    written += f"next: vocable calibrate {folder / 'pretrained-two'} TEXTS -o DIR --activation-rate 0.05\n"
    written += f"written: {folder / 'staged-two'}\nnext: vocable evaluate {folder / 'staged-two'} --dataset SOURCE\n"
    [guessed] = [line for line in said[0][0].splitlines() if line.startswith("held-out tokens, all (")]
    assert [out for out, _ in said] == [written.format(guessed), ""]
    assert said[0][1] != ""
    of_training = re.compile(r"held.out|: step 1: | minutes: ")  # the outcome, the first step, and the last line
    assert [line for line in said[0][1].splitlines() if not of_training.search(line)] == []
    assert said[1][1] == ""
    whole = gradients(str(backbones["bert"]), columns, None)
    largest = max(float(gradient.abs().max()) for gradient in whole.values())
    for micro_batch in (None, 1):
        found = torch.load(folder / f"gradients-{micro_batch}.pt")
        assert found.keys() == whole.keys()
        for name, gradient in whole.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6 * largest, msg=name)
    one, two = log(folder / "one"), log(folder / "two")
    assert [line["step"] for line in two] == [line["step"] for line in one] == [1, 2, 3, 4, 5, 6]
    for ours, theirs in zip(two, one, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=2e-4)
    weights, expected = (load_file(folder / name / "model.safetensors") for name in ("two", "one"))
    for name, values in expected.items():
        np.testing.assert_allclose(weights[name], values, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("kind", ["pretrained", "staged"])
def test_two_processes_pretrain_what_one_does(kind: str, both: tuple[Path, list[tuple[str, str]]]) -> None:
    """Alone, and as a stage of a recipe between those that the first process carries out."""
    folder, _ = both
    one, two = (folder / f"{kind}-{number}" for number in ("one", "two"))
    found, expected = (log(place, "pretrain.jsonl") for place in (two, one))
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    assert len(expected) >= 4
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=2e-4)
    made, same = (load_file(place / "model.safetensors") for place in (two, one))
    assert made.keys() == same.keys()
    for name, values in same.items():
        np.testing.assert_allclose(made[name], values, atol=3e-4, err_msg=name)
    if kind == "staged":
        assert [step["verb"] for step in provenance(load(two))] == ["rescale", "pretrain", "calibrate", "train"]


def test_two_processes_stop_together_and_measure_once(both: tuple[Path, list[tuple[str, str]]]) -> None:
    folder, _ = both
    first, second = (json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2))
    assert first["said"] == second["said"]
    stopped, again, unseen, missing = first["said"]
    assert stopped.startswith("CollapseError: stopped at step 10, hopeless scores: ")
    assert again == stopped
    assert not (folder / "spoiled-0").exists()
    assert unseen is None  # what the second alone sees is not so
    assert load(folder / "spoiled-1")
    assert missing.startswith("DataError: ")
    assert "nowhere" in missing
    # Trained by both, measured by the first, known to both.
    assert (first["measured"], second["measured"]) == (["toy"], [])
    assert first["results"] == second["results"]
    assert first["results"] == json.loads((folder / "runs" / "results.json").read_text(encoding="utf-8"))
    assert first["results"]["two"]["measured"]["nDCG@10"] == pytest.approx(second["alone"]["two"]["nDCG@10"])


def lose(rank: int, what: str) -> int:
    """Wait for the other process, which hangs, has ended, or comes late."""
    distributed.WAIT_FOR_STEP = timedelta(seconds=2)
    distributed.join()
    if rank == 1:
        time.sleep({"hangs": 60, "ends": 0, "is late": 4}[what])
        if what != "is late":
            os._exit(0)
    try:
        with distributed.naming_lost_processes():
            distributed.wait() if what == "is late" else distributed.weighted_by_rows(torch.ones(()), 1)
        print("met")
    except LostProcessError as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)


def test_a_process_that_is_lost_ends_the_others_with_the_reason() -> None:
    with ExitStack() as running:
        pairs = {what: start_two(lose, what) for what in ("hangs", "ends", "is late")}
        for process in chain(*pairs.values()):
            running.enter_context(process)
        said = {what: first.stdout.read() for what, (first, _) in pairs.items()}
    assert said.pop("is late") == "met\n"
    assert all(one.startswith("lost contact with another training process") for one in said.values()), said


def test_a_batch_that_cannot_be_shared_is_refused(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_shared(tmp_path, backbones["bert"], toy_texts)
    monkeypatch.setattr(distributed, "count", lambda: 3)
    with pytest.raises(RecipeError, match=r"batch_size: 8 .*3 "):
        train(read_recipe(recipe), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.jsonl", "1.jsonl", "shared.yaml"]


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
