"""Cells of a study after a change of a weight, a document, a judgment or a line: none is older than its inputs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from studies import measurements, runs
from studies.common import reproduce
from studies.measurements import quality
from studies.runs import Change, Request, Run
from studies.toys import Toys
from studies.vectors import Place
from tests.studies.test_failing_rows import study_with
from tests.studies.test_vectors import WORDS
from vocable.errors import RecipeError

QUALITY = ["nDCG@10", "L0_d"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(Toys(tmp_path / "toys").model("bert"))


def collection(folder: Path) -> Place:
    """A BEIR folder with a document for each of several words."""
    folder.mkdir(parents=True)
    texts = [f"{number} days of {word} and of the rain" for number, word in enumerate(WORDS)]
    for file, letter in (("corpus", "d"), ("queries", "q")):
        lines = [json.dumps({"_id": f"{letter}{number}", "text": text}) for number, text in enumerate(texts)]
        (folder / f"{file}.jsonl").write_text("\n".join(lines))
    judged = [f"q{number}\td{number}\t1" for number in range(len(texts))]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    return Place(f"beir:{folder}", folder.name)


def measured(output: Path, model: Path, *places: Place, dtype: str = "float32", change: Change | None = None) -> object:
    """Measure a model on datasets as a row of a study does."""
    run = Run("row", output, model=str(model), change=change, dtype=dtype)  # type: ignore[arg-type]
    run.wanted = {Request.of(quality("nDCG@10", place.corpus), place.corpus): QUALITY for place in places}
    by_name = {place.corpus: place for place in places}
    run.carry_out(by_name)
    return run.measured(by_name)


def shift(model: Path) -> None:
    """Lower the weights of every term but the first hundred."""
    path = model / "model.safetensors"
    weights = load_file(path)
    weights["cls.predictions.bias"][100:] -= 0.5
    save_file(weights, path, {"format": "pt"})


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))


@pytest.mark.parametrize("change", [None, "keep special terms"])
def test_a_changed_weight_is_measured_again(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture, change: Change | None
) -> None:
    place = collection(tmp_path / "weather")
    before = measured(tmp_path / "out", model, place, change=change)
    shift(model)
    with caplog.at_level(logging.WARNING):
        after = measured(tmp_path / "out", model, place, change=change)
    assert "row: the model has changed: measured again" in caplog.text
    assert after == measured(tmp_path / "new", model, place, change=change) != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("corpus", "3 days", "4 days of snow"),
        ("queries", "3 days", "4 days of snow"),
        ("qrels", "q3\td3\t1", "q3\td4\t1"),
    ],
)
def test_a_changed_dataset_is_measured_again_alone(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture, file: str, old: str, new: str
) -> None:
    first, second = (collection(tmp_path / name) for name in ("weather", "other"))
    before = measured(tmp_path / "out", model, first, second)
    path = next((tmp_path / "weather").glob(f"{file}.*"))
    rewrite(path, lambda text: text.replace(old, new))
    searched, search = [], measurements.evaluate_run
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(measurements, "evaluate_run", lambda *given, **more: searched.append(1) or search(*given, **more))
        after = measured(tmp_path / "out", model, first, second)
    assert searched == [1]
    assert "row: the dataset weather has changed: measured again" in caplog.text
    assert after == measured(tmp_path / "new", model, first, second) != before


def test_values_of_other_code_or_another_number_type_are_measured_again(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place, kept = collection(tmp_path / "weather"), tmp_path / "out" / "measured" / "row.json"
    true = measured(tmp_path / "out", model, place)
    neighbour = tmp_path / "out" / "measured" / "row-2-weather"
    neighbour.mkdir()

    def falsify() -> None:
        record = json.loads(kept.read_text())
        next(iter(record["values"].values()))["nDCG@10"] = 2.0
        kept.write_text(json.dumps(record))

    falsify()
    assert measured(tmp_path / "out", model, place) != true  # believed, as nothing has changed
    measured(tmp_path / "out", model, place, dtype="bfloat16")
    assert "measured in float32" in caplog.text
    falsify()
    monkeypatch.setattr(runs, "measuring_code", lambda: "other")
    assert measured(tmp_path / "out", model, place) == true
    assert "the code that measures has changed" in caplog.text
    assert neighbour.exists()


@pytest.mark.slow
def test_a_study_shows_no_cell_of_other_data(tmp_path: Path) -> None:
    study, output = study_with("roberta-k1", "roberta-k2"), tmp_path / "out"
    first = reproduce(study, output, toy=True)
    row = output / "models" / "roberta-k1"
    data = output / "toys/data/nfcorpus"
    documents = [json.loads(line)["_id"] for line in (data / "corpus.jsonl").read_text().splitlines()]
    rewrite(
        data / "qrels.tsv", lambda text: text.partition("\n")[0] + "".join(f"\nq0\t{name}\t1" for name in documents)
    )
    judged = reproduce(study, output, toy=True)
    assert not judged.failed
    assert judged.cells["table-2"]["roberta-k1"]["norm"] == first.cells["table-2"]["roberta-k1"]["norm"]
    assert judged.cells != first.cells
    weights = load_file(row / "model.safetensors")
    save_file({name: weight * 0.5 for name, weight in weights.items()}, row / "model.safetensors", {"format": "pt"})
    changed = reproduce(study, output, toy=True)
    assert changed.cells["table-2"]["roberta-k2"] == judged.cells["table-2"]["roberta-k2"]
    assert changed.cells["table-2"]["roberta-k1"] != judged.cells["table-2"]["roberta-k1"]
    [examples] = (output / "toys/data").glob("*.examples.jsonl")
    rewrite(examples, lambda text: text.replace("the", "a", 1))
    with pytest.raises(RecipeError) as raised:
        reproduce(study, output, toy=True)
    assert str(examples) in str(raised.value)
