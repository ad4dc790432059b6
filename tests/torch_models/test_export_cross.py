"""Cross encoders as graphs: the scores of `CrossEncoder.predict`, without PyTorch, and exports that are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Dense
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForSequenceClassification

from tests.cli.command_line import done, refused
from vocable.collection.index import index
from vocable.collection.rerank import load_reranker
from vocable.encoding.cross_graph import CrossGraph
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models import export_cross as exporting
from vocable.torch_models.export_cross import export_cross

pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")
pytestmark = pytest.mark.slow

TEXTS = ["a fox", "the quick brown fox jumps over the lazy dog", "snow and rain, hail and sun", "an owl", "fox " * 90]
PAIRS = [(query, text) for query in ("the old fox", "snow at night " * 30, "") for text in TEXTS]


@pytest.fixture
def roberta(tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path) -> str:
    """The folder of a random cross encoder without token types."""
    torch.manual_seed(0)
    tokenizer, sizes = tokenizers["byte-level"], {"hidden_size": 32, "intermediate_size": 64}
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        num_labels=1,
        max_position_embeddings=70,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=tokenizer.pad_token_id,
        **sizes,  # type: ignore[arg-type]
    )
    RobertaForSequenceClassification(config).save_pretrained(tmp_path / "roberta")
    tokenizer.save_pretrained(tmp_path / "roberta")
    return str(tmp_path / "roberta")


@pytest.mark.parametrize(
    ("architecture", "activation"), [("bert", torch.nn.Sigmoid()), ("roberta", torch.nn.Identity())]
)
def test_a_graph_gives_the_scores_of_its_model(
    cross: str, roberta: str, tmp_path: Path, architecture: str, activation: torch.nn.Module
) -> None:
    name = cross if architecture == "bert" else roberta
    model = CrossEncoder(name, device="cpu", max_length=32, activation_fn=activation)
    exported = export_cross(model, tmp_path / "graph", texts=TEXTS)
    graph = load_reranker(str(tmp_path / "graph"))
    assert isinstance(graph, CrossGraph)
    wanted = model.predict(PAIRS)
    np.testing.assert_allclose(graph.predict(PAIRS, batch_size=4, show_progress_bar=False), wanted, atol=1e-5)
    assert exported.largest_error < 1e-5
    assert exported.correlation == pytest.approx(1)


def test_an_8_bit_graph_is_smaller_and_orders_texts_alike(cross: str, tmp_path: Path) -> None:
    model = CrossEncoder(cross, device="cpu", max_length=32)
    plain, int8 = (export_cross(model, tmp_path / str(int8), int8=int8, texts=TEXTS) for int8 in (False, True))
    assert int8.megabytes < plain.megabytes
    scores, wanted = CrossGraph(tmp_path / "True").predict(PAIRS), model.predict(PAIRS)
    assert 1e-7 < np.abs(scores - wanted).max() < 0.05
    assert spearmanr(scores, wanted).statistic > 0.95
    assert "int8" in str(int8)
    assert int8.to_json()["int8"] is True


def test_a_reranking_by_a_graph_imports_no_pytorch(
    backbones: dict[str, Path], cross: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done(capsys, "export-model", cross, "-o", tmp_path / "graph", "--texts", corpus)
    index(str(backbones["bert"]), corpus, tmp_path / "index", dtype="float32", device="cpu")
    [by_model, by_graph] = (
        done(capsys, "search", tmp_path / "index", "the old fox", "--rerank", place, "--rerank-depth", "9")
        for place in (cross, tmp_path / "graph")
    )
    assert [line[:14] for line in by_graph.splitlines()[:9]] == [line[:14] for line in by_model.splitlines()[:9]]
    program = "import sys; from vocable.collection.rerank import load_reranker as load; "
    program += f"load({str(tmp_path / 'graph')!r}).predict([('a', 'b')]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_repeated_export_reads_the_first_and_a_wrong_graph_is_not_written(
    cross: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = CrossEncoder(cross, device="cpu", max_length=32)
    first = export_cross(model, tmp_path / "graph", texts=TEXTS)
    assert export_cross(model, tmp_path / "graph", texts=["other"]) == first
    with pytest.raises(ArgumentError):
        export_cross(model, tmp_path / "other", texts=["", " "])
    monkeypatch.setattr(exporting, "LARGEST_DIFFERENCE", -1.0)
    with pytest.raises(ModelError) as error:
        export_cross(model, tmp_path / "other", texts=TEXTS)
    assert "nothing is written" in str(error.value)
    assert not (tmp_path / "other").exists()
    assert "not for a cross model" in refused(capsys, "export-model", cross, "-o", "x", "--format", "openvino")


def test_models_that_no_graph_computes_are_refused(cross: str, tmp_path: Path) -> None:
    model: Any = CrossEncoder(cross, device="cpu", prompts={"query": "q: "}, default_prompt_name="query")
    with pytest.raises(ModelError):
        export_cross(model, tmp_path / "graph", texts=TEXTS)
    model = CrossEncoder(cross, device="cpu")
    model.append(Dense(4, 1))
    with pytest.raises(ModelError):
        export_cross(model, tmp_path / "graph", texts=TEXTS)
