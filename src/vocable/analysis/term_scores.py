"""How much the weights of a term differ between the texts that have it ("The Pre-Training Study of Expanded-SPLADE
Models on Web Document Titles", appendix G, table 8).

Shapes: v terms, n texts of a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from vocable.analysis.moments import Moments
from vocable.errors import ArgumentError, VectorsError
from vocable.pruning import prune


class TermScores(NamedTuple):
    """`logit_score_std`: the standard deviation of a term's weights, averaged over the `logit_cnt` terms that at least
    `threshold` texts have, when `top_k` terms of each text are kept (None: all). None where there is no such term.
    """

    top_k: int | None
    threshold: int
    logit_cnt: int
    logit_score_std: float | None


def term_scores(
    parts: Iterable[csr_array], thresholds: Sequence[int] = (1,), *, top_k: Sequence[int | None] = (None,)
) -> list[TermScores]:
    """Measure the spread of each term's weights over encoded texts.

    A text in which a term is not active says nothing about the term. Standard deviations are those of a population.

    Args:
        parts: csr_array [n, v] each, read once and one at a time; the shards of a corpus, say.
        thresholds: numbers of texts.
        top_k: numbers of terms to keep of a text, each measured apart.

    Returns:
        for each `top_k` in turn, its figures at each threshold.

    Raises:
        ArgumentError: a threshold below 1, or a top_k.
        VectorsError: there is no part, or parts are of different vocabularies.

    >>> texts = csr_array(np.array([[1.0, 5.0], [3.0, 0.0]], dtype=np.float32))
    >>> [(found.logit_cnt, found.logit_score_std) for found in term_scores([texts], [1, 2])]
    [(2, 0.5), (1, 1.0)]
    """
    if min(thresholds, default=1) < 1:
        raise ArgumentError(f"a threshold is a number of texts, 1 or more, not {min(thresholds)}")
    gathered: list[Moments] = []
    for part in parts:
        v = part.shape[1]
        gathered = gathered or [Moments(v) for _ in top_k]
        if len(gathered[0].counts) != v:
            raise VectorsError(f"vectors of {len(gathered[0].counts)} terms and of {v}: of different vocabularies")
        for moments, k in zip(gathered, top_k, strict=True):
            _add(moments, prune(part, k))
    if not gathered:
        raise VectorsError("there are no vectors to measure")
    return [_at(moments, k, least) for moments, k in zip(gathered, top_k, strict=True) for least in thresholds]


def _add(moments: Moments, part: csr_array) -> None:
    v, weights = part.shape[1], part.data.astype(np.float64)
    counts = np.bincount(part.indices, minlength=v)
    mean = np.bincount(part.indices, weights, minlength=v) / np.maximum(counts, 1)
    moments.add(counts, mean, np.bincount(part.indices, (weights - mean[part.indices]) ** 2, minlength=v))


def _at(moments: Moments, top_k: int | None, threshold: int) -> TermScores:
    often = moments.counts >= threshold
    found = int(often.sum())
    return TermScores(top_k, threshold, found, float(moments.std()[often].mean()) if found else None)
