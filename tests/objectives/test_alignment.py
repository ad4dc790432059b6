"""Sparse alignment: both kinds by their definitions, gradients, and texts without terms."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr

from vocable.errors import ArgumentError
from vocable.objectives.losses import alignment


def squared(student, teacher):
    shared = (student > 0) & (teacher > 0)
    return np.mean((student[shared] - teacher[shared]) ** 2) if shared.any() else 0.0


def divergence(student, teacher):
    total = 0.0
    for s, t in zip(student, teacher, strict=True):
        if t.any():
            total += rel_entr(t / t.sum(), np.maximum(s / (s.sum() or 1), 1e-8)).sum()
    return total / len(student)


@pytest.mark.parametrize(("kind", "reference"), [("mse", squared), ("kl", divergence)])
@given(seed=st.integers(0, 99), texts=st.integers(1, 5), terms=st.integers(1, 9))
def test_it_is_the_definition(sparse, kind, reference, seed, texts, terms):
    student, teacher = sparse(seed, texts, terms), sparse(seed + 1, texts, terms)
    found = alignment(torch.tensor(student), torch.tensor(teacher), kind=kind)
    assert float(found) == pytest.approx(reference(student, teacher), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", ["mse", "kl"])
def test_its_gradient(sparse, kind):
    student, teacher = torch.tensor(0.1 + np.random.default_rng(0).random((3, 6))), torch.tensor(sparse(1, 3, 6))
    assert torch.autograd.gradcheck(lambda s: alignment(s, teacher, kind=kind), student.requires_grad_())


def test_kl_takes_from_terms_that_the_teacher_has_not_and_mse_leaves_them():
    student, teacher = torch.tensor([[1.0, 1.0]], requires_grad=True), torch.tensor([[1.0, 0.0]])
    (mse,) = torch.autograd.grad(alignment(student, teacher, kind="mse"), student)
    (kl,) = torch.autograd.grad(alignment(student, teacher, kind="kl"), student)
    assert mse.tolist() == [[0.0, 0.0]]
    assert kl.tolist() == [[-0.5, 0.5]]


@given(st.floats(0.01, 100))
def test_the_scale_of_either_makes_no_difference_to_kl(factor):
    student, teacher = torch.tensor([[1.0, 2.0, 0.5]]).double(), torch.tensor([[2.0, 1.0, 0.0]]).double()
    expected = alignment(student, teacher, kind="kl")
    torch.testing.assert_close(alignment(factor * student, teacher, kind="kl"), expected)
    torch.testing.assert_close(alignment(student, factor * teacher, kind="kl"), expected)


def test_what_cannot_be_aligned_is_an_error():
    with pytest.raises(ArgumentError, match=r"\[2, 5\] and \[2, 6\]"):
        alignment(torch.ones(2, 5), torch.ones(2, 6))
    with pytest.raises(ArgumentError, match="mse or kl, not cosine"):
        alignment(torch.ones(2, 5), torch.ones(2, 5), kind="cosine")
