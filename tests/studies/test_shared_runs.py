"""Pre-trainings that runs of a study share: as one that is read at several steps, or before other activations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import vocable as vo
from studies import runs
from studies.common import reproduce
from studies.plan import Selection, Study, make_plan
from studies.toys import Toys
from tests.studies.test_plan import NOWHERE, study_of
from tests.toys import killed
from vocable.torch_models.fuse import parts
from vocable.training.stages import carry_out_stages


def longer(*rows: str) -> Study:
    """The rows of table 7 of Kim et al. 2026, whose pre-training is one of 2.9 million steps."""
    study = study_of("esplade")
    exhibit = replace(study.exhibits["table-7"], rows={"esplade": " ".join(rows)}, columns=["EMLM doc-score-avg"])
    return replace(study, exhibits={"table-7": exhibit})


@pytest.mark.slow
def test_checkpoints_of_a_pre_training_are_those_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ("indep-uniq-lr-h", "indep-uniq-lr-h-1.2m", "indep-uniq-lr-h-2.9m")
    begun, original = [], runs.carry_out_stages

    def counted(recipe: object, work: Path) -> str:
        begun.append(sorted(path.name for path in (work / "pretrain").glob("checkpoint-*")))
        return original(recipe, work)

    monkeypatch.setattr(runs, "carry_out_stages", counted)
    found = reproduce(longer(*rows), tmp_path / "out", toy=True)
    assert not found.failed
    assert begun == [[], ["checkpoint-2"], ["checkpoint-4"]]
    plan = make_plan(longer(*rows), tmp_path / "out", toys=Toys(tmp_path / "out" / "toys"))
    for row, steps in zip(rows, (2, 4, 8), strict=True):
        recipe = plan.runs[row].recipe
        assert recipe.pretrain.steps == steps
        alone = carry_out_stages(recipe.model_copy(update={"activation": None}), tmp_path / row)
        weights = [parts(vo.load(place)).mlm.state_dict() for place in (alone, str(tmp_path / "out" / "adapted" / row))]
        assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
        log = (tmp_path / "out" / "adapted" / row / "pretrain.jsonl").read_text().splitlines()
        assert sum('"held_out_accuracy"' in line for line in log) == steps // 2


def test_a_pre_training_that_is_killed_after_its_checkpoint_is_kept_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, finish = longer("indep-uniq-lr-h", "indep-uniq-lr-h-1.2m"), runs.finish

    monkeypatch.setattr(runs, "finish", killed)
    with pytest.raises(KeyboardInterrupt):
        reproduce(study, tmp_path / "out", toy=True)
    assert (tmp_path / "out" / "checkpoints" / "indep-uniq-lr-h").exists()
    monkeypatch.setattr(runs, "finish", finish)
    found = reproduce(study, tmp_path / "out", toy=True)
    assert not found.failed
    assert all(cell.ours for row in found.cells["table-7"].values() for cell in row.values())


@pytest.mark.slow
def test_the_cost_of_a_continued_pre_training_is_that_of_its_own_steps() -> None:
    plan = make_plan(study_of("esplade"), NOWHERE, Selection(["table-7"]))
    steps = {name: cost.steps for name, cost in plan.costs().items()}
    assert list(steps.values()) == [600_000, 600_000, 1_700_000]
    alone = make_plan(study_of("esplade"), NOWHERE, Selection(["indep-uniq-lr-h-2.9m"]))
    assert [cost.steps for cost in alone.costs().values()] == [2_900_000]


@pytest.mark.slow
def test_an_activation_needs_no_pre_training_of_its_own() -> None:
    plan = make_plan(study_of("vocabulary_transfer"), NOWHERE)
    assert plan.runs["vt-idf"].adapted == plan.runs["vt-idf-l0"].adapted == plan.runs["vt"].adapted
    assert plan.runs["vt-idf-l0"].recipe.activation == "log1p_relu"
