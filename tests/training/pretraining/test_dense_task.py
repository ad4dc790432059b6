"""Masked language modelling that keeps the dense embeddings of the model it begins with."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer, SparseEncoder

from vocable.encoding.models import encoding_model
from vocable.errors import ArgumentError
from vocable.torch_models.sparse_encoder import load_sparse_encoder, save_model
from vocable.training.pretraining.pretrain import pretrain


@pytest.mark.slow
def test_the_weight_keeps_the_initial_embeddings(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path
) -> None:
    texts = sorted(set(toy_texts))
    initial = SentenceTransformer(str(backbones["bert"]), device="cpu").encode(texts, normalize_embeddings=True)
    cosines = {}
    for weight in (0.0, 5.0):
        start = load_sparse_encoder(backbones["bert"], device="cpu")
        made = pretrain(start, texts, steps=40, batch_size=16, learning_rate=3e-3, dtype="float32", dense_weight=weight)
        save_model(made, tmp_path / str(weight))
        assert encoding_model(made).dimensions == (32 if weight else None)
        stock = SentenceTransformer(str(tmp_path / str(weight)), device="cpu")
        cosines[weight] = (stock.encode(texts, normalize_embeddings=True) * initial).sum(axis=1).mean()
    assert cosines[5.0] > 0.95 > cosines[0.0]


def test_the_dense_task_is_refused_with_masks_of_words(toy_model: SparseEncoder) -> None:
    with pytest.raises(ArgumentError):
        pretrain(toy_model, ["a text"], steps=1, dense_weight=1.0, masking="whole-word")
