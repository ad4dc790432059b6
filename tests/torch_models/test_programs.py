"""Checkpoints of Lightning IR and LSR: what is saved, what texts without words get, and variants that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerFast

from tests.torch_models.checkpoints import TEXTS, Toys, change, lightning, lsr, translated, words_pooled
from vocable import encode, export_model, load
from vocable.errors import ModelError

MAKERS = {"lightning": lightning, "lsr": lsr}


@pytest.fixture
def toys(backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path) -> Toys:
    return Toys(backbones, tokenizers, tmp_path)


def test_a_saved_model_has_the_names_of_transformers(toys: Toys, tmp_path: Path) -> None:
    for name, make in MAKERS.items():
        make(tmp_path / name, toys)
        model: Any = load(tmp_path / name, device="cpu")
        model.save_pretrained(str(tmp_path / f"{name}-saved"))
        assert {"bert", "distilbert"} & {
            key.partition(".")[0] for key in load_file(tmp_path / f"{name}-saved" / "model.safetensors")
        }
        again = encode(load(tmp_path / f"{name}-saved", device="cpu"), TEXTS, dtype="float32")
        assert (again != encode(model, TEXTS, dtype="float32")).nnz == 0
    stock = SparseEncoder(str(tmp_path / "lightning-saved"), device="cpu").encode(TEXTS).to_dense()
    np.testing.assert_allclose(stock, translated(tmp_path / "lightning")[0], rtol=1e-6, atol=1e-6)


def test_lsr_pools_words_alone(toys: Toys, tmp_path: Path) -> None:
    lsr(tmp_path / "lsr", toys)
    model: Any = load(tmp_path / "lsr", device="cpu")
    vectors = encode(model, ["", *TEXTS, " "], dtype="float32").toarray()
    assert not vectors[[0, -1]].any()
    np.testing.assert_allclose(vectors[1:-1], words_pooled(tmp_path / "lsr")[0], rtol=1e-6, atol=1e-6)
    with pytest.raises(ModelError):
        export_model(model, tmp_path / "graph", texts=TEXTS)
    change(tmp_path / "lsr" / "config.json", pool="sum")
    assert encode(load(tmp_path / "lsr", device="cpu"), TEXTS, dtype="float32").sum() > vectors.sum()


def test_lengths_and_activations_are_read(toys: Toys, tmp_path: Path) -> None:
    lightning(tmp_path / "model", toys)
    change(tmp_path / "model" / "config.json", sparsification="relu_2xlog", query_length=6)
    model = load(tmp_path / "model", device="cpu")
    [document], [query] = (encode(model, TEXTS[:1], role, dtype="float32").toarray() for role in ("document", "query"))
    np.testing.assert_allclose(document, translated(tmp_path / "model")[1][0].log1p(), rtol=1e-6, atol=1e-6)
    assert not np.allclose(query, document)


@pytest.mark.parametrize(
    ("program", "settings", "facts"),
    [
        ("lightning", {"model_type": "col"}, "'col'"),
        ("lightning", {"backbone_model_type": "t5"}, "'t5'"),
        ("lightning", {"query_pooling_strategy": "mean"}, "query_pooling_strategy"),
        ("lightning", {"query_pooling_strategy": "sum"}, "different poolings"),
        ("lightning", {"query_expansion": True}, "query_expansion"),
        ("lightning", {"query_weighting": "static"}, "query_weighting"),
        ("lightning", {"query_weighting": "contextualized", "query_expansion": False}, "query_expansion"),
        ("lsr", {"pool": "abs"}, "pool"),
        ("lsr", {"norm": "no"}, "norm"),
        ("lsr", {"tf_base_model_name_or_dir": "no/such"}, "no/such"),
    ],
)
def test_a_variant_is_refused_by_its_setting(
    toys: Toys, tmp_path: Path, program: str, settings: dict[str, object], facts: str
) -> None:
    MAKERS[program](tmp_path / "model", toys)
    change(tmp_path / "model" / "config.json", **settings)
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "model")
    message = str(caught.value)
    assert facts in message
    assert "config.json" in message
    assert "\n" not in message
