"""Queries without an encoder: weights, what is left of the document encoder, and what stock classes make of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.terms import terms
from vocable.errors import ArgumentError, ModelError
from vocable.explanation.explain import explain_texts
from vocable.torch_models.asymmetric import static_embedding
from vocable.torch_models.fuse import main_transformer
from vocable.torch_models.inference_free import make_inference_free


def binary(model: SparseEncoder, queries: list[str]) -> np.ndarray:
    """1 for each token of a query, by a loop over its tokens."""
    tokenizer = main_transformer(model).tokenizer
    vectors = np.zeros((len(queries), len(tokenizer)), dtype=np.float32)
    for row, query in enumerate(queries):
        for token in tokenizer.convert_tokens_to_ids(tokenizer.tokenize(query)):
            vectors[row, token] = token not in tokenizer.all_special_ids
    return vectors


def idf_of(model: SparseEncoder, texts: list[str]) -> np.ndarray:
    """log(1 + (n - df + 0.5) / (df + 0.5)), special tokens 0."""
    tokenizer = main_transformer(model).tokenizer
    frequency = binary(model, texts).sum(axis=0)
    weights = np.log(1 + (len(texts) - frequency + 0.5) / (frequency + 0.5))
    weights[tokenizer.all_special_ids] = 0
    return weights


def test_queries_are_their_tokens_and_documents_are_as_before(backbone: Path, toy_texts: list[str]) -> None:
    model = load(backbone, device="cpu")
    queries, texts = [*toy_texts[:6], "the fox the fox", "☃ fox", ""], toy_texts[:40]
    before = encode(model, texts[:6], dtype="float32").toarray()
    ones, weighted = make_inference_free(model, weights="ones"), make_inference_free(model, iter(texts))
    expected = binary(model, queries)
    assert expected.sum(axis=1).max() >= 4
    np.testing.assert_array_equal(encode(ones, queries, role="query").toarray(), expected)
    np.testing.assert_allclose(
        encode(weighted, queries, role="query").toarray(), expected * idf_of(model, texts), rtol=1e-6
    )
    for made in (ones, weighted):
        documents = encode(made, texts[:6], dtype="float32").toarray()
        assert documents.shape[1] == expected.shape[1] == len(terms(made))
        np.testing.assert_allclose(documents, before[:, : documents.shape[1]], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(encode(model, texts[:6], dtype="float32").toarray(), before)


def test_stock_classes_load_the_folder_and_give_the_same_vectors(
    backbone: Path, tmp_path: Path, toy_texts: list[str]
) -> None:
    made = make_inference_free(load(backbone, device="cpu"), toy_texts, trainable=True)
    made.save_pretrained(str(tmp_path / "model"))
    queries, documents = toy_texts[:5], toy_texts[5:10]
    stock, again = SparseEncoder(str(tmp_path / "model"), device="cpu"), load(tmp_path / "model", device="cpu")
    for role, texts, method in (("query", queries, stock.encode_query), ("document", documents, stock.encode_document)):
        expected = method(texts).to_dense().numpy()
        assert (expected > 0).sum(axis=1).min() > 0
        for model in (made, again):
            found = encode(model, texts, role=role, dtype="float32").toarray()
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not again[0].sub_modules["query"][0].frozen
    assert stock.similarity(stock.encode_query(queries), stock.encode_document(documents)).shape == (5, 5)


def test_settings_of_encoded_queries_are_left_out_of_looked_up_ones(
    toy_model: SparseEncoder, tmp_path: Path, toy_texts: list[str]
) -> None:
    toy_model.prompts |= {"query": "the rain ", "passage": "a librarian "}
    main_transformer(toy_model).auto_model.config.active_terms = {"query": 1, "document": 3}
    documents = encode(toy_model, toy_texts[:5], dtype="float32").toarray()
    make_inference_free(toy_model, weights="ones").save_pretrained(str(tmp_path / "model"), create_model_card=False)
    made = load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(encode(made, toy_texts[:5], "query").toarray(), binary(made, toy_texts[:5]))
    found = encode(made, toy_texts[:5], dtype="float32").toarray()
    assert (found > 0).sum(axis=1).tolist() == [3] * 5
    np.testing.assert_allclose(found, documents, rtol=1e-5, atol=1e-6)


def test_a_score_is_explained_by_the_query_s_own_tokens(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    made = make_inference_free(toy_model, toy_texts)
    query, document = "the fox", toy_texts[3]
    found = explain_texts(made, query, document)
    weights = idf_of(made, toy_texts) * binary(made, [query])[0]
    expected = float(weights @ encode(made, [document]).toarray()[0])
    assert found.score == pytest.approx(expected, rel=1e-5)
    assert all(match.in_query for match in found.matches)


def test_the_plain_logarithm_if_asked_for(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    made = make_inference_free(toy_model, toy_texts, formula="log")
    frequency = binary(made, toy_texts).sum(axis=0)
    weights = np.log(len(toy_texts) / np.maximum(frequency, 1)) * binary(made, ["the old fox"])[0]
    np.testing.assert_allclose(encode(made, ["the old fox"], "query").toarray()[0], weights, rtol=1e-6)


def test_mean_weights_are_those_of_the_query_encoder(backbone: Path, toy_texts: list[str]) -> None:
    model, queries = load(backbone, device="cpu"), sorted(set(toy_texts))[:25]
    made = make_inference_free(model, iter(queries), weights="mean")
    own, vectors = binary(model, queries), encode(model, queries, "query", dtype="float32").toarray()
    seen = own.sum(axis=0)
    means = {token: vectors[own[:, token] > 0, token].mean() for token in np.flatnonzero(seen)}
    rare = np.mean([means[token] for token in np.flatnonzero(seen == 1)])
    expected = np.array([means.get(token, rare) for token in range(own.shape[1])])
    expected[main_transformer(made).tokenizer.all_special_ids] = 0
    table = static_embedding(made, "query")
    assert table is not None
    np.testing.assert_allclose(table.weight.numpy(), expected, rtol=1e-5, atol=1e-7)
    assert expected.max() > 0


def test_mean_weights_need_queries(toy_model: SparseEncoder) -> None:
    with pytest.raises(ArgumentError):
        make_inference_free(toy_model, [], weights="mean")
    with pytest.raises(ArgumentError):
        make_inference_free(toy_model, weights="mean")


def test_tokens_without_a_column_are_refused(toy_model: SparseEncoder) -> None:
    toy_model.tokenizer.add_tokens(["entirely-new"])
    with pytest.raises(ModelError, match=r"(\d+) tokens .*first \1 .*\d+ terms"):
        make_inference_free(toy_model, weights="ones")


def test_no_text_is_no_corpus(toy_model: SparseEncoder) -> None:
    with pytest.raises(ArgumentError):
        make_inference_free(toy_model, [])
