"""InfoNCE: the definition with temperature, margin and cosine, gradients, and the host library's loss."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim

from vocable.errors import ArgumentError
from vocable.objectives.losses import Queue, info_nce, pack


def reference(queries, documents, tau, margin, cosine):
    losses = []
    for i, query in enumerate(queries):
        scores = documents @ query
        if cosine:
            lengths = np.linalg.norm(documents, axis=1) * np.linalg.norm(query)
            scores = np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0)
        scores[i] -= margin
        losses.append(logsumexp(scores / tau) - scores[i] / tau)
    return np.mean(losses)


@given(st.integers(0, 99), st.integers(1, 5), st.integers(0, 6), st.floats(0.05, 20), st.floats(0, 3), st.booleans())
def test_it_is_the_definition(sparse, seed, count, negatives, tau, margin, cosine):
    queries, documents = sparse(seed, count, 7), sparse(seed + 1, count + negatives, 7)
    found = info_nce(torch.tensor(queries), torch.tensor(documents), temperature=tau, margin=margin, cosine=cosine)
    assert float(found) == pytest.approx(reference(queries, documents, tau, margin, cosine), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("cosine", [False, True])
def test_its_gradient(cosine):
    rng = np.random.default_rng(0)
    queries, documents = torch.tensor(rng.random((3, 5))), torch.tensor(rng.random((7, 5)))
    assert torch.autograd.gradcheck(
        lambda q, d: info_nce(q, d, temperature=0.7, margin=0.2, cosine=cosine),
        (queries.requires_grad_(), documents.requires_grad_()),
    )


def test_an_empty_text_gets_a_gradient_of_ordinary_size():
    queries, documents = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    info_nce(queries, documents.requires_grad_(), cosine=True).backward()
    assert documents.grad.abs().max() <= 1


@given(st.integers(0, 99), st.integers(1, 5), st.integers(0, 6), st.floats(0.05, 20), st.booleans())
def test_a_queue_is_further_documents_without_gradients(sparse, seed, count, queued, tau, cosine):
    queries, documents, others = (torch.tensor(sparse(seed + i, n, 7)) for i, n in enumerate((count, count, queued)))
    mine, theirs = (queries.clone().requires_grad_() for _ in range(2))
    queue = Queue(pack(others, 7), torch.zeros(count, queued, dtype=torch.bool))
    found = info_nce(mine, documents, temperature=tau, cosine=cosine, queue=queue)
    expected = info_nce(theirs, torch.cat([documents, others]), temperature=tau, cosine=cosine)
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_what_is_left_out_of_the_queue_is_no_negative(sparse):
    queries, documents, others = (torch.tensor(sparse(i, n, 7)) for i, n in enumerate((3, 3, 4)))
    left_out = torch.tensor([[False, True, False, False], [True] * 4, [False] * 4])
    found = info_nce(queries, documents, queue=Queue(pack(others, 7), left_out))
    scores = np.concatenate([queries @ documents.T, np.where(left_out, -np.inf, queries @ others.T)], axis=1)
    assert float(found) == pytest.approx(np.mean(logsumexp(scores, axis=1) - scores.diagonal()))


def test_scores_in_the_thousands_stay_exact():
    queries, documents = torch.full((2, 3), 60.0), torch.tensor([[60.0] * 3, [59.0] * 3, [61.0] * 3])
    assert float(info_nce(queries, documents)) == pytest.approx((180 + 360) / 2)


@pytest.mark.parametrize("scale", [1.0, 0.25, 20.0])
@pytest.mark.parametrize("cosine", [False, True])
def test_it_equals_the_host_library(toy_model, sparse, scale, cosine):
    columns = [torch.tensor(sparse(seed, 5, 9)) for seed in range(4)]
    similarity = {"similarity_fct": cos_sim} if cosine else {}
    host = SparseMultipleNegativesRankingLoss(toy_model, scale=scale, **similarity)
    theirs = host.compute_loss_from_embeddings(columns, None)
    ours = info_nce(columns[0], torch.cat(columns[1:]), temperature=1 / scale, cosine=cosine)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-9)


def test_a_query_without_a_positive_is_an_error():
    with pytest.raises(ArgumentError, match="2 documents for 3 queries"):
        info_nce(torch.ones(3, 4), torch.ones(2, 4))
