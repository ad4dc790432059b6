"""The fingerprint of a model: the same for an unchanged model, and other for each thing that changes a vector."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.forks import Fork
from vocable.collection.answers import search
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.collection.verbs import add
from vocable.data import Document, Qrel, Query
from vocable.encoding.load import load, load_encoder
from vocable.encoding.model_fingerprint import differences, number_type
from vocable.encoding.models import check_unchanged, encoding_model
from vocable.encoding.stream import encode_stream
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ModelError, VectorsError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import stored_dataset

Change = Callable[[Any], object]


def edited(path: Path, change: Change) -> None:
    """Change the content of a JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def flip_a_bit(path: Path) -> None:
    """Change the last byte of a file."""
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


def print_fingerprint(folder: str) -> None:
    print(json.dumps(encoding_model(load(folder, device="cpu")).fingerprint()))


@pytest.mark.slow
def test_a_fingerprint_outlasts_encoding_number_types_and_processes(backbone: Path) -> None:
    model = load(backbone, device="cpu")
    stored = json.loads(json.dumps(encoding_model(model).fingerprint()))  # as a file keeps it
    assert stored["weights"].startswith("float32:")
    for role in ("query", "document"):
        encoder = TextEncoder(model, role, dtype="bfloat16", max_length=7)
        encoder.encode(["fox " * 100, "owl"])
        assert differences(stored, encoder.loaded.fingerprint()) == []
    assert differences(stored, encoding_model(load(backbone, device="cpu")).fingerprint()) == []
    with Fork(print_fingerprint, str(backbone)) as process:
        assert json.loads(process.communicate()[0]) == stored


def test_weights_are_compared_in_the_number_type_in_which_they_were_digested(backbones: dict[str, Path]) -> None:
    model = load(backbones["bert"], device="cpu")
    whole = encoding_model(model).fingerprint()
    rounded = encoding_model(load(backbones["bert"], device="cpu").to(torch.bfloat16)).fingerprint()
    assert number_type(rounded) == "bfloat16"
    assert differences(rounded, encoding_model(model).fingerprint(number_type(rounded))) == []
    assert differences(rounded, whole) == ["weights"]
    next(model.parameters()).data.view(torch.int32)[0] ^= 1  # the last bit of a weight
    assert differences(whole, encoding_model(model).fingerprint()) == ["weights"]


def without_normalizer(content: Any) -> None:
    content["normalizer"] = None


CHANGES: dict[str, tuple[str, Change, list[str]]] = {
    "normalizer": ("tokenizer.json", without_normalizer, ["tokenizer"]),
    "activation": ("config.json", lambda c: c.update(hidden_act="relu"), ['hidden_act: "gelu", now "relu"']),
    "epsilon": ("config.json", lambda c: c.update(layer_norm_eps=1e-3), ["layer_norm_eps: 1e-12, now 0.001"]),
    "heads": ("config.json", lambda c: c.update(num_attention_heads=4), ["num_attention_heads: 2, now 4"]),
    "IDF": ("config.json", lambda c: c.update(query_idf=0.5), ["query_idf: 0.0, now 0.5"]),
    "terms": ("config.json", lambda c: c.update(active_terms={"document": 9}), ["document.max_terms: null, now 9"]),
    "length": ("tokenizer_config.json", lambda c: c.update(model_max_length=9), ["max_length: 64, now 9"]),
}
HARMLESS: dict[str, tuple[str, Change]] = {
    "a newer release": ("config.json", lambda c: c.update(transformers_version="9.9", use_cache=False, new_key=1)),
    "training": ("config.json", lambda c: c.update(hidden_dropout_prob=0.5, initializer_range=0.5)),
    "notes": ("config.json", lambda c: c.update(vocable={"provenance": []})),
}


@pytest.fixture
def checkpoint(backbones: dict[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(backbones["bert"], tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_that_changes_a_vector_is_named(checkpoint: Path, name: str) -> None:
    stored = encoding_model(load(checkpoint, device="cpu")).fingerprint()
    file, change, named = CHANGES[name]
    edited(checkpoint / file, change)
    assert differences(stored, encoding_model(load(checkpoint, device="cpu")).fingerprint()) == named


@pytest.mark.parametrize("name", HARMLESS)
def test_a_change_without_effect_on_vectors_is_none(checkpoint: Path, name: str) -> None:
    stored = encoding_model(load(checkpoint, device="cpu")).fingerprint()
    file, change = HARMLESS[name]
    edited(checkpoint / file, change)
    assert differences(stored, encoding_model(load(checkpoint, device="cpu")).fingerprint()) == []


def of_documents(settings: Any, **changes: object) -> None:
    settings["roles"]["document"].update(changes)


GRAPH_CHANGES: dict[str, tuple[str, Change, list[str]]] = {
    "normalizer": ("tokenizer.json", without_normalizer, ["tokenizer"]),
    "terms": ("graph.json", lambda c: of_documents(c, max_terms=3), ["document.max_terms: null, now 3"]),
    "length": ("graph.json", lambda c: of_documents(c, max_length=5), ["document.max_length: 64, now 5"]),
    "prompt": ("graph.json", lambda c: of_documents(c, prompt="Text: "), ['document.prompt: "", now "Text: "']),
    "special": ("graph.json", lambda c: of_documents(c, special=[0]), ["document.special: "]),
    "IDF": ("graph.json", lambda c: c["roles"]["query"].update(query_idf=1.0), ["query.query_idf: 0.0, now 1.0"]),
}


def test_a_graph_has_the_tokenizer_and_the_settings_of_its_model(graph: Path, backbones: dict[str, Path]) -> None:
    model, exported = encoding_model(load(backbones["bert"], device="cpu")).fingerprint(), load_encoder(graph)
    assert differences(model, exported.fingerprint()) == []
    assert {"query.tokenizer", "document.tokenizer", "query.max_length"} <= model.keys() & exported.fingerprint().keys()


@pytest.mark.parametrize("name", GRAPH_CHANGES)
def test_search_add_serve_and_stored_vectors_refuse_a_changed_graph(
    graph: Path, documents: list[Document], corpus: Path, tmp_path: Path, name: str
) -> None:
    model, place, vectors = tmp_path / "model", tmp_path / "index", tmp_path / "vectors"
    shutil.copytree(graph, model)
    index(model, corpus, place).close()
    encoder = TextEncoder(load_encoder(model), "document")
    encode_stream(encoder, documents, vectors, model=str(model), source=str(corpus))
    index(vectors, corpus, tmp_path / "of-vectors").close()
    file, change, [named] = GRAPH_CHANGES[name]
    edited(model / file, change)
    for changed in (place, tmp_path / "of-vectors"):
        with pytest.raises(VectorsError) as refused:
            search(changed, ["fox"])
        assert f"{changed}: {model} has changed since it was made ({named}" in str(refused.value)
        with pytest.raises(VectorsError):
            add(changed, corpus_of(Document("new", "owl"), tmp_path))
        with open_index(changed) as opened:
            assert opened.store.documents(["new"]) == [None]
        with open_index(changed, allow_changed_model=True) as allowed:
            assert allowed.add([Document("new", "owl")]).added == 1
    with pytest.raises(VectorsError):
        stored_dataset(vectors, judged(documents))


def corpus_of(document: Document, folder: Path) -> Path:
    path = folder / "more.jsonl"
    path.write_text(json.dumps({"_id": document.id, "text": document.text}) + "\n")
    return path


def judged(documents: list[Document]) -> Dataset:
    return Dataset("toy", documents, [Query("q", "fox")], [Qrel("q", documents[0].id, 1)])


def test_other_weights_of_a_graph_are_named(graph: Path, corpus: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(graph, model)
    stored = load_encoder(model).fingerprint()
    flip_a_bit(model / "onnx" / "model.onnx")
    assert differences(stored, load_encoder(model).fingerprint()) == ["graph"]
    (model / "onnx" / "model.onnx").unlink()
    with pytest.raises((ModelError, VectorsError)):
        index(model, corpus, tmp_path / "index")


def test_an_option_of_a_search_is_no_change_of_the_model(documents: list[Document], tmp_path: Path) -> None:
    index(load_encoder("vocable-mini"), documents, tmp_path / "index", max_terms=7, max_length=9).close()
    with open_index(tmp_path / "index") as collection:
        assert len(collection.search(["fox"], query_idf=0.0, max_terms=3)) == 1
        assert collection.add([Document("new", "owl")]).added == 1


def test_queries_of_another_model_need_only_the_same_document_side() -> None:
    opened = index("vocable-mini", ["A fox reads at night.", "Owls forget the lazy dog."], dense=None, no_dense=True)
    looked_up = opened.with_model("vocable-mini-doc")
    [answer] = search(looked_up, ["a fox"], 1, weights={"sparse": 1.0}, query_idf=0)
    query = TextEncoder(load_encoder("vocable-mini-doc"), "query").encode(["a fox"])
    expected = (query @ opened.like([answer.hits[0].document.id], max_terms=None).T).toarray()[0, 0]
    assert answer.hits[0].score == pytest.approx(expected, rel=1e-5)
    meta = opened.settings.meta
    other = replace(meta, fingerprint=meta.fingerprint | {"graph": "00000000"})
    with pytest.raises(VectorsError) as error:
        check_unchanged(load_encoder("vocable-mini-doc"), other, "my-index", "index again", only_documents=True)
    assert "(graph)" in str(error.value)
    changed = replace(meta, fingerprint=meta.fingerprint | {"query.max_length": 7})
    with pytest.raises(VectorsError):  # a model of the same name must be the same on both sides
        check_unchanged(load_encoder("vocable-mini"), changed, "my-index", "index again")
