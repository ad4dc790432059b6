"""The term weights of DF-FLOPS: the definition, its limits, and what is no share."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vocable.errors import ArgumentError
from vocable.objectives.regularizers import df_weights, flops


def reference(x, alpha, beta):
    if x == 0:
        return 0.0
    with np.errstate(over="ignore"):  # a weight of 0 in the end
        return 1 / (1 + (np.float64(x) ** (np.log(2) / np.log(alpha)) - 1) ** beta)


@given(st.integers(0, 99), st.floats(0.01, 0.9), st.floats(0.5, 20))
def test_it_is_the_definition(seed, alpha, beta):
    shares = np.append(np.random.default_rng(seed).integers(0, 50, size=20) / 50, [0.0, 1e-6, alpha, 1.0])
    expected = [reference(float(x), alpha, beta) for x in shares]
    found = df_weights(torch.tensor(shares), alpha=alpha, beta=beta)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_rises_from_0_to_1_without_a_gap(dtype):
    shares = torch.cat([torch.logspace(-30, 0, 500, dtype=dtype), torch.tensor([1 - 1e-7], dtype=dtype)]).sort().values
    weights = df_weights(torch.cat([torch.zeros(1, dtype=dtype), shares]))
    assert weights[0] == 0
    assert weights[-1] == 1
    assert (weights.diff() >= 0).all()


def test_the_penalty_multiplies_the_means(sparse):
    vectors = sparse(0, 6, 9)
    shares = (vectors > 0).mean(axis=0)
    weights = np.array([reference(x, 0.1, 10.0) for x in shares])
    found = flops(torch.tensor(vectors), term_weights=df_weights(torch.tensor(shares)))
    assert float(found) == pytest.approx(((weights * vectors.mean(axis=0)) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize("shares", [[0.5, 3.0], [-0.1], [float("nan")]])
def test_counts_are_no_shares(shares):
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        df_weights(torch.tensor(shares))


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"alpha": 1.0}, {"beta": 0.0}])
def test_parameters_out_of_range_are_errors(wrong):
    with pytest.raises(ArgumentError, match="alpha must be between 0 and 1 and beta above 0"):
        df_weights(torch.tensor([0.5]), **wrong)
