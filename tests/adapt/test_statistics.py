"""Row norms, anisotropy, and the start of a training against figures computed text by text."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tests.by_parts import load_checkpoint
from vocable.adapt.statistics import anisotropy, halves, measure_start, row_norms
from vocable.encoding.load import load
from vocable.encoding.pooling import POOLINGS, Activation
from vocable.errors import ArgumentError, ModelError


@torch.no_grad()
def logits(mlm: Any, tokenizer: Any, text: str, max_length: int = 128) -> NDArray[np.float64]:
    """One text's logits [s, v] from the stock model."""
    found = mlm(**tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")).logits[0]
    return found.double().numpy()


def weights(x: NDArray[np.float64], pooling: str, activation: str) -> NDArray[np.float64]:
    """A text's weights [v] from its logits [s, v]."""
    w = np.log1p(np.maximum(x, 0))
    w = np.log1p(w) if activation == "log1p_relu" else w
    return {"max": w.max(axis=0), "sum": w.sum(axis=0), "cls": w[0]}[pooling]


def reference(
    mlm: Any,
    tokenizer: Any,
    texts: list[str],
    batch: int,
    temperature: float,
    pooling: str = "max",
    activation: str = "relu",
) -> dict[str, float]:
    words = [text.split() for text in texts]
    queries = [logits(mlm, tokenizer, " ".join(some[: len(some) // 2])) for some in words]
    documents = [logits(mlm, tokenizer, " ".join(some[len(some) // 2 :])) for some in words]
    q, d = (np.stack([weights(x, pooling, activation) for x in side]) for side in (queries, documents))
    if pooling == "cls":
        documents = [x[:1] for x in documents]
    blocks = [q[i : i + batch] @ d[i : i + batch].T for i in range(0, len(texts), batch)]
    scores = np.stack(blocks) / temperature
    own = np.diagonal(scores, axis1=1, axis2=2)
    terms = (d > 0).sum(axis=1)
    return {
        "pairs": len(texts),
        "batch": batch,
        "token_rate": np.concatenate([(x > 0).ravel() for x in documents]).mean(),
        "pooled_rate": (d > 0).mean(),
        "terms_mean": terms.mean(),
        "terms_p99": np.percentile(terms, 99),
        "positive_mean": own.mean() * temperature,
        "score_mean": np.mean(blocks),
        "score_std": np.std(blocks),
        "score_max": np.max(blocks),
        "accuracy": (scores.argmax(axis=2) == np.arange(batch)).mean(),
        "loss": np.mean(np.log(np.exp(scores).sum(axis=2)) - own),
        "chance": math.log(batch),
    }


def test_every_architecture_as_by_hand(backbone: Path, texts: list[str]) -> None:
    mlm, tokenizer = load_checkpoint(backbone)
    found = measure_start(mlm, tokenizer, texts[:6], batch_size=3, temperature=0.5)
    assert asdict(found) == pytest.approx(reference(mlm.eval(), tokenizer, texts[:6], 3, 0.5), rel=1e-4)


@pytest.mark.parametrize(("pooling", "activation"), [("sum", "relu"), ("cls", "relu"), ("max", "log1p_relu")])
def test_other_poolings_and_activations_as_by_hand(
    backbones: dict[str, Path], texts: list[str], pooling: str, activation: Activation
) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    found = measure_start(mlm, tokenizer, texts[:6], batch_size=3, pooling=pooling, activation=activation)
    expected = reference(mlm.eval(), tokenizer, texts[:6], 3, 1.0, pooling, activation)
    assert asdict(found) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_is_that_of_a_sparse_encoder(backbones: dict[str, Path], texts: list[str], pooling: Any) -> None:
    model = load(backbones["bert"], pooling=pooling)
    pairs = halves(texts[:8])
    queries, documents = (model.encode([pair[side] for pair in pairs]).to_dense() for side in range(2))
    found = measure_start(*load_checkpoint(backbones["bert"]), texts[:8], pooling=pooling)
    scores = queries @ documents.T
    assert found.score_mean == pytest.approx(float(scores.mean()), rel=1e-4)
    assert found.positive_mean == pytest.approx(float(scores.diagonal().mean()), rel=1e-4)
    assert found.terms_mean == pytest.approx(float((documents > 0).sum(dim=1).double().mean()))


@pytest.mark.parametrize(("count", "pairs", "batch"), [(9, 8, 4), (8, 8, 4), (3, 3, 3), (2, 2, 2)])
def test_batches_are_whole(backbones: dict[str, Path], texts: list[str], count: int, pairs: int, batch: int) -> None:
    found = measure_start(*load_checkpoint(backbones["bert"]), texts[:count], batch_size=4)
    assert (found.pairs, found.batch, found.chance) == (pairs, batch, math.log(batch))


def test_no_bias_is_a_bias_of_zero(backbones: dict[str, Path], texts: list[str]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    decoder = mlm.get_output_embeddings()
    torch.nn.init.zeros_(decoder.bias)
    expected = measure_start(mlm, tokenizer, texts[:4])
    decoder.bias = None
    assert measure_start(mlm, tokenizer, texts[:4]) == expected


def test_long_texts_are_cut(backbones: dict[str, Path], texts: list[str]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    mlm.eval()
    document = texts[0].split()[len(texts[0].split()) // 2 :]
    rates = [(logits(mlm, tokenizer, " ".join(document), 5) > 0).mean()]
    other = texts[1].split()[len(texts[1].split()) // 2 :]
    rates.append((logits(mlm, tokenizer, " ".join(other), 5) > 0).mean())
    found = measure_start(mlm, tokenizer, texts[:2], max_length=5)
    assert found.token_rate == pytest.approx(np.mean(rates), rel=1e-5)  # five tokens each


def test_the_model_is_left_as_it_is(backbones: dict[str, Path], texts: list[str]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    mlm.train()
    before = {name: value.clone() for name, value in mlm.state_dict().items()}
    measure_start(mlm, tokenizer, texts[:4])
    assert mlm.training
    assert all(torch.equal(value, before[name]) for name, value in mlm.state_dict().items())
    assert mlm(input_ids=torch.tensor([[2, 9, 11, 3]])).logits.shape == (1, 4, mlm.config.vocab_size)


def test_short_and_repeated_texts_make_no_pair() -> None:
    long = "one two three four five six seven  eight\nnine"
    assert halves(["", "one two", long, long]) == [("one two three four", "five six seven eight nine")]


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (None, {"temperature": 0}),
        (None, {"temperature": float("nan")}),
        (None, {"batch_size": 1}),
        (None, {"pooling": "mean"}),
        (["", "\n"], {}),
        (["one two three four five six seven eight"] * 2, {}),
    ],
)
def test_impossible_arguments_are_refused(
    backbones: dict[str, Path], toy_texts: list[str], texts: list[str] | None, options: dict[str, Any]
) -> None:
    with pytest.raises(ArgumentError):
        measure_start(*load_checkpoint(backbones["bert"]), texts or toy_texts, **options)


def test_a_model_without_a_head_is_refused(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    mlm = AutoModelForMaskedLM.from_pretrained(backbones["bert"])
    tokenizer = AutoTokenizer.from_pretrained(backbones["bert"])
    with pytest.raises(ModelError):
        measure_start(mlm.base_model, tokenizer, toy_texts)


@given(st.integers(2, 40), st.integers(1, 9), st.floats(0, 3), st.integers(0, 2**31))
def test_anisotropy_is_the_mean_cosine_of_all_pairs(rows: int, dimensions: int, shift: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(rows, dimensions)) + shift
    weight *= rng.uniform(0.1, 30, size=(rows, 1))
    unit = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    pairs = [unit[i] @ unit[j] for i in range(rows) for j in range(rows) if i != j]
    assert anisotropy(torch.tensor(weight, dtype=torch.float32)) == pytest.approx(np.mean(pairs), abs=1e-5)


def test_rows_of_zeros_have_no_direction() -> None:
    weight = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert anisotropy(weight) == pytest.approx(2**-0.5)
    assert anisotropy(weight[:2]) == 0  # one direction: no pair
    assert anisotropy(torch.zeros(3, 2)) == 0


def test_norms_are_float32_whatever_the_type() -> None:
    weight = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    half = weight.bfloat16().requires_grad_()
    assert row_norms(half).dtype == torch.float32
    np.testing.assert_allclose(row_norms(half), np.linalg.norm(half.detach().float().numpy(), axis=1), rtol=1e-6)
    assert anisotropy(half) == pytest.approx(anisotropy(weight), abs=0.01)


def test_a_scaled_matrix_has_the_same_anisotropy() -> None:
    weight = torch.randn(50, 6, generator=torch.Generator().manual_seed(1)) + 0.3
    assert anisotropy(weight / 8) == pytest.approx(anisotropy(weight), rel=1e-6)
    torch.testing.assert_close(row_norms(weight / 8), row_norms(weight) / 8)
