"""The curve, the area and the bootstrap against loops over the definition."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from vocable.errors import ArgumentError
from vocable.wackiness.measure import bootstrap
from vocable.wackiness.score import area, curve, scored

SCORES = arrays(np.float64, st.integers(1, 60), elements=st.one_of(st.floats(0, 1), st.just(np.nan)))


@given(SCORES, st.integers(1, 25), st.booleans())
def test_bins_are_the_means_of_the_ranks_they_have(scores: np.ndarray, bins: int, vocabulary: bool) -> None:
    ordered = sorted((score for score in scores.tolist() if not np.isnan(score)), reverse=True)
    heights = curve(scores, bins, whole_vocabulary=vocabulary)
    assert heights.shape == (bins,)
    if not ordered:
        assert np.isnan(heights).all()
        assert np.isnan(area(heights))
        return
    size = len(scores) if vocabulary else len(ordered)
    for i, height in enumerate(heights):
        first = int(np.floor(i * size / bins + 1e-9))
        last = max(int(np.floor((i + 1) * size / bins + 1e-9)), first + 1)
        those = ordered[first:last]
        assert height == pytest.approx(sum(those) / len(those) if those else 0.0, abs=1e-9)
    assert (np.diff(heights) <= 1e-9).all()
    assert 0 <= area(heights) <= 1


@given(arrays(np.float64, st.integers(2, 30), elements=st.floats(0, 1)))
def test_area_is_that_of_the_trapezoids(heights: np.ndarray) -> None:
    width = 1 / (len(heights) - 1)
    expected = sum(width * (a + b) / 2 for a, b in pairwise(heights))
    assert area(heights) == pytest.approx(expected, abs=1e-12)


@given(SCORES, st.randoms(use_true_random=False))
def test_the_order_of_the_terms_does_not_matter(scores: np.ndarray, random: object) -> None:
    shuffled = np.random.default_rng(0).permutation(scores)
    np.testing.assert_allclose(curve(shuffled, 7), curve(scores, 7), atol=1e-12)


def test_one_score_and_one_bin() -> None:
    assert curve(np.array([np.nan, 1.0]), 5).tolist() == [1.0] * 5
    assert curve(np.array([1.0, 0.0]), 1).tolist() == [0.5]
    assert area(np.array([0.25])) == 0.25


def importance(seed: int, m: int = 30, v: int = 12) -> csr_array:
    """Term i is of about the importance i, so that what tells the terms apart is not only chance."""
    rng = np.random.default_rng(seed)
    return csr_array(np.where(rng.random((m, v)) < 0.4, rng.exponential(size=(m, v)) * np.arange(1, v + 1), 0))


def test_bootstrap_is_the_area_of_inputs_drawn_with_repetition() -> None:
    found, m = importance(0), 30
    areas = bootstrap(found, 40, bins=6, seed=3)
    rng, expected = np.random.default_rng(3), []
    for _ in range(40):
        times = rng.multinomial(m, np.full(m, 1 / m))
        drawn = csr_array(found[np.repeat(np.arange(m), times)])
        expected.append(area(curve(scored(drawn).scores, 6)))
    np.testing.assert_allclose(areas, expected, atol=1e-12)
    assert areas.std() > 0
    np.testing.assert_array_equal(areas, bootstrap(found, 40, bins=6, seed=3))
    assert not np.array_equal(areas, bootstrap(found, 40, bins=6, seed=4))


def test_more_inputs_move_the_area_less() -> None:
    few, many = importance(1, m=40), importance(1, m=4000)
    assert bootstrap(many, 50).std() < bootstrap(few, 50).std() / 3


def test_equal_inputs_do_not_move_the_area() -> None:
    same = csr_array(np.tile([3.0, 1.0, 2.0, 0.0], (10, 1)))
    assert bootstrap(same, 10).std() == 0


def test_without_inputs_or_expansions_there_is_no_area() -> None:
    assert np.isnan(bootstrap(csr_array((0, 4)), 3)).all()
    assert np.isnan(bootstrap(csr_array((5, 4)), 3)).all()


def test_arguments_out_of_range() -> None:
    with pytest.raises(ArgumentError, match="bins must be at least 1, not 0"):
        curve(np.array([1.0]), 0)
    with pytest.raises(ArgumentError, match="needs 2 draws at least, not 1"):
        bootstrap(importance(0), 1)
