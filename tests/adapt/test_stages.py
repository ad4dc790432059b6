"""The registry of stages: its order, its sources, and steps that print as the command line does."""

from __future__ import annotations

from pathlib import Path

import pytest

import vocable as vo
from vocable.adapt.stages import STAGES, RescaleSettings, stage


def test_stages_come_in_the_order_of_the_papers() -> None:
    names = ["lowercase", "transfer", "expand", "rescale", "pretrain", "calibrate", "queries"]
    assert [one.name for one in STAGES] == names


def test_a_stage_names_the_sources_that_its_settings_have() -> None:
    assert stage("rescale").texts(RescaleSettings(factor="auto", texts="pydocs:")) == ["pydocs:"]
    assert stage("rescale").texts(RescaleSettings(factor=2)) == []
    assert stage("lowercase").texts(True) == []


@pytest.mark.slow
def test_a_step_prints_itself_after_the_model_was_saved(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    model = vo.load(str(backbones["bert"]))
    rescaled = vo.rescale(model, "auto", texts=toy_texts)
    step = vo.provenance(rescaled)[-1]
    assert f"> {step['factor']}" in str(step)
    assert len(str(step).splitlines()) >= 2 + len(step["trials"])
    assert step.to_json()["factor"] == step["factor"] > 0
    moved = vo.provenance(vo.transfer(model, str(backbones["roberta"])))[-1]
    assert f"{moved['overlap']:.1%}" in str(moved)
    shifted = vo.provenance(vo.calibrate(model, toy_texts, shift=-0.5))[-1]
    assert "0.500" in str(shifted).splitlines()[0]
