from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.training.masking import IGNORED, _overlap_aware_probabilities, overlap_aware, uniform

MASK, SIZE = 4, 1000


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_shares_are_those_asked_for(rate: float) -> None:
    n = 200_000
    ids = np.random.default_rng(0).integers(5, SIZE, n)
    special = np.arange(n) % 20 == 0
    masked = uniform(ids, special, np.random.default_rng(1), rate=rate, mask_id=MASK, size=SIZE)
    chosen = masked.labels != IGNORED
    assert chosen[~special].mean() == pytest.approx(rate, abs=0.005)
    became_mask = masked.input_ids[chosen] == MASK
    stayed = masked.input_ids[chosen] == ids[chosen]
    assert became_mask.mean() == pytest.approx(0.8, abs=0.01)
    assert stayed.mean() == pytest.approx(0.1, abs=0.01)
    drawn = masked.input_ids[chosen][~became_mask & ~stayed]
    assert len(drawn) / chosen.sum() == pytest.approx(0.1, abs=0.01)
    assert drawn.min() >= 0
    assert drawn.max() < SIZE
    assert np.histogram(drawn, bins=4, range=(0, SIZE))[0] / len(drawn) == pytest.approx([0.25] * 4, abs=0.05)
    # The chosen tokens are spread evenly over the text.
    assert np.histogram(np.flatnonzero(chosen), bins=4)[0] / chosen.sum() == pytest.approx([0.25] * 4, abs=0.01)


@given(
    ids=st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=30),
    rate=st.floats(1e-6, 1.0),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_what_holds_for_every_text(ids: list[int], rate: float, seed: int, data: st.DataObject) -> None:
    special = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))))
    before = np.array(ids)
    masked = uniform(before.copy(), special, np.random.default_rng(seed), rate=rate, mask_id=MASK, size=SIZE)
    chosen = masked.labels != IGNORED
    assert masked.input_ids.dtype == masked.labels.dtype == np.int64
    assert not (chosen & special).any()
    assert np.array_equal(masked.input_ids[~chosen], before[~chosen])
    assert np.array_equal(masked.labels[chosen], before[chosen])
    assert chosen.any() == (not special.all())
    if rate == 1.0:
        assert np.array_equal(chosen, ~special)


def test_the_mask_is_a_function_of_the_seed() -> None:
    ids, special = np.arange(5, 55), np.zeros(50, dtype=bool)
    first, again, other = (
        uniform(ids, special, np.random.default_rng(seed), rate=0.3, mask_id=MASK, size=SIZE) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.input_ids, again.input_ids)
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)


def test_at_a_low_rate_the_one_chosen_token_is_any_of_the_ordinary_ones() -> None:
    ids, special = np.array([2, 10, 11, 12, 3]), np.array([True, False, False, False, True])
    chosen = [
        int(np.flatnonzero(uniform(ids, special, rng, rate=1e-9, mask_id=MASK, size=SIZE).labels != IGNORED)[0])
        for rng in map(np.random.default_rng, range(60))
    ]
    assert set(chosen) == {1, 2, 3}


def brute_force(new: list[bool], rate: float, weight: float) -> np.ndarray:
    """min(1, c w) with the mean `rate`, by bisection for c."""
    weights = np.where(new, weight, 1.0)
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, middle * weights).mean() < rate else (low, middle)
    return np.minimum(1, high * weights)


@given(
    new=st.lists(st.booleans(), min_size=1, max_size=40),
    rate=st.floats(0.01, 1.0),
    weight=st.floats(0.1, 20.0),
    specials=st.integers(0, 3),
)
def test_probabilities_keep_the_rate_of_every_text(new: list[bool], rate: float, weight: float, specials: int) -> None:
    special = np.array([False] * len(new) + [True] * specials)
    found = _overlap_aware_probabilities(special, np.array(new + [True] * specials), rate, weight)
    assert (found[special] == 0).all()
    assert found[~special].mean() == pytest.approx(rate)
    assert found.max() <= 1 + 1e-9
    np.testing.assert_allclose(found[~special], brute_force(new, rate, weight), rtol=1e-6)


def test_new_tokens_are_masked_twice_as_often_at_the_same_rate() -> None:
    n = 200_000
    ids, special, new = np.random.default_rng(0).integers(5, SIZE, n), np.arange(n) % 20 == 0, np.arange(n) % 3 == 0
    masked = overlap_aware(ids, special, new, np.random.default_rng(1), rate=0.3, mask_id=MASK, size=SIZE)
    chosen = masked.labels != IGNORED
    assert chosen[~special].mean() == pytest.approx(0.3, abs=0.005)
    assert chosen[new & ~special].mean() == pytest.approx(2 * chosen[~new & ~special].mean(), rel=0.02)
    assert chosen[~new & ~special].mean() == pytest.approx(0.3 / (4 / 3), abs=0.005)
    assert not chosen[special].any()
    assert (masked.input_ids[chosen] == MASK).mean() == pytest.approx(0.8, abs=0.01)


def test_what_new_tokens_have_no_room_for_goes_to_the_shared_ones() -> None:
    special, new = np.array([True, *[False] * 10]), np.array([False, True, *[False] * 9])
    probabilities = _overlap_aware_probabilities(special, new, 0.6, 5.0)
    np.testing.assert_allclose(probabilities, [0, 1, *[5 / 9] * 9])


@given(
    ids=st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=30),
    rate=st.floats(0.01, 1.0),
    all_new=st.booleans(),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_with_nothing_or_everything_new_it_is_uniform(
    ids: list[int], rate: float, all_new: bool, seed: int, data: st.DataObject
) -> None:
    special = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))))
    text, new = np.array(ids), np.full(len(ids), all_new)
    expected = uniform(text, special, np.random.default_rng(seed), rate=rate, mask_id=MASK, size=SIZE)
    found = overlap_aware(text, special, new, np.random.default_rng(seed), rate=rate, mask_id=MASK, size=SIZE)
    assert np.array_equal(found.input_ids, expected.input_ids)
    assert np.array_equal(found.labels, expected.labels)
