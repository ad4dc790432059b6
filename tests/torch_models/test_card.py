"""The card of a saved model: its lines give the same vectors in a process without vocable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder

import vocable as vo
from vocable.encoding.text_encoder import TextEncoder
from vocable.torch_models.card import kept_by_vocable
from vocable.torch_models.sparse_encoder import save_model

POWER = 0.75
STOCK = """
import sys
sys.modules["vocable"] = None  # as if it were not installed
import json, numpy
texts, questions = json.load(open(sys.argv[1]))
{lines}
assert model.dtype.is_floating_point and documents.numpy().dtype == queries.numpy().dtype == "float32"
numpy.savez(sys.argv[2], documents=documents.numpy(), queries=queries.numpy())
"""
RUN = """
import json, sys
import torch
for script, *files in json.loads(sys.argv[1]):
    sys.argv[1:] = files
    exec(script, {})
"""


def limited(backbone: Path, **limits: Any) -> SparseEncoder:
    model = vo.load(backbone, device="cpu")
    vars(model[0].auto_model.config).update(limits)
    model.prompts = {"query": "the fox ", "document": "books "}
    return model


def lines_of(folder: Path) -> str:
    """Return the lines of Python in the card of a folder, with the name of the folder."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    return card.partition("```python\n")[2].partition("```")[0].replace('"MODEL"', repr(str(folder)))


def test_the_lines_of_a_card_give_the_vectors_of_a_search(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path
) -> None:
    texts, questions = sorted(set(toy_texts))[:40], [text[:20] for text in sorted(set(toy_texts))[:9]]
    (tmp_path / "texts.json").write_text(json.dumps([texts, questions]))
    limits = {"free": {}, "limited": {"active_terms": {"query": 6, "document": 25}, "query_idf": POWER}}
    expected, scripts = dict[str, dict[str, Any]](), list[list[str]]()
    for name, given in limits.items():
        # Saved in 16 bits, loaded in float32.
        save_model(limited(backbones["bert"], **given).bfloat16(), tmp_path / name)
        model = vo.load(tmp_path / name, device="cpu")
        documents = vo.encode(model, texts)
        encoder = TextEncoder(model, "query")
        encoder.know_collection(np.bincount(documents.indices, minlength=documents.shape[1]), len(texts))
        expected[name] = {"documents": documents.toarray(), "queries": encoder.encode(questions).toarray()}
        script = STOCK.format(lines=lines_of(tmp_path / name))
        assert ("max_active_dims" in script) == bool(given)
        scripts.append([script, str(tmp_path / "texts.json"), str(tmp_path / f"{name}.npz")])
    command = [sys.executable, "-c", RUN, json.dumps(scripts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for name, vectors in expected.items():
        found = np.load(tmp_path / f"{name}.npz")
        for role, wanted in vectors.items():
            assert wanted.any()
            np.testing.assert_allclose(found[role], wanted, atol=2e-6)


def test_a_card_tells_the_limits_and_the_steps(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = limited(backbones["bert"], active_terms={"query": 6, "document": 25}, query_idf=POWER)
    assert kept_by_vocable(vo.load(backbones["bert"], device="cpu")) == ""
    terms = "the 6 heaviest terms of a query, the 25 heaviest terms of a document"
    assert kept_by_vocable(model) == f"{terms}, the IDF of query terms in the collection, to the power 0.75"
    model.model_card_data.set_license("mit")
    vo.rescale(model, factor=2).save_pretrained(str(tmp_path / "first"))
    caplog.set_level("INFO", "vocable")
    first = vo.load(tmp_path / "first", device="cpu")
    assert [kept_by_vocable(first) in record.getMessage() for record in caplog.records] == [True]
    vo.calibrate(first, toy_texts[:20], shift=0.125).save_pretrained(str(tmp_path / "second"))
    card = (tmp_path / "second" / "README.md").read_text(encoding="utf-8")
    assert "license: mit" in card
    first_step, second_step = card.splitlines()[-2:]
    assert first_step == "- rescale: factor 2"
    assert second_step.startswith("- calibrate: ")
    assert "shift 0.125" in second_step
    assert "| document | 64 | 25 | `books ` |" in card
    assert "sparse_encoder_model_id" not in card
    assert str(tmp_path) not in card


def test_a_card_on_the_hub_has_the_name_there(backbones: dict[str, Path], tmp_path: Path) -> None:
    model = vo.load(backbones["bert"], device="cpu")
    model.model_card_data.set_model_id("me/my-model")
    model.save_pretrained(str(tmp_path / "model"))
    assert 'model = SparseEncoder("me/my-model")' in lines_of(tmp_path / "model")


def test_a_model_that_only_vocable_computes_has_no_lines_for_others(backbones: dict[str, Path], tmp_path: Path) -> None:
    vo.load(backbones["bert"], pooling="cls", device="cpu").save_pretrained(str(tmp_path / "model"))
    assert lines_of(tmp_path / "model") == ""
    assert "it has no cls pooling" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_weights_in_16_bits_are_loaded_in_32(backbones: dict[str, Path], tmp_path: Path) -> None:
    save_model(vo.load(backbones["bert"], device="cpu").bfloat16(), tmp_path / "model")
    stock = SparseEncoder(str(tmp_path / "model"), device="cpu")
    assert stock.dtype == torch.float32
    weights = (tmp_path / "model" / "model.safetensors").read_bytes()
    assert b'"BF16"' in weights[:4000]
    assert b'"F32"' not in weights[:4000]
