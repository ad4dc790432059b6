from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.encoding.dense_models import (
    DENSE_GRAPH,
    DenseGraph,
    count_cut,
    dense_beside,
    dense_fingerprint,
    is_dense_graph,
    load_dense,
)
from vocable.encoding.hub import BUILT_IN_DENSE, BUILT_IN_MODEL, BY_LOOKUP, locate
from vocable.encoding.load import load_encoder
from vocable.errors import ModelError

TEXTS = ["a fox", "how to remove duplicates from a list while order is kept", "snow", "list " * 400, ""]


@pytest.fixture(scope="module")
def graph() -> DenseGraph:
    return DenseGraph(locate(BUILT_IN_DENSE))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(locate(BUILT_IN_DENSE), tmp_path / "dense"))


def test_the_built_in_dense_model_gives_unit_vectors_with_near_texts_near(graph: DenseGraph) -> None:
    vectors = graph.encode_document(["Sort a list in place.", "Order the items of a list.", "The weather in Oslo."])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    similarity = vectors @ graph.encode_query(["how do I sort a list"])[0]
    assert similarity.argmin() == 2
    assert similarity[0] > similarity[2] + 0.3


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=12))
def test_a_vector_depends_on_its_text_and_hardly_on_its_batch(texts: list[str]) -> None:
    graph = load_dense(BUILT_IN_DENSE)
    together = graph.encode_document(texts, show_progress_bar=False)
    for text, vector in zip(texts, together, strict=True):
        assert vector @ graph.encode_document([text], show_progress_bar=False)[0] > 0.9999


def test_a_text_counts_to_the_256th_token(graph: DenseGraph) -> None:
    long = "list " * 254
    vectors = graph.encode_document([long, long + "snow", "list " * 253 + "snow"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert vectors[0] @ vectors[2] < 0.9999


def test_texts_of_more_than_256_tokens_are_counted(graph: DenseGraph) -> None:
    assert graph.get_max_seq_length() == 256  # of which two are special tokens
    assert count_cut(graph, ["list " * 254, "list " * 255, "a fox", "", "list " * 900], "document") == 2


def test_the_fingerprint_changes_with_graph_tokenizer_and_settings(copied: Path) -> None:
    before = dense_fingerprint(DenseGraph(copied))
    assert before == dense_fingerprint(load_dense(BUILT_IN_DENSE))
    settings = json.loads((copied / DENSE_GRAPH).read_text())
    (copied / DENSE_GRAPH).write_text(json.dumps(settings | {"max_length": 128, "model": "another name"}))
    with (copied / "onnx/model_quantized.onnx").open("ab") as file:
        file.write(b"\0")
    changed = {name for name, value in dense_fingerprint(DenseGraph(copied)).items() if value != before[name]}
    assert changed == {"max_length", "graph"}


@pytest.mark.parametrize(
    ("file", "content", "fact"),
    [
        (DENSE_GRAPH, "{", DENSE_GRAPH),
        (DENSE_GRAPH, '{"format": "onnx"}', "int8"),
        ("tokenizer.json", "{}", "tokenizer.json"),
        ("onnx/model_quantized.onnx", "no graph", "damaged"),
        ("onnx/model_quantized.onnx", None, "missing"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(copied: Path, file: str, content: str | None, fact: str) -> None:
    assert is_dense_graph(copied)
    (copied / file).unlink()
    if content is not None:
        (copied / file).write_text(content)
    with pytest.raises(ModelError, match=fact):
        load_dense(str(copied)).encode_query(["fox"], show_progress_bar=False)


def test_another_dimension_is_not_this_graph(copied: Path) -> None:
    settings = json.loads((copied / DENSE_GRAPH).read_text())
    (copied / DENSE_GRAPH).write_text(json.dumps(settings | {"dimensions": 12}))
    with pytest.raises(ModelError):
        load_dense(str(copied)).encode_query(["fox"], show_progress_bar=False)


@pytest.mark.parametrize("name", [BUILT_IN_MODEL, BY_LOOKUP])
def test_the_built_in_dense_model_goes_with_models_that_have_its_tokens(name: str, tmp_path: Path) -> None:
    assert dense_beside(load_encoder(name)) == BUILT_IN_DENSE
    copy = shutil.copytree(locate(BUILT_IN_MODEL), tmp_path / "tuned")
    assert dense_beside(load_encoder(copy)) == BUILT_IN_DENSE


def test_no_dense_model_goes_with_other_tokens(backbone: Path) -> None:
    assert dense_beside(load_encoder(backbone)) is None


def test_no_dense_model_goes_with_a_model_of_both_vectors(m3: str) -> None:
    assert dense_beside(load_encoder(m3)) is None


def test_the_sparse_and_the_dense_model_share_one_tokenizer() -> None:
    sparse, dense = load_encoder(BUILT_IN_MODEL), DenseGraph(locate(BUILT_IN_DENSE))
    assert sparse.tokenization.backend is dense.tokenization.backend
    assert sparse.tokenization.truncated(["a fox at night"], 4, "right") == [[101, 1037, 4419, 102]]
    assert len(dense.tokenization.truncated(["a fox at night"], 256, "right")[0]) == 6


def test_a_dense_graph_encodes_without_pytorch() -> None:
    program = "import sys, vocable.encoding.dense_models as d; d.load_dense('vocable-mini-dense').encode_query(['a'], "
    program += "show_progress_bar=False); assert not {'torch', 'transformers'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], check=True)
