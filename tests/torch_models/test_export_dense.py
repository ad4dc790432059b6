from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from vocable.encoding.dense_models import load_dense, normalized
from vocable.errors import ArgumentError, MissingExtraError, ModelError
from vocable.torch_models import export_dense as exporting
from vocable.torch_models.export_dense import ExportedDenseModel, export_dense

pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")
pytestmark = pytest.mark.slow

Plain = tuple[SentenceTransformer, Path, ExportedDenseModel]
TEXTS = ["a fox", "the quick brown fox jumps over the lazy dog", "snow and rain, hail and sun", "", "fox " * 90]


@pytest.mark.parametrize(("architecture", "pooling"), [("bert", "mean"), ("modernbert", "cls"), ("roberta", "max")])
def test_a_graph_gives_the_vectors_of_its_model(
    backbones: dict[str, Path], tmp_path: Path, architecture: str, pooling: str
) -> None:
    model = dense_model(backbones[architecture], pooling, prompts={"query": "query: "})
    exported = export_dense(model, tmp_path / "graph", texts=TEXTS)
    graph = load_dense(str(tmp_path / "graph"))
    for stock, encode in ((model.encode_query, graph.encode_query), (model.encode_document, graph.encode_document)):
        wanted: Any = stock(TEXTS, normalize_embeddings=True)
        np.testing.assert_allclose(encode(TEXTS, show_progress_bar=False), wanted, atol=1e-5)
    assert exported.least_cosine == pytest.approx(1, abs=1e-5)
    assert graph.get_embedding_dimension() == exported.dimensions == model.get_embedding_dimension()


@pytest.fixture(scope="module")
def plain(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """The toy BERT, the folder of its graph, and what was measured."""
    model, folder = dense_model(backbones["bert"]), tmp_path_factory.mktemp("plain") / "graph"
    return model, folder, export_dense(model, folder, texts=TEXTS)


def test_an_8_bit_graph_is_smaller_and_close(plain: Plain, tmp_path: Path) -> None:
    model, _, exported = plain
    int8 = export_dense(model, tmp_path / "int8", int8=True, texts=TEXTS)
    assert int8.megabytes < exported.megabytes
    vectors = load_dense(str(tmp_path / "int8")).encode_document(TEXTS[:3], show_progress_bar=False)
    cosines = (vectors * normalized(model.encode_document(TEXTS[:3]))).sum(1)
    assert 0.98 < cosines.min() < 0.999999
    assert int8.to_json()["int8"] is True
    assert "int8" in str(int8)


def test_a_repeated_export_reads_the_first_and_another_model_is_refused(
    plain: Plain, backbones: dict[str, Path]
) -> None:
    model, folder, first = plain
    assert export_dense(model, folder, texts=["other"]) == first
    with pytest.raises(ArgumentError):
        export_dense(dense_model(backbones["bert"], "cls"), folder, texts=TEXTS)


def test_a_graph_that_differs_from_its_model_is_not_written(
    backbones: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "LEAST_COSINE", 1.1)
    with pytest.raises(ModelError):
        export_dense(dense_model(backbones["bert"]), tmp_path / "graph", texts=TEXTS)
    assert not (tmp_path / "graph").exists()


def test_an_export_needs_texts_and_the_exporter(
    backbones: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArgumentError):
        export_dense(dense_model(backbones["bert"]), tmp_path / "graph", texts=["", " "])
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtraError):
        export_dense(dense_model(backbones["bert"]), tmp_path / "graph", texts=TEXTS)


def dense_model(backbone: Path, pooling: str = "mean", **options: Any) -> SentenceTransformer:
    torch.manual_seed(0)  # BERT's pooler, which its checkpoint lacks: equal models are written as a graph once
    transformer = Transformer(str(backbone), max_seq_length=32)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling), Normalize()]
    return SentenceTransformer(modules=modules, device="cpu", **options)
