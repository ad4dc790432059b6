"""FLOPS: the definition with threshold and term weights, gradients, the host library's loss, and split batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sparse_encoder.losses import FlopsLoss

from vocable.objectives.regularizers import flops


def reference(vectors, threshold, term_weights):
    total = 0.0
    for j in range(vectors.shape[1]):
        kept = [w[j] for w in vectors if threshold == 0 or np.count_nonzero(w) > threshold]
        total += (term_weights[j] * sum(kept) / len(vectors)) ** 2
    return total


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 9), st.integers(0, 9), st.booleans())
def test_it_is_the_definition(sparse, seed, texts, terms, threshold, weighted):
    vectors, idf = sparse(seed, texts, terms), 5 * np.random.default_rng(seed).random(terms)
    weights = {"term_weights": torch.tensor(idf)} if weighted else {}
    found = flops(torch.tensor(vectors), threshold=threshold, **weights)
    expected = reference(vectors, threshold, idf if weighted else np.ones(terms))
    assert float(found) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_its_gradient():
    vectors = torch.tensor(np.random.default_rng(0).random((4, 5)))
    vectors[1, 1:] = 0  # one active term, or two beside a zero that gradcheck moves: below the threshold
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 3.0]).double()
    assert torch.autograd.gradcheck(lambda w: flops(w, threshold=2, term_weights=weights), vectors.requires_grad_())


@pytest.mark.parametrize("threshold", [0, 1, 4, 9])
def test_it_equals_the_host_library(toy_model, sparse, threshold):
    vectors = torch.tensor(sparse(3, 12, 9))
    theirs = FlopsLoss(toy_model, threshold=threshold or None).compute_loss_from_embeddings(vectors)
    assert float(flops(vectors, threshold=threshold)) == pytest.approx(float(theirs), rel=1e-9)


@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 4))
def test_the_mean_over_devices_is_never_below_that_of_the_gathered_batch(sparse, seed, devices, texts):
    parts = [torch.tensor(sparse(seed + 100 * i, texts, 7)) for i in range(devices)]
    apart = sum(flops(part) for part in parts) / devices
    assert float(flops(torch.cat(parts))) <= float(apart) + 1e-12
