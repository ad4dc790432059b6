"""Which negatives are taken: evenly from the systems, none too good, none twice."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.training.data import Candidate, Chooser

SCORES = {name: float(number) for number, name in enumerate("abcdefghij")}
SYSTEMS = st.lists(st.lists(st.sampled_from(sorted(SCORES)), unique=True), max_size=4)
BOUNDS = st.none() | st.integers(-2, 12)


def candidates(systems: list[list[str]]) -> list[list[Candidate]]:
    return [[Candidate(name, SCORES[name]) for name in system] for system in systems]


def names(chosen: list[Candidate]) -> list[str]:
    return [candidate.name for candidate in chosen]


@given(SYSTEMS, st.integers(0, 12), BOUNDS, st.none() | st.integers(0, 3), st.sets(st.sampled_from(sorted(SCORES))))
def test_all_that_may_be_taken_is(
    systems: list[list[str]], count: int, bound: int | None, seed: int | None, unusable: set[str]
) -> None:
    rng = None if seed is None else np.random.default_rng(seed)
    chooser = Chooser(count, None if bound is None else 1.0, rng)
    positive = None if bound is None else bound + 1.0
    chosen = names(chooser.choose(candidates(systems), positive, lambda name: name not in unusable))
    there = {name for system in systems for name in system}
    too_good = {name for name in there if bound is not None and SCORES[name] > bound}
    allowed = there - too_good - unusable
    assert len(set(chosen)) == len(chosen) == min(count, len(allowed))
    assert set(chosen) <= allowed
    assert chooser.dropped <= len(too_good)
    if count > len(allowed):
        assert chooser.dropped == len(too_good)  # all was looked at


def test_systems_take_turns_in_their_order() -> None:
    systems = [["a", "b", "c"], ["b", "d"], ["e"]]
    assert names(Chooser(6).choose(candidates(systems))) == ["a", "b", "e", "c", "d"]


def test_random_turns_are_even_and_seeded() -> None:
    systems = [list("abcde"), list("fghij")]
    taken = Counter[str]()
    for seed in range(300):
        chosen = names(Chooser(2, rng=np.random.default_rng(seed)).choose(candidates(systems)))
        assert names(Chooser(2, rng=np.random.default_rng(seed)).choose(candidates(systems))) == chosen
        assert sorted(name in systems[0] for name in chosen) == [False, True]
        taken.update(chosen)
    assert set(taken) == set(SCORES)
    assert min(taken.values()) > 30  # 60 of each are expected


@pytest.mark.parametrize(("margin", "expected"), [(0.0, ["d", "c", "b", "a"]), (1.0, ["c", "b", "a"]), (9.0, [])])
def test_a_negative_may_score_as_high_as_the_bound(margin: float, expected: list[str]) -> None:
    chooser = Chooser(8, margin)
    assert names(chooser.choose(candidates([list("fedcba")]), positive=3.0)) == expected
    assert chooser.dropped == 6 - len(expected)
