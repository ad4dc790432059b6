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
from scipy.optimize import linprog
from scipy.sparse import csc_array, csr_array, hstack, vstack

from vocable.encoding.terms import without_accents
from vocable.encoding.vectors import as_vectors
from vocable.errors import ArgumentError, VectorsError

if TYPE_CHECKING:
    from vocable.encoding.tokens import Surface

    Normalizer = Callable[[Surface], Surface]

Activation = Callable[[NDArray[np.float64]], NDArray[np.float64]]

PORTER = Stemmer.Stemmer("porter")


def case_folding(surface: Surface) -> Surface:
    """Return the surface in lower case.

    >>> from vocable.encoding.tokens import Surface
    >>> case_folding(Surface("Naïve", True, "word")).text
    'naïve'
    """
    return surface._replace(text=surface.text.lower())


def accent_stripping(surface: Surface) -> Surface:
    """Return the surface without accents.

    >>> from vocable.encoding.tokens import Surface
    >>> accent_stripping(Surface("Naïve", True, "word")).text
    'Naive'
    """
    return surface._replace(text=without_accents(surface.text))


def porter_stem(surface: Surface) -> Surface:
    """Return the Porter stem of a token that begins a word, in lower case; other tokens stay.

    >>> from vocable.encoding.tokens import Surface
    >>> porter_stem(Surface("connections", True, "word")).text
    'connect'
    """
    return surface._replace(text=PORTER.stemWord(surface.text)) if surface.kind == "word" else surface


def coarse_graining(
    surfaces: Sequence[Surface | None], *normalizers: Normalizer, size: int | None = None
) -> NDArray[np.int64]:
    """Return the map pi that merges tokens with equal normalized surfaces, int64 [v]; classes are numbered in order.

    Tokens that begin a word are never merged with tokens that continue a word. Each token without a text (special
    tokens, single bytes, unused ids) is a separate class.

    Args:
        surfaces: surfaces of the v tokens, from `vocable.encoding.tokens.token_surfaces`.
        normalizers: `case_folding`, `accent_stripping`, `porter_stem`, or any function from surface to surface, applied
            in this order.
        size: v, if the vectors have more terms than the tokenizer has tokens; each of these is its own class.

    >>> from vocable.encoding.tokens import Surface
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
    numbers = np.asarray(classes)
    if numbers.shape != (v,) or numbers.dtype.kind not in "iu":
        raise ArgumentError(
            f"classes must be {v} whole numbers, one per term, not {numbers.dtype} {list(numbers.shape)}"
        )
    if numbers.min(initial=0) < 0:
        raise ArgumentError(f"classes are numbered from 0, not from {numbers.min()}")
    return numbers.astype(np.int64, copy=False)


SIGNS = 1 << 22  # signs and column sums in memory at a time


def identity(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights: psi and phi of a SPLADE score."""
    return weights


@dataclass(frozen=True, eq=False)
class Compatibility:
    """Loss and gain of a map of the vocabulary on a set of pairs.

    `epsilon` is the least possible largest error of scores <beta', Gu> that replace scores <beta, u>, over all
    beta' >= 0 of L1 norm B (`budget`), in units of the scores. `relative_epsilon` divides it by the largest score,
    which removes B. Both are for a given beta, by default the IDF. `worst_epsilon` is the epsilon of the worst beta,
    the epsilon_RC of RC*, and `worst_term` the term with all of its weight; both are None unless asked for.
    `complexity_before` and `complexity_after` are the empirical Rademacher complexities of the features u and Gu, the
    fit to random signs; averaging never raises it (eq. 5). `pairs`, `terms` and `classes` count the sampled pairs and
    their active terms and classes: with more classes than pairs the fit can follow every pair, and epsilon means
    little. `weights` float64 [c] are the fitted beta'. `largest` is R = psi(S_q) phi(S_d), the bound on a feature by
    the largest L1 norms of the vectors.
    """

    epsilon: float
    relative_epsilon: float
    complexity_before: float
    complexity_after: float
    pairs: int
    terms: int
    classes: int
    weights: NDArray[np.float64]
    budget: float
    largest: float
    worst_epsilon: float | None = None
    worst_term: int | None = None

    def bound(self, *, lipschitz: float = 1.0, delta: float = 0.05, constant: float = 1.0) -> float:
        """Return the bound on the excess risk of the coarser vocabulary with probability 1 - delta (eq. 6).

        L epsilon_RC + 4 B L R_n + 2 C_gen sqrt(log(1 / delta) / n), where n is the number of pairs. R_n is the
        complexity of the model that made the vectors, a floor for its class. For a loss in [0, 1], a bound above 1 is
        vacuous.

        Args:
            lipschitz: L, the Lipschitz constant of the loss.
            delta: share of samples that may exceed the bound.
            constant: C_gen, which the paper does not give; 1 is our choice.

        Raises:
            ArgumentError: an argument out of its range, or the worst epsilon was not measured.
        """
        if not (lipschitz > 0 and 0 < delta < 1 and constant >= 0):
            raise ArgumentError(f"not lipschitz > 0, 0 < delta < 1 or constant >= 0: {lipschitz}, {delta}, {constant}")
        if self.worst_epsilon is None:
            raise ArgumentError("the bound needs the worst epsilon: measure with supremum=True")
        deviation = 2 * constant * float(np.sqrt(np.log(1 / delta) / self.pairs))
        return lipschitz * (self.worst_epsilon + 4 * self.budget * self.complexity_after) + deviation


def compatibility(
    queries: csr_array,
    documents: csr_array,
    classes: NDArray[np.integer[Any]],
    *,
    weights: ArrayLike | None = None,
    budget: float = 1.0,
    pairs: int | ArrayLike = 2000,
    psi: Activation = identity,
    phi: Activation = identity,
    supremum: bool = False,
    draws: int = 100,
    seed: int = 0,
) -> Compatibility:
    """Measure the empirical epsilon_RC and the empirical Rademacher complexity of a map pi.

    Unsampled pairs may have larger errors. The complexity belongs to the model that made the vectors: it is a floor for
    the class of models in the paper's bound (eq. 6).

    Args:
        queries: csr_array [q, v].
        documents: csr_array [n, v].
        classes: the map pi, int [v], as of `coarse_graining`.
        weights: beta [v], not negative; by default the inverse document frequency log(1 + (n - df + 0.5) / (df + 0.5))
            over `documents`, 0 for df = 0. Equal weights lose nothing with any pi: beta'_c is the number of terms in
            c. They are scaled to the L1 norm `budget`.
        budget: B, the bound on the L1 norm of beta and beta'.
        pairs: number of pairs to draw, without repetition and at most q n; or the pairs themselves, int [N, 2] rows of
            `queries` and `documents`, such as judged pairs; or int [N, 3], a query and two documents, for the features
            u(q, d+) - u(q, d-) of pairwise training. Random pairs share few terms.
        psi, phi: functions of the weights of queries and documents, not decreasing, 0 at 0.
        supremum: also find the worst beta, by a linear program for each term of a larger class that could be it.
        draws: number of draws of N signs, the same for both complexities.
        seed: seed of pairs and signs.

    Raises:
        VectorsError: the vectors are not sparse, or have different vocabularies.
        ArgumentError: an argument of the wrong shape or out of its range.

    Two terms with weights of 3 to 1 that never match in the same pair share one weight, an error of a quarter of each
    score; the worst weights are all on one of them. Half of the sign draws cancel out in the merged class:

    >>> texts = csr_array(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=np.float32))
    >>> pi, same = np.array([0, 0, 1]), [[0, 0], [1, 1]]
    >>> options = {"pairs": same, "draws": 1000, "supremum": True}
    >>> found = compatibility(texts, texts, pi, weights=[3.0, 1.0, 0.0], **options)
    >>> round(found.epsilon, 6), round(found.relative_epsilon, 6), round(found.worst_epsilon, 6)
    (0.25, 0.333333, 0.5)
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
    rows, *columns = _pairs(pairs, queries.shape[0], documents.shape[0], rng)
    (of_queries, query_norm), (of_documents, document_norm) = _activated(queries, psi), _activated(documents, phi)
    features, *others = (csr_array(of_queries[rows].multiply(of_documents[column])) for column in columns)
    for negative in others:
        features = csr_array(features - negative)
    features.eliminate_zeros()
    sizes = np.bincount(classes)
    transposed = csr_array((1 / sizes[classes], classes, np.arange(v + 1)), shape=(v, len(sizes)))  # G's
    averages = csr_array(features @ transposed)
    scores = features @ beta
    whole = np.zeros(averages.shape[1])  # the total weight of the terms of each class
    np.add.at(whole, classes, beta)
    epsilon, fitted = _closest(averages, scores, whole, budget)
    worst = _worst(features, averages, classes, sizes, budget) if supremum else (None, None)
    complexity_before, complexity_after = _complexities([features, averages], draws, rng)
    terms, merged = (len(np.unique(matrix.indices)) for matrix in (features, averages))
    largest = float(np.abs(scores).max())
    relative = epsilon / largest if largest else 0.0
    numbers = epsilon, relative, complexity_before, complexity_after, len(rows), terms, merged
    return Compatibility(*numbers, fitted, budget, query_norm * document_norm, *worst)


def _activated(vectors: csr_array, function: Activation) -> tuple[csr_array, float]:
    """Return the vectors with the function applied to their weights, and its value at their largest L1 norm."""
    activated = csr_array(vectors, dtype=np.float64, copy=True)
    norm = float(activated.sum(axis=1).max(initial=0.0)) if activated.shape[0] else 0.0
    zero, bound = np.asarray(function(np.array([0.0, norm])), dtype=np.float64)
    if zero != 0 or not np.isfinite(bound):
        raise ArgumentError(f"psi and phi must be 0 at 0 and finite, not {zero} and {bound}")
    activated.data = np.asarray(function(activated.data), dtype=np.float64)
    return activated, float(bound)


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


def _pairs(pairs: int | ArrayLike, q: int, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], ...]:
    """Return the rows of queries and of documents, int64 [N] each; triplets have two rows of documents."""
    if isinstance(pairs, int):
        if pairs < 1 or q * n == 0:
            raise ArgumentError(f"cannot draw {pairs} pairs from {q} queries and {n} documents")
        return np.divmod(rng.choice(q * n, size=min(pairs, q * n), replace=False, shuffle=False), n)
    listed = np.asarray(pairs)
    if listed.ndim != 2 or listed.shape[1] not in (2, 3) or not len(listed) or listed.dtype.kind not in "iu":
        shape = f"{listed.dtype} {list(listed.shape)}"
        raise ArgumentError(f"pairs must be a number, or whole numbers [N, 2] or [N, 3], not {shape}")
    if listed.min() < 0 or (listed.max(axis=0) >= (q, *[n] * (listed.shape[1] - 1))).any():
        raise ArgumentError(f"pairs must be rows of {q} queries and {n} documents")
    return tuple(listed.T.astype(np.int64))


def _closest(
    features: csr_array, scores: NDArray[np.float64], start: NDArray[np.float64], budget: float
) -> tuple[float, NDArray[np.float64]]:
    """Return the least largest error of features [N, c] @ x from scores [N] over x >= 0 [c], sum(x) <= budget, and x.

    A linear program (HiGHS): minimize e with -e <= features @ x - scores <= e. `start` is within the budget, and the
    solution if nothing is lost.
    """
    largest = float(np.abs(scores).max(initial=0.0))
    if np.allclose(features @ start, scores, rtol=0, atol=1e-12 * largest):
        return 0.0, start
    used = np.unique(features.indices)
    columns = csr_array(features[:, used] * (budget / largest))  # z = x / budget, errors in units of the largest score
    error = csr_array(np.ones((columns.shape[0], 1)))
    spent = csr_array(np.append(np.ones(len(used)), 0.0)[None])
    rows = vstack([hstack([columns, -error]), hstack([-columns, -error]), spent])
    limits = np.concatenate([scores / largest, -scores / largest, [1.0]])
    cost = np.append(np.zeros(len(used)), 1.0)
    solution = linprog(cost, A_ub=rows, b_ub=limits, method="highs")
    if solution.x is None:
        raise ArgumentError(f"the linear program has no solution: {solution.message}")
    x = np.zeros_like(start)
    x[used] = np.maximum(solution.x[:-1], 0.0) * budget
    x *= budget / max(x.sum(), budget)  # the program keeps the bound up to a tolerance
    return float(np.abs(features @ x - scores).max()), x


def _worst(
    features: csr_array, averages: csr_array, classes: NDArray[np.int64], sizes: NDArray[np.int64], budget: float
) -> tuple[float, int | None]:
    """Return the largest of all errors of `_closest` over beta >= 0 of L1 norm `budget`, and the term of that beta.

    The error is a convex function of beta, so a vertex is the worst: the whole budget on a single term. A term that is
    its own class loses nothing. The errors of two beta', with nothing or everything on the term's class, bound the
    least error from above. The terms are sorted by this bound, and the search ends when no other term can be worse.
    """
    terms = np.unique(features.indices)
    terms = terms[sizes[classes[terms]] > 1]
    if not len(terms):
        return 0.0, None
    separate, merged = csc_array(features)[:, terms], csc_array(averages)[:, classes[terms]]
    apart = (np.abs(matrix).max(axis=0).toarray().ravel() for matrix in (separate, separate - merged))
    bounds = budget * np.minimum(*apart)
    worst, where, nothing = 0.0, None, np.zeros(averages.shape[1])
    for number in np.argsort(-bounds, kind="stable"):
        if bounds[number] <= worst:
            break
        error, _ = _closest(averages, budget * separate[:, [number]].toarray().ravel(), nothing, budget)
        if error > worst:
            worst, where = error, int(terms[number])
    return worst, where


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
