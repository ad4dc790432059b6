"""Two encoders in one model: each role's vectors are those of its own encoder, here and in stock classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder

from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.terms import terms
from vocable.errors import ModelError
from vocable.explanation.explain import explain_texts
from vocable.torch_models.asymmetric import asymmetric, static_embedding
from vocable.torch_models.inference_free import make_inference_free
from vocable.torch_models.output_vocabulary import OutputVocabulary, give_output_vocabulary

# Pairs of architectures that share a toy tokenizer, and the width of the head.
PAIRS = [("bert", "electra"), ("distilbert", "bert"), ("roberta", "mpnet"), ("albert", "deberta")]


@pytest.mark.parametrize(("queries", "documents"), PAIRS)
def test_each_role_has_its_own_encoder_saved_and_loaded(
    backbones: dict[str, Path], queries: str, documents: str, tmp_path: Path, toy_texts: list[str]
) -> None:
    own = {"query": load(backbones[queries], device="cpu"), "document": load(backbones[documents], device="cpu")}
    own["query"].prompts["query"] = "the rain "
    texts = toy_texts[:6]
    expected = {role: encode(model, texts, role, dtype="float32").toarray() for role, model in own.items()}
    assert not np.allclose(*expected.values(), atol=0.01)
    made = asymmetric(own["query"], own["document"])
    assert terms(made) == terms(own["document"])
    made.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    again, stock = load(tmp_path / "model", device="cpu"), SparseEncoder(str(tmp_path / "model"), device="cpu")
    for role, method in (("query", stock.encode_query), ("document", stock.encode_document)):
        for model in (made, again):
            found = encode(model, texts, role, dtype="float32").toarray()
            np.testing.assert_allclose(found, expected[role], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(method(texts).to_dense().numpy(), expected[role], rtol=1e-4, atol=1e-5)


def test_the_encoders_are_copies(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    parts = [load(backbones[name], device="cpu") for name in ("distilbert", "bert")]
    before = [encode(part, toy_texts[:3], dtype="float32").toarray() for part in parts]
    made = asymmetric(*parts)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
    for part, vectors in zip(parts, before, strict=True):
        np.testing.assert_array_equal(encode(part, toy_texts[:3], dtype="float32").toarray(), vectors)


def test_a_score_is_explained_by_both(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    made = asymmetric(load(backbones["distilbert"], device="cpu"), load(backbones["bert"], device="cpu"))
    query, document = toy_texts[0], toy_texts[1]
    found = explain_texts(made, query, document)
    score = encode(made, [query], "query") @ encode(made, [document], "document").T
    assert found.score == pytest.approx(float(score.sum()), rel=1e-5)
    tokens = set(made.tokenizer.tokenize(query))
    assert [match.in_query for match in found.matches] == [match.term in tokens for match in found.matches]


def test_sides_can_be_exchanged_later(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    bert, distilbert = (load(backbones[name], device="cpu") for name in ("bert", "distilbert"))
    looked_up = make_inference_free(bert, weights="ones")
    mixed = asymmetric(looked_up, distilbert)
    assert static_embedding(mixed, "query") is not None
    back = make_inference_free(mixed, toy_texts)
    texts = toy_texts[:4]
    for model in (mixed, back):
        found = encode(model, texts, dtype="float32").toarray()
        np.testing.assert_allclose(found, encode(distilbert, texts, dtype="float32").toarray(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(encode(mixed, texts, "query").toarray(), encode(looked_up, texts, "query").toarray())
    assert static_embedding(looked_up, "document") is None


def test_encoders_that_share_no_terms_are_refused(backbones: dict[str, Path]) -> None:
    bert, roberta = (load(backbones[name], device="cpu") for name in ("bert", "roberta"))
    with pytest.raises(ModelError):
        asymmetric(bert, roberta)


def test_an_output_vocabulary_is_refused(backbones: dict[str, Path]) -> None:
    bert, words = (load(backbones["bert"], device="cpu") for _ in range(2))
    layer = OutputVocabulary(["fox", "owl"], torch.randn(2, 32), None)
    give_output_vocabulary(words[0].auto_model, layer)
    for refused in (
        lambda: asymmetric(words, bert),
        lambda: asymmetric(bert, words),
        lambda: make_inference_free(words, weights="ones"),
    ):
        with pytest.raises(ModelError):
            refused()
