"""Exported models without PyTorch: their tokens, long texts, windows and terms are those of the model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.collection.answers import search
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.collection.verbs import add
from vocable.encoding.encode import encode
from vocable.encoding.graph import GraphEncoder, GraphModel
from vocable.encoding.load import load, load_encoder
from vocable.encoding.models import encoding_model
from vocable.encoding.pruning import prune
from vocable.encoding.terms import input_terms, special_terms, term_places, terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.vectors import read_vectors
from vocable.errors import ArgumentError, MissingExtraError, ModelError
from vocable.torch_models.export import export_model

pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")

Pair = Callable[[str], tuple[SparseEncoder, GraphModel]]


@pytest.fixture(scope="module")
def pair(backbones: dict[str, Path], toy_texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A toy backbone, of a tokenizer family, as a PyTorch model and as a graph."""

    @cache
    def made(name: str) -> tuple[SparseEncoder, GraphModel]:
        folder = tmp_path_factory.mktemp(name) / "graph"
        model: Any = load(backbones[name], device="cpu")
        model[0].query_length, model[0].document_length = 9, 14
        model.prompts["query"] = "find: "
        export_model(model, folder, texts=toy_texts[:8])
        found = load(folder)
        assert isinstance(found, GraphModel)
        return model, found

    return made


WORDS = ["the", "old", "fox's", "naïve", "Owl,", "言葉", "<s>", "[CLS]", "7"]
FAMILIES = ["bert", "roberta", "deberta"]  # WordPiece, byte-level BPE, Unigram


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=40)
@given(text=st.text(max_size=60) | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_tokens_are_those_of_transformers(pair: Pair, name: str, text: str) -> None:
    model, graph = pair(name)
    ours, host = graph.tokenization, encoding_model(model).tokenization
    assert ours.ids([text, "fox"]) == host.ids([text, "fox"])
    assert ours.ids([text], special=True) == host.ids([text], special=True)
    assert ours.places(text) == host.places(text)
    assert ours.word_numbers(text) == host.word_numbers(text)
    assert (ours.special, ours.unknown, ours.added) == (host.special, host.unknown, host.added)
    assert term_places(graph, text) == term_places(model, text)
    np.testing.assert_array_equal(input_terms(graph, [text]).toarray(), input_terms(model, [text]).toarray())


@pytest.mark.parametrize("name", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES[1:])])
def test_long_texts_are_cut_as_the_model_cuts_them(pair: Pair, name: str, toy_texts: list[str]) -> None:
    model, graph = pair(name)
    texts = [" ".join(toy_texts[:count]) for count in (1, 2, 5)]
    assert terms(graph) == terms(model)
    assert special_terms(graph).tolist() == special_terms(model).tolist()
    for role in ("query", "document"):
        for side in ("right", "left"):
            ours, host = TextEncoder(graph, role), TextEncoder(model, role, dtype="float32")
            ours.truncation = host.truncation = side
            np.testing.assert_allclose(ours.encode(texts).toarray(), host.encode(texts).toarray(), atol=1e-4)
            assert (ours.truncated, ours.prompt, ours.max_length) == (host.truncated, host.prompt, host.max_length)
            assert ours.lengths(texts).tolist() == host.lengths(texts).tolist()
    ours, host = (TextEncoder(one, long_documents="maxpool", dtype="float32") for one in (graph, model))
    assert [ours.windows(text) for text in texts] == [host.windows(text) for text in texts]
    np.testing.assert_allclose(ours.encode(texts).toarray(), host.encode(texts).toarray(), atol=1e-4)


def test_a_length_beyond_the_positions_is_refused(pair: Pair) -> None:
    _, graph = pair("bert")
    with pytest.raises(ArgumentError):
        TextEncoder(graph, max_length=100000)


@pytest.mark.parametrize(
    ("options", "runtime", "dtype"),
    [
        ({}, "onnx", "int8"),
        ({"device": "cpu"}, "onnx", "int8"),
        ({"runtime": "torch"}, "torch", "float32"),
        ({"dtype": "float32"}, "torch", "float32"),
    ],
)
def test_a_name_is_computed_by_its_graph(options: dict[str, Any], runtime: str, dtype: str) -> None:
    for name in ("vocable-mini", "vocable-mini-doc"):
        model = load_encoder(name, **options)
        assert (model.runtime, model.dtype, model.name.endswith(name)) == (runtime, dtype, True)
        assert len(model.terms) == 30522
    assert isinstance(load("vocable-mini"), SparseEncoder)  # which can be trained
    assert isinstance(load("vocable-mini", runtime="onnx"), GraphModel)


def test_a_runtime_that_a_model_does_not_have_is_refused(backbones: dict[str, Path], pair: Pair) -> None:
    with pytest.raises(ArgumentError):
        load(backbones["bert"], runtime="onnx")
    with pytest.raises(ArgumentError):
        load("vocable-mini", runtime="openvino")
    with pytest.raises(ArgumentError):
        load_encoder(pair("bert")[1], runtime="onnx")
    with pytest.raises(ModelError):
        load(pair("bert")[1].place, runtime="torch")


@pytest.mark.parametrize("weights", [True, False])
def test_a_graph_that_was_not_copied_is_named(pair: Pair, tmp_path: Path, weights: bool) -> None:
    """Its weights would give other vectors than its graph: they are named, if they are there, and not taken unasked."""
    model, graph = pair("bert")
    graph.save_pretrained(tmp_path)
    if weights:
        model.save_pretrained(str(tmp_path))
    lost = next(tmp_path.rglob("*.onnx"))
    lost.unlink()
    with pytest.raises(ModelError, match=re.escape(f"{lost}: the graph is missing")) as caught:
        encode(load_encoder(tmp_path, device="cpu"), ["fox"])
    assert ("the runtime torch" in str(caught.value)) == weights
    if weights:
        assert encode(load_encoder(tmp_path, runtime="torch"), ["fox"]).shape[0] == 1


def test_without_pytorch_a_model_without_a_graph_names_the_extra(
    backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vocable.encoding.load.find_spec", lambda name: None)
    assert isinstance(load("vocable-mini"), GraphModel)
    with pytest.raises(MissingExtraError, match=r"vocable\[train\]"):
        load(backbones["bert"])


@pytest.mark.parametrize(("weights", "kind"), [(True, "torch"), (False, "onnx")])
def test_a_model_of_the_hub_is_loaded_by_its_weights_if_it_has_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, weights: bool, kind: str
) -> None:
    model, graph = pair("bert")
    monkeypatch.setattr("vocable.encoding.load.locate", lambda name: "someone/model")
    monkeypatch.setattr("vocable.encoding.load.check_model", lambda name: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *names: None)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **patterns: str(graph.place))
    monkeypatch.setattr("huggingface_hub.file_exists", lambda name, file: weights)
    monkeypatch.setattr("vocable.torch_models.library.load_sparse_encoder", lambda *names, **options: model)
    found = load("someone/model")
    assert encoding_model(found).runtime == kind
    assert load_encoder("someone/model").runtime == "onnx"
    assert load_encoder("someone/model").name == "someone/model"


def test_the_built_in_graph_agrees_with_the_model(toy_texts: list[str]) -> None:
    texts = [*toy_texts[:20], "Remove a directory and all that is in it.", "", "Return the sum of a list of numbers."]
    wanted, found = (encode(load("vocable-mini", runtime=runtime), texts) for runtime in ("torch", "onnx"))
    best = [prune(vectors, 10).astype(bool) for vectors in (wanted, found)]
    assert best[0].multiply(best[1]).nnz / best[0].nnz > 0.9
    products, *squares = (one.sum(axis=1) for one in (wanted * found, wanted * wanted, found * found))
    assert (products[squares[0] > 0] / np.sqrt(squares[0] * squares[1])[squares[0] > 0]).min() > 0.97
    queries = [encode(load("vocable-mini-doc", runtime=one), texts, "query") for one in ("torch", "onnx")]
    assert (queries[0] != queries[1]).nnz == 0


def test_a_graph_computes_all_batches_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")  # more than batches
    _, found = pair("bert")
    texts, encoder = ["the old fox", "an owl"], TextEncoder(found)
    expected, together, run = encoder.encode(texts), Barrier(2, timeout=30), GraphEncoder.encode

    def wait(*given: Any) -> csr_array:
        together.wait()
        return run(*given)

    monkeypatch.setattr(GraphEncoder, "encode", wait)
    encoder.batch_tokens = 1
    assert (encoder.encode(texts) != expected).nnz == 0


@pytest.mark.slow
def test_an_index_is_searched_by_the_runtime_that_made_it(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    rows = ["Remove a directory tree.", "Sort a list in place.", "Open a file for reading.", "Join paths."]
    corpus.write_text("".join(json.dumps({"_id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(rows)))
    for runtime in ("torch", "onnx"):
        place = tmp_path / runtime
        index("vocable-mini", corpus, place, runtime=runtime).close()
        with open_index(place) as opened:
            assert (opened.settings.meta.runtime, opened.models.loaded.runtime) == (runtime, runtime)
            [answer] = search(opened, ["delete a folder"], 2)
            assert answer.hits[0].document.id == "d0"
            assert add(opened, corpus).unchanged == len(rows)
    index(load("vocable-mini"), corpus, tmp_path / "of-model", device="cpu").close()  # of the dense model, if any
    with pytest.raises(ArgumentError):
        index(load("vocable-mini"), corpus, tmp_path / "refused", runtime="onnx")
    encode("vocable-mini", corpus, output=tmp_path / "vectors")
    assert read_vectors(tmp_path / "vectors").meta.runtime == "onnx"
    index(tmp_path / "vectors", corpus, tmp_path / "of-vectors").close()
    with open_index(tmp_path / "of-vectors") as opened:
        assert opened.models.loaded.runtime == "onnx"
        assert search(opened, ["delete a folder"], 1)[0].hits[0].document.id == "d0"
