"""The training of the table of looked-up queries: shared terms, and a known table that is learned back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from studies.small.lookup_table import Shared, Table, fit, shared_terms

Q, K, N, V, D = 40, 12, 30, 50, 4


def vectors(generator: np.random.Generator, rows: int) -> csr_array:
    return csr_array(np.where(generator.random((rows, V)) < 0.3, generator.random((rows, V)), 0).astype(np.float32))


@pytest.mark.parametrize("seed", [0, 1])
def test_shared_terms_sum_up_to_the_products_of_queries_and_candidates(seed: int) -> None:
    generator = np.random.default_rng(seed)
    queries, documents = vectors(generator, Q), vectors(generator, N)
    best = torch.from_numpy(np.stack([generator.permutation(N)[:K] for _ in range(Q)]))
    shared = shared_terms(queries, documents, best, torch.zeros(Q, K))
    sums = torch.zeros(Q * K).index_add(0, shared.cells, shared.factors).view(Q, K)
    products = queries.toarray() @ documents.toarray().T
    np.testing.assert_allclose(sums, np.take_along_axis(products, best.numpy(), axis=1), rtol=1e-5, atol=1e-6)
    assert set(shared.tokens.tolist()) <= set(queries.indices.tolist()) & set(documents.indices.tolist())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_table_is_learned_back_from_its_scores(seed: int) -> None:
    generator = np.random.default_rng(seed)
    weights, embeddings = torch.rand(V) + 0.2, torch.from_numpy(generator.normal(size=(V, D))).float()
    truth = 0.5 * weights.log() + torch.nn.functional.normalize(embeddings, dim=1) @ torch.tensor([1.0, -1.0, 0.5, 0.0])
    batches = []
    for _ in range(8):
        queries, documents = vectors(generator, Q), vectors(generator, N)
        best = torch.from_numpy(np.stack([generator.permutation(N)[:K] for _ in range(Q)]))
        shared = shared_terms(queries.sign(), documents, best, torch.zeros(Q, K))
        products = truth.exp()[shared.tokens] * shared.factors
        batches.append(shared._replace(scores=torch.zeros(Q * K).index_add(0, shared.cells, products).view(Q, K)))
    table = Table(weights, embeddings)
    with torch.no_grad():
        before = torch.stack([table.loss(batch) for batch in batches]).mean()
    fit(table, batches, 200, seed)
    with torch.no_grad():
        after = torch.stack([table.loss(batch) for batch in batches]).mean()
    assert float(after) < 0.3 * float(before)
    assert np.corrcoef(table.log_weights().detach(), truth)[0, 1] > 0.97
    assert float(table.power.detach()) == pytest.approx(0.5, abs=0.2)


def test_a_query_without_a_shared_term_scores_zero() -> None:
    shared = Shared(
        torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64), torch.tensor([]), torch.zeros(1, 2)
    )
    assert float(Table(torch.ones(V), torch.ones(V, D)).loss(shared).detach()) == 0
