"""Studies with a row that fails: the others go on, the table says why, and the same command tries the row again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from studies import runs, vectors
from studies.common import main, reproduce
from studies.plan import Selection, Study, make_plan
from tests.forks import start_two
from tests.studies.test_plan import NOWHERE, study_of
from vocable.errors import ArgumentError, CollapseError, DataError

COLUMNS = ["norm", "BEIR-13 nDCG@10"]
ROWS = ("roberta-k1", "roberta-k2", "roberta-k4")


def study_with(*rows: str) -> Study:
    """Rows of table 2 of Jang et al. 2026, measured on one collection."""
    study = study_of("mlm_head_rescaling")
    exhibit = replace(study.exhibits["table-2"], rows={"mlm-head-rescaling": " ".join(rows)}, columns=COLUMNS)
    return replace(study, groups={"BEIR-13": "nfcorpus"}, exhibits={"table-2": exhibit})


def failing(errors: dict[str, Exception], original: Callable[..., Any], tried: Counter[str]) -> Callable[..., Any]:
    """Return a training that fails in these rows."""

    def train(recipe: Any, output: str) -> Any:
        tried[Path(output).name] += 1
        if (error := errors.get(Path(output).name)) is not None:
            raise error
        return original(recipe, output)

    return train


@pytest.mark.slow
@pytest.mark.usefixtures("quiet_libraries")
def test_a_row_that_fails_leaves_the_others_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study, tried, output = study_with(*ROWS), Counter[str](), tmp_path / "out"
    command = ["--toy", "-o", str(output), "--json"]
    collapse, memory = CollapseError("step 3: no term is active"), RuntimeError("CUDA out of memory.\nTried to")
    original = runs.train
    monkeypatch.setattr(runs, "train", failing({"roberta-k1": collapse, "roberta-k2": memory}, original, tried))
    assert main(study, command) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed"]["table-2"] == {
        "roberta-k1": "step 3: no term is active",
        "roberta-k2": "RuntimeError: CUDA out of memory.",
    }
    cells = found["cells"]["table-2"]
    assert [len(cells[row]["BEIR-13 nDCG@10"]["ours"]) for row in ROWS] == [0, 0, 1]
    assert [len(cells[row]["norm"]["ours"]) for row in ROWS] == [1, 1, 1]  # measured before the training
    shown = str(reproduce(study, output, toy=True))
    assert "roberta-k1 is not complete: step 3: no term is active" in shown
    assert "not complete" in (output / "index.html").read_text(encoding="utf-8")
    assert tried == {"roberta-k1": 2, "roberta-k2": 2, "roberta-k4": 1}  # a repeated call tries what failed

    monkeypatch.setattr(runs, "train", failing({}, original, tried))
    assert main(study, command) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["failed"] == {}
    assert all(len(cell["ours"]) == 1 for row in again["cells"]["table-2"].values() for cell in row.values())
    assert again["cells"]["table-2"]["roberta-k4"] == cells["roberta-k4"]
    assert tried == {"roberta-k1": 3, "roberta-k2": 3, "roberta-k4": 1}


def test_results_are_written_after_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: dict[str, Any] = {"roberta-k2": KeyboardInterrupt()}
    monkeypatch.setattr(runs, "train", failing(killed, runs.train, Counter()))
    with pytest.raises(KeyboardInterrupt):
        reproduce(study_with(*ROWS), tmp_path / "out", toy=True)
    cells = json.loads((tmp_path / "out" / "results.json").read_text())["cells"]["table-2"]
    assert [len(cells[row]["BEIR-13 nDCG@10"]["ours"]) for row in ROWS] == [1, 0, 0]


def test_a_shared_pre_training_that_fails_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, calls = study_of("vocabulary_transfer"), Counter[str]()
    exhibit = replace(study.exhibits["table-5"], rows={"activation-rate": "active-10 active-20"})
    study = replace(study, groups={"BEIR": "NFC"}, exhibits={"table-5": exhibit})

    def fail(recipe: Any, work: Path) -> str:
        calls["pretrain"] += 1
        raise DataError("line 3 is damaged", source="texts.jsonl")

    monkeypatch.setattr(runs, "carry_out_stages", fail)
    found = reproduce(study, tmp_path / "out", toy=True)
    assert set(found.failed["table-5"]) == {"active-10", "active-20"}
    assert {*found.failed["table-5"].values()} == {"texts.jsonl: line 3 is damaged"}
    assert calls["pretrain"] == 1


@pytest.mark.slow
def test_rows_and_exhibits_are_chosen_and_left_out() -> None:
    study = study_of("mlm_head_rescaling")

    def rows(*only: str, skip: list[str] | None = None) -> dict[str, list[str]]:
        plan = make_plan(study, NOWHERE, Selection(only, skip or []))
        return {name: [row.label for row in some] for name, some in plan.rows.items()}

    assert rows("table-1", skip=["gte-mlm-k1", "*bert-k1"]) == {"table-1": ["roberta-k1", "ettin-k1"]}
    assert rows("table-1", "table-2", "roberta-k?") == {
        "table-1": ["roberta-k1"],
        "table-2": ["roberta-k1", "roberta-k2", "roberta-k4", "roberta-k8"],
    }
    everywhere = rows("ettin-k1")
    assert everywhere["figure-1"] == ["ettin-k1"]
    assert "figure-3" not in everywhere  # has no such row
    assert "table-2" not in rows(skip=["table-2"])
    for only, skip, facts in (
        (["etin-k1"], [], "only.*etin-k1.*ettin-k1"),
        ([], ["table-9"], "skip.*table-9.*table-2"),
        (["table-1"], ["*-k1"], "leave no row"),
    ):
        with pytest.raises(ArgumentError, match=facts):
            make_plan(study, NOWHERE, Selection(only, skip))


def work(rank: int, folder: Path) -> int:
    """Carry out three rows: one fails in training, in both processes, one in its measurement, in the first alone."""
    runs.train = failing({"roberta-k1": CollapseError("no term is active")}, runs.train, Counter())
    opened = vectors.load_dataset

    def load_dataset(source: str, **options: Any) -> Any:
        if any((folder / "out" / "models").glob("roberta-k2")) and not any((folder / "out/models").glob("*k4")):
            raise MemoryError("no room for the documents")
        return opened(source, **options)

    vectors.load_dataset = load_dataset
    return main(study_with(*ROWS), ["--toy", "-o", str(folder / "out")])


@pytest.mark.slow
def test_rows_fail_in_two_processes_and_the_others_go_on(tmp_path: Path) -> None:
    one, two = start_two(work, tmp_path)
    with one, two:
        said = [one.communicate(), two.communicate()]
        assert [one.wait(), two.wait()] == [1, 1], said
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["failed"]["table-2"] == {
        "roberta-k1": "no term is active",
        "roberta-k2": "MemoryError: no room for the documents",
    }
    assert len(found["cells"]["table-2"]["roberta-k4"]["BEIR-13 nDCG@10"]["ours"]) == 1
