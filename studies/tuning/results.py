"""Results of the study: a record for each collection, and the tables of collections and of rules for a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean

import numpy as np

from vocable.core.storage import read_record
from vocable.core.tables import NONE, Table, Tabled
from vocable.tuning.exam import EXAM_MEASURE, Change
from vocable.tuning.questions import LEARNED_KINDS
from vocable.tuning.report import interval

PUBLISHED = Path(__file__).parent / "published.json"
DRAWS = 10_000  # of collections, with replacement


@dataclass(frozen=True)
class Measured:
    """A tuning, and people's queries before and after: nDCG@10, of `recall` R@100. The exam's questions were made.

    In the published run, the exam has a fourth kind of question, `exam_alone` and `exam_hybrid` are over all kinds, and
    the verdict is by the old rule. In a run of today's `tune` they are over the kinds that decide.
    """

    collection: str
    documents: int
    verdict: str
    exam_alone: Change
    exam_hybrid: Change
    exam_kinds: Mapping[str, float]  # differences alone, by kind of question
    bm25: float
    alone: Change
    hybrid: Change
    recall: Change
    steps: int
    minutes: float  # of the tuning, its exam included

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        shown = [self.collection, f"{self.documents:,}", str(self.alone.queries), f"{self.bm25:.3f}"]
        for change in (self.alone, self.hybrid):
            shown += [f"{change.before:.3f}", interval(change)]
        return [*shown, self.verdict, f"{self.minutes:.1f}"]


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
        header += ["hybrid before", "difference, 95 %", "verdict", "minutes"]
        rows = [result.cells() for result in self.collections]
        rows += [[name, *[NONE] * (len(header) - 3), "failed", NONE] for name in self.failed]
        if self.collections:
            rows.append(self._means())
        tables: list[Table | str] = [
            Table(f"{EXAM_MEASURE} of {self.model} on queries of people", header, rows, (3, 3, 3, 3))
        ]
        return tables + [f"{name}: {message}" for name, message in self.failed.items()]

    def _means(self) -> list[str]:
        results = self.collections
        cells = ["mean", NONE, NONE, f"{fmean(result.bm25 for result in results):.3f}"]
        for changes in ([result.alone for result in results], [result.hybrid for result in results]):
            cells += [f"{fmean(change.before for change in changes):.3f}"]
            cells += [mean_of([change.difference for change in changes])]
        return [*cells, NONE, f"{fmean(result.minutes for result in results):.1f}"]


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


def harmed(measured: Measured) -> bool:
    """Return whether the exam of a published tuning shows harm, as today's rule reads it.

    By kind of question only mean differences alone were kept. Kinds have equally many questions, so the interval of the
    kinds that decide is wider by the root of the ratio of their numbers. The interval of the hybrid includes keywords,
    which lower it.
    """
    kinds = [measured.exam_kinds[kind] for kind in LEARNED_KINDS if kind in measured.exam_kinds]
    half = (measured.exam_alone.high - measured.exam_alone.low) / 2 * sqrt(len(measured.exam_kinds) / len(kinds))
    return fmean(kinds) + half < 0 or measured.exam_hybrid.high < 0


RULES: dict[str, Callable[[Measured], bool]] = {  # whether the tuned model is handed out
    "always": lambda measured: True,
    "old rule: only if better, with keywords": lambda measured: measured.verdict == "better",
    "new rule: unless worse, without keywords": lambda measured: not harmed(measured),
}


def rules_table() -> Table:
    """Return what the user of the published tunings gains by each rule: 0 where the initial model is handed out."""
    rows = []
    for name, hands_out in RULES.items():
        given = [result for result in published().collections if hands_out(result)]
        cells, n = [name, f"{len(given)} of {len(published().collections)}"], len(published().collections) - len(given)
        for gains in ([result.alone.difference for result in given], [result.hybrid.difference for result in given]):
            cells += [mean_of([*gains, *[0.0] * n]), f"{min(gains):+.3f}"]
        rows.append(cells)
    return Table("rules", ["tuned model", "handed out", "alone, 95 %", "least", "with BM25, 95 %", "least"], rows)


if __name__ == "__main__":
    print(*published().table(), rules_table(), sep="\n\n")
