"""The loss of dense vectors against a few lines of NumPy, and its way through a training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sentence_transformers import SentenceTransformer

from vocable.encoding.load import load
from vocable.encoding.models import encoding_model
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ModelError, RecipeError
from vocable.objectives.dense import DenseSettings, dense_loss
from vocable.training.recipe_files import make_recipe
from vocable.training.train import train


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("t", [8, 5])
def test_the_dense_loss_equals_numpy(t: int) -> None:
    rng = np.random.default_rng(0)
    queries, documents = rng.normal(size=(3, 8)), rng.normal(size=(6, 8))
    taught_queries, taught = unit(rng.normal(size=(3, t))), unit(rng.normal(size=(6, t)))
    settings = DenseSettings(dimensions=6, shorter=[4, 2], temperature=0.1, score_weight=2, vector_weight=0.5)
    target = (taught_queries @ taught.T) / 0.1
    parts = []
    for d in (6, 4, 2):
        scores = unit(queries[:, :d]) @ unit(documents[:, :d]).T / 0.1
        shares = softmax(target, axis=1)
        parts.append((shares * (log_softmax(target, axis=1) - log_softmax(scores, axis=1))).sum(axis=1).mean())
    expected = 2 * np.mean(parts)
    if t == 8:
        both = unit(np.concatenate([queries, documents])) * np.concatenate([taught_queries, taught])
        expected += 0.5 * (1 - both.sum(axis=1)).mean()
    found = dense_loss(*map(torch.from_numpy, (queries, documents, taught_queries, taught)), settings)
    assert float(found) == pytest.approx(expected, rel=1e-6)


def recipe(backbone: Path, teacher: str | None, examples: Path, **training: Any) -> Any:
    return make_recipe(
        {
            "model": str(backbone),
            "data": {"examples": [str(examples)]},
            "training": {
                "steps": 30,
                "batch_size": 8,
                "learning_rate": 1e-3,
                "dtype": "float32",
                "guard": "off",
                "dense": {"teacher": teacher},
                **training,
            },
        }
    )


@pytest.fixture
def examples(tmp_path: Path, toy_texts: list[str]) -> Path:
    texts, file = sorted(set(toy_texts)), tmp_path / "pairs.jsonl"
    rows = [{"query": text.split()[-1], "positive": text} for text in texts]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


@pytest.mark.parametrize("training", [{}, {"micro_batch": 4}, {"dense": {"dimensions": 16, "shorter": [8]}}])
def test_a_training_keeps_the_dense_side(
    backbones: dict[str, Path], dense: str, examples: Path, tmp_path: Path, toy_texts: list[str], training: Any
) -> None:
    """The teacher is another pooling of the start: with its loss the two stay close, without it they part."""
    given = {**training, "dense": {"teacher": dense, **training.get("dense", {})}}
    train(recipe(backbones["bert"], dense, examples, **given), tmp_path / "kept")
    d = given["dense"].get("dimensions", 32)
    model = load(tmp_path / "kept", device="cpu")
    assert encoding_model(model).dimensions == d
    teacher = SentenceTransformer(dense, device="cpu", truncate_dim=d)
    texts = sorted(set(toy_texts))[:50]
    wanted = teacher.encode(texts, normalize_embeddings=True)
    _, found = TextEncoder(model, dtype="float32").encode_both(texts)
    assert found is not None
    kept = (found * wanted).sum(axis=1).mean()
    train(recipe(backbones["bert"], None, examples, dense=None), tmp_path / "parted")
    stock = SentenceTransformer(str(tmp_path / "parted"), device="cpu", truncate_dim=d)
    parted = (stock.encode(texts, normalize_embeddings=True) * wanted).sum(axis=1).mean()
    assert kept > 0.97
    assert kept > parted


def test_a_model_is_the_teacher_of_its_own_dense_side(
    backbones: dict[str, Path], dense: str, examples: Path, tmp_path: Path
) -> None:
    train(recipe(backbones["bert"], dense, examples), tmp_path / "first")
    train(recipe(tmp_path / "first", str(tmp_path / "first"), examples), tmp_path / "second")
    assert encoding_model(load(tmp_path / "second", device="cpu")).dimensions == 32
    train(recipe(backbones["bert"], None, examples, dense=None), tmp_path / "plain")
    with pytest.raises(ModelError):
        train(recipe(backbones["bert"], str(tmp_path / "plain"), examples), tmp_path / "third")


def test_a_training_that_does_not_teach_the_dense_side_removes_it(
    backbones: dict[str, Path], dense: str, examples: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(recipe(backbones["bert"], dense, examples, steps=2), tmp_path / "taught")
    assert not [one for one in caplog.records if "training.dense" in one.getMessage()]
    train(recipe(tmp_path / "taught", None, examples, steps=2, dense=None), tmp_path / "untaught")
    assert encoding_model(load(tmp_path / "untaught", device="cpu")).dimensions is None
    [said] = [one.getMessage() for one in caplog.records if "training.dense" in one.getMessage()]
    assert "no dense vectors" in said


def test_a_dense_side_needs_a_teacher(backbones: dict[str, Path], examples: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError):
        train(recipe(backbones["bert"], None, examples), tmp_path / "model")
