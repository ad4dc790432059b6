"""Searches without some terms, against brute force: dense products, sorted, and ir_measures on every query."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import ttest_rel

from vocable.data import Document, Qrel, Query
from vocable.encoder.asymmetric import Role
from vocable.encoder.terms import remove_expansions
from vocable.errors import ArgumentError, VectorsError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.retrieval import Encoded
from vocable.wackiness.ablation import Ablation

Q, N, V = 12, 30, 25
MEASURES = ["nDCG@10", "R@5", "AP"]


def sparse(rows: int, share: float, rng: np.random.Generator) -> csr_array:
    dense = rng.lognormal(0, 1, (rows, V)) * (rng.random((rows, V)) < share)
    return csr_array(dense.astype(np.float32))


def toy(seed: int = 0, share: float = 0.3) -> tuple[Encoded, csr_array, csr_array]:
    """Random vectors with two judged documents a query, and the own terms of queries and documents."""
    rng = np.random.default_rng(seed)
    documents = [Document(f"d{row:02}", "") for row in rng.permutation(N)]
    queries = [Query(f"q{row}", "") for row in range(Q)]
    found = [(query.id, row) for query in queries for row in rng.choice(N, 2, replace=False)]
    judgments = [Qrel(query, documents[row].id, 1 + position % 2) for position, (query, row) in enumerate(found)]
    dataset = Dataset("toy", documents, queries, judgments)
    encoded = Encoded(dataset, sparse(Q, share, rng), sparse(N, share, rng), 1.0)
    return encoded, sparse(Q, 0.2, rng), sparse(N, 0.2, rng)


def brute_force(encoded: Encoded, queries: csr_array, documents: csr_array) -> dict[str, dict[str, float]]:
    scores, run = queries.toarray() @ documents.toarray().T, {}
    for row, query in enumerate(encoded.query_ids):
        run[query] = {name: float(scores[row, i]) for i, name in enumerate(encoded.document_ids) if scores[row, i]}
    parsed = [ir_measures.parse_measure(name) for name in MEASURES]
    values: dict[str, dict[str, float]] = {name: {} for name in MEASURES}
    for metric in ir_measures.iter_calc(parsed, list(encoded.dataset.judgments), run):
        values[str(metric.measure)][metric.query_id] = metric.value
    return values


@pytest.mark.parametrize("role", ["query", "document"])
@given(seed=st.integers(0, 1000), count=st.integers(0, V))
def test_values_are_those_of_brute_force(role: Role, seed: int, count: int) -> None:
    encoded, own_queries, own_documents = toy(seed)
    own = own_queries if role == "query" else own_documents
    terms = np.random.default_rng(seed).choice(V, count, replace=False)
    ablation = Ablation(encoded, own, MEASURES, role=role, threads=1)
    queries, documents = encoded.queries, encoded.documents
    full = brute_force(encoded, queries, documents)
    left = remove_expansions(queries if role == "query" else documents, own, terms)
    pruned = brute_force(encoded, *((left, documents) if role == "query" else (queries, left)))
    outcome = ablation.without(terms)
    for name in MEASURES:
        assert ablation.values()[name] == pytest.approx(np.mean(list(full[name].values())), abs=1e-6)
        assert outcome.values[name] == pytest.approx(np.mean(list(pruned[name].values())), abs=1e-6)
        first, second = ([values[name][query] for query in encoded.query_ids] for values in (full, pruned))
        different = not np.allclose(first, second)
        assert outcome.p[name] == pytest.approx(ttest_rel(first, second).pvalue if different else 1.0, abs=1e-5)


@pytest.mark.parametrize("role", ["query", "document"])
def test_what_is_removed_is_counted(role: Role) -> None:
    encoded, own_queries, own_documents = toy()
    own, vectors = (own_queries, encoded.queries) if role == "query" else (own_documents, encoded.documents)
    ablation = Ablation(encoded, own, MEASURES, role=role)
    is_expansion = (vectors.toarray() > 0) & (own.toarray() == 0)
    assert ablation.expansion_terms.tolist() == np.flatnonzero(is_expansion.any(axis=0)).tolist()
    terms = ablation.expansion_terms[:2]
    missing = np.setdiff1d(np.arange(V), ablation.expansion_terms)[:1]
    outcome = ablation.without(np.concatenate([terms, missing]))
    assert outcome.terms == 2
    assert outcome.share == pytest.approx(is_expansion[:, terms].sum() / is_expansion.sum())
    touched = is_expansion[:, terms] if role == "query" else encoded.queries.toarray()[:, terms] > 0
    assert 0 < outcome.changed == touched.any(axis=1).sum() < Q
    nothing = ablation.without(np.empty(0, dtype=np.int64))
    assert (nothing.terms, nothing.share, nothing.changed) == (0, 0, 0)
    assert (nothing.values, set(nothing.p.values())) == (ablation.values(), {1.0})


def test_a_query_that_is_left_with_nothing_counts_zero() -> None:
    encoded, _, _ = toy()
    ablation = Ablation(encoded, csr_array((Q, V), dtype=np.float32), MEASURES)
    outcome = ablation.without(np.arange(V))
    assert (outcome.changed, outcome.share) == (Q, 1.0)
    assert set(outcome.values.values()) == {0.0}
    own = Ablation(encoded, encoded.queries, MEASURES)
    assert own.expansion_terms.tolist() == []
    assert own.without(np.arange(V)).values == own.values()


def test_mistakes_are_said() -> None:
    encoded, own, _ = toy()
    with pytest.raises(VectorsError, match="do not match own terms"):
        Ablation(encoded, own, role="document")
    with pytest.raises(ArgumentError, match="role must be query or document, not 'both'"):
        Ablation(encoded, own, role="both")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="unknown measure"):
        Ablation(encoded, own, ["nDGC@10"])
