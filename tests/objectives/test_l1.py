"""L1: the definition and its gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vocable.objectives.regularizers import l1


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 9))
def test_it_is_the_mean_of_sums(sparse, seed, texts, terms):
    vectors = sparse(seed, texts, terms)
    assert float(l1(torch.tensor(vectors))) == pytest.approx(np.mean([sum(w) for w in vectors]), rel=1e-9, abs=1e-12)


def test_its_gradient(sparse):
    assert torch.autograd.gradcheck(l1, torch.tensor(sparse(0, 3, 5)).requires_grad_())
