"""Coarser vocabularies: merge terms by a map, fold vectors, and measure the loss and gain (Geng and Yang 2026, section
3).

A map pi is an array with the class of every term. A query and a document have the pair features
u(q,d)_t = w_t(q) w_t(d), and the matrix G of a map averages the terms of each class.

    pi = coarse_graining(token_surfaces(model.tokenizer), case_folding, accent_stripping, size=documents.shape[1])
    found = compatibility(queries, documents, pi, pairs=judged)
    folded = fold(documents, pi, "max")

Letters: q queries, n documents or vectors, N pairs, v terms, c classes. All [N, v] and [N, c] are sparse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import Stemmer
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, brentq, minimize
from scipy.sparse import csr_array

from vocable.encoder.terms import without_accents
from vocable.errors import ArgumentError, VectorsError
from vocable.vectors import as_vectors

if TYPE_CHECKING:
    from vocable.encoder.tokens import Surface

    Normalizer = Callable[[Surface], Surface]


PORTER = Stemmer.Stemmer("porter")


def case_folding(surface: Surface) -> Surface:
    """Return the surface in lower case.

    >>> from vocable.encoder.tokens import Surface
    >>> case_folding(Surface("Naïve", True, "word")).text
    'naïve'
    """
    return surface._replace(text=surface.text.lower())


def accent_stripping(surface: Surface) -> Surface:
    """Return the surface without accents.

    >>> from vocable.encoder.tokens import Surface
    >>> accent_stripping(Surface("Naïve", True, "word")).text
    'Naive'
    """
    return surface._replace(text=without_accents(surface.text))


def porter_stem(surface: Surface) -> Surface:
    """Return the Porter stem of a token that begins a word, in lower case; other tokens stay.

    >>> from vocable.encoder.tokens import Surface
    >>> porter_stem(Surface("connections", True, "word")).text
    'connect'
    """
    return surface._replace(text=PORTER.stemWord(surface.text)) if surface.kind == "word" else surface


def coarse_graining(
    surfaces: Sequence[Surface | None], *normalizers: Normalizer, size: int | None = None
) -> NDArray[np.int64]:
    """Return the map pi that merges tokens with equal normalized surfaces, int64 [v]; classes are numbered in order.

    Tokens that begin a word and tokens that continue one are never merged. Tokens without a text (special tokens,
    single bytes, unused ids) are classes of their own.

    Args:
        surfaces: of the v tokens, from `vocable.encoder.tokens.token_surfaces`.
        normalizers: `case_folding`, `accent_stripping`, `porter_stem`, or any function from surface to surface, applied
            in this order.
        size: v, if the vectors have more terms than the tokenizer has tokens; each of these is its own class.

    >>> from vocable.encoder.tokens import Surface
    >>> words = [Surface(text, True, "word") for text in ("Café", "cafe", "cat")]
    >>> coarse_graining(words, case_folding, accent_stripping).tolist()
    [0, 0, 1]
    """
    size = len(surfaces) if size is None else size
    if size < len(surfaces):
        raise ArgumentError(f"size must not be smaller than the {len(surfaces)} surfaces, not {size}")
    keys: list[Any] = []
    for surface in surfaces:
        if surface is None or surface.kind in ("special", "bytes"):
            keys.append(len(keys))  # a number, equal to no surface's key
            continue
        for normalizer in normalizers:
            surface = normalizer(surface)
        keys.append((surface.text, surface.initial))
    keys.extend(range(len(keys), size))
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def fold(vectors: csr_array, classes: NDArray[np.integer[Any]], reduction: Literal["max", "sum"] = "max") -> csr_array:
    """Fold vectors [n, v] onto the c classes of a map pi, int [v]: the repair of a raw vocabulary without training.

    The weight of a class is the maximum or the sum over its active terms.

    Raises:
        ArgumentError: an unknown reduction, or classes that are not v numbers from 0.
        VectorsError: not sparse vectors.

    >>> vectors = csr_array(np.array([[1.0, 2.0, 5.0]], dtype=np.float32))
    >>> fold(vectors, np.array([0, 0, 1])).toarray().tolist()
    [[2.0, 5.0]]
    >>> fold(vectors, np.array([0, 0, 1]), "sum").toarray().tolist()
    [[3.0, 5.0]]
    """
    if reduction not in ("max", "sum"):
        raise ArgumentError(f"reduction must be max or sum, not {reduction!r}")
    vectors = as_vectors(vectors)
    classes = as_classes(classes, vectors.shape[1])
    n, c = vectors.shape[0], int(classes.max(initial=-1)) + 1
    rows = np.repeat(np.arange(n), np.diff(vectors.indptr))
    folded = classes[vectors.indices]
    if reduction == "max":
        # Sorted by row, class and weight, the last entry of each class is its heaviest.
        order = np.lexsort((vectors.data, folded, rows))
        places = (rows * c + folded)[order]
        last = order[np.append(places[1:] != places[:-1], True)] if len(order) else order
        return as_vectors(csr_array((vectors.data[last], (rows[last], folded[last])), shape=(n, c)))
    return as_vectors(csr_array((vectors.data, (rows, folded)), shape=(n, c)))


def as_classes(classes: NDArray[np.integer[Any]], v: int) -> NDArray[np.int64]:
    """Return `classes` as int64 [v]; raises `ArgumentError` unless they are v whole numbers from 0."""
    found = np.asarray(classes)
    if found.shape != (v,) or found.dtype.kind not in "iu":
        raise ArgumentError(f"classes must be {v} whole numbers, one per term, not {found.dtype} {list(found.shape)}")
    if found.min(initial=0) < 0:
        raise ArgumentError(f"classes are numbered from 0, not from {found.min()}")
    return found.astype(np.int64, copy=False)


FREE = 1e-9  # share of the highest price that is too small to change a fit
SIGNS = 1 << 22  # signs and column sums in memory at a time


@dataclass(frozen=True, eq=False)
class Compatibility:
    """Loss and gain of a map of the vocabulary on a set of pairs.

    `epsilon` (epsilon_RC) is the largest error of scores <beta', Gu> as a substitute of scores <beta, u>, in units of
    the scores, whose weights have the L1 norm B. `relative_epsilon` divides it by the largest score, which removes B.
    Both are for one beta (by default the IDF); RC* takes the worst beta, which is no smaller. `complexity_before` and
    `complexity_after` are the empirical Rademacher complexities of the features u and Gu, the fit to random signs;
    averaging never raises it (eq. 5). `pairs`, `terms` and `classes` count the sampled pairs and their active terms and
    classes: with more classes than pairs the fit can follow every pair, and epsilon means little. `weights` float64 [c]
    are the fitted beta'.
    """

    epsilon: float
    relative_epsilon: float
    complexity_before: float
    complexity_after: float
    pairs: int
    terms: int
    classes: int
    weights: NDArray[np.float64]


def compatibility(
    queries: csr_array,
    documents: csr_array,
    classes: NDArray[np.integer[Any]],
    *,
    weights: ArrayLike | None = None,
    budget: float = 1.0,
    pairs: int | ArrayLike = 2000,
    draws: int = 100,
    seed: int = 0,
) -> Compatibility:
    """Measure the empirical epsilon_RC and the empirical Rademacher complexity of a map pi.

    beta' is fitted by least squares over the pairs, so that epsilon, the largest error of the fit, is an upper bound
    on the smallest possible one over these pairs. Unsampled pairs may have larger errors. The complexity is that of
    the one model that made the vectors, a floor for the class of models in the paper's bound (eq. 6).

    Args:
        queries: csr_array [q, v].
        documents: csr_array [n, v].
        classes: the map pi, int [v], as of `coarse_graining`.
        weights: beta [v], not negative; by default the inverse document frequency log(1 + (n - df + 0.5) / (df + 0.5))
            over `documents`, 0 for df = 0. Equal weights lose nothing with any pi: beta'_c is the number of terms in
            c. They are scaled to the L1 norm `budget`.
        budget: B, the bound on the L1 norm of beta and beta'.
        pairs: number of pairs to draw, without repetition and at most q n; or the pairs themselves, int [N, 2] rows of
            `queries` and `documents`, such as judged ones. Random pairs share few terms.
        draws: number of draws of N signs, the same for both complexities.
        seed: of pairs and signs.

    Raises:
        VectorsError: not sparse vectors, or of different vocabularies.
        ArgumentError: an argument of the wrong shape or out of its range.

    Two terms with weights of 3 to 1 that never match in the same pair share one weight, an error of a quarter of each
    score. Half of the sign draws cancel out in the merged class:

    >>> texts = csr_array(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=np.float32))
    >>> pi, same = np.array([0, 0, 1]), [[0, 0], [1, 1]]
    >>> found = compatibility(texts, texts, pi, weights=[3.0, 1.0, 0.0], pairs=same, draws=1000)
    >>> round(found.epsilon, 6), round(found.relative_epsilon, 6)
    (0.25, 0.333333)
    >>> found.complexity_before, abs(found.complexity_after - 0.25) < 0.05
    (0.5, True)
    """
    queries, documents = as_vectors(queries, "queries"), as_vectors(documents, "documents")
    v = documents.shape[1]
    if queries.shape[1] != v:
        raise VectorsError(f"the queries have {queries.shape[1]} terms, the documents {v}")
    if draws < 1 or not 0 < budget < np.inf:
        raise ArgumentError(f"draws and budget must be above 0 and finite, not {draws} and {budget}")
    rng = np.random.default_rng(seed)
    classes = as_classes(classes, v)
    beta = _beta(weights, documents, budget)
    rows, columns = _pairs(pairs, queries.shape[0], documents.shape[0], rng)
    features = csr_array(queries[rows].astype(np.float64).multiply(documents[columns]))
    sizes = np.bincount(classes)
    transposed = csr_array((1 / sizes[classes], classes, np.arange(v + 1)), shape=(v, len(sizes)))  # G's
    averages = csr_array(features @ transposed)
    scores = features @ beta
    whole = np.zeros(averages.shape[1])  # the total weight of the terms of each class
    np.add.at(whole, classes, beta)
    fitted = _fit(averages, scores, whole, budget)
    epsilon = float(np.abs(scores - averages @ fitted).max())
    before, after = _complexities([features, averages], draws, rng)
    terms, merged = (len(np.unique(matrix.indices)) for matrix in (features, averages))
    largest = float(scores.max())
    relative = epsilon / largest if largest else 0.0
    return Compatibility(epsilon, relative, before, after, len(rows), terms, merged, fitted)


def _beta(weights: ArrayLike | None, documents: csr_array, budget: float) -> NDArray[np.float64]:
    """The weights [v], by default the inverse document frequency, scaled to the L1 norm `budget`."""
    n, v = documents.shape
    if weights is None:
        df = np.bincount(documents.indices, minlength=v)
        weights = np.where(df > 0, np.log1p((n - df + 0.5) / (df + 0.5)), 0.0)
    beta = np.asarray(weights, dtype=np.float64)
    if beta.shape != (v,) or not np.isfinite(beta).all() or beta.min(initial=0) < 0:
        raise ArgumentError(f"weights must be {v} finite numbers, none negative")
    if not beta.any():
        raise ArgumentError("weights must not all be 0 (the default is 0 if no document has an active term)")
    scaled: NDArray[np.float64] = beta * (budget / beta.sum())
    return scaled


def _pairs(
    pairs: int | ArrayLike, q: int, n: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of queries and of documents, int64 [N] each."""
    if isinstance(pairs, int):
        if pairs < 1 or q * n == 0:
            raise ArgumentError(f"cannot draw {pairs} pairs from {q} queries and {n} documents")
        rows, columns = np.divmod(rng.choice(q * n, size=min(pairs, q * n), replace=False, shuffle=False), n)
        return rows, columns
    listed = np.asarray(pairs)
    if listed.ndim != 2 or listed.shape[1] != 2 or not len(listed) or listed.dtype.kind not in "iu":
        raise ArgumentError(f"pairs must be a number, or whole numbers [N, 2], not {listed.dtype} {list(listed.shape)}")
    if listed.min() < 0 or (listed.max(axis=0) >= (q, n)).any():
        raise ArgumentError(f"pairs must be rows of {q} queries and {n} documents")
    return listed[:, 0].astype(np.int64), listed[:, 1].astype(np.int64)


def _fit(
    features: csr_array, scores: NDArray[np.float64], start: NDArray[np.float64], budget: float
) -> NDArray[np.float64]:
    """Solve least squares for x >= 0 [c] with sum(x) <= budget: features [N, c] @ x close to scores [N].

    SciPy's solver keeps the bound of each variable. The L1 norm of x is then its sum, whose bound is kept by a price
    mu: the sum of the minimizer x(mu) of |features @ x - scores|^2 / 2 + mu sum(x) falls as mu rises. If x(mu) is
    within the budget at a negligible mu, the budget does not bind. Otherwise the mu at which x(mu) spends the budget
    is the multiplier of the bound, and x(mu) the solution.

    `start` is within the budget, and the solution if nothing is lost.
    """
    largest = np.abs(scores).max()
    if np.allclose(features @ start, scores, rtol=0, atol=1e-12 * largest):
        return start
    # Columns of length 1 and scores of at most 1 make the problem well conditioned; z is x in these units.
    norms = np.sqrt(features.multiply(features).sum(axis=0))
    used = np.flatnonzero(norms)
    unit = norms[used] / largest
    columns, target, cost = csr_array(features[:, used] / norms[used]), scores / largest, 1 / (unit * budget)

    def priced(log_price: float) -> NDArray[np.float64]:
        return _non_negative(columns, target, np.exp(log_price) * cost, start[used] * unit)

    highest = float(np.log((columns.T @ target / cost).max()))  # the solution is 0 at this price
    lowest = highest + np.log(FREE)
    z = priced(lowest)
    if z @ cost > 1:
        z = priced(brentq(lambda log_price: priced(log_price) @ cost - 1, lowest, highest, xtol=1e-6))
    x = np.zeros_like(start)
    x[used] = z / unit
    x *= budget / max(x.sum(), budget)  # the root is approximate, the bound must hold exactly
    return x


def _non_negative(
    columns: csr_array, target: NDArray[np.float64], price: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Minimize |columns [N, c] @ z - target [N]|^2 / 2 + price @ z over z >= 0 [c]."""

    def cost(z: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        rest = columns @ z - target
        return float(rest @ rest / 2 + price @ z), columns.T @ rest + price

    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=Bounds(0, np.inf), options=options)
    solution: NDArray[np.float64] = found.x
    return solution


def _complexities(matrices: list[csr_array], draws: int, rng: np.random.Generator) -> list[float]:
    """Mean over sign draws of max_t |(1/N) sum_i sigma_i u_it|, for each of the matrices [N, .], on the same signs."""
    pairs = matrices[0].shape[0]
    active = [matrix[:, np.unique(matrix.indices)] for matrix in matrices]
    sums = np.zeros(len(matrices))
    step = max(1, SIGNS // max(pairs, *(matrix.shape[1] for matrix in active)))
    for start in range(0, draws, step):
        signs = rng.choice([-1.0, 1.0], size=(min(step, draws - start), pairs))
        for i, matrix in enumerate(active):
            sums[i] += np.abs(signs @ matrix).max(axis=1, initial=0.0).sum()
    return [float(total / (draws * pairs)) for total in sums]
