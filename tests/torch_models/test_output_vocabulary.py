"""Output terms beside a tokenizer's: the layer, the file of terms, and what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentence_transformers import SparseEncoder

from tests.by_parts import load_checkpoint, save_checkpoint
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.own_terms import read_terms, write_terms
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.explanation.explain import explain_texts, text_terms
from vocable.torch_models.fuse import fuse, unfuse, without_logits
from vocable.torch_models.output_vocabulary import (
    OutputVocabulary,
    give_output_vocabulary,
    output_layer,
    output_vocabulary,
)

# What breaks careless files: quotes, dots, line ends of every kind, control characters, other scripts, marks of JSON.
WORDS = ['"', "u.s.", "a\nb", "\r", "\x00", "\x85", "\u2028", "naïve", "слово", "言葉", "e\u0301", "é", "\\n", "[1]"]


def given_terms(folder: Path, terms: list[str], seed: int = 0) -> Path:
    """The checkpoint in `folder` with random rows for `terms`, saved beside it."""
    mlm, tokenizer = load_checkpoint(folder)
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(len(terms), mlm.get_output_embeddings().in_features, generator=generator)
    give_output_vocabulary(mlm, OutputVocabulary(terms, weight, torch.randn(len(terms), generator=generator)))
    output = folder.with_name(f"{folder.name}-with-{len(terms)}-terms-{seed}")
    if not output.exists():
        save_checkpoint(mlm, tokenizer, output)
    return output


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, unique=True))
def test_terms_of_any_characters_come_back_the_same(tmp_path_factory: pytest.TempPathFactory, terms: list[str]) -> None:
    path = tmp_path_factory.mktemp("terms") / "terms.jsonl"
    write_terms(path, terms)
    assert read_terms(path) == terms


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('"a"\n"b"\n"a"\n', 3),
        ('"a"\n""\n', 2),
        ('"a"\nb\n', 2),
        ('"a"\n\n"b"\n', 2),
        ('["a"]\n', 1),
        ("", 1),
        ('"\xff"\n'.encode("latin-1").decode("latin-1"), 0),
    ],
)
def test_bad_terms_are_refused_with_their_line(tmp_path: Path, content: str, line: int) -> None:
    path = tmp_path / "terms.jsonl"
    path.write_text(content, encoding="utf-8")
    if not line:
        assert read_terms(path) == ["\xff"]
        return
    with pytest.raises(DataError) as caught:
        read_terms(path)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_a_layer_needs_a_term_for_every_row() -> None:
    with pytest.raises(ArgumentError):
        OutputVocabulary(["a", "b"], torch.zeros(3, 4), None)
    with pytest.raises(ArgumentError, match=r"term 3: .*'a'"):
        OutputVocabulary(["a", "b", "a"], torch.zeros(3, 4), None)
    layer = OutputVocabulary(["a", "b"], torch.ones(2, 4), None)
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    assert torch.equal(layer(torch.ones(1, 4)), torch.full((1, 2), 4.0))


def test_logits_and_vectors_are_those_of_the_layer(backbone: Path, toy_texts: list[str]) -> None:
    folder = given_terms(backbone, WORDS)
    mlm, tokenizer = load_checkpoint(folder)
    layer = output_vocabulary(mlm)
    assert layer is not None
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    texts, expected = toy_texts[:4], []
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            with without_logits(mlm) as found:
                hidden = mlm(**inputs).logits[0].numpy()
            np.testing.assert_allclose(mlm(**inputs).logits[0].numpy(), hidden @ weight.T + bias, rtol=1e-4, atol=1e-4)
        assert found is layer
        expected.append(np.log1p(np.maximum((hidden @ weight.T + bias).max(axis=0), 0)))
    model = load(folder, device="cpu")
    vectors = encode(model, texts).toarray()
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-4)
    order = np.argsort(-vectors[0])[: int((vectors[0] > 0).sum())]
    assert [term for term, _ in model.decode(model.encode(texts[0]))] == [WORDS[i] for i in order]
    assert {match.term for match in explain_texts(model, texts[0], texts[0]).matches} == {WORDS[i] for i in order}


def test_copies_and_unfused_models_keep_their_terms(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    model = load(given_terms(backbones["modernbert"], WORDS), device="cpu")
    expected = encode(model, toy_texts[:3]).toarray()
    copied = copy.deepcopy(model)
    with torch.no_grad():
        output_layer(model[0].auto_model).weight.zero_()  # the copy has a layer of its own
    np.testing.assert_array_equal(encode(copied, toy_texts[:3]).toarray(), expected)
    assert copied.decode(torch.eye(len(WORDS))) == [[(word, 1.0)] for word in WORDS]
    for again in (unfuse(copied), fuse(copied)):
        np.testing.assert_allclose(again.encode(toy_texts[:3]).to_dense().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_gradients_reach_the_layer_and_the_encoder(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    model = load(given_terms(backbones["bert"], WORDS), device="cpu")
    mlm = model[0].auto_model
    grads = []
    for one in (model, unfuse(copy.deepcopy(model))):
        one[1].train()  # the stock pooling works in place otherwise
        one(one.preprocess(toy_texts[:3]))["sentence_embedding"].sum().backward()
        grads.append({name: p.grad for name, p in one[0].auto_model.named_parameters() if p.grad is not None})
    assert (grads[0]["output_vocabulary.weight"] != 0).any()
    assert mlm.get_output_embeddings().bias.grad is None
    assert grads[0].keys() == grads[1].keys()
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name], rtol=1e-3, atol=1e-5)


def test_words_of_a_text_are_found_however_they_are_spelled(backbones: dict[str, Path]) -> None:
    terms = ["the", "fox", "Fox", "naive", "##ive", "u.s.", ".", "Ġowl", "▁owl", "言葉", "owls"]
    model = load(given_terms(backbones["bert"], terms), device="cpu")
    texts = ["The naïve Owl, U.S. 言葉", "Fox", ""]
    assert text_terms(model, texts) == [{"the", "naive", "u.s.", ".", "Ġowl", "▁owl", "言葉"}, {"Fox", "fox"}, set()]


def test_damaged_folders_are_refused_by_name(backbones: dict[str, Path], tmp_path: Path) -> None:
    folder = given_terms(backbones["bert"], WORDS, seed=1)
    terms, weights = folder / "output_vocabulary.jsonl", folder / "model.safetensors"
    tensors = load_file(weights)
    save_file({name: tensor for name, tensor in tensors.items() if "output_voc" not in name}, weights, {"format": "pt"})
    for read in (load_checkpoint, load):
        with pytest.raises(ModelError):
            read(folder)
    save_file(tensors, weights, {"format": "pt"})
    terms.write_text(json.dumps("one") + "\n", encoding="utf-8")
    with pytest.raises(ModelError):
        load(folder)
    terms.write_text('"one"\n"one"\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"output_vocabulary.jsonl:2: .*'one'"):
        load(folder)


def test_a_stock_model_is_left_to_the_host_library(backbones: dict[str, Path]) -> None:
    model = load(backbones["bert"], device="cpu")
    assert type(model[0]).__module__.startswith("sentence_transformers")
    assert "decode" not in model.__dict__
    assert output_vocabulary(model[0].auto_model) is None
    assert isinstance(model, SparseEncoder)


def test_every_weight_that_asks_for_a_gradient_gets_one(backbone: Path, toy_texts: list[str]) -> None:
    """Several processes would wait for those that do not: the decoder's own bias, and its weight if it is not tied."""
    plain, _ = load_checkpoint(backbone)
    asking = {name for name, weight in plain.named_parameters() if weight.requires_grad}
    mlm, tokenizer = load_checkpoint(given_terms(backbone, WORDS))
    mlm(**tokenizer(toy_texts[:2], padding=True, return_tensors="pt")).logits.square().sum().backward()
    without = {name for name, weight in mlm.named_parameters() if weight.requires_grad and weight.grad is None}
    plain(**tokenizer(toy_texts[:2], padding=True, return_tensors="pt")).logits.square().sum().backward()
    assert without == {name for name, weight in plain.named_parameters() if name in asking and weight.grad is None}
    bias = mlm.get_output_embeddings().bias
    assert bias is None or not bias.requires_grad
    assert mlm.get_input_embeddings().weight.requires_grad
