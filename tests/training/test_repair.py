"""The repairs that the guard names: tried on the model as the run makes scores with it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from vocable.adapt.calibrate import calibrate
from vocable.adapt.checkpoint import load_checkpoint
from vocable.adapt.rescale import Choice, choose_factor, is_calm, rescale
from vocable.adapt.start import measure_start
from vocable.encoder.fuse import ONE_ROW
from vocable.encoder.head import Activation
from vocable.encoder.load import load
from vocable.evaluation.tables import short
from vocable.training.collapse import Collapse, Kind
from vocable.training.monitor import Signs
from vocable.training.recipe import make_recipe
from vocable.training.repair import advise

LOUD = Signs(300.0, 300.0, 0.0, 0.0, 9e5, 9e4, math.log(8), 360, True)


@pytest.mark.parametrize(
    ("pooling", "activation"), [("sum", "relu"), ("cls", "relu"), ("mean-before-head", "relu"), ("max", "log1p_relu")]
)
def test_repairs_are_tried_as_the_run_pools(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, pooling: str, activation: Activation
) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    large = rescale(mlm, 1 / 16)
    large.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(backbones["roberta"]).save_pretrained(tmp_path)
    texts = [text for text in sorted(set(toy_texts)) if len(text.split()) >= 8][:24]
    recipe = make_recipe(
        {
            "model": str(tmp_path),
            "pooling": pooling,
            "activation": activation,
            "data": {"examples": ["pairs.jsonl"]},
            "training": {"steps": 9},
        }
    )
    model = load(tmp_path, pooling=recipe.pooling, activation=recipe.activation)
    said = advise(Collapse(Kind.HOPELESS, 10, LOUD, LOUD), recipe, model, texts)
    choice = choose_factor(large, tokenizer, texts, pooling=pooling, activation=activation)
    usual = choose_factor(large, tokenizer, texts)
    assert rescaling(choice) in said
    assert rescaling(usual) not in said
    calibrated = calibrate(large, tokenizer, texts, activation_rate=0.05).mlm
    start = measure_start(calibrated, tokenizer, texts, pooling=pooling, activation=activation)
    dead = start.score_max == 0  # no term is left of one row where 5 % are left of the largest of many
    assert dead == (pooling in ONE_ROW)
    assert ("vocable calibrate" in said) == (is_calm(start) and not dead)


def rescaling(choice: Choice) -> str:
    """What is said of a rescaling."""
    start = next(trial.start for trial in choice.trials if trial.factor == choice.factor)
    repair = f"rescale by {choice.factor} (`rescale.factor: {choice.factor}` in the recipe)"
    return f"{repair}, after which the loss starts at {short(start.loss)} (guessing 3.18)"
