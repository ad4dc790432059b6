"""Queries weighed by IDF in training: as a search would, source by source; the losses see it, the penalties do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from scipy.special import logsumexp
from sentence_transformers import SparseEncoder

from vocable.encoder.idf import idf
from vocable.errors import RecipeError
from vocable.training.batch_statistics import Monitor
from vocable.training.callbacks import IDF_FILE, MarkComplete, set_dropout
from vocable.training.data import TrainingData
from vocable.training.objective import MEMORY, QueryIdf, make_objective
from vocable.training.recipe import make_recipe
from vocable.training.settings import TrainingSettings
from vocable.training.train import train

SOURCES = np.array([0, 0, 0, 1, 1, 1])
V = 7


def test_each_source_is_a_collection_of_its_own() -> None:
    rng = np.random.default_rng(0)
    weigh = QueryIdf(0.75, SOURCES, V)
    counts = {source: (np.zeros(V), 0.0) for source in (0, 1)}
    for label in (0, 4, 1, 2, 3):
        queries, documents = (np.maximum(rng.normal(size=(size, V)), 0) for size in (3, 6))
        having, count = counts[SOURCES[label]]
        counts[SOURCES[label]] = having * MEMORY + (documents > 0).sum(axis=0), count * MEMORY + 6
        having, count = counts[SOURCES[label]]
        expected = np.log(1 + (count - having + 0.5) / (having + 0.5)) ** 0.75
        labels = torch.tensor([label])
        found = weigh(torch.tensor(queries).float(), torch.tensor(documents).float(), labels, learn=True).numpy()
        np.testing.assert_allclose(found / found[0], expected / expected[0], rtol=1e-5)
        assert (queries * found).sum() == pytest.approx(queries.sum(), rel=1e-5)  # scores keep their scale


def test_without_learning_nothing_is_counted() -> None:
    weigh = QueryIdf(1.0, SOURCES, V)
    documents = torch.eye(V)
    learned = weigh(torch.ones(2, V), documents, torch.tensor([0]), learn=True)
    np.testing.assert_allclose(weigh(torch.ones(2, V), documents * 0, torch.tensor([0]), learn=False), learned)


def test_it_is_the_idf_of_a_search() -> None:
    documents = torch.tensor([[1.0, 0.0, 2.0], [1.0, 0.0, 0.0], [3.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    found = QueryIdf(1.0, SOURCES, 3)(torch.ones(1, 3), documents, torch.tensor([0]), learn=True).numpy()
    expected = idf(np.array([4, 1, 1]), 4)
    np.testing.assert_allclose(found, expected * 3 / expected.sum(), rtol=1e-6)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_losses_see_it_and_penalties_do_not(toy_model: SparseEncoder, toy_texts: list[str], micro_batch: Any) -> None:
    texts = sorted(set(toy_texts))[:8]
    set_dropout(toy_model, 0.0)
    toy_model.train()
    columns = [dict(toy_model.preprocess(texts[start : start + 4])) for start in (0, 4)]
    with torch.no_grad():
        queries, documents = (toy_model(dict(column))["sentence_embedding"].double().numpy() for column in columns)
    penalty: Any = {"query": {"weight": 0.5, "ramp": "constant"}}
    settings = TrainingSettings(steps=3, micro_batch=micro_batch, query_idf=0.75, regularizers=penalty)
    data = TrainingData(None, sources=np.zeros(4, dtype=np.int64))
    found = make_objective(toy_model, settings, data, Monitor(settings.yardstick))(columns, torch.arange(4))
    factors = idf((documents > 0).sum(axis=0), 4) ** 0.75
    factors *= queries.sum() / (queries @ factors).sum()
    scores = queries * factors @ documents.T
    assert found["base_loss"].item() == pytest.approx((logsumexp(scores, axis=1) - scores.diagonal()).mean(), rel=1e-4)
    assert found["query_regularizer_loss"].item() == pytest.approx(0.5 * (queries.mean(axis=0) ** 2).sum(), rel=1e-4)


class StoppedError(Exception):
    """A run that ends in the middle."""


def test_a_run_goes_on_as_if_it_had_not_stopped(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = sorted(set(toy_texts))[:48]
    for name, some in (("one", texts[:24]), ("other", texts[24:])):
        rows = [json.dumps({"query": text, "positive": f"chapter {i} {text}"}) for i, text in enumerate(some)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    training = {"steps": 6, "batch_size": 8, "save_every": 2, "learning_rate": 1e-3, "query_idf": 0.75}
    examples = [str(tmp_path / f"{name}.jsonl") for name in ("one", "other")]
    recipe = make_recipe({"model": str(backbones["bert"]), "data": {"examples": examples}, "training": training})
    train(recipe, tmp_path / "whole")
    mark = MarkComplete.on_save

    def stop(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        mark(self, args, state, control, **kwargs)
        if state.global_step == 4:
            raise StoppedError

    monkeypatch.setattr(MarkComplete, "on_save", stop)
    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "out")
    monkeypatch.undo()
    [kept] = (tmp_path / "out.partial" / "train").glob(f"checkpoint-4/{IDF_FILE}")
    assert load_file(kept)["documents"].min() > 0
    train(recipe, tmp_path / "out")
    found, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "whole"))
    for name, weights in expected.items():
        np.testing.assert_array_equal(found[name], weights, err_msg=name)


def test_with_alignment_it_is_refused() -> None:
    training = {"steps": 1, "query_idf": 0.75, "sparse_teacher": "m", "losses": [{"name": "alignment"}]}
    with pytest.raises(RecipeError, match="query_idf weighs scores, and alignment compares vectors: not both"):
        make_recipe({"model": "m", "data": {"examples": ["a"]}, "training": training})
