from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.analysis.test_ablation import MEASURES, V, toy
from vocable.analysis.removal import Ablation, Band, Outcome, Point, Removal, removal
from vocable.errors import ArgumentError, DataError


@pytest.fixture(scope="module")
def ablation() -> Ablation:
    encoded, own, _ = toy(share=0.5)
    return Ablation(encoded, own, MEASURES)


def test_as_many_random_terms_are_removed_as_wacky_ones(ablation: Ablation, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[np.ndarray] = []
    search = ablation.without

    def watched(terms: np.ndarray) -> Outcome:
        removed.append(terms)
        return search(terms)

    monkeypatch.setattr(ablation, "without", watched)
    wackiest = np.array([7, 3, 12, 5, 1, 20])
    done: list[int] = []
    found = removal(ablation, wackiest, [5, 2, 5], draws=3, seed=1, advance=done.append)
    assert [point.threshold for point in found.points] == [2, 5]
    assert [set(removed[0].tolist()), set(removed[4].tolist())] == [{7, 3}, {7, 3, 12, 5, 1}]
    assert [len(terms) for terms in removed] == [2] * 4 + [5] * 4
    assert all(len(set(terms.tolist())) == len(terms) for terms in removed)
    assert set(np.concatenate(removed).tolist()) <= set(ablation.candidates.tolist())
    assert len({tuple(sorted(terms.tolist())) for terms in removed[5:]}) == 3
    assert sum(done) == 8
    assert found.points[1].wacky == search(wackiest[:5])
    assert found.full == ablation.values()
    assert (found.dataset, found.side, found.queries) == ("toy", "query", 12)


def test_terms_that_are_no_expansion_here_do_not_count() -> None:
    encoded, own, _ = toy(share=0.05)
    ablation = Ablation(encoded, own, MEASURES)
    assert 0 < len(ablation.candidates) < V
    [point] = removal(ablation, np.arange(V), [V], draws=2).points
    assert [outcome.terms for outcome in (point.wacky, *point.random)] == [len(ablation.candidates)] * 3
    assert {outcome.share for outcome in point.random} == {1.0}
    assert [point.band(name).side_of(point.wacky.values[name]) for name in MEASURES] == ["inside"] * 3


def test_draws_depend_on_nothing_but_the_seed(ablation: Ablation) -> None:
    def draws(thresholds: list[int], count: int, seed: int) -> tuple[Outcome, ...]:
        return removal(ablation, np.arange(V), thresholds, draws=count, seed=seed).points[-1].random

    few, many = draws([4], 2, 0), draws([1, 4], 4, 0)
    assert few == many[:2]
    assert few != draws([4], 2, 1)


def test_the_band_is_the_mean_and_two_standard_deviations() -> None:
    values = [0.5, 0.25, 0.75, 0.5]
    random = tuple(Outcome(3, share / 4, 2, {"RR": value}, {"RR": 0.5}) for share, value in enumerate(values))
    point = Point(10, Outcome(3, 0.5, 2, {"RR": 0.0625}, {"RR": 0.01}), random)
    std = float(np.std(values, ddof=1))
    assert point.band("RR") == pytest.approx(Band(0.5, std))
    assert (point.band("RR").low, point.band("RR").high) == pytest.approx((0.5 - 2 * std, 0.5 + 2 * std))
    assert point.random_share == 0.375
    found = point.to_json({"RR": 0.625})["measures"]["RR"]
    assert (found["wacky"], found["difference"], found["p"], found["wacky_is"]) == (0.0625, -0.5625, 0.01, "below")
    assert found["random"]["low"] == pytest.approx(0.5 - 2 * std)
    assert Band(0.5, 0.1).side_of(0.71) == "above"


def test_removals_are_written_and_read_as_json(ablation: Ablation) -> None:
    found = removal(ablation, np.arange(V), [2, 9], draws=2)
    assert Removal.from_json(json.loads(json.dumps(found.to_json()))) == found
    damaged: dict[str, Any]
    for damaged in ({}, {"points": [{}]}, {"points": [{"threshold": 1, "wacky": {"x": 1}, "random": []}]}):
        with pytest.raises(DataError, match="not a removal as JSON"):
            Removal.from_json(damaged)


def test_what_was_found_before_is_not_searched_again(ablation: Ablation, tmp_path: Path) -> None:
    known: dict[str, Outcome] = {}
    asked: list[str] = []

    def remember(name: str, work: Callable[[], Outcome]) -> Outcome:
        asked.append(name)
        if name not in known:
            known[name] = work()
        return known[name]

    first = removal(ablation, np.arange(V), [2], draws=2, remember=remember)
    assert asked == ["2-wacky", "2-random-1", "2-random-2"]
    known["2-wacky"] = known["2-wacky"]._replace(values=dict.fromkeys(MEASURES, 0.125))
    again = removal(ablation, np.arange(V), [2], draws=2, remember=remember)
    assert again.points[0].random == first.points[0].random
    assert again.points[0].wacky.values == dict.fromkeys(MEASURES, 0.125)


@pytest.mark.parametrize(
    ("thresholds", "draws", "message"), [([], 2, "thresholds"), ([0], 2, "not"), ([1], 1, "draws")]
)
def test_an_impossible_plan_is_refused(ablation: Ablation, thresholds: list[int], draws: int, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        removal(ablation, np.arange(V), thresholds, draws=draws)
