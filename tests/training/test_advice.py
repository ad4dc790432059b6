"""The likely cause of a failed training: a setting is blamed only by its own figures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from sentence_transformers import SparseEncoder

from tests.toys import sound_batch
from vocable.training.advice import advise, at_the_start, describe, likely_cause
from vocable.training.detector import Collapse, CollapseKind, History
from vocable.training.recipe import Recipe
from vocable.training.recipe_files import make_recipe

FIRST = sound_batch(16)
RATE = "lower training.learning_rate from 5e-05 to 5e-06"
QUERIES, DOCUMENTS = (f"lower training.regularizers.{side} from 0.3 to 0.03" for side in ("query", "document"))


def recipe(temperature: float = 4.0, **training: Any) -> Recipe:
    losses = [{"name": "info_nce", "temperature": temperature}]
    keys = {"steps": 200, "learning_rate": 5e-5, "regularizers": {"query": 0.3, "document": 0.3}, "losses": losses}
    return make_recipe({"model": "m", "data": {"examples": ["p.jsonl"]}, "training": keys | training})


@pytest.mark.parametrize(
    ("query", "document", "movement", "named"),
    [
        (0.03, 0.02, 0.1, [RATE]),  # as measured at a hundred times the rate
        (0.34, 0.25, 0.001, [QUERIES, DOCUMENTS]),  # as measured with a hundred times the regularizers
        (0.03, 0.25, 0.001, [DOCUMENTS]),
        (0.25, 0.03, 0.001, [QUERIES]),
        (0.9, 0.9, 0.1, [RATE]),  # vectors that a high rate made dense cost much, too
        (0.03, 0.02, 0.001, ["no setting explains it", RATE]),
    ],
)
def test_a_setting_is_named_by_its_own_figures(
    query: float, document: float, movement: float, named: list[str]
) -> None:
    said = likely_cause(History({"query": query, "document": document}, movement), recipe())
    assert [text for text in ("no setting explains it", RATE, QUERIES, DOCUMENTS) if text in said] == named
    if movement == 0.1:
        assert said.startswith("a step moved the weights by up to 10.0%")
    elif named == [QUERIES, DOCUMENTS]:
        assert said.startswith("regularizers reached 34% (query) and 25% (document) of the loss")


def test_a_regularizer_of_both_sides_is_named() -> None:
    joint = recipe(regularizers={"query": 0, "document": 0, "joint": 0.2})
    said = likely_cause(History({"joint": 0.5}, 0.001), joint)
    assert said == "regularizers reached 50% (joint) of the loss: lower training.regularizers.joint from 0.2 to 0.02"


@pytest.mark.parametrize("kind", [CollapseKind.EMPTY, CollapseKind.SHRINKING, CollapseKind.LOST])
def test_lost_terms_and_a_lost_loss_have_the_same_causes(kind: CollapseKind, toy_model: SparseEncoder) -> None:
    lost = replace(FIRST, loss=2.77, query_terms=1.0, document_terms=2.0, empty_documents=0.5)
    for history, advice in ((History({"query": 0.02}, 0.1), RATE), (History({"query": 0.5}, 0.001), QUERIES)):
        collapse = Collapse(kind, 30, lost, FIRST, history)
        assert advice in advise(collapse, recipe(), toy_model, [])
    assert ("loss 2.77, as by guessing (2.77), and 1.20 at step 1" in describe(collapse, recipe())) == (
        kind is CollapseKind.LOST
    )


@pytest.mark.parametrize(
    ("first", "advice"), [(200.0, "raise training.regularizers.document from 0.3 to 3"), (25_000.0, "raise")]
)
def test_dense_vectors_want_a_regularizer_unless_the_rate_made_them(
    first: float, advice: str, toy_model: SparseEncoder
) -> None:
    dense = replace(FIRST, document_terms=25_000.0)
    start = replace(FIRST, document_terms=first)
    quiet, restless = (Collapse(CollapseKind.DENSE, 200, dense, start, History({}, m)) for m in (0.001, 0.1))
    assert "raise training.regularizers.document from 0.3 to 3" in advise(quiet, recipe(), toy_model, [])
    assert (RATE in advise(restless, recipe(), toy_model, [])) == (first == 200.0)


def test_a_sound_start_needs_no_line(toy_model: SparseEncoder) -> None:
    assert at_the_start(FIRST, recipe(), toy_model, []) is None
    assert at_the_start(replace(FIRST, loss=2.4 * math.log(16)), recipe(), toy_model, []) is None
    assert at_the_start(replace(FIRST, loss=math.nan, finite=False), recipe(), toy_model, []) is None
    assert at_the_start(replace(FIRST, loss=math.log(16)), recipe(), toy_model, []) is None  # an untrained head


@pytest.mark.parametrize(("temperature", "loss"), [(0.01, 300.0), (1000.0, math.log(16) * 1.0002)])
def test_a_temperature_that_does_not_suit_the_scores_is_told_at_the_start(
    temperature: float, loss: float, toy_model: SparseEncoder
) -> None:
    said = at_the_start(replace(FIRST, loss=loss), recipe(temperature), toy_model, [])
    assert said is not None
    assert f"the scores of a query differ by 8, and are divided by {temperature:g}: " in said
    assert said.endswith("`training.losses: [{name: info_nce, temperature: 6}]` in the recipe")  # 0.75 x 8


def test_dense_vectors_at_the_start_are_not_blamed_on_the_temperature(toy_model: SparseEncoder) -> None:
    large = replace(FIRST, query_terms=28_000.0, document_terms=29_100.0, loss=2592.0, spread=3e4, score=1e6)
    said = at_the_start(large, recipe(), toy_model, [])
    assert said is not None
    assert said.startswith("29,100 of 30,522 terms active in a document, loss 2592, the loss of chance is 2.77; ")
    assert "rescale by 32" in said  # 2,592 / (2.5 x 2.77) is 374, and 19.3 its root
    assert "temperature" not in said
