"""epsilon_RC and complexity against dense references: a linear program a term, and all signs counted out."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_array

from studies.compatibility import compatibility
from vocable.errors import ArgumentError, VectorsError

Q, N, V = 5, 6, 12


def problem(seed: int, classes: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Dense queries, documents, a map, and weights."""
    rng = np.random.default_rng(seed)
    queries, documents = ((rng.random((n, V)) * (rng.random((n, V)) < 0.5)).astype(np.float32).round(2) for n in (Q, N))
    return queries, documents, rng.permutation(np.arange(V) % classes), rng.random(V) + 0.1


def averaged(features: np.ndarray, classes: np.ndarray) -> np.ndarray:
    G = np.array([(classes == c) / max(1, (classes == c).sum()) for c in range(classes.max() + 1)])
    return features @ G.T


def features(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    return np.array([q.astype(float) * d for q, d in product(queries, documents)])


def least_possible_error(A: np.ndarray, y: np.ndarray, budget: float) -> float:
    """The minimax error, a linear program: what (RC*) asks of these pairs and this beta."""
    n, c = A.shape
    rows = np.block([[A, -np.ones((n, 1))], [-A, -np.ones((n, 1))], [np.ones((1, c)), np.zeros((1, 1))]])
    return float(linprog(np.append(np.zeros(c), 1.0), A_ub=rows, b_ub=np.concatenate([y, -y, [budget]])).fun)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("classes", [2, 5, 9])
def test_epsilon_is_the_least_possible_largest_error(seed: int, classes: int) -> None:
    queries, documents, pi, weights = problem(seed, classes)
    budget = 3.0
    beta = weights * budget / weights.sum()
    u = features(queries, documents)
    A, y = averaged(u, pi), u @ beta
    found = compatibility(
        csr_array(queries), csr_array(documents), pi, weights=weights, budget=budget, pairs=Q * N, draws=1
    )
    assert found.weights.min() >= 0
    assert found.weights.sum() <= budget * (1 + 1e-12)
    assert found.epsilon == pytest.approx(np.abs(A @ found.weights - y).max(), rel=1e-9)
    assert found.epsilon == pytest.approx(least_possible_error(A, y, budget), abs=1e-7)
    assert found.relative_epsilon == pytest.approx(found.epsilon / y.max())
    assert (found.pairs, found.terms) == (Q * N, np.count_nonzero(u.any(axis=0)))
    assert found.worst_epsilon is None


@pytest.mark.parametrize(
    ("weights", "epsilon"),
    [
        # Pairs e0 and e1, classes {0} and {1, 2, 3}: |x0 - b0| and |x1 / 3 - b1| with x0 + x1 <= 1. Free, x1 is 3 b1.
        # Where both err by e, x0 = b0 - e and x1 = 3 (b1 - e), so that e = (b0 + 3 b1 - 1) / 4: here 0.25,
        ([0.5, 0.5, 0, 0], 0.25),
        # here the first is not worth its weight, x1 = 1,
        ([0.1, 0.9, 0, 0], 0.9 - 1 / 3),
        # and here everything is affordable.
        ([0.5, 0.1, 0.2, 0.2], 0.0),
    ],
)
def test_the_budget_is_kept(weights: list[float], epsilon: float) -> None:
    texts = csr_array(np.eye(4, dtype=np.float32))
    same = [[0, 0], [1, 1]]
    found = compatibility(texts, texts, np.array([0, 1, 1, 1]), weights=weights, pairs=same, draws=1)
    assert found.epsilon == pytest.approx(epsilon, abs=1e-9)
    assert found.weights.sum() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("classes", [2, 5, 9])
def test_the_supremum_is_that_of_the_worst_weights(seed: int, classes: int) -> None:
    queries, documents, pi, _ = problem(seed, classes)
    u, budget = features(queries, documents), 2.0
    A = averaged(u, pi)
    each = [least_possible_error(A, budget * u[:, term], budget) for term in range(V)]
    found = compatibility(
        csr_array(queries), csr_array(documents), pi, budget=budget, pairs=Q * N, draws=1, supremum=True
    )
    assert found.worst_epsilon == pytest.approx(max(each), abs=1e-7)
    assert each[found.worst_term] == pytest.approx(max(each), abs=1e-7)
    rng = np.random.default_rng(seed)
    for beta in budget * rng.dirichlet(np.full(V, 0.3), size=20):
        assert least_possible_error(A, u @ beta, budget) <= found.worst_epsilon + 1e-7
    assert found.epsilon <= found.worst_epsilon + 1e-9


def test_without_merged_terms_the_supremum_is_nothing() -> None:
    queries, documents, _, _ = (csr_array(part) if part.ndim == 2 else part for part in problem(3))
    found = compatibility(queries, documents, np.arange(V), pairs=20, supremum=True)
    assert (found.worst_epsilon, found.worst_term) == (0.0, None)


def test_the_bound_by_hand() -> None:
    queries, documents, pi, _ = problem(2, 5)
    found = compatibility(csr_array(queries), csr_array(documents), pi, budget=2.0, pairs=20, supremum=True)
    assert found.worst_epsilon is not None
    by_hand = 3 * found.worst_epsilon + 4 * 2 * 3 * found.complexity_after + 2 * 0.5 * np.sqrt(np.log(1 / 0.1) / 20)
    assert found.bound(lipschitz=3, delta=0.1, constant=0.5) == pytest.approx(by_hand)
    with pytest.raises(ArgumentError):
        found.bound(delta=1.0)
    with pytest.raises(ArgumentError):
        compatibility(csr_array(queries), csr_array(documents), pi, pairs=20).bound()


def test_functions_of_the_weights() -> None:
    queries, documents, pi, weights = problem(1, 5)
    found = compatibility(
        csr_array(queries), csr_array(documents), pi, weights=weights, pairs=Q * N, psi=np.sqrt, phi=np.square
    )
    u = features(np.sqrt(queries.astype(float)), documents.astype(float) ** 2)
    beta = weights / weights.sum()
    assert found.epsilon == pytest.approx(least_possible_error(averaged(u, pi), u @ beta, 1.0), abs=1e-7)
    norms = queries.astype(float).sum(axis=1).max() ** 0.5, documents.astype(float).sum(axis=1).max() ** 2
    assert found.largest == pytest.approx(norms[0] * norms[1])
    assert u.max() <= found.largest
    with pytest.raises(ArgumentError):
        compatibility(csr_array(queries), csr_array(documents), pi, psi=lambda weights: weights + 1)


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), classes=st.integers(1, V))
def test_differences_of_two_documents(seed: int, classes: int) -> None:
    """The corollary: a complexity of at most that of both sides, twice the larger one."""
    queries, documents, pi, weights = problem(seed, classes)
    rng = np.random.default_rng(seed)
    triplets = np.column_stack([rng.integers(0, Q, 8), rng.integers(0, N, 8), rng.integers(0, N, 8)])
    texts = csr_array(queries), csr_array(documents)
    found, first, second = (
        compatibility(*texts, pi, weights=weights, pairs=triplets[:, columns], draws=5, seed=seed)
        for columns in ([0, 1, 2], [0, 1], [0, 2])
    )
    u = np.array([queries[q].astype(float) * (documents[d].astype(float) - documents[e]) for q, d, e in triplets])
    expected = least_possible_error(averaged(u, pi), u @ (weights / weights.sum()), 1.0)
    assert found.epsilon == pytest.approx(expected, abs=1e-7)
    for side in ("complexity_before", "complexity_after"):
        assert getattr(found, side) <= getattr(first, side) + getattr(second, side) + 1e-12


@given(seed=st.integers(0, 10**6), classes=st.integers(1, V))
def test_averages_never_follow_signs_better(seed: int, classes: int) -> None:
    """Eq. 5, which holds draw by draw."""
    queries, documents, pi, weights = problem(seed, classes)
    found = compatibility(csr_array(queries), csr_array(documents), pi, weights=weights, pairs=10, draws=3, seed=seed)
    assert found.complexity_after <= found.complexity_before * (1 + 1e-12)
    assert found.epsilon >= 0
    assert found.weights.sum() <= 1 + 1e-12


@pytest.mark.parametrize("weights", [None, np.arange(V) + 0.5])
def test_one_class_a_term_changes_nothing(weights: Any) -> None:
    queries, documents, _, _ = (csr_array(part) if part.ndim == 2 else part for part in problem(3))
    found = compatibility(queries, documents, np.arange(V), weights=weights, pairs=20)
    assert found.epsilon == pytest.approx(0, abs=1e-12)
    assert found.complexity_after == found.complexity_before > 0
    assert found.terms == found.classes


def test_equal_weights_lose_nothing_under_any_map() -> None:
    queries, documents, pi, _ = problem(1, 3)
    found = compatibility(csr_array(queries), csr_array(documents), pi, weights=np.ones(V), pairs=Q * N)
    assert found.epsilon == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(found.weights, np.bincount(pi) / V)


def test_complexity_is_the_mean_over_signs() -> None:
    queries, documents, pi, _ = problem(5)
    pairs = np.array([[0, 1], [2, 3], [4, 5], [1, 1], [3, 0]])
    u = np.array([queries[q].astype(float) * documents[d] for q, d in pairs])
    signs = np.array(list(product([-1, 1], repeat=len(pairs))))
    expected = [np.abs(signs @ part / len(pairs)).max(axis=1).mean() for part in (u, averaged(u, pi))]
    found = compatibility(csr_array(queries), csr_array(documents), pi, pairs=pairs, draws=20000)
    assert [found.complexity_before, found.complexity_after] == pytest.approx(expected, rel=0.03)


def test_the_weights_by_default_are_the_inverse_document_frequency() -> None:
    queries, documents, pi, _ = problem(2)
    documents[:, 0] = 0  # a term that is in no document has no weight
    df = (documents > 0).sum(axis=0)
    idf = np.where(df > 0, np.log(1 + (N - df + 0.5) / (df + 0.5)), 0)
    texts = csr_array(queries), csr_array(documents)
    default, given_ones = (compatibility(*texts, pi, weights=w, pairs=30) for w in (None, 7 * idf))
    assert default.epsilon == pytest.approx(given_ones.epsilon, rel=1e-6)


def test_the_budget_scales_epsilon_and_the_seed_decides() -> None:
    queries, documents, pi, weights = problem(4)
    texts = csr_array(queries), csr_array(documents)
    one, ten, again = (compatibility(*texts, pi, weights=weights, pairs=9, budget=b) for b in (1.0, 10.0, 1.0))
    assert ten.epsilon == pytest.approx(10 * one.epsilon, rel=1e-4)
    assert ten.relative_epsilon == pytest.approx(one.relative_epsilon, rel=1e-4)
    assert (again.epsilon, again.complexity_before) == (one.epsilon, one.complexity_before)
    other = compatibility(*texts, pi, weights=weights, pairs=9, seed=1)
    assert other.complexity_before != one.complexity_before


def test_pairs_without_a_shared_term() -> None:
    queries, documents = csr_array(np.eye(2, 4, dtype=np.float32)), csr_array(np.eye(2, 4, 2, dtype=np.float32))
    found = compatibility(queries, documents, np.array([0, 0, 1, 1]))
    assert (found.epsilon, found.relative_epsilon, found.complexity_before, found.complexity_after) == (0, 0, 0, 0)
    assert (found.pairs, found.terms, found.classes) == (4, 0, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"classes": np.arange(3)},
        {"weights": np.ones(3)},
        {"weights": -np.ones(V)},
        {"weights": np.full(V, np.nan)},
        {"weights": np.zeros(V)},
        {"budget": 0.0},
        {"draws": 0},
        {"pairs": 0},
        {"pairs": [[0, 6]]},
        {"pairs": [[-1, 0]]},
        {"pairs": [[0.5, 1]]},
        {"pairs": [0, 1]},
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any]) -> None:
    queries, documents, pi, _ = problem(0)
    with pytest.raises(ArgumentError):
        compatibility(csr_array(queries), csr_array(documents), **({"classes": pi} | arguments))


def test_vectors_of_different_vocabularies() -> None:
    with pytest.raises(VectorsError):
        compatibility(csr_array(np.eye(3)), csr_array(np.eye(4)), np.arange(4))
