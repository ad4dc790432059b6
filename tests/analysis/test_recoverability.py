from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.by_parts import load_checkpoint
from vocable.analysis.logits import compare_clusters, recoverability
from vocable.errors import ArgumentError

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
    with pytest.raises(ArgumentError, match=r"clusters must be at least 2 and at most .* texts, 2;"):
        recoverability(mlm, tokenizer, ["a fox", "an owl"], 3)
