from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from tests.by_parts import load_checkpoint, rescale
from tests.conftest import some_pairs
from vocable.adapt import rescale as rescaling
from vocable.adapt.rescale import FACTORS, choose_factor
from vocable.adapt.statistics import RULES, Start, measure_start
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.torch_models.output_vocabulary import NEVER

LARGE = 16  # what a toy head, which is calm as it is, is multiplied by


@pytest.mark.slow
@pytest.mark.parametrize(("name", "factor"), some_pairs([2, 3, 0.125]))
def test_the_matrix_is_divided_and_nothing_else(backbones: dict[str, Path], name: str, factor: float) -> None:
    mlm, _ = load_checkpoint(backbones[name])
    before = {name: value.clone() for name, value in mlm.state_dict().items()}
    found = rescale(mlm, factor)
    assert type(found) is type(mlm)
    assert all(torch.equal(value, before[name]) for name, value in mlm.state_dict().items())
    changed = {name for name, value in found.state_dict().items() if not torch.equal(value, before[name])}
    matrix = mlm.get_output_embeddings().weight
    assert changed == {name for name, value in mlm.state_dict().items() if value.data_ptr() == matrix.data_ptr()}
    decoder = found.get_output_embeddings()
    assert torch.equal(decoder.weight, matrix / factor)
    assert torch.equal(decoder.bias, mlm.get_output_embeddings().bias)
    assert decoder.weight is found.get_input_embeddings().weight


def test_ties_survive_saving(backbone: Path, tmp_path: Path) -> None:
    mlm, _ = load_checkpoint(backbone)
    found = rescale(mlm, 4)
    found.save_pretrained(tmp_path)
    saved = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert saved.get_output_embeddings().weight is saved.get_input_embeddings().weight
    ids = torch.tensor([[2, 9, 11, 3]])
    assert torch.equal(saved.eval()(input_ids=ids).logits, found.eval()(input_ids=ids).logits)


def test_of_an_untied_model_the_decoder_alone_is_divided(backbones: dict[str, Path]) -> None:
    mlm, _ = load_checkpoint(backbones["bert"])
    decoder = mlm.get_output_embeddings()
    decoder.weight = torch.nn.Parameter(decoder.weight.detach().clone())
    mlm.eval()
    found = rescale(mlm, 2)
    assert torch.equal(found.get_input_embeddings().weight, mlm.get_input_embeddings().weight)
    assert torch.equal(found.get_output_embeddings().weight, decoder.weight / 2)
    ids = torch.tensor([[2, 9, 11, 3]])
    before, after = (model(input_ids=ids).logits - decoder.bias for model in (mlm, found))
    ordinary = decoder.bias > NEVER  # others have no digits left
    torch.testing.assert_close(after[..., ordinary], before[..., ordinary] / 2)


def test_dividing_and_multiplying_again_gives_the_model_back(backbones: dict[str, Path]) -> None:
    mlm, _ = load_checkpoint(backbones["modernbert"])
    again = rescale(rescale(mlm, 8), 1 / 8)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in mlm.state_dict().items())


@pytest.mark.parametrize("name", ["bert", "albert", "modernbert"])
def test_auto_leaves_a_calm_head_alone_and_mends_a_large_one(
    backbones: dict[str, Path], texts: list[str], name: str
) -> None:
    mlm, tokenizer = load_checkpoint(backbones[name])
    assert choose_factor(mlm, tokenizer, texts)[0] == 1
    large = rescale(mlm, 1 / LARGE)
    factor, starts = choose_factor(large, tokenizer, texts)
    first = starts[1]
    assert list(starts) == list(FACTORS[: 1 + FACTORS.index(factor)])  # none after the choice
    assert first.loss > 10 * first.chance
    assert factor in (8, 16)
    assert starts[factor].loss <= RULES["unstable"].threshold * first.chance
    assert starts[factor].pooled_rate >= RULES["too_sparse"].threshold
    assert starts[factor // 2].loss > RULES["unstable"].threshold * first.chance  # no smaller one would have done
    mended = rescale(large, "auto", tokenizer=tokenizer, texts=texts)
    expected = rescale(large, factor)
    assert torch.equal(mended.get_output_embeddings().weight, expected.get_output_embeddings().weight)


def test_a_known_start_is_not_measured_again(
    backbones: dict[str, Path], texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    large = rescale(mlm, 1 / LARGE)
    factor, starts = choose_factor(large, tokenizer, texts)
    measured: list[int] = []

    def counted(model: Any, tokenizer: Any, texts: list[str], **options: Any) -> Start:
        measured.append(len(texts))
        return measure_start(model, tokenizer, texts, **options)

    monkeypatch.setattr("vocable.adapt.rescale.measure_start", counted)
    assert choose_factor(large, tokenizer, texts, starts[1]) == (factor, starts)
    assert len(measured) == len(starts) - 1


def test_the_trials_are_those_of_models_really_rescaled(backbones: dict[str, Path], texts: list[str]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["distilbert"])
    large = rescale(mlm, 1 / LARGE)
    weight = large.get_output_embeddings().weight.detach().clone()
    _, starts = choose_factor(large, tokenizer, texts)
    assert len(starts) > 2
    assert starts == {k: measure_start(rescale(large, k), tokenizer, texts) for k in starts}
    assert torch.equal(large.get_output_embeddings().weight, weight)


START = Start(
    pairs=64,
    batch=32,
    token_rate=0.05,
    pooled_rate=0.2,
    terms_mean=6000,
    terms_p99=9000,
    positive_mean=50,
    score_mean=40,
    score_std=5,
    score_max=70,
    accuracy=0.5,
    loss=3.0,
    chance=3.5,
)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"loss": (8, 4, 3, 2)}, 1),  # calm as it is, although larger factors have a smaller loss
        ({"loss": (900, 300, 8, 3)}, 4),  # the smallest calm one
        ({"loss": (900, 300, 60, 3.5), "pooled_rate": (0.9, 0.5, 0.1, 0.0)}, 4),  # 8 is dead: its loss is chance
        ({"loss": (900, 300, 60, 3.5), "accuracy": (0.6, 0.58, 0.55, 0.05)}, 4),  # 8 drowns the words
        ({"loss": (900, 300, 200, 250)}, 4),  # none is calm: the least loss
        ({"loss": (3.5, 3.5, 3.5, 3.5), "pooled_rate": (0.001, 0, 0, 0)}, 1),  # starved already
        ({"loss": (900, 3.5, 3.5, 3.5), "pooled_rate": (0.2, 0, 0, 0)}, 1),  # nothing but 1 lives
    ],
)
def test_the_best_factor_follows_the_rule(
    figures: dict[str, tuple[float, ...]], expected: int, backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [dict(zip(figures, row, strict=True)) for row in zip(*figures.values(), strict=True)]
    starts = iter([replace(START, **column) for column in columns])
    monkeypatch.setattr(rescaling, "measure_start", lambda *_, **options: next(starts))
    monkeypatch.setattr(rescaling, "FACTORS", (1, 2, 4, 8))
    assert choose_factor(*load_checkpoint(backbones["bert"]), [])[0] == expected


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_impossible_factors_are_refused(backbones: dict[str, Path], factor: float) -> None:
    with pytest.raises(ArgumentError):
        rescale(load_checkpoint(backbones["bert"])[0], factor)


@pytest.mark.parametrize("factor", [1e300, 1e-300])
def test_factors_that_leave_no_numbers_are_refused(backbones: dict[str, Path], factor: float) -> None:
    with pytest.raises(ArgumentError):
        rescale(load_checkpoint(backbones["bert"])[0], factor)


def test_auto_needs_something_to_measure_on(backbones: dict[str, Path]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    with pytest.raises(ArgumentError):
        rescale(mlm, "auto")
    with pytest.raises(DataError):
        rescale(mlm, "auto", tokenizer=tokenizer, texts=["", " "])


def test_a_model_without_a_head_is_refused(backbones: dict[str, Path]) -> None:
    mlm, _ = load_checkpoint(backbones["bert"])
    with pytest.raises(ModelError):
        rescale(copy.deepcopy(mlm).base_model, 2)
