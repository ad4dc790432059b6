"""Joint FLOPS: the mean score of all pairs, its gradient, and FLOPS as the special case."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vocable.objectives.regularizers import flops, joint_flops


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
def test_it_is_the_mean_score_of_all_pairs(sparse, seed, count, documents, terms):
    q, d = sparse(seed, count, terms), sparse(seed + 1, documents, terms)
    expected = np.mean([[sum(a * b) for b in d] for a in q])
    assert float(joint_flops(torch.tensor(q), torch.tensor(d))) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_of_one_side_with_itself_it_is_flops(sparse):
    vectors = torch.tensor(sparse(0, 5, 9))
    torch.testing.assert_close(joint_flops(vectors, vectors), flops(vectors))


def test_its_gradient(sparse):
    vectors = (torch.tensor(sparse(seed, 3, 5)).requires_grad_() for seed in range(2))
    assert torch.autograd.gradcheck(joint_flops, tuple(vectors))
