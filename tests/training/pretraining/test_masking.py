from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.training.pretraining.masking import (
    CONTINUES,
    IGNORED,
    NO_WORD,
    Masked,
    WordPart,
    mask_tokens,
    overlap_aware,
    whole_words,
)

MASK, SIZE = 4, 1000


def uniform(ids: np.ndarray, special: np.ndarray, rng: np.random.Generator, rate: float) -> Masked:
    return mask_tokens(ids, np.where(special, 0.0, rate), rng, mask_id=MASK, size=SIZE)


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_shares_are_those_asked_for(rate: float) -> None:
    n = 200_000
    ids = np.random.default_rng(0).integers(5, SIZE, n)
    special = np.arange(n) % 20 == 0
    masked = uniform(ids, special, np.random.default_rng(1), rate)
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
def test_masks_change_chosen_ordinary_tokens_alone(ids: list[int], rate: float, seed: int, data: st.DataObject) -> None:
    special = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))))
    before = np.array(ids)
    masked = uniform(before.copy(), special, np.random.default_rng(seed), rate)
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
    first, again, other = (uniform(ids, special, np.random.default_rng(seed), 0.3) for seed in (1, 1, 2))
    assert np.array_equal(first.input_ids, again.input_ids)
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)


def test_at_a_low_rate_the_one_chosen_token_is_any_of_the_ordinary_ones() -> None:
    ids, special = np.array([2, 10, 11, 12, 3]), np.array([True, False, False, False, True])
    chosen = [
        int(np.flatnonzero(uniform(ids, special, rng, 1e-9).labels != IGNORED)[0])
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
    found = overlap_aware(special, np.array(new + [True] * specials), rate, weight)
    assert (found[special] == 0).all()
    assert found[~special].mean() == pytest.approx(rate)
    assert found.max() <= 1 + 1e-9
    np.testing.assert_allclose(found[~special], brute_force(new, rate, weight), rtol=1e-6)


def test_new_tokens_are_masked_twice_as_often_at_the_same_rate() -> None:
    n = 200_000
    ids, special, new = np.random.default_rng(0).integers(5, SIZE, n), np.arange(n) % 20 == 0, np.arange(n) % 3 == 0
    masked = mask_tokens(ids, overlap_aware(special, new, 0.3), np.random.default_rng(1), mask_id=MASK, size=SIZE)
    chosen = masked.labels != IGNORED
    assert chosen[~special].mean() == pytest.approx(0.3, abs=0.005)
    assert chosen[new & ~special].mean() == pytest.approx(2 * chosen[~new & ~special].mean(), rel=0.02)
    assert chosen[~new & ~special].mean() == pytest.approx(0.3 / (4 / 3), abs=0.005)
    assert not chosen[special].any()
    assert (masked.input_ids[chosen] == MASK).mean() == pytest.approx(0.8, abs=0.01)


def test_what_new_tokens_have_no_room_for_goes_to_the_shared_ones() -> None:
    special, new = np.array([True, *[False] * 10]), np.array([False, True, *[False] * 9])
    probabilities = overlap_aware(special, new, 0.6, 5.0)
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
    expected = uniform(text, special, np.random.default_rng(seed), rate)
    probabilities = overlap_aware(special, new, rate)
    found = mask_tokens(text, probabilities, np.random.default_rng(seed), mask_id=MASK, size=SIZE)
    assert np.array_equal(found.input_ids, expected.input_ids)
    assert np.array_equal(found.labels, expected.labels)


def text_of(lengths: list[int], gaps: list[int]) -> np.ndarray:
    """Words of so many sub-tokens, each followed by so many tokens of no word; word i has the number 7 i."""
    words = [NO_WORD]
    for i, (length, gap) in enumerate(zip(lengths, gaps, strict=True)):
        words += [7 * i, *[CONTINUES] * (length - 1), *[NO_WORD] * gap]
    return np.array([*words, NO_WORD])


@pytest.mark.parametrize("n", range(1, 201))
def test_fifteen_per_cent_of_the_words_are_masked_and_at_least_one(n: int) -> None:
    words = text_of([1 + i % 3 for i in range(n)], [i % 2 for i in range(n)])
    ids = np.arange(10, 10 + len(words))
    for seed in range(3):
        masked = whole_words(ids, words, np.random.default_rng(seed), rate=0.15, mask_id=MASK, size=SIZE)
        chosen = set(masked.labels.tolist()) - {IGNORED}
        assert len(chosen) == max(1, 15 * n // 100)


@given(
    lengths=st.lists(st.integers(1, 4), min_size=0, max_size=25),
    rate=st.sampled_from([0.15, 0.3, 1.0]),
    part=st.sampled_from(["all", "first", "later"]),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_labels_are_the_word_s_on_each_of_its_masked_tokens(
    lengths: list[int], rate: float, part: WordPart, seed: int, data: st.DataObject
) -> None:
    gaps = data.draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths)))
    words = text_of(lengths, gaps)
    ids = np.arange(10, 10 + len(words))
    masked = whole_words(ids.copy(), words, np.random.default_rng(seed), rate=rate, mask_id=MASK, size=SIZE, part=part)
    chosen, at = [], 1
    for i, (length, gap) in enumerate(zip(lengths, gaps, strict=True)):
        tokens = {"all": range(length), "first": range(1), "later": range(1, length)}[part]
        expected = {7 * i} if any(masked.labels[at : at + length] != IGNORED) else {IGNORED}
        assert {int(masked.labels[at + k]) for k in tokens} <= expected
        others = set(range(length)) - set(tokens)
        assert all(masked.labels[at + k] == IGNORED and masked.input_ids[at + k] == ids[at + k] for k in others)
        if expected != {IGNORED}:
            chosen.append(i)
            assert part == "all" or length > 1
            fates = [masked.input_ids[at + k] for k in tokens]
            # One fate for the whole word: [MASK] for all tokens, or for none (but by chance).
            assert len({token == MASK for token in fates}) == 1
        else:
            assert np.array_equal(masked.input_ids[at : at + length], ids[at : at + length])
        assert (masked.labels[at + length : at + length + gap] == IGNORED).all()
        at += length + gap
    candidates = len(lengths) if part == "all" else sum(length > 1 for length in lengths)
    assert len(chosen) == (max(1, int(np.floor(rate * candidates + 1e-9))) if candidates else 0)
    assert masked.input_ids.dtype == masked.labels.dtype == np.int64


def test_by_token_the_number_is_rounded_and_each_token_has_a_draw_of_its_own() -> None:
    common = {"rate": 0.15, "mask_id": MASK, "size": SIZE, "by_token": True}
    for n in range(1, 60):  # of 10 words 1.5 are 2, of 30 4.5 are 4: halves become even
        words = text_of([1 + i % 3 for i in range(n)], [i % 2 for i in range(n)])
        masked = whole_words(np.arange(10, 10 + len(words)), words, np.random.default_rng(n), **common)
        assert len(set(masked.labels.tolist()) - {IGNORED}) == max(1, round(0.15 * n))
    words = text_of([4] * 4000, [0] * 4000)
    ids = np.full(len(words), 7)
    masked = whole_words(ids, words, np.random.default_rng(0), **common)
    chosen = masked.labels != IGNORED
    became = (masked.input_ids == MASK)[chosen].reshape(-1, 4)
    assert chosen.sum() == 4 * 600
    assert became.mean() == pytest.approx(0.8, abs=0.03)
    assert became.all(axis=1).mean() == pytest.approx(0.8**4, abs=0.05)  # 0.8 with one draw a word
    assert (masked.input_ids == 7)[chosen].mean() == pytest.approx(0.1, abs=0.03)


def test_of_the_chosen_words_eight_tenths_become_masks() -> None:
    words, counts = text_of([2] * 40, [0] * 40), np.zeros(3)
    ids = np.arange(SIZE, SIZE + len(words))  # no random token is the token itself
    picked = np.zeros(40)
    for seed in range(1500):
        masked = whole_words(ids, words, np.random.default_rng(seed), rate=0.15, mask_id=MASK, size=SIZE)
        chosen = np.flatnonzero((masked.labels != IGNORED) & (words >= 0))
        picked[words[chosen] // 7] += 1
        first, second = masked.input_ids[chosen], masked.input_ids[chosen + 1]
        stayed = first == ids[chosen]
        assert np.array_equal(stayed, second == ids[chosen + 1])
        became = (first == MASK) & (second == MASK)
        counts += became.sum(), stayed.sum(), len(chosen)
    assert counts[2] == 1500 * 6
    assert counts[0] / counts[2] == pytest.approx(0.8, abs=0.015)
    assert counts[1] / counts[2] == pytest.approx(0.1, abs=0.012)
    assert picked / counts[2] == pytest.approx(np.full(40, 1 / 40), abs=0.007)  # every word is as likely


def test_first_and_later_sub_words_are_of_the_same_words() -> None:
    words = text_of([3, 1, 2, 1, 4, 2, 2, 2], [1] * 8)
    ids = np.arange(len(words))
    first, later = (
        whole_words(ids, words, np.random.default_rng(5), rate=0.5, mask_id=MASK, size=SIZE, part=part)
        for part in ("first", "later")
    )
    assert set(first.labels) == set(later.labels)
    assert not ((first.labels != IGNORED) & (later.labels != IGNORED)).any()
