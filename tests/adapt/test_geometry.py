from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vocable.adapt.statistics import anisotropy, row_norms


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
