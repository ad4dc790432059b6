from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tests.by_parts import load_checkpoint
from vocable.analysis import logits
from vocable.analysis.logits import compare_clusters, logit_statistics, recoverability
from vocable.analysis.stored_vectors import Moments
from vocable.errors import ArgumentError, DataError
from vocable.torch_models.output_vocabulary import (
    OutputVocabulary,
    give_output_vocabulary,
    special_columns,
    special_tokens,
)

SHIFT = 0.0123  # the backbones are calibrated so that some logit is 0 but for rounding, which would decide a count


def direct(folder: Path, texts: list[str], top: list[int], layer: OutputVocabulary | None = None) -> dict[str, object]:
    """The definitions, in float64, on all logits at once, with the stock model, one text at a time.

    Terms that stand for no text are left out.
    """
    mlm, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    mlm.get_output_embeddings().bias.data += SHIFT
    if layer is not None:
        give_output_vocabulary(mlm, layer)
    special = special_columns(mlm, tokenizer)
    of_texts = []
    with torch.inference_mode():
        for text in texts:
            inputs = tokenizer(text, truncation=True, max_length=64, return_tensors="pt")
            of_texts.append(np.delete(mlm.eval()(**inputs).logits[0].double().numpy(), special, axis=1))
    every = np.concatenate(of_texts)
    ranked = [np.sort(rows, axis=1)[:, ::-1] for rows in of_texts]
    sizes = {**{str(k): k for k in top}, "all": every.shape[1]}
    counts = (every >= 0).sum(axis=1)
    return {
        "tokens": len(every),
        "logit_score_std": every.std(axis=0).mean(),
        "doc_score_avg": {k: np.mean([rows[:, :n].mean(axis=1).mean() for rows in ranked]) for k, n in sizes.items()},
        "doc_score_std": {k: np.mean([rows[:, :n].std(axis=1).mean() for rows in ranked]) for k, n in sizes.items()},
        "non_neg_terms_avg": counts.mean(),
        "non_neg_terms_std": counts.std(),
    }


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "deberta"])
@pytest.mark.parametrize("block", [1000, 1 << 24])
def test_the_stream_is_the_direct_computation(
    backbones: dict[str, Path], toy_texts: list[str], architecture: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logits, "LOGITS_AT_ONCE", block)
    texts = toy_texts[:36]  # more than a batch
    mlm, tokenizer = load_checkpoint(backbones[architecture])
    mlm.get_output_embeddings().bias.data += SHIFT
    found = logit_statistics(mlm, tokenizer, iter(["", *texts, " "]), top_k=[3, 10], max_length=64)
    expected = direct(backbones[architecture], texts, [3, 10])
    size = mlm.get_output_embeddings().out_features
    assert (found.texts, found.terms) == (36, size - len(special_tokens(tokenizer, size)))
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-5, abs=1e-5), name
    assert "forward" not in mlm.get_output_embeddings().__dict__  # the model is as it was


def test_the_terms_are_those_of_an_output_vocabulary(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    torch.manual_seed(0)
    layer = OutputVocabulary([f"w{i}" for i in range(7)], torch.randn(7, 32), torch.randn(7))
    give_output_vocabulary(mlm, layer)
    found = logit_statistics(mlm, tokenizer, toy_texts[:5], top_k=[2], max_length=64)
    expected = direct(backbones["bert"], toy_texts[:5], [2], layer)
    assert found.terms == 7
    assert found.logit_score_std == pytest.approx(expected["logit_score_std"], rel=1e-5)
    assert found.doc_score_avg == pytest.approx(expected["doc_score_avg"], rel=1e-5)


def test_texts_are_cut_at_the_length(backbones: dict[str, Path]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    found = logit_statistics(mlm, tokenizer, ["fox " * 30, "owl"], top_k=[], max_length=6)
    assert (found.texts, found.tokens) == (2, 6 + len(tokenizer("owl")["input_ids"]))
    assert list(found.doc_score_avg) == ["all"]


def test_what_cannot_be_measured_is_refused(backbones: dict[str, Path]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    for top in ([0], [10_000]):
        with pytest.raises(ArgumentError):
            logit_statistics(mlm, tokenizer, ["fox"], top_k=top)
    with pytest.raises(DataError):
        logit_statistics(mlm, tokenizer, ["", "  "], top_k=[1])


@given(st.lists(st.lists(st.floats(-50, 50), max_size=6), min_size=1, max_size=8), st.sampled_from([0.0, -1000.0]))
def test_moments_of_blocks_are_those_of_all_values(blocks: list[list[float]], offset: float) -> None:
    moments, every = Moments(2), np.array([x + offset for block in blocks for x in block])
    for block in blocks:  # the second term has no value at all
        values = np.array(block) + offset
        mean = values.mean() if len(values) else 0.0
        moments.add([len(values), 0], [mean, 0], [((values - mean) ** 2).sum(), 0])
    assert moments.counts.tolist() == [len(every), 0]
    assert moments.std()[1] == 0
    if len(every):
        assert moments.mean[0] == pytest.approx(every.mean(), abs=1e-9)
        assert moments.std()[0] == pytest.approx(every.std(), abs=1e-6)


RNG = np.random.default_rng(0)
TRUE = np.repeat([0, 1, 2], 20)
CENTRES = np.array([[9.0, 0, 0, 0, 0], [0, 9, 0, 0, 0], [0, 0, 9, 0, 0]])


def test_clear_clusters_are_recovered_whatever_the_offset_and_scale() -> None:
    logits = (CENTRES[TRUE] + RNG.normal(size=(60, 5))).astype(np.float32)
    found = compare_clusters(logits, TRUE)
    inner = np.mean([np.square(logits[c == TRUE] - logits[c == TRUE].mean(axis=0)) for c in range(3)])
    share = inner / np.square(logits - logits.mean(axis=0)).mean()
    assert (found.texts, found.clusters, found.recoverability) == (60, 3, 1.0)
    assert found.inner_variance == pytest.approx(inner, rel=1e-4)
    assert found.inner_share == pytest.approx(share, rel=1e-4)
    moved = compare_clusters(logits * 4 - 30, TRUE)
    assert moved.recoverability == 1.0
    assert (moved.inner_variance, moved.inner_share) == pytest.approx((16 * inner, share), rel=1e-3)


def test_noise_recovers_nothing() -> None:
    logits = RNG.normal(size=(60, 5)).astype(np.float32)
    found = compare_clusters(logits, TRUE)
    assert abs(found.recoverability) < 0.15
    assert found.inner_share > 0.9


def test_a_model_is_measured_with_a_lexical_truth(backbones: dict[str, Path], toy_texts: list[str]) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    texts = toy_texts[:50]
    found = recoverability(mlm, tokenizer, [*texts, texts[0], " "], 4)
    assert (found.texts, found.clusters) == (len(set(texts)), 4)
    assert -1 <= found.recoverability <= 1
    assert 0 < found.inner_share < 1
    assert found == recoverability(mlm, tokenizer, texts, 4)
    with pytest.raises(ArgumentError):
        recoverability(mlm, tokenizer, ["a fox", "an owl"], 3)
