"""Training with queries of another kind: what moves, what does not, and what the result carries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

from vocable.encoder.asymmetric import asymmetric, static_embedding
from vocable.encoder.encode import encode
from vocable.encoder.fuse import splade_modules
from vocable.encoder.inference_free import make_inference_free
from vocable.encoder.load import load
from vocable.errors import ModelError, RecipeError
from vocable.training.callbacks import COMPLETE, ValidWeights
from vocable.training.recipe import Recipe, make_recipe
from vocable.training.stages import queries_learn_apart
from vocable.training.train import train


@pytest.fixture
def examples(tmp_path: Path, toy_texts: list[str]) -> str:
    """48 pairs: a sentence asks for itself with a number in front."""
    texts = sorted(set(toy_texts))[:48]
    path = tmp_path / "pairs.jsonl"
    rows = [{"query": text, "positive": f"chapter {i} {text}"} for i, text in enumerate(texts)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def recipe(model: Path, examples: str, **parts: Any) -> Recipe:
    training = {"steps": 3, "batch_size": 8, "learning_rate": 1e-3}
    training |= {"regularizers": {"query": 0, "document": 0.01}} | parts.pop("training", {})
    return make_recipe({"model": str(model), "data": {"examples": [examples]}, "training": training, **parts})


def read(examples: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in Path(examples).read_text(encoding="utf-8").splitlines()]


def binary_tokens(model: SparseEncoder, texts: list[str]) -> list[int]:
    """The tokens that occur in texts."""
    tokenizer = table(model).tokenizer
    return sorted({token for ids in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in ids})


def table(model: SparseEncoder) -> SparseStaticEmbedding:
    found = static_embedding(model, "query")
    assert found is not None
    return found


def test_frozen_idf_stays_to_the_bit_while_documents_learn(
    backbones: dict[str, Path], examples: str, tmp_path: Path
) -> None:
    parts = {"queries": {"weights": "idf", "corpus": examples}, "saved": {"dtype": "bfloat16", "query_length": 5}}
    made = recipe(backbones["distilbert"], examples, training={"micro_batch": 4}, **parts)
    model = train(made, tmp_path / "model")
    positives = [line["positive"] for line in read(examples)]
    untrained = make_inference_free(load(backbones["distilbert"]), positives)
    assert torch.equal(table(model).weight, table(untrained).weight)
    assert table(model).frozen
    before, after = (encode(one, positives[:4], dtype="float32").toarray() for one in (untrained, model))
    assert not np.allclose(before, after, atol=0.01)
    stock = SparseEncoder(str(tmp_path / "model"), device="cpu")
    query = "the old fox reads books at night in the rain"
    tokens = table(model).tokenizer.tokenize(query)
    assert len(set(tokens[:5])) == encode(model, [query], role="query").nnz < len(set(tokens))
    np.testing.assert_array_equal(
        encode(model, [query], role="query").toarray(), stock.encode_query([query]).to_dense().numpy()
    )


def test_trainable_weights_learn_at_a_rate_of_their_own(
    backbones: dict[str, Path], examples: str, tmp_path: Path
) -> None:
    queries = {"weights": "ones", "trainable": True, "learning_rate": 0.3}
    training = {"learning_rate": 1e-9, "weight_decay": 0, "warmup_share": 0}
    model = train(recipe(backbones["bert"], examples, queries=queries, training=training), tmp_path / "model")
    weights, special = table(model).weight.detach().numpy(), table(model).tokenizer.all_special_ids
    asked = binary_tokens(model, [line["query"] for line in read(examples)])
    assert weights.min() >= 0
    assert not weights[special].any()
    assert np.abs(weights[asked] - 1).max() > 0.1
    never = np.setdiff1d(np.arange(len(weights)), [*asked, *special])
    assert len(never) > 10
    np.testing.assert_array_equal(weights[never], 1)
    texts = ["the old fox reads books", "a librarian"]
    vectors, untrained = (encode(one, texts, dtype="float32").toarray() for one in (model, load(backbones["bert"])))
    np.testing.assert_allclose(vectors, untrained, atol=1e-4)


@pytest.mark.parametrize("own", [True, False])
def test_documents_that_are_frozen_stay_as_they_are(
    backbones: dict[str, Path], examples: str, tmp_path: Path, own: bool
) -> None:
    queries = {"model": str(backbones["distilbert"])} if own else {"weights": "mean", "trainable": True}
    parts = {"queries": queries | {"freeze_documents": True}, "training": {"learning_rate": 0.01, "warmup_share": 0}}
    model = train(recipe(backbones["bert"], examples, **parts), tmp_path / "model")
    texts = [line["query"] for line in read(examples)]
    found, before = (encode(one, texts, dtype="float32").toarray() for one in (model, load(backbones["bert"])))
    np.testing.assert_array_equal(found, before)
    start = (
        asymmetric(load(backbones["distilbert"]), load(backbones["bert"]))
        if own
        else make_inference_free(load(backbones["bert"]), texts, weights="mean")
    )
    learned, before = (encode(one, texts, "query", dtype="float32").toarray() for one in (model, start))
    assert not np.allclose(learned, before, atol=1e-3)
    if not own:
        np.testing.assert_allclose(learned, before, atol=0.2)  # it began there


def test_weights_stay_valid_after_any_step(backbones: dict[str, Path]) -> None:
    model = make_inference_free(load(backbones["bert"]), weights="ones", trainable=True)
    weights = table(model).weight
    with torch.no_grad():
        weights[:] = torch.linspace(-1, 1, len(weights))
    ValidWeights().on_step_end(*[None] * 3, model=model)
    expected = np.maximum(np.linspace(-1, 1, len(weights)), 0)
    expected[table(model).tokenizer.all_special_ids] = 0
    np.testing.assert_allclose(weights.detach().numpy(), expected, atol=1e-6)


def test_what_learns_apart_from_the_documents(backbones: dict[str, Path]) -> None:
    bert, distilbert = load(backbones["bert"]), load(backbones["distilbert"])
    assert not queries_learn_apart(bert)
    assert not queries_learn_apart(make_inference_free(bert, weights="ones"))
    assert queries_learn_apart(make_inference_free(bert, weights="ones", trainable=True))
    assert queries_learn_apart(asymmetric(distilbert, bert))


def test_queries_may_have_an_encoder_of_their_own(backbones: dict[str, Path], examples: str, tmp_path: Path) -> None:
    queries = {"model": str(backbones["distilbert"]), "learning_rate": 1e-9}
    model = train(recipe(backbones["bert"], examples, queries=queries), tmp_path / "model")
    assert [type(transformer.auto_model).__name__ for transformer, _ in splade_modules(model)] == [
        "DistilBertForMaskedLM",
        "BertForMaskedLM",
    ]
    texts = ["the old fox reads books", "a librarian"]
    untouched, changed = load(backbones["distilbert"]), load(backbones["bert"])
    np.testing.assert_allclose(
        encode(model, texts, "query", dtype="float32").toarray(),
        encode(untouched, texts, dtype="float32").toarray(),
        atol=1e-4,
    )
    assert not np.allclose(encode(model, texts).toarray(), encode(changed, texts).toarray(), atol=0.01)
    stock = SparseEncoder(str(tmp_path / "model"), device="cpu")
    for role, method in (("query", stock.encode_query), ("document", stock.encode_document)):
        found = encode(model, texts, role, dtype="float32").toarray()
        np.testing.assert_allclose(found, method(texts).to_dense().numpy(), rtol=1e-4, atol=1e-5)


def test_a_killed_run_goes_on_with_the_same_queries_and_pooling(
    backbones: dict[str, Path], examples: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: dict[str, Any] = {
        "queries": {"weights": "ones", "trainable": True, "learning_rate": 0.01},
        "pooling": "mean-before-head",
        "activation": "log1p_relu",
        "calibrate": {"texts": examples, "shift": -2},  # so that the mean of a text has active terms
    }
    parts["training"] = {"steps": 2, "save_every": 1}
    whole = train(recipe(backbones["bert"], examples, **parts), tmp_path / "whole")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("vocable.training.train._save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(recipe(backbones["bert"], examples, **parts), tmp_path / "resumed")
    last = tmp_path / "resumed.partial" / "train" / "checkpoint-2" / COMPLETE
    last.unlink()  # it goes on from the first step
    resumed = train(recipe(backbones["bert"], examples, **parts), tmp_path / "resumed")
    assert float(table(whole).weight.detach().max()) > 1
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    assert [pooling.get_config_dict()["pooling_strategy"] for _, pooling in splade_modules(resumed)] == [
        "mean-before-head"
    ]


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ({}, "queries have either weights or a model"),
        ({"weights": "ones", "model": "x"}, "queries have either weights or a model"),
        ({"weights": "idf"}, "a corpus goes with weights: idf"),
        ({"weights": "ones", "corpus": "x"}, "a corpus goes with weights: idf"),
        ({"model": "x", "trainable": True}, "trainable is for weights"),
        ({"weights": "ones", "learning_rate": 0.1}, "weights that are not trainable have no learning_rate"),
        ({"weights": "ones", "freeze_documents": True}, "nothing would learn"),
        ({"weights": "mean", "corpus": "x"}, "a corpus goes with weights: idf"),
        ({"weights": "tf"}, "weights"),
    ],
)
def test_what_does_not_fit_together_is_refused(queries: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=f"queries.*{message}"):
        recipe(Path("x"), "y", queries=queries)


def test_encoders_of_different_terms_are_refused(backbones: dict[str, Path], examples: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="do not have the same terms"):
        train(recipe(backbones["bert"], examples, queries={"model": str(backbones["roberta"])}), tmp_path / "model")
