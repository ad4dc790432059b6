"""The ensemble of teachers: means of what is standardized over a query's candidates."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vocable.objectives.losses import ensemble


@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 4), st.integers(2, 6))
def test_it_is_the_mean_of_z_scores(seed, teachers, queries, candidates):
    scores = np.random.default_rng(seed).normal(scale=5, size=(teachers, queries, candidates))
    z = (scores - scores.mean(axis=2, keepdims=True)) / scores.std(axis=2, keepdims=True)
    found = ensemble([torch.tensor(each) for each in scores])
    np.testing.assert_allclose(found, z.mean(axis=0), atol=1e-9)


@given(st.integers(0, 99), st.lists(st.floats(0.1, 10), min_size=1, max_size=4))
def test_weights_are_those_of_the_mean(seed, weights):
    scores = np.random.default_rng(seed).normal(scale=5, size=(len(weights), 3, 5))
    z = (scores - scores.mean(axis=2, keepdims=True)) / scores.std(axis=2, keepdims=True)
    found = ensemble([torch.tensor(each) for each in scores], weights)
    np.testing.assert_allclose(found, np.average(z, axis=0, weights=weights), atol=1e-9)


@given(st.floats(0.01, 100), st.floats(-50, 50))
def test_scale_and_offset_of_a_teacher_make_no_difference(scale, offset):
    one, other = torch.tensor([[1.0, 2.0, 5.0]]).double(), torch.tensor([[3.0, 1.0, 1.5]]).double()
    torch.testing.assert_close(ensemble([scale * one + offset, other]), ensemble([one, other]))


def test_a_teacher_without_an_opinion_only_halves_the_other():
    one = torch.tensor([[1.0, 2.0, 5.0]])
    torch.testing.assert_close(ensemble([one, torch.full((1, 3), 7.0)]), ensemble([one]) / 2)
    assert float(ensemble([torch.zeros(1, 3)]).abs().max()) == pytest.approx(0.0)
