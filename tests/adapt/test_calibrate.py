from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel

from tests.by_parts import calibrate
from tests.conftest import some_pairs
from vocable.adapt import calibrate as calibration
from vocable.adapt.calibrate import Logits, logit_blocks
from vocable.encoding.load import load
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models.output_vocabulary import special_tokens


@pytest.fixture
def mlm(backbones: dict[str, Path]) -> PreTrainedModel:
    return AutoModelForMaskedLM.from_pretrained(backbones["bert"])


@torch.no_grad()
def pooled_logits(mlm: PreTrainedModel, tokenizer: Any, texts: list[str], max_length: int = 128) -> NDArray[Any]:
    """Brute force, a text at a time: each term's largest logit over the text's tokens [b, v]."""
    mlm.eval()
    rows = []
    for text in texts:
        inputs = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        rows.append(mlm(**inputs).logits[0].amax(dim=0).numpy())
    return np.stack(rows)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.01, 0.05, 0.5, 0.9])
def test_the_rate_after_is_the_asked_one(mlm: Any, tokenizer: Any, toy_texts: list[str], rate: float) -> None:
    texts = list(dict.fromkeys(toy_texts))[:40]  # more than one batch; equal texts would tie at the threshold
    before = pooled_logits(mlm, tokenizer, texts)
    result = calibrate(mlm, tokenizer, texts, activation_rate=rate)
    after = pooled_logits(result.mlm, tokenizer, texts)
    assert (after > 0).sum() == pytest.approx(rate * after.size, abs=3)  # rounding at the threshold
    assert result.before.share == pytest.approx((before > 0).mean(), abs=3 / before.size)
    assert result.after.share == pytest.approx((after > 0).mean(), abs=3 / before.size)
    ordinary = np.setdiff1d(np.arange(before.shape[1]), special_tokens(tokenizer, before.shape[1]))
    np.testing.assert_allclose((before - after)[:, ordinary], result.shift, atol=1e-4)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("pooling", ["max", "sum", "cls", "mean-before-head"])
def test_the_rate_is_that_of_the_model_to_be(
    mlm: Any, tokenizer: Any, toy_texts: list[str], pooling: Any, tmp_path: Path
) -> None:
    texts = list(dict.fromkeys(toy_texts))[:40]
    result = calibrate(mlm, tokenizer, texts, activation_rate=0.2, pooling=pooling)
    result.mlm.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load(tmp_path, device="cpu", pooling=pooling)
    active = torch.stack([model.encode_document(text, convert_to_sparse_tensor=False) for text in texts]) > 0
    assert float(active.float().mean()) == pytest.approx(0.2, abs=0.005)
    assert result.after.share == pytest.approx(float(active.float().mean()), abs=3 / active.numel())


def test_every_architecture_is_calibrated(backbone: Path, toy_texts: list[str]) -> None:
    fused = load(backbone, device="cpu")
    tokenizer, texts = fused.tokenizer, toy_texts[:10]
    stock = AutoModelForMaskedLM.from_pretrained(backbone)
    result = calibrate(stock, tokenizer, texts, activation_rate=0.25)
    after = pooled_logits(result.mlm, tokenizer, texts)
    assert (after > 0).mean() == pytest.approx(0.25, abs=0.02)  # repeated texts may tie
    assert result.mlm.get_output_embeddings().weight is result.mlm.get_input_embeddings().weight


@pytest.mark.parametrize("shift", [5.0, -1.5, 0.0])
def test_a_given_shift_is_taken_from_the_bias(mlm: Any, tokenizer: Any, toy_texts: list[str], shift: float) -> None:
    texts = toy_texts[:8]
    bias = mlm.get_output_embeddings().bias.detach().clone()
    result = calibrate(mlm, tokenizer, texts, shift=shift)
    assert result.shift == shift
    torch.testing.assert_close(result.mlm.get_output_embeddings().bias.detach(), bias - shift)
    after = pooled_logits(result.mlm, tokenizer, texts)
    assert result.after.share == pytest.approx((after > 0).mean(), abs=2 / after.size)


def test_the_model_given_is_left_as_it_is(mlm: Any, tokenizer: Any, toy_texts: list[str]) -> None:
    mlm.train()
    before = {name: value.clone() for name, value in mlm.state_dict().items()}
    ids = torch.tensor([[2, 9, 11, 3]])
    result = calibrate(mlm, tokenizer, toy_texts[:4], shift=3)
    assert mlm.training
    assert all(torch.equal(value, before[name]) for name, value in mlm.state_dict().items())
    pointers = {value.data_ptr() for value in mlm.state_dict().values()}
    assert not pointers & {value.data_ptr() for value in result.mlm.state_dict().values()}
    assert mlm(input_ids=ids).logits.shape == result.mlm(input_ids=ids).logits.shape == (1, 4, mlm.config.vocab_size)


def test_ties_are_kept_and_survive_saving(mlm: Any, tokenizer: Any, toy_texts: list[str], tmp_path: Path) -> None:
    result = calibrate(mlm, tokenizer, toy_texts[:4], shift=3)
    assert result.mlm.get_output_embeddings().weight is result.mlm.get_input_embeddings().weight
    assert result.mlm.cls.predictions.bias is result.mlm.get_output_embeddings().bias
    result.mlm.save_pretrained(tmp_path)
    saved = AutoModelForMaskedLM.from_pretrained(tmp_path)
    ids = torch.tensor([[2, 9, 11, 3]])
    assert torch.equal(saved(input_ids=ids).logits, result.mlm(input_ids=ids).logits)


def test_empty_texts_and_texts_beyond_the_probe_are_not_used(mlm: Any, tokenizer: Any, toy_texts: list[str]) -> None:
    expected = calibrate(mlm, tokenizer, toy_texts[:5], activation_rate=0.3)
    found = calibrate(mlm, tokenizer, ["", " ", *toy_texts[:20]], activation_rate=0.3, count=5)
    assert found[1:] == expected[1:]


def test_probe_texts_are_cut(mlm: Any, tokenizer: Any, toy_texts: list[str]) -> None:
    long = [" ".join(toy_texts[i : i + 5]) for i in range(6)]
    result = calibrate(mlm, tokenizer, long, activation_rate=0.3, max_length=6)
    after = pooled_logits(result.mlm, tokenizer, long, max_length=6)
    assert (after > 0).mean() == pytest.approx(0.3, abs=3 / after.size)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_rate": 0.1, "shift": 1.0},
        {"activation_rate": 0.0},
        {"activation_rate": 1.0},
        {"activation_rate": float("nan")},
        {"shift": float("inf")},
        {"shift": 1e39},
        {"shift": 1.0, "pooling": "mean"},
        {"shift": 1.0, "level": "text"},
    ],
)
def test_impossible_arguments_are_refused(mlm: Any, tokenizer: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        calibrate(mlm, tokenizer, ["a fox"], **options)


@pytest.mark.parametrize("texts", [[], ["", "  \n"]])
def test_no_probe_text_is_refused(mlm: Any, tokenizer: Any, texts: list[str]) -> None:
    with pytest.raises(ArgumentError):
        calibrate(mlm, tokenizer, texts, shift=1)


def test_a_decoder_without_a_bias_is_refused(mlm: Any, tokenizer: Any) -> None:
    bare = copy.deepcopy(mlm)
    bare.get_output_embeddings().bias = None
    with pytest.raises(ModelError):
        calibrate(bare, tokenizer, ["a fox"], shift=1)


@torch.no_grad()
def token_logits(mlm: PreTrainedModel, tokenizer: Any, texts: list[str]) -> NDArray[Any]:
    """Brute force, a text at a time: the logits of all tokens [n, v]."""
    mlm.eval()
    return np.concatenate([mlm(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in texts])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rate"), some_pairs([0.01, 0.25, 0.9]))
def test_at_token_level_the_rate_after_is_the_asked_one(
    backbones: dict[str, Path], toy_texts: list[str], name: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "TOKENS", 50)  # several blocks of either kind
    monkeypatch.setattr(calibration, "TERMS", 100)
    mlm, tokenizer = (auto.from_pretrained(backbones[name]) for auto in (AutoModelForMaskedLM, AutoTokenizer))
    texts = list(dict.fromkeys(toy_texts))[:20]
    before = token_logits(mlm, tokenizer, texts)
    result = calibrate(mlm, tokenizer, texts, activation_rate=rate, level="token")
    expected = np.sort(before, axis=None)[before.size - int(rate * before.size) - 1]
    assert result.shift == pytest.approx(expected, rel=1e-5, abs=1e-5)
    counts_before, counts_after = (before > 0).sum(axis=1), (before > result.shift).sum(axis=1)
    assert result.before.share == pytest.approx((before > 0).mean(), abs=3 / before.size)
    assert result.after.share == pytest.approx(rate, abs=0.001)
    assert result.before.mean == pytest.approx(counts_before.mean(), abs=0.01)
    assert result.after.p99 == pytest.approx(np.percentile(counts_after, 99), abs=1)
    after = token_logits(result.mlm, tokenizer, texts)
    assert (after > 0).mean() == pytest.approx(rate, abs=0.001)


@given(
    values=st.lists(st.floats(width=32, allow_nan=False, allow_subnormal=False), min_size=2, max_size=60),
    share=st.floats(0, 0.99),
)
def test_the_threshold_is_exact(values: list[float], share: float) -> None:
    hidden, ones = torch.tensor(values)[:, None], torch.ones(1, 1)
    logits = Logits(len(values), 1, lambda: logit_blocks(hidden, ones, torch.zeros(1)))
    expected = np.sort(np.float32(values))[len(values) - int(share * len(values)) - 1]
    assert logits.threshold(share) == expected


def test_what_is_active_is_counted_for_each_text(mlm: Any, tokenizer: Any, toy_texts: list[str]) -> None:
    texts = list(dict.fromkeys(toy_texts))[:40]
    result = calibrate(mlm, tokenizer, texts, shift=1.0)
    for found, zero in ((result.before, 0.0), (result.after, 1.0)):
        counts = (pooled_logits(mlm, tokenizer, texts) > zero).sum(axis=1)
        assert found.mean == pytest.approx(counts.mean(), abs=0.1)
        assert found.p99 == pytest.approx(np.percentile(counts, 99), abs=1)


def in_batch_loss(mlm: PreTrainedModel, tokenizer: Any, queries: list[str], positives: list[str]) -> float:
    """InfoNCE over the SPLADE vectors of b pairs, in NumPy."""
    q, d = (np.log1p(np.maximum(pooled_logits(mlm, tokenizer, texts), 0)) for texts in (queries, positives))
    scores = (q @ d.T).astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores)))


@pytest.mark.parametrize("level", ["pooled", "token"])
def test_a_dense_start_becomes_one_that_can_be_trained(
    mlm: Any, tokenizer: Any, toy_texts: list[str], level: Any
) -> None:
    with torch.no_grad():  # logits as far apart as those of a trained head
        mlm.get_output_embeddings().weight.mul_(10)
    texts = list(dict.fromkeys(toy_texts))[:32]
    queries = texts[:16]
    positives = [" ".join(text.split()[:5]) for text in queries]
    dense = calibrate(mlm, tokenizer, texts, activation_rate=0.92).mlm
    result = calibrate(dense, tokenizer, texts, activation_rate=0.05 if level == "pooled" else 0.01, level=level)
    even = np.log(len(queries))
    before, after = (in_batch_loss(start, tokenizer, queries, positives) for start in (dense, result.mlm))
    assert before > 15 * even
    assert after < 1.5 * even
    assert result.after.mean < 0.1 * result.before.mean
