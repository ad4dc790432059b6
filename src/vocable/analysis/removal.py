"""What the wackiest expansion terms are worth: search without them, and without as many random ones.

"Understanding Wacky Weights: A Dissection of SPLADE's Learned Term Importance", sections 4.1 and 5.1. A term is removed
where it is an expansion, never where it stands in the text itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vocable.analysis.ablation import Ablation, Outcome, Side
from vocable.errors import ArgumentError, DataError

THRESHOLDS = (10, 100, 1000, 10_000)
DRAWS = 10


class Band(NamedTuple):
    """The 95 % interval of a measure under random removal: `mean` - 2 `std` to `mean` + 2 `std`."""

    mean: float
    std: float

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - 2 * self.std

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + 2 * self.std

    def side_of(self, value: float) -> str:
        """Where a value lies: "below", "inside" or "above"; a difference that rounding can make is none.

        >>> Band(0.5, 0.01).side_of(0.47), Band(0.5, 0.01).side_of(0.52), Band(0.5, 0.0).side_of(0.5)
        ('below', 'inside', 'inside')
        """
        return "below" if value < self.low - 1e-12 else "above" if value > self.high + 1e-12 else "inside"


@dataclass(frozen=True)
class Point:
    """The removal of the `threshold` wackiest terms, beside draws of as many random ones."""

    threshold: int
    wacky: Outcome
    random: tuple[Outcome, ...]

    def band(self, measure: str) -> Band:
        """The interval of the draws; the standard deviation is that of a sample."""
        values = np.array([outcome.values[measure] for outcome in self.random])
        return Band(float(values.mean()), float(values.std(ddof=1)))

    @property
    def random_share(self) -> float:
        """The share of the expansion entries that the draws remove, their mean."""
        return float(np.mean([outcome.share for outcome in self.random]))

    def to_json(self, full: Mapping[str, float]) -> dict[str, Any]:
        """The point as JSON values; `full` are those of the whole vectors."""
        measures = {}
        for name, value in self.wacky.values.items():
            band = self.band(name)
            found = {
                "wacky": value,
                "difference": value - full[name],
                "p": self.wacky.p[name],
                "wacky_is": band.side_of(value),
            }
            measures[name] = found | {"random": {**band._asdict(), "low": band.low, "high": band.high}}
        return {
            "threshold": self.threshold,
            "measures": measures,
            "wacky": self.wacky._asdict(),
            "random": [outcome._asdict() for outcome in self.random],
        }


@dataclass(frozen=True)
class Removal:
    """Removals on one dataset: `full` are the values of the whole vectors, `points` by rising threshold."""

    dataset: str
    side: Side
    queries: int
    full: dict[str, float]
    points: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        """The removals as JSON values."""
        return vars(self) | {"points": [point.to_json(self.full) for point in self.points]}

    @classmethod
    def from_json(cls, values: Any) -> Removal:
        """The removals that `to_json` wrote; raises `DataError` if it is something else."""
        try:
            points = [
                Point(one["threshold"], Outcome(**one["wacky"]), tuple(Outcome(**draw) for draw in one["random"]))
                for one in values["points"]
            ]
            return cls(values["dataset"], values["side"], values["queries"], values["full"], tuple(points))
        except (KeyError, TypeError) as error:
            raise DataError(f"not a removal as JSON: {error!r}") from error


def removal(
    ablation: Ablation,
    wackiest: np.ndarray,
    thresholds: Sequence[int] = THRESHOLDS,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    remember: Callable[[str, Callable[[], Outcome]], Outcome] = lambda name, work: work(),
    advance: Callable[[int], object] = lambda done: None,
) -> Removal:
    """Remove the wackiest expansion terms, and as many random ones, and measure each.

    Of the N wackiest terms those count that are an expansion in the dataset; the random ones are drawn from all
    expansion terms of the dataset, as many. Where the scores come from the same texts these are N and N.

    Args:
        ablation: the dataset.
        wackiest: columns, from `vocable.evaluation.wackiness.ranked`.
        thresholds: numbers of terms to remove.
        draws: how often random terms are drawn for each threshold, twice at least.
        seed: of the draws. Each has its own stream, so that it does not depend on the others.
        remember: called with the name of a search and what carries it out; may give what an earlier call has found.
        advance: called with 1 after every search.

    Raises:
        ArgumentError: a threshold or the number of draws is out of its range.
    """
    check_plan(thresholds, draws)
    points = []
    for threshold in sorted(set(thresholds)):
        chosen = np.intersect1d(wackiest[:threshold], ablation.candidates)
        outcomes = []
        for number in range(draws + 1):
            name = f"{threshold}-{f'random-{number}' if number else 'wacky'}"
            terms = _drawn(ablation.candidates, len(chosen), [seed, threshold, number]) if number else chosen
            outcomes.append(remember(name, lambda terms=terms: ablation.without(terms)))  # type: ignore[misc]
            advance(1)
        points.append(Point(threshold, outcomes[0], tuple(outcomes[1:])))
    queries = len(ablation.encoded.query_ids)
    return Removal(ablation.encoded.dataset.name, ablation.side, queries, ablation.values(), tuple(points))


def check_plan(thresholds: Sequence[int], draws: int) -> None:
    """Raise `ArgumentError` for a threshold or a number of draws that is out of its range."""
    if not thresholds or min(thresholds) < 1:
        raise ArgumentError(f"thresholds must be numbers of terms of at least 1, not {list(thresholds)}")
    if draws < 2:
        raise ArgumentError(f"draws must be at least 2, for a standard deviation, not {draws}")


def _drawn(candidates: np.ndarray, count: int, seed: list[int]) -> np.ndarray:
    return np.random.default_rng(seed).choice(candidates, count, replace=False)
