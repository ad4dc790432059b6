"""The outcome of a training on held-out pairs: which words are logged, and the figures in them."""

from __future__ import annotations

import logging

import pytest
from datasets import Dataset
from sentence_transformers import SparseEncoder

from vocable.training.detector import History
from vocable.training.outcome import HeldOutAnswers, measure_held_out, report
from vocable.training.recipe_files import make_recipe

RECIPE = make_recipe({"model": "m", "data": {"examples": ["p.jsonl"]}, "training": {"steps": 9, "learning_rate": 5e-3}})


def outcome(accuracy: float, queries: float, documents: float, pairs: int = 64) -> HeldOutAnswers:
    return HeldOutAnswers(pairs, accuracy, {"query": queries, "document": documents})


def said(start: HeldOutAnswers, end: HeldOutAnswers, caplog: pytest.LogCaptureFixture) -> tuple[bool, str]:
    """Return whether the outcome is a warning, and its text."""
    with caplog.at_level(logging.INFO):
        report(start, end, RECIPE, History({"query": 0.02}, 0.1))
    [record] = caplog.records
    return record.levelno == logging.WARNING, record.getMessage()


def test_a_gain_is_told_with_the_terms(caplog: pytest.LogCaptureFixture) -> None:
    is_warning, text = said(outcome(0.66, 47, 105), outcome(0.75, 46, 181), caplog)
    assert not is_warning
    assert text.startswith("75% of 64 held-out queries find their own document first, 66% before; ")
    assert text.endswith("; terms: 46 a query (47), 181 a document (105)")


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (outcome(0.66, 47, 105), outcome(0.58, 46, 100), "a worse model"),
        (outcome(0.94, 47, 105), outcome(0.92, 46, 100), None),  # a query of 64
        (outcome(0.66, 47, 105), outcome(0.66, 15, 100), "few terms are left"),
        (outcome(0.66, 47, 105), outcome(0.66, 40, 34), "few terms are left"),
        (outcome(0.66, 47, 105), outcome(0.66, 16, 36), None),  # more than a third
        (outcome(0.66, 2900, 9100), outcome(0.66, 40, 130), None),  # a new head begins dense
        (outcome(0.0, 47, 105), outcome(0.02, 10, 20), "no better than guessing"),
    ],
)
def test_a_loss_is_a_warning(
    start: HeldOutAnswers, end: HeldOutAnswers, words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    is_warning, text = said(start, end, caplog)
    assert is_warning == (words is not None)
    assert words is None or words in text
    assert ("lower training.learning_rate from 0.005 to 0.0005" in text) == (
        words in ("a worse model", "few terms are left")
    )


def test_fewer_terms_without_a_setting_to_blame_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A head that was too large: 203 terms of a document became 53, and the accuracy rose."""
    with caplog.at_level(logging.INFO):
        report(outcome(0.5, 66, 203), outcome(0.55, 21, 53), RECIPE, History({"query": 0.09}, 0.0004))
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_few_pairs_give_no_accuracy(caplog: pytest.LogCaptureFixture) -> None:
    assert said(HeldOutAnswers(7, 0.0, {}), HeldOutAnswers(7, 0.0, {}), caplog) == (
        False,
        "no accuracy: 7 examples are held out, and 8 are needed",
    )
    caplog.clear()
    report(HeldOutAnswers(0, 0.0, {}), HeldOutAnswers(0, 0.0, {}), RECIPE, History())
    assert caplog.messages == []


def test_held_out_queries_are_searched_among_all_positives(toy_model: SparseEncoder, texts: list[str]) -> None:
    toy_model.eval()
    pairs = Dataset.from_dict({"query": texts, "positive": [*texts[:-2], texts[0], texts[1]]})
    queries, documents = (toy_model.encode(list(pairs[side])).to_dense() for side in ("query", "positive"))
    found = measure_held_out(toy_model, pairs)
    hits = (queries @ documents.T).argmax(dim=1).tolist()
    assert found.accuracy == sum(hit == row for row, hit in enumerate(hits)) / len(texts)
    assert found.terms["document"] == pytest.approx(float((documents > 0).sum(dim=1).float().mean()))
    assert measure_held_out(toy_model, pairs.select(range(7))) == HeldOutAnswers(7, 0.0, {})
