"""Graphs of cross encoders: tokens of pairs as the model reads them, and damaged folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from vocable.collection.rerank import load_reranker
from vocable.encoding.cross_graph import CrossGraph, is_cross_graph
from vocable.errors import ModelError
from vocable.torch_models.export_cross import export_cross

pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")
pytestmark = pytest.mark.slow

TEXTS = ["a fox", "the quick brown fox jumps over the lazy dog", "snow and rain, hail and sun"]


@pytest.fixture
def model(cross: str) -> CrossEncoder:
    """A cross encoder that reads token types, as BERT does."""
    opened = CrossEncoder(cross, device="cpu", max_length=32)
    opened.tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return opened


@pytest.fixture
def place(model: CrossEncoder, tmp_path: Path) -> Path:
    export_cross(model, tmp_path / "graph", texts=TEXTS)
    return tmp_path / "graph"


def test_a_graph_reads_the_tokens_of_its_model(model: CrossEncoder, place: Path) -> None:
    graph, pairs = CrossGraph(place), [("fox", "snow " * 60), ("snow " * 60, "fox"), ("rain " * 50, "snow " * 60)]
    np.testing.assert_allclose(graph.predict(pairs), model.predict(pairs), atol=1e-5)
    for pair, encoded in zip(pairs, graph.tokens(pairs), strict=True):
        features = model.preprocess([pair])
        assert encoded.ids == features["input_ids"][0].tolist()
        assert encoded.type_ids == features["token_type_ids"][0].tolist()
    assert len(graph.tokenization.ids(["fox " * 99])[0]) >= 99  # other models may share the tokenizer
    assert graph.fingerprint()["graph"] == CrossGraph(place).fingerprint()["graph"]


def test_a_damaged_folder_is_refused(cross: str, place: Path) -> None:
    assert is_cross_graph(place)
    assert not is_cross_graph(cross)
    (place / "onnx/model.onnx").write_bytes(b"no graph")
    with pytest.raises(ModelError) as error:
        load_reranker(str(place))
    assert "the graph is damaged" in str(error.value)
    (place / "cross_graph.json").write_text("{}")
    with pytest.raises(ModelError):
        load_reranker(str(place))
