"""The Normalized Wackiness Curve and the area below it, W-AUC: how wacky a model is, whatever its vocabulary and
sparsity ("Understanding Wacky Weights: A Dissection of SPLADE's Learned Term Importance", section 3.3, table 2).

Letters: m inputs, v terms, N bins, u terms that have a score.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import ArgumentError
from vocable.evaluation.wackiness import ranked, scored

BINS = 100


def curve(scores: np.ndarray, bins: int = BINS, *, vocabulary: bool = False) -> np.ndarray:
    """The mean Wackiness Score of each of N equal bins of the terms, the wackiest first.

    Bin i has the terms from rank floor(i u / N) up to floor((i + 1) u / N), and one term at least: where there are
    fewer terms than bins, neighbouring bins share one.

    Args:
        scores: [v], nan for a term that has none.
        bins: N.
        vocabulary: cut the whole vocabulary into bins instead of the u terms that have a score. The others come last
            and are left out of the means; a bin that has none but these is 0.

    Returns:
        float64 [N], which never rises; nan where no term has a score.

    Raises:
        ArgumentError: bins below 1.

    >>> curve(np.array([0.5, 1.0, np.nan, 0.0, 0.9]), bins=2)
    array([0.95, 0.25])
    >>> curve(np.array([0.5, 1.0, np.nan, 0.0, 0.9, np.nan]), bins=3, vocabulary=True)
    array([0.95, 0.25, 0.  ])
    """
    if bins < 1:
        raise ArgumentError(f"bins must be at least 1, not {bins}")
    ordered = scores[ranked(scores)]
    if not len(ordered):
        return np.full(bins, np.nan)
    cut = len(scores) if vocabulary else len(ordered)
    first = np.arange(bins) * cut // bins
    last = np.maximum(np.arange(1, bins + 1) * cut // bins, first + 1)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    first, last = np.minimum(first, len(ordered)), np.minimum(last, len(ordered))
    means: np.ndarray = (sums[last] - sums[first]) / np.maximum(last - first, 1)
    return means.clip(0, 1)  # differences of sums may be off by the last digit


def area(heights: np.ndarray) -> float:
    """W-AUC: the area below a curve [N] over 0 to 1, by the trapezoidal rule; between 0 and 1.

    >>> area(np.array([1.0, 0.5, 0.0]))
    0.5
    """
    return float(heights[0]) if len(heights) == 1 else float(np.trapezoid(heights, dx=1 / (len(heights) - 1)))


def bootstrap(
    importance: csr_array,
    draws: int = 100,
    *,
    bins: int = BINS,
    vocabulary: bool = False,
    seed: int = 0,
    advance: Callable[[int], object] = lambda done: None,
) -> np.ndarray:
    """W-AUC of other inputs like these: of m inputs drawn from the m with repetition, again and again.

    The paper does not say what stands after its ±; here it is the standard deviation of these. A draw misses a third
    of the inputs and so some terms, so that the areas may lie beside that of all inputs: they tell how far the inputs
    move it, not where it is.

    Args:
        importance: [m, v], from `vocable.evaluation.wackiness.lexical_importance`.
        draws: how often.
        bins, vocabulary: as for `curve`.
        seed: decides what is drawn.
        advance: called with 1 after every draw.

    Returns:
        float64 [draws].

    Raises:
        ArgumentError: draws below 2, or bins below 1.
    """
    if draws < 2:
        raise ArgumentError(f"a bootstrap needs 2 draws at least, not {draws}")
    rng, m = np.random.default_rng(seed), importance.shape[0]
    areas = np.full(draws, np.nan)
    for draw in range(draws if m else 0):
        times = rng.multinomial(m, np.full(m, 1 / m))
        areas[draw] = area(curve(scored(importance, times).scores, bins, vocabulary=vocabulary))
        advance(1)
    return areas
