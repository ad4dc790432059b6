"""Results of the study: a record for each collection, the table with means over collections, and the figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from vocable.core.figures import empty_panels
from vocable.core.tables import NONE, Table, Tabled
from vocable.evaluation.significance import mean_interval
from vocable.tuning.exam import EXAM_MEASURE, Change
from vocable.tuning.report import Verdict, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDES = ("alone", "hybrid")


@dataclass(frozen=True)
class Measured:
    """A tuning, and people's queries before and after: nDCG@10, of `recall` R@100. The exam's questions were made."""

    collection: str
    documents: int
    verdict: Verdict
    exam_alone: Change
    exam_hybrid: Change
    exam_kinds: Mapping[str, float]  # differences alone, by kind of question
    bm25: float
    alone: Change
    hybrid: Change
    recall: Change
    steps: int
    minutes: float  # of the tuning, its exam included

    @property
    def right(self) -> bool:
        """Whether the verdict is "better" exactly if the trained model is better on people's queries."""
        return (self.verdict == "better") == (self.alone.difference > 0)

    def side(self, name: str) -> Change:
        """Return the change `alone` or `hybrid`."""
        return self.alone if name == "alone" else self.hybrid

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        shown = [self.collection, f"{self.documents:,}", str(self.alone.queries), f"{self.bm25:.3f}"]
        for change in (self.alone, self.hybrid):
            shown += [f"{change.before:.3f}", f"{change.after:.3f}", interval(change)]
        return [*shown, self.verdict, "yes" if self.right else "no", f"{self.minutes:.1f}"]


class Mean(NamedTuple):
    """The mean over n collections, and its 95 % interval by Student's t over the collections."""

    n: int
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def mean_of(values: Mapping[str, float]) -> Mean:
    """Return the mean of {collection: value}.

    >>> print(mean_of({"one": 0.0, "other": 0.5, "third": 1.0}))
    +0.500 [-0.742, +1.742]
    """
    return Mean(len(values), fmean(values.values()), *mean_interval(values))


@dataclass(frozen=True)
class StudyResults(Tabled):
    """The results of the study by collection, and the errors of the collections that failed."""

    model: str
    collections: Sequence[Measured]
    failed: Mapping[str, str]

    def differences(self, side: str) -> dict[str, float]:
        """Return the difference on people's queries by collection."""
        return {one.collection: one.side(side).difference for one in self.collections}

    def delivered(self, side: str) -> dict[str, float]:
        """Return the differences of the models that `tune` gives back: 0 where it keeps the initial model."""
        return {
            result.collection: result.side(side).difference if result.verdict == "better" else 0.0
            for result in self.collections
        }

    def table(self) -> list[Table | str]:
        """Return the table of the collections with their means, and the failures."""
        header = ["collection", "documents", "queries", "BM25"]
        header += ["before", "after", "difference, 95 %", "hybrid before", "after", "difference, 95 %"]
        header += ["verdict", "right", "minutes"]
        rows = [result.cells() for result in self.collections]
        rows += [[name, *[NONE] * (len(header) - 4), "failed", NONE, NONE] for name in self.failed]
        if self.collections:
            rows += self._means()
        tables: list[Table | str] = [
            Table(f"{EXAM_MEASURE} of {self.model} on queries of people", header, rows, (3, 3, 3, 3))
        ]
        return tables + [f"{name}: {message}" for name, message in self.failed.items()]

    def _means(self) -> list[list[str]]:
        bm25 = f"{fmean(one.bm25 for one in self.collections):.3f}"
        cells = ["mean", NONE, NONE, bm25]
        for side in SIDES:
            changes = [one.side(side) for one in self.collections]
            cells += [f"{fmean(one.before for one in changes):.3f}", f"{fmean(one.after for one in changes):.3f}"]
            cells.append(str(mean_of(self.differences(side))))
        better = sum(one.verdict == "better" for one in self.collections)
        right, n = sum(one.right for one in self.collections), len(self.collections)
        minutes = f"{fmean(one.minutes for one in self.collections):.1f}"
        given = ["mean, of the model given back", NONE, NONE, NONE]
        for side in SIDES:
            given += [NONE, NONE, str(mean_of(self.delivered(side)))]
        return [[*cells, f"{better} of {n} better", f"{right} of {n}", minutes], [*given, NONE, NONE, NONE]]


def draw(results: StudyResults) -> Figure:
    """Draw the differences on people's queries with their intervals, alone and with BM25; filled where kept."""
    figure = empty_panels(len(SIDES), len(SIDES))
    figure.set_figheight(0.28 * len(results.collections) + 1.6)
    ordered = sorted(results.collections, key=lambda one: one.alone.difference)
    for axes, side in zip(figure.axes, SIDES, strict=True):
        _draw_side(axes, side, ordered, mean_of(results.differences(side)))
    figure.axes[1].set_yticklabels([])
    figure.axes[1].sharex(figure.axes[0])
    return figure


def _draw_side(axes: Axes, side: str, ordered: Sequence[Measured], mean: Mean) -> None:
    """Draw a side: a row for each collection, and the mean over collections below them."""
    for row, result in enumerate(ordered, start=1):
        change = result.side(side)
        _whisker(axes, row, (change.difference, change.low, change.high), "C0", filled=result.verdict == "better")
    _whisker(axes, 0, mean[1:], "C1", filled=True)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(ordered) + 1), ["mean", *(result.collection for result in ordered)])
    axes.set_xlabel(f"difference of {EXAM_MEASURE}, after - before")
    axes.set_title("alone" if side == "alone" else "with BM25")
    axes.grid(alpha=0.3, axis="x")


def _whisker(axes: Axes, row: int, limits: tuple[float, float, float], color: str, *, filled: bool) -> None:
    mean, low, high = limits
    inside = color if filled else "white"
    axes.errorbar(
        [mean], [row], xerr=[[mean - low], [high - mean]], fmt="o", color=color, markerfacecolor=inside, capsize=2
    )
