"""Commands whose settings have the digest of a model: an equal call shows the first result, a changed file is seen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.cli.command_line import done, refused
from vocable.cli.repeated import once
from vocable.encoding.hub import ADAPTERS
from vocable.encoding.load import load

COMMANDS = {
    "mine": "mine MODEL pairs.jsonl -o out --negatives 1 --from-rank 1 --device cpu",
    "teacher_scores": "teacher-scores MODEL pairs.jsonl -o out --device cpu",
    "measure_wackiness": "measure-wackiness MODEL bm25+rm3 --corpus beir:data --queries beir:data -o out --device cpu",
    "ablate": "ablate MODEL beir:data -o out --thresholds 1 --draws 2 --device cpu",
}
THERE = "already there, made with the same settings: out\n"


@pytest.fixture(params=COMMANDS)
def command(
    request: pytest.FixtureRequest, model: str, beir: Path, toy_texts: list[str], tmp_path: Path, monkeypatch: Any
) -> list[str]:
    """A command in a folder with its inputs."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model, "own-model")
    shutil.copytree(beir, "data")
    texts = sorted(set(toy_texts))[:20]
    pairs = [{"query": text[:20], "positive": text, "negatives": [texts[0]]} for text in texts[1:]]
    Path("pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    return COMMANDS[request.param].replace("MODEL", "own-model").split()


def counted_loads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows with each model that a command loads."""
    loads: list[object] = []

    def counted(*names: object, **options: Any) -> object:
        loads.append(names)
        return load(*names, **options)  # type: ignore[arg-type]

    for place in ("vocable.load", "vocable.encoding.load.load", "vocable.training.teachers.load"):
        monkeypatch.setattr(place, counted)
    return loads


def test_an_equal_call_shows_the_first_result_without_the_model(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = counted_loads(monkeypatch)
    first = done(capsys, *command)
    assert len(loads) == 1
    again = done(capsys, *command)
    assert again == first.replace("written: out\n", THERE)
    # Another device changes no result.
    position = command.index("--device")
    assert done(capsys, *command[:position]) == again
    assert len(loads) == 1


def test_changed_files_are_seen(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done(capsys, *command)
    loads = counted_loads(monkeypatch)
    # A file of the model's folder that changes no vector: the model is loaded once more, and then known.
    Path("own-model/README.md").write_text("# A card", encoding="utf-8")
    assert done(capsys, *command).endswith(THERE)
    assert done(capsys, *command).endswith(THERE)
    assert len(loads) == 1
    # Weights, and then an input.
    weights = Path("own-model/model.safetensors")
    tensors = load_file(weights)
    kept = weights.read_bytes()
    bias = next(name for name in sorted(tensors) if name.endswith("bias") and tensors[name].ndim == 1)
    save_file({**tensors, bias: tensors[bias] + 0.01}, weights, {"format": "pt"})
    assert "out was made with other settings" in refused(capsys, *command)
    weights.write_bytes(kept)
    data = Path("pairs.jsonl" if "pairs.jsonl" in command else "data/corpus.jsonl")
    data.write_text(data.read_text(encoding="utf-8").replace(" the ", " an ", 1), encoding="utf-8")
    assert "out was made from inputs that have changed since then" in refused(capsys, *command)


def test_a_model_with_files_elsewhere_is_always_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("vocable.cli.repeated.note_call", lambda *given: calls.append({"noted": given}))
    run = once("ablate", dict, lambda **given: calls.append(given))  # type: ignore[arg-type,return-value]
    (tmp_path / ADAPTERS[0]).write_text("{}", encoding="utf-8")
    monkeypatch.setattr("vocable.cli.repeated.locate", lambda name: name)
    for name in (str(tmp_path), "somebody/model"):
        run(model=name, datasets=["pydocs:"], output="out")
    assert [call["model"] for call in calls] == [str(tmp_path), "somebody/model"]
