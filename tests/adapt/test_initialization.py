"""The first values of new rows, against a few lines of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from vocable.adapt import initialization
from vocable.adapt.alignment import Alignment
from vocable.adapt.initialization import initial_rows, mix, semantic_weights, subtoken_weights


def brute_sparsemax(scores: NDArray[Any]) -> NDArray[Any]:
    """The projection onto the simplex, by trying every size of the support."""
    rising = np.sort(scores)[::-1]
    for size in range(len(scores), 0, -1):
        threshold = (rising[:size].sum() - 1) / size
        if rising[size - 1] > threshold:
            return np.maximum(scores - threshold, 0)
    raise AssertionError


def cosines(embeddings: NDArray[Any], new: NDArray[Any], anchors: NDArray[Any]) -> NDArray[Any]:
    unit = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    return unit[new] @ unit[anchors].T


@given(hnp.arrays(np.float64, st.tuples(st.integers(3, 30), st.integers(1, 6)), elements=st.floats(-2, 2, width=16)))
def test_semantic_weights_are_the_projection_of_the_cosines(embeddings: NDArray[Any]) -> None:
    anchors, new = np.arange(0, len(embeddings), 2), np.arange(1, len(embeddings), 2)
    found = semantic_weights(torch.from_numpy(embeddings), anchors, new).toarray()
    expected = [brute_sparsemax(row) for row in cosines(embeddings, new, anchors)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert (found >= 0).all()


@pytest.mark.parametrize("spread", [0.02, 1.0])  # hundreds of neighbours a token, or a few dozen
def test_blocks_and_supports_larger_than_expected_change_nothing(
    monkeypatch: pytest.MonkeyPatch, spread: float
) -> None:
    embeddings = np.random.default_rng(0).normal(size=(700, 24)) * spread + 0.1
    anchors, new = np.arange(600), np.arange(600, 700)
    whole = semantic_weights(torch.from_numpy(embeddings), anchors, new)
    monkeypatch.setattr(initialization, "NEW_TOKENS", 7)
    monkeypatch.setattr(initialization, "SUPPORT", 4)
    blockwise = semantic_weights(torch.from_numpy(embeddings), anchors, new)
    np.testing.assert_allclose(blockwise.toarray(), whole.toarray(), atol=1e-6)
    expected = [brute_sparsemax(row) for row in cosines(embeddings, new, anchors)]
    np.testing.assert_allclose(whole.toarray(), expected, atol=1e-5)


def test_semantic_weights_of_a_token_of_zeros_are_even_and_no_tokens_give_no_rows() -> None:
    embeddings = torch.eye(4)
    embeddings[3] = 0
    assert semantic_weights(embeddings, np.arange(3), np.array([3])).toarray() == pytest.approx(np.full((1, 3), 1 / 3))
    assert semantic_weights(embeddings, np.arange(4), np.array([], dtype=np.int64)).shape == (0, 4)


def test_mixing_is_a_matrix_product() -> None:
    weights = subtoken_weights([[0, 3, 3], [2]], 4)
    rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([(rows[0] + 2 * rows[3]) / 3, rows[2]])
    torch.testing.assert_close(mix(weights, rows), expected)
    torch.testing.assert_close(mix(weights, rows.bfloat16()), expected, atol=0.02, rtol=0)


ALIGNMENT = Alignment(np.array([5, -1, 2, -1, 0]), np.array(["word", "word", "continuation", "word", "special"]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_each_initialization(dtype: torch.dtype) -> None:
    rows = torch.randn(6, 400, generator=torch.Generator().manual_seed(1)).to(dtype) * 3
    weights = subtoken_weights([[1, 4], []], 6)

    def make(init: Any, seed: int = 0) -> torch.Tensor:
        return initial_rows(rows, init, weights, ALIGNMENT, torch.Generator().manual_seed(seed))

    for init in ("semantic", "subtoken", "random-new"):
        assert make(init).dtype == dtype
        assert torch.equal(make(init)[[0, 2, 4]], rows[[5, 2, 0]])
    centroid = (rows[5].float() + rows[2].float()).div(2).to(dtype)  # the special token is no anchor
    subtoken = make("subtoken")
    torch.testing.assert_close(subtoken[1], (rows[1].float() + rows[4].float()).div(2).to(dtype))
    assert torch.equal(subtoken[3], centroid)
    mean = initial_rows(rows, "mean", None, ALIGNMENT, torch.Generator())
    assert torch.equal(mean[[1, 3]], centroid.expand(2, -1))
    drawn = make("random-all")
    assert drawn.float().std().item() == pytest.approx(rows.float().std().item(), rel=0.1)
    assert not torch.equal(drawn[0], rows[5])
    assert torch.equal(make("random-new", 7), make("random-new", 7))
    assert not torch.equal(make("random-new", 7), make("random-new", 8))
