"""Merged models against sums computed by hand, and models that do not fit each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.cli.command_line import done, refused
from vocable import encode, load, merge, provenance
from vocable.errors import ArgumentError, ModelError

TEXTS = ["the old fox reads books", "an owl in the rain"]


@pytest.fixture
def three(backbones: dict[str, Path], tmp_path: Path) -> list[str]:
    """A model and two models that differ from it as trained models do."""
    folders = [str(backbones["bert"])]
    for seed in (1, 2):
        model = load(backbones["bert"], device="cpu")
        torch.manual_seed(seed)
        for parameter in model.parameters():
            parameter.data += 0.01 * torch.randn_like(parameter)
        model.save_pretrained(str(tmp_path / f"trained-{seed}"))
        folders.append(str(tmp_path / f"trained-{seed}"))
    return folders


def test_means_and_task_vectors_are_the_sums_of_the_parameters(three: list[str]) -> None:
    base, *trained = (load(folder, device="cpu") for folder in three)
    before = [parameter.clone() for parameter in trained[0].parameters()]
    mean = merge(trained, weights=[3, 1])
    soup, added = merge(trained), merge(trained, weights=[1, 0.5], base=base)
    columns = ("cls.predictions.decoder.bias", "cls.predictions.bias")  # special tokens are silent in any model
    for name, origin in base.named_parameters():
        one, two = (dict(model.named_parameters())[name].data for model in trained)
        for model, expected in (
            (mean, 0.75 * one + 0.25 * two),
            (soup, (one + two) / 2),
            (added, origin + (one - origin) + 0.5 * (two - origin)),
        ):
            found = dict(model.named_parameters())[name].data
            rows = found > -100 if name.endswith(columns) else found == found
            torch.testing.assert_close(found[rows], expected[rows], rtol=1e-6, atol=1e-6)
    assert all(map(torch.equal, before, trained[0].parameters()))
    assert encode(mean, TEXTS).nnz > 0
    step = provenance(added)[-1]
    assert (step["models"], step["weights"], step["base"]) == (three[1:], [1.0, 0.5], three[0])
    assert provenance(mean)[-1]["weights"] == [0.75, 0.25]


def test_models_that_do_not_fit_are_refused(three: list[str], backbones: dict[str, Path]) -> None:
    one, two = (load(folder, device="cpu") for folder in three[:2])
    for other in ("roberta", "distilbert"):  # another vocabulary, another shape
        with pytest.raises(ModelError):
            merge([one, load(backbones[other], device="cpu")])
    with pytest.raises(ModelError):
        merge([one, load(three[1], pooling="sum", device="cpu")])
    for weights in ([1.0], [1.0, -1.0], [float("nan"), 1.0]):
        with pytest.raises(ArgumentError):
            merge([one, two], weights=weights)
    with pytest.raises(ArgumentError):
        merge([one])


@pytest.mark.usefixtures("quiet_libraries")
def test_the_command_writes_the_model_of_the_function(
    three: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "merged"
    values = json.loads(done(capsys, "merge", *three[1:], "-o", output, "--weights", "3,1", "--json"))
    assert values["weights"] == [0.75, 0.25]
    expected = merge([load(folder, device="cpu") for folder in three[1:]], weights=[3, 1])
    found = encode(load(output, device="cpu"), TEXTS, dtype="float32")
    assert (found != encode(expected, TEXTS, dtype="float32")).nnz == 0
    assert "already there" in done(capsys, "merge", *three[1:], "-o", output, "--weights", "3,1")
    assert "other settings (weights)" in refused(capsys, "merge", *three[1:], "-o", output, "--weights", "1,1")
    assert "two models" in refused(capsys, "merge", three[1], "-o", tmp_path / "one")
