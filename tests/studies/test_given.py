"""Models in place of those of a study: `--model` for rows and for checkpoints, teachers too."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.given import checkpoints_of, with_given
from studies.plan import Selection, make_plan
from studies.vocabulary_transfer.__main__ import STUDY as TRANSFER
from vocable.errors import ArgumentError
from vocable.training.recipe import Recipe

SAP = ["head-only-sap", "head-only-sap-head", "head-only-sap-140k", "head-only-sap-head-140k"]


def recipe() -> Recipe:
    training = {"steps": 1, "teacher": {"models": ["dense"]}, "losses": [{"name": "kl"}]}
    values = {"model": "base", "data": {"examples": ["pairs"]}, "training": training, "needs": ["a GPU"]}
    pretrain = {"texts": ["t"], "steps": 1, "teacher": "sparse"}
    return Recipe.model_validate({**values, "transfer": {"target": "base"}, "pretrain": pretrain})


def test_every_checkpoint_of_a_recipe_is_replaced_wherever_it_stands() -> None:
    assert list(checkpoints_of(recipe())) == ["base", "base", "sparse", "dense", "sparse"]
    changed = with_given(recipe(), {"base": "b", "dense": "d", "sparse": "s", "other": "o"})
    assert list(checkpoints_of(changed)) == ["b", "b", "s", "d", "s"]
    assert changed.needs == ["a GPU"]
    assert changed.data == recipe().data


@pytest.mark.slow
def test_a_given_checkpoint_reaches_rows_and_teachers(tmp_path: Path) -> None:
    selection = Selection(["table-2", "table-6", "sap"])
    plan = make_plan(TRANSFER, tmp_path, selection)
    assert f"for SPLADE-v3, {', '.join(SAP)}: naver/splade-v3 is gated" in " ".join(map(str, plan.table()))
    given = make_plan(TRANSFER, tmp_path, selection, models=["naver/splade-v3=conv", "TAS-B=tasb", "bert=my-bert"])
    assert given.runs["SPLADE-v3"].start == "conv"
    assert given.runs["bert"].start == "my-bert"
    recipes = [run.recipe for name, run in given.runs.items() if name in SAP]
    assert [recipe.pretrain.teacher for recipe in recipes if recipe is not None] == ["conv"] * 4
    assert "is gated" not in str(given)
    assert given.runs.keys() == plan.runs.keys()


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["SPLADE-v9=x", "SPLADE-v3", "=x", "naver/splade-v9=x"])
def test_a_name_of_no_row_and_no_checkpoint_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ArgumentError):
        make_plan(TRANSFER, tmp_path, models=[wrong])
