"""Top-k masking: a stable sort is the reference, ties and empty texts included, and gradients go to what is kept."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vocable.errors import ArgumentError
from vocable.objectives.losses import top_k_mask


def reference(vectors, k):
    masked = np.zeros_like(vectors)
    for row, out in zip(vectors, masked, strict=True):
        kept = np.argsort(-row, kind="stable")[:k]
        out[kept] = row[kept]
    return masked


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 12), st.integers(1, 14), st.integers(1, 4))
def test_it_keeps_the_heaviest_and_of_ties_the_lower_ids(seed, texts, terms, k, weights):
    vectors = np.random.default_rng(seed).integers(0, weights + 1, size=(texts, terms)).astype(float)
    np.testing.assert_array_equal(top_k_mask(torch.tensor(vectors), k), reference(vectors, k))


@given(st.integers(0, 99), st.integers(1, 12))
def test_without_ties_as_well(sparse, seed, k):
    vectors = sparse(seed, 4, 9)
    np.testing.assert_array_equal(top_k_mask(torch.tensor(vectors), k), reference(vectors, k))


def test_as_many_as_are_active_changes_nothing(sparse):
    vectors = torch.tensor(sparse(2, 6, 9))
    active = int((vectors > 0).sum(dim=1).max())
    assert torch.equal(top_k_mask(vectors, active), vectors)
    assert not torch.equal(top_k_mask(vectors, active - 1), vectors)


def test_its_gradient():
    vectors = torch.tensor(np.random.default_rng(0).permutation(20).reshape(4, 5) / 7)
    assert torch.autograd.gradcheck(lambda w: top_k_mask(w, 2), vectors.requires_grad_())


def test_gradients_go_to_what_is_kept_alone():
    vectors = torch.tensor([[3.0, 2.0, 2.0, 1.0]], requires_grad=True)
    top_k_mask(vectors, 2).square().sum().backward()
    assert vectors.grad.tolist() == [[6.0, 4.0, 0.0, 0.0]]


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(broken):
    vectors = torch.tensor([[1.0, broken, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    masked = top_k_mask(vectors, 2)
    assert not masked[0].isfinite().all()
    assert masked[1].tolist() == [0.0, 0.0, 3.0, 4.0]


def test_nothing_kept_is_an_error():
    with pytest.raises(ArgumentError, match="k must be at least 1, not 0"):
        top_k_mask(torch.ones(1, 3), 0)
