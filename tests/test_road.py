"""The whole road on toy backbones: inspect, transfer, pretrain, calibrate, train, encode, each a stock checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import vocable as vo
from vocable.encoder.load import save_checkpoint
from vocable.training.recipe import PretrainSettings, make_recipe

# Architecture -> the backbone whose vocabulary it moves to: every family is left and reached.
ROADS = {
    "bert": "albert",
    "roberta": "bert",
    "albert": "distilbert",
    "modernbert": "electra",
    "deberta": "roberta",
    "electra": "deberta",
}


def saved_and_loaded(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Both through plain transformers, after a check that nothing was lost or untied."""
    save_checkpoint(mlm, tokenizer, folder)
    loaded, report = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    text = tokenizer("The old fox reads books", return_tensors="pt").to(mlm.device)
    with torch.no_grad():
        torch.testing.assert_close(loaded(**text).logits, mlm.eval()(**text).logits, rtol=0, atol=0)
    tied = [m.get_input_embeddings().weight is m.get_output_embeddings().weight for m in (mlm, loaded)]
    assert tied[0] == tied[1] == mlm.config.tie_word_embeddings
    return loaded, AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("source", ROADS)
def test_the_road(backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, source: str) -> None:
    target = backbones[ROADS[source]]
    found = vo.inspect(backbones[source], target=target, texts=toy_texts)
    assert found.overlap is not None
    mlm, tokenizer = (auto.from_pretrained(backbones[source]) for auto in (AutoModelForMaskedLM, AutoTokenizer))
    onto, target_model = AutoTokenizer.from_pretrained(target), AutoModelForMaskedLM.from_pretrained(target)

    moved = vo.transfer(mlm, tokenizer, onto, target_model=target_model)
    assert moved.alignment.overlap == pytest.approx(found.overlap.share)
    mlm, tokenizer = saved_and_loaded(moved.mlm, moved.tokenizer, tmp_path / "transferred")
    assert tokenizer.get_vocab() == onto.get_vocab()

    settings = PretrainSettings(
        texts=["-"], steps=6, batch_size=8, max_length=16, masking="overlap-aware", trainable="embeddings"
    )
    new = moved.alignment.new
    mlm = vo.pretrain(mlm, tokenizer, toy_texts, settings, tmp_path / "run", new_tokens=new).mlm
    mlm, tokenizer = saved_and_loaded(mlm, tokenizer, tmp_path / "adapted")

    calibration = vo.calibrate(mlm, tokenizer, toy_texts, activation_rate=0.2)
    assert calibration.after.share == pytest.approx(0.2, abs=0.01)
    saved_and_loaded(calibration.mlm, tokenizer, tmp_path / "calibrated")

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
