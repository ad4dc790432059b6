"""epsilon_RC and complexity against dense references: SciPy's general solver, and all signs counted out."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
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


def constrained_least_squares(A: np.ndarray, y: np.ndarray, budget: float) -> np.ndarray:
    scale = np.abs(y).max()
    found = minimize(
        lambda x: ((A @ x - y) ** 2).sum() / scale**2,
        np.full(A.shape[1], budget / A.shape[1]),
        jac=lambda x: 2 * A.T @ (A @ x - y) / scale**2,
        bounds=[(0, None)] * A.shape[1],
        constraints={"type": "ineq", "fun": lambda x: budget - x.sum(), "jac": lambda x: -np.ones_like(x)},
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-16},
    )
    return np.asarray(found.x)


def least_possible_error(A: np.ndarray, y: np.ndarray, budget: float) -> float:
    """The minimax error, a linear program: what (RC*) asks of these pairs and this beta."""
    n, c = A.shape
    rows = np.block([[A, -np.ones((n, 1))], [-A, -np.ones((n, 1))], [np.ones((1, c)), np.zeros((1, 1))]])
    return float(linprog(np.append(np.zeros(c), 1.0), A_ub=rows, b_ub=np.concatenate([y, -y, [budget]])).fun)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("classes", [2, 5, 9])
def test_epsilon_is_the_largest_error_of_the_constrained_fit(seed: int, classes: int) -> None:
    queries, documents, pi, weights = problem(seed, classes)
    budget = 3.0
    beta = weights * budget / weights.sum()
    u = features(queries, documents)
    A, y = averaged(u, pi), u @ beta
    found = compatibility(
        csr_array(queries), csr_array(documents), pi, weights=weights, budget=budget, pairs=Q * N, draws=1
    )
    reference = constrained_least_squares(A, y, budget)
    assert found.weights.min() >= 0
    assert found.weights.sum() <= budget * (1 + 1e-12)
    assert ((A @ found.weights - y) ** 2).sum() == pytest.approx(((A @ reference - y) ** 2).sum(), rel=1e-3, abs=1e-9)
    assert found.epsilon == pytest.approx(np.abs(A @ found.weights - y).max(), rel=1e-9)
    assert found.epsilon == pytest.approx(np.abs(A @ reference - y).max(), rel=2e-2, abs=1e-6)
    assert found.epsilon >= least_possible_error(A, y, budget) - 1e-9
    assert found.relative_epsilon == pytest.approx(found.epsilon / y.max())
    assert (found.pairs, found.terms) == (Q * N, np.count_nonzero(u.any(axis=0)))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        # Pairs e0 and e1, classes {0} and {1, 2, 3}: |x0 - b0|^2 + |x1 / 3 - b1|^2 with x0 + x1 <= 1. Free, the second
        # would take x1 = 3 b1. At the price mu it takes 9 (b1 / 3 - mu), and x0 = b0 - mu: here mu = 0.1,
        ([0.5, 0.5, 0, 0], [0.4, 0.6]),
        # here the first is priced out,
        ([0.1, 0.9, 0, 0], [0.0, 1.0]),
        # and here everything is affordable.
        ([0.5, 0.1, 0.2, 0.2], [0.5, 0.3]),
    ],
)
def test_the_price_of_weight_keeps_the_budget(weights: list[float], expected: list[float]) -> None:
    texts = csr_array(np.eye(4, dtype=np.float32))
    same = [[0, 0], [1, 1]]
    found = compatibility(texts, texts, np.array([0, 1, 1, 1]), weights=weights, pairs=same, draws=1)
    np.testing.assert_allclose(found.weights, expected, atol=1e-6)
    assert found.weights.sum() <= 1


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
    ("arguments", "message"),
    [
        ({"classes": np.arange(3)}, "classes must be 12 whole numbers"),
        ({"weights": np.ones(3)}, "weights must be 12 finite numbers, none negative"),
        ({"weights": -np.ones(V)}, "weights must be 12 finite numbers, none negative"),
        ({"weights": np.full(V, np.nan)}, "weights must be 12 finite numbers, none negative"),
        ({"weights": np.zeros(V)}, "weights must not all be 0"),
        ({"budget": 0.0}, "draws and budget must be above 0 and finite, not 100 and 0.0"),
        ({"draws": 0}, "draws and budget must be above 0 and finite, not 0 and 1.0"),
        ({"pairs": 0}, "cannot draw 0 pairs from 5 queries and 6 documents"),
        ({"pairs": [[0, 6]]}, "pairs.*5 queries.*6 documents"),
        ({"pairs": [[-1, 0]]}, "pairs.*5 queries.*6 documents"),
        ({"pairs": [[0.5, 1]]}, r"pairs must be a number, or whole numbers \[N, 2\], not float64"),
        ({"pairs": [0, 1]}, r"pairs must be a number, or whole numbers \[N, 2\], not int64 \[2\]"),
    ],
)
def test_what_cannot_be_measured(arguments: dict[str, Any], message: str) -> None:
    queries, documents, pi, _ = problem(0)
    with pytest.raises(ArgumentError, match=message):
        compatibility(csr_array(queries), csr_array(documents), **({"classes": pi} | arguments))


def test_vectors_of_different_vocabularies() -> None:
    with pytest.raises(VectorsError, match="the queries have 3 terms, the documents 4"):
        compatibility(csr_array(np.eye(3)), csr_array(np.eye(4)), np.arange(4))
