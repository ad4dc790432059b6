"""MarginMSE: the definition triple by triple, gradients, and the host library's loss."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sparse_encoder.losses import SparseMarginMSELoss

from vocable.errors import ArgumentError
from vocable.objectives.losses import margin_mse


def reference(scores, taught):
    return np.mean(
        [((s[0] - s[j]) - (t[0] - t[j])) ** 2 for s, t in zip(scores, taught, strict=True) for j in range(1, len(s))]
    )


@given(st.integers(0, 99), st.integers(1, 5), st.integers(2, 7))
def test_it_is_the_mean_over_triples(seed, queries, candidates):
    scores, taught = np.random.default_rng(seed).normal(scale=10, size=(2, queries, candidates))
    found = margin_mse(torch.tensor(scores), torch.tensor(taught))
    assert float(found) == pytest.approx(reference(scores, taught), rel=1e-9)


@given(st.floats(-100, 100))
def test_an_offset_of_the_teacher_makes_no_difference(offset):
    scores, taught = torch.tensor([[3.0, 1.0, 2.0]]).double(), torch.tensor([[9.0, 2.0, 0.0]]).double()
    torch.testing.assert_close(margin_mse(scores, taught + offset), margin_mse(scores, taught))


def test_its_gradient():
    scores, taught = torch.tensor(np.random.default_rng(0).normal(size=(2, 3, 4)))
    assert torch.autograd.gradcheck(lambda s: margin_mse(s, taught), scores.requires_grad_())


@pytest.mark.parametrize("negatives", [1, 3])
def test_it_equals_the_host_library(toy_model, sparse, negatives):
    query, *documents = (torch.tensor(sparse(seed, 5, 9)) for seed in range(2 + negatives))
    taught = torch.tensor(np.random.default_rng(0).normal(size=(5, 1 + negatives)))
    theirs = SparseMarginMSELoss(toy_model).compute_loss_from_embeddings([query, *documents], taught)
    scores = torch.stack([(query * document).sum(dim=1) for document in documents], dim=1)
    assert float(margin_mse(scores, taught)) == pytest.approx(float(theirs), rel=1e-9)


@pytest.mark.parametrize(("one", "other"), [((2, 1), (2, 1)), ((2, 3), (2, 4)), ((2, 3), (1, 3))])
def test_no_negative_or_another_shape_is_an_error(one, other):
    with pytest.raises(ArgumentError, match="positive and of negatives"):
        margin_mse(torch.ones(one), torch.ones(other))
