"""Results of the study: what a tuning changed on people's queries, a record for each collection, and their table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from vocable.core.storage import read_record
from vocable.core.tables import NONE, Table, Tabled
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.significance import mean_interval

MEASURE, RECALL = "nDCG@10", "R@100"
PUBLISHED = Path(__file__).parent / "published.json"
DRAWS = 10_000  # of collections, with replacement


@dataclass(frozen=True)
class Change:
    """The mean of a measure before and after, and the 95 % confidence interval of the mean difference."""

    queries: int
    before: float
    after: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        return self.after - self.before

    def __str__(self) -> str:
        return f"{self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def change(start: Evaluation, end: Evaluation, measure: str) -> Change:
    """Compare two evaluations; the interval is Student's interval of the paired differences."""
    first, second = start.per_query[measure], end.per_query[measure]
    low, high = mean_interval({query: second[query] - first[query] for query in first})
    return Change(len(first), fmean(first.values()), fmean(second.values()), low, high)


@dataclass(frozen=True)
class Measured:
    """A tuning, and people's queries before and after: nDCG@10, of `recall` R@100."""

    collection: str
    documents: int
    bm25: float
    alone: Change
    hybrid: Change  # fused with BM25 and, but in the published run, with dense vectors
    recall: Change
    steps: int
    minutes: float  # of the tuning

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        shown = [self.collection, f"{self.documents:,}", str(self.alone.queries), f"{self.bm25:.3f}"]
        for change in (self.alone, self.hybrid):
            shown += [f"{change.before:.3f}", str(change)]
        return [*shown, f"{self.minutes:.1f}"]


@dataclass(frozen=True)
class StudyResults(Tabled):
    """The results of a run of the study by collection, and the errors of the collections that failed."""

    model: str
    collections: Sequence[Measured]
    failed: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    machine: str = ""

    def table(self) -> list[Table | str]:
        """Return the table of the collections with their means, and the failures."""
        header = ["collection", "documents", "queries", "BM25", "before", "difference, 95 %"]
        header += ["hybrid before", "difference, 95 %", "minutes"]
        rows = [result.cells() for result in self.collections]
        rows += [[f"{name}: failed", *[NONE] * (len(header) - 1)] for name in self.failed]
        if self.collections:
            rows.append(self._means())
        tables: list[Table | str] = [
            Table(f"{MEASURE} of {self.model} on queries of people", header, rows, (3, 3, 3, 3))
        ]
        return tables + [f"{name}: {message}" for name, message in self.failed.items()]

    def _means(self) -> list[str]:
        results = self.collections
        cells = ["mean", NONE, NONE, f"{fmean(result.bm25 for result in results):.3f}"]
        for changes in ([result.alone for result in results], [result.hybrid for result in results]):
            cells += [f"{fmean(change.before for change in changes):.3f}"]
            cells += [mean_of([change.difference for change in changes])]
        return [*cells, f"{fmean(result.minutes for result in results):.1f}"]


def mean_of(values: Sequence[float]) -> str:
    """Return the mean of the values of collections, with its 95 % interval by the bootstrap over the collections.

    >>> mean_of([0.0, 0.5, 1.0])
    '+0.500 [+0.000, +1.000]'
    """
    draws = np.random.default_rng(0).choice(values, (DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{fmean(values):+.3f} [{low:+.3f}, {high:+.3f}]"


def published() -> StudyResults:
    """Read the published results."""
    return read_record(PUBLISHED, StudyResults)


if __name__ == "__main__":
    print(*published().table(), sep="\n\n")
