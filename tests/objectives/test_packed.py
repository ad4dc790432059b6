"""Packed vectors: the same as dense ones with what is light set to zero, joined, cut, normalized and multiplied."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vocable.objectives.losses import join, last_rows, nothing, pack, packed_scores, unit

V = 7


def dense(packed, v=V):
    rows = len(packed.offsets) - 1
    found = np.zeros((rows, v))
    for row in range(rows):
        place = slice(int(packed.offsets[row]), int(packed.offsets[row + 1]))
        found[row, packed.terms[place]] = packed.weights[place]
    return found


def heaviest(vectors, k):
    kept = np.zeros_like(vectors)
    for row, vector in enumerate(vectors):
        terms = np.argsort(-vector, kind="stable")[:k]
        kept[row, terms] = vector[terms]
    return kept


@given(st.integers(0, 99), st.integers(1, 5), st.integers(1, 9), st.integers(1, 9))
def test_the_heaviest_terms_are_kept(sparse, seed, rows, k, count):
    vectors = sparse(seed, rows, V)
    packed = pack(torch.tensor(vectors), k)
    expected = heaviest(vectors, k)
    np.testing.assert_array_equal(dense(packed), expected)
    assert len(packed.weights) == np.count_nonzero(expected)
    np.testing.assert_array_equal(dense(last_rows(packed, count)), expected[-count:])
    np.testing.assert_array_equal(dense(join(packed, packed)), np.concatenate([expected, expected]))


@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 5))
def test_scores_are_those_of_dense_vectors(sparse, seed, b, m):
    queries, documents = sparse(seed, b, V), sparse(seed + 1, m, V)
    packed = pack(torch.tensor(documents), V)
    np.testing.assert_allclose(packed_scores(torch.tensor(queries), packed), queries @ documents.T, atol=1e-12)
    lengths = np.linalg.norm(documents, axis=1, keepdims=True)
    np.testing.assert_allclose(dense(unit(packed)), documents / np.where(lengths > 0, lengths, 1), atol=1e-12)


def test_the_gradient_of_scores(sparse):
    packed = pack(torch.tensor(sparse(1, 5, V)), V)
    queries = torch.tensor(np.random.default_rng(0).random((3, V))).requires_grad_()
    assert torch.autograd.gradcheck(lambda q: packed_scores(q, packed), (queries,))


def test_there_may_be_no_rows_at_all():
    empty = nothing(torch.empty(0))
    assert packed_scores(torch.ones(3, V), empty).shape == (3, 0)
    assert join(empty, pack(torch.eye(2), 1)).offsets.tolist() == [0, 1, 2]
    assert len(last_rows(empty, 4).offsets) == len(unit(empty).offsets) == 1


def test_a_weight_takes_eight_bytes():
    packed = pack(torch.rand(4, 100), 100)
    held = sum(tensor.numel() * tensor.element_size() for tensor in packed)
    assert held == pytest.approx(8 * 400, rel=0.01)
