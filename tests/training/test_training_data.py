"""What a training learns from: labels are rows, scores are asked for where somebody needs them, IDF is counted once."""

import json

import numpy as np
import pytest
import torch

from vocable.encoder.idf import document_frequencies, idf
from vocable.errors import DataError
from vocable.training import data as module
from vocable.training.data import load_training_data
from vocable.training.recipe import make_recipe
from vocable.training.train import train


@pytest.fixture
def places(toy_texts, tmp_path):
    """Two sources of 12 examples with one negative and scores."""
    texts = sorted(set(toy_texts))[:24]
    for number in range(2):
        rows = [
            {"query": f"{i} {texts[i]}", "positive": texts[i], "negatives": [f"{texts[i - 1]} {i}"], "scores": [i, -i]}
            for i in range(12 * number, 12 * number + 12)
        ]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return [str(tmp_path / f"{number}.jsonl") for number in range(2)]


def recipe(places, model="m", **training):
    data = {"examples": places, "negatives": 1}
    return make_recipe({"model": str(model), "data": data, "training": {"steps": 6, "batch_size": 4, **training}})


def test_where_nobody_teaches_there_are_no_labels(toy_model, places, tmp_path):
    data = load_training_data(recipe(places), toy_model, tmp_path)
    assert {tuple(source.column_names) for source in data.examples.values()} == {("query", "positive", "negative_1")}
    assert (data.teacher, data.sparse_teacher, data.idf) == (None, None, None)


def test_labels_lead_to_the_scores_of_the_examples(toy_model, places, tmp_path):
    data = load_training_data(recipe(places, losses=[{"name": "margin_mse"}]), toy_model, tmp_path)
    for source in data.examples.values():
        numbers = [int(query.split()[0]) for query in source["query"]]
        found = data.teacher(np.array(source["label"]))
        assert found.tolist() == [[number, -number] for number in numbers]
    rows = np.concatenate([source["label"] for source in data.examples.values()])
    assert rows.tolist() == list(range(24))


def test_examples_without_scores_are_refused_where_they_are_needed(toy_model, places, tmp_path):
    (tmp_path / "bare.jsonl").write_text(
        json.dumps({"query": "q", "positive": "p", "negatives": ["n"]}), encoding="utf-8"
    )
    with pytest.raises(DataError, match=r"bare\.jsonl: its examples carry no scores to learn from"):
        load_training_data(
            recipe([*places, str(tmp_path / "bare.jsonl")], losses=[{"name": "kl"}]), toy_model, tmp_path
        )


def test_idf_is_counted_over_the_documents_and_kept(toy_model, places, tmp_path, monkeypatch):
    settings = recipe(places, regularizers={"query": {"name": "idf_flops", "weight": 1}})
    data = load_training_data(settings, toy_model, tmp_path)
    documents = [text for source in data.examples.values() for text in [*source["positive"], *source["negative_1"]]]
    size = toy_model[0].auto_model.config.vocab_size
    expected = idf(*document_frequencies(documents, toy_model.tokenizer, size=size))
    np.testing.assert_array_equal(data.idf, expected)
    monkeypatch.setattr(module, "document_frequencies", None)
    assert torch.equal(load_training_data(settings, toy_model, tmp_path).idf, data.idf)


def test_all_at_once_is_trained(backbones, places, tmp_path):
    losses = [{"name": "margin_mse", "weight": 0.1}, {"name": "kl"}, {"name": "alignment"}, {"name": "info_nce"}]
    regularizers = {
        "query": {"name": "l1", "weight": 0.01, "ramp": "constant"},
        "document": {"name": "idf_flops", "weight": 0.01, "ramp": "linear", "threshold": 3},
        "joint": 0.1,
    }
    settings = recipe(
        places,
        backbones["bert"],
        losses=losses,
        sparse_teacher=str(backbones["distilbert"]),
        regularizers=regularizers,
        max_terms={"query": 8, "document": 16},
        micro_batch=2,
        log_every=1,
    )
    train(settings, tmp_path / "model")
    log = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(log) == 6
    for line in log:
        parts = [line[f"{side}_regularizer_loss"] for side in ("query", "document", "joint")]
        assert line["loss"] == pytest.approx(line["base_loss"] + sum(parts), abs=3e-4)
        assert line["base_loss"] == pytest.approx(sum(line[loss["name"]] for loss in losses), abs=1e-3)
