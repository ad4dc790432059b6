"""The whole road on toy backbones: inspect, transfer, pretrain, calibrate, train, encode, each a stock checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SparseEncoder
from transformers import AutoModelForMaskedLM

import vocable as vo
from vocable.torch_models.sparse_encoder import save_model
from vocable.training.recipe_files import make_recipe

# Architecture -> the backbone whose vocabulary it moves to: every family of tokenizers is left and reached.
ROADS = {"bert": "albert", "modernbert": "electra", "deberta": "roberta"}


@pytest.mark.parametrize("source", ROADS)
def test_a_checkpoint_becomes_a_searched_and_explained_collection(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, source: str
) -> None:
    target = backbones[ROADS[source]]
    found = vo.inspect(backbones[source], target=target, texts=toy_texts)
    assert found.overlap is not None

    model = vo.transfer(vo.load(backbones[source], device="cpu"), target)
    assert vo.provenance(model)[-1]["overlap"] == pytest.approx(found.overlap.share)
    settings = {"steps": 6, "batch_size": 8, "max_length": 16, "masking": "overlap-aware", "trainable": "embeddings"}
    model = vo.calibrate(vo.pretrain(model, toy_texts, **settings), toy_texts, activation_rate=0.2)
    assert vo.provenance(model)[-1]["after"]["share"] == pytest.approx(0.2, abs=0.01)
    save_model(model, tmp_path / "calibrated")
    mlm, report = AutoModelForMaskedLM.from_pretrained(tmp_path / "calibrated", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]

    texts = sorted(set(toy_texts))[:32]
    rows = [json.dumps({"query": text, "positive": f"chapter {text}"}) for text in texts]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    recipe = {
        "model": str(tmp_path / "calibrated"),
        "data": {"examples": [str(tmp_path / "pairs.jsonl")]},
        "training": {"steps": 3, "batch_size": 8},
    }
    model = vo.train(make_recipe(recipe), tmp_path / "retriever")
    vectors = vo.encode(model, texts[:4], role="document")
    assert vectors.shape == (4, mlm.config.vocab_size)
    assert (np.diff(vectors.indptr) > 0).all()
    stock = SparseEncoder(str(tmp_path / "retriever"), device="cpu").encode_document(texts[:4])
    np.testing.assert_allclose(vectors.toarray(), stock.to_dense().numpy(), atol=1e-5)
