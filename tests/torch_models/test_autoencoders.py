"""Autoencoders over dense models: search, IDF, pruning and explanations by codes, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder

from tests.torch_models.checkpoints import Toys, autoencoder
from vocable import encode, explain, index, inspect, load, open_index, prune, rescale, search
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models.autoencoders import AutoencoderModel

TEXTS = ["the fox ran over the hill and the fox slept", "a librarian reads a book", "an owl in the rain at night"]


@pytest.fixture
def folder(backbones: dict[str, Path], tmp_path: Path) -> Path:
    autoencoder(tmp_path / "csr", Toys(backbones, {}, tmp_path))
    return tmp_path / "csr"


def test_codes_are_searched_and_pruned_as_terms_are(folder: Path, tmp_path: Path) -> None:
    model: Any = load(folder, device="cpu")
    assert isinstance(model, AutoencoderModel)
    assert (len(model.terms), model.terms[17], model.dimensions) == (96, "latent 17", None)
    vectors = encode(model, TEXTS, dtype="float32")
    assert (np.diff(vectors.indptr) <= 8).all()
    assert (np.diff(prune(vectors, max_terms=3).indptr) == 3).all()
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"id": str(i), "text": text}) for i, text in enumerate(TEXTS)))
    index(folder, corpus, tmp_path / "index")
    queries = SparseEncoder(str(folder), device="cpu").encode_query(TEXTS).to_dense().numpy()
    for answer, scores in zip(search(tmp_path / "index", TEXTS, 3, weights="sparse"), queries @ queries.T, strict=True):
        found = {hit.document.id: hit.score for hit in answer.hits}
        expected = {str(i): score for i, score in enumerate(scores.tolist()) if score > 0}
        assert found == pytest.approx(expected, rel=1e-3)
    with open_index(tmp_path / "index") as collection:
        standing: Any = explain(collection, TEXTS[1], "1")
    assert standing.rank == 1
    assert standing.explanation.score == pytest.approx(float(queries[1] @ queries[1]), rel=1e-3)


def test_a_latent_is_explained_by_the_tokens_that_activate_it(folder: Path) -> None:
    explanation: Any = explain(load(folder, device="cpu"), TEXTS[0], TEXTS[1])
    library = SparseEncoder(str(folder), device="cpu")
    first, last = library[0], library[2]
    names = {}
    with torch.no_grad():
        best: dict[int, dict[str, float]] = {}
        for text in TEXTS[:2]:
            inputs = library.preprocess([text])
            activations = last.encode_pre_act(first(dict(inputs))["token_embeddings"][0])
            for token, row in zip(inputs["input_ids"][0].tolist(), activations.tolist(), strict=True):
                word = library.tokenizer.decode([token])
                for latent, value in enumerate(row):
                    known = best.setdefault(latent, {})
                    if value > 0 and token not in library.tokenizer.all_special_ids:
                        known[word] = max(value, known.get(word, 0))
    for latent, words in best.items():
        shown = sorted(words, key=lambda word: -words[word])[:3]
        names[f"latent {latent}"] = f"latent {latent} ({', '.join(shown)})" if shown else f"latent {latent}"
    assert explanation.matches
    for match in explanation.matches:
        assert match.term == names[match.term.partition(" (")[0]]


def test_what_needs_an_output_layer_refuses_an_autoencoder(folder: Path) -> None:
    model: Any = load(folder, device="cpu")
    for refused in (lambda: inspect(folder), lambda: rescale(model, factor=2)):
        with pytest.raises(ModelError):
            refused()
    with pytest.raises(ArgumentError):
        load(folder, pooling="max")
    (folder / "2_SparseAutoEncoder" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
