"""Overlap of a query and its positive: the definition, what it makes of sets, its gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vocable.objectives.regularizers import overlap_distance


def reference(queries, documents):
    distances = []
    for query, document in zip(queries, documents, strict=True):
        pairs = [(1 - np.exp(-w), 1 - np.exp(-u)) for w, u in zip(query, document, strict=True)]
        either = sum(max(pair) for pair in pairs)
        distances.append(1 - sum(min(pair) for pair in pairs) / either if either else 1.0)
    return np.mean(distances)


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 9))
def test_it_is_the_definition(sparse, seed, pairs, terms):
    queries, documents = sparse(seed, pairs, terms), sparse(seed + 1, pairs, terms)
    found = overlap_distance(torch.tensor(queries), torch.tensor(documents))
    assert float(found) == pytest.approx(reference(queries, documents), rel=1e-9, abs=1e-12)


@given(st.sets(st.integers(0, 8)), st.sets(st.integers(0, 8)))
def test_of_heavy_weights_it_is_the_jaccard_distance(one, other):
    query, document = (torch.tensor([[100.0 * (j in terms) for j in range(9)]]) for terms in (one, other))
    expected = 1 - len(one & other) / len(one | other) if one | other else 1
    assert float(overlap_distance(query, document)) == pytest.approx(expected)


def test_its_gradient():
    rng = np.random.default_rng(0)
    queries, documents = (torch.tensor(rng.random((4, 5))).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(overlap_distance, (queries, documents))


def test_a_step_along_it_brings_terms_together():
    query, document = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.5, 0.0, 3.0]])
    query.requires_grad_(), document.requires_grad_()
    overlap_distance(query, document).backward()
    # Less of what is heavier than the other's, or what the other has not; more of what is lighter.
    assert query.grad.sign().tolist() == [[1, 1, -1]]
    assert document.grad.sign().tolist() == [[-1, -1, 1]]


def test_pairs_without_a_term_share_nothing_and_have_finite_gradients():
    queries, documents = torch.zeros(2, 3), torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    found = overlap_distance(queries.requires_grad_(), documents.requires_grad_())
    assert found.item() == 1
    found.backward()
    assert torch.isfinite(queries.grad).all()
    assert torch.isfinite(documents.grad).all()
