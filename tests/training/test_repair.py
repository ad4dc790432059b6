"""The repairs that the guard names: tried on the model as the run makes scores with it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from sentence_transformers import SparseEncoder
from transformers import AutoTokenizer

from tests.by_parts import calibrate, load_checkpoint, rescale
from vocable.adapt.rescale import choose_factor
from vocable.adapt.statistics import Start, measure_start
from vocable.encoder.load import load
from vocable.encoder.pooling import Activation
from vocable.tables import short
from vocable.training.batch_statistics import BatchStatistics, Collapse, CollapseKind
from vocable.training.guard import advise
from vocable.training.recipe import make_recipe

LOUD = BatchStatistics(
    query_terms=300.0,
    document_terms=300.0,
    empty_queries=0.0,
    empty_documents=0.0,
    score=9e5,
    loss=9e4,
    chance=math.log(8),
    terms=360,
    finite=True,
)


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
    said = advise(Collapse(CollapseKind.HOPELESS, 10, LOUD, LOUD), recipe, model, texts)
    choice = choose_factor(large, tokenizer, texts, pooling=pooling, activation=activation)
    usual = choose_factor(large, tokenizer, texts)
    assert rescaling(*choice) in said
    assert rescaling(*usual) not in said
    calibrated = calibrate(large, tokenizer, texts, activation_rate=0.05, pooling=pooling).mlm
    start = measure_start(calibrated, tokenizer, texts, pooling=pooling, activation=activation)
    assert start.score_max > 0
    assert ("vocable calibrate" in said) == start.stable


@pytest.mark.parametrize(("pooling", "option"), [("max", "0.05"), ("sum", "0.05"), ("cls", "0.05 --pooling cls")])
def test_texts_that_are_all_alike(toy_model: SparseEncoder, pooling: str, option: str) -> None:
    recipe = make_recipe(
        {"model": "m", "pooling": pooling, "data": {"examples": ["p.jsonl"]}, "training": {"steps": 200}}
    )
    alike = replace(LOUD, query_terms=9.0, document_terms=9.0, score=3.0, loss=math.log(8))
    said = advise(Collapse(CollapseKind.ALIKE, 112, alike, alike), recipe, toy_model, [])
    assert said.startswith("so it was at the first step: pre-train the model, at a lower rate")
    assert f"vocable calibrate m TEXTS --activation-rate {option} -o DIR`" in said
    later = advise(Collapse(CollapseKind.ALIKE, 112, alike, replace(alike, loss=1.0)), recipe, toy_model, [])
    assert later == "so it was not at the first step: lower training.learning_rate from 2e-05 to 2e-06"


def rescaling(factor: int, starts: dict[int, Start]) -> str:
    """What is said of a rescaling."""
    start, repair = starts[factor], f"rescale by {factor} (`rescale.factor: {factor}` in the recipe)"
    return f"{repair}, after which the loss starts at {short(start.loss)} (guessing 3.18)"
