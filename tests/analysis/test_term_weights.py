from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from vocable.analysis.stored_vectors import analyze_weights
from vocable.errors import ArgumentError, VectorsError
from vocable.vectors import prune

TEXTS = csr_array(random_array((90, 25), density=0.3, rng=np.random.default_rng(0), dtype=np.float32))


@pytest.mark.parametrize("cuts", [[], [1, 2, 50], [90]])
def test_parts_are_measured_as_the_whole(cuts: list[int]) -> None:
    edges = [0, *cuts, 90]
    parts = (TEXTS[low:high] for low, high in pairwise(edges))
    found = analyze_weights([*parts], min_count=[1, 25, 1000], max_terms=[None, 3])
    expected = []
    for k in (None, 3):
        dense = prune(TEXTS, k).toarray().astype(np.float64)
        for threshold in (1, 25, 1000):
            spread = [w[w > 0].std() for w in dense.T if (w > 0).sum() >= threshold and (w > 0).any()]
            expected.append((k, threshold, len(spread), pytest.approx(np.mean(spread), abs=1e-7) if spread else None))
    assert [tuple(vars(one).values()) for one in found] == expected


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ArgumentError, match="min_count is a number of texts, 1 or more, not 0"):
        analyze_weights(TEXTS, min_count=[0])
    with pytest.raises(ArgumentError, match="max_terms must be at least 1"):
        analyze_weights(TEXTS, max_terms=[0])
    with pytest.raises(VectorsError, match="no vectors"):
        analyze_weights([])
    with pytest.raises(VectorsError, match="of 25 terms and of 3"):
        analyze_weights([TEXTS, csr_array((1, 3), dtype=np.float32)])
