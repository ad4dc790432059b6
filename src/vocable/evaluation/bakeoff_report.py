"""The result of a bake-off: a table, a page of HTML, and the queries with the largest differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vocable.core.html import Entry, Lists, Section, page
from vocable.core.tables import NONE, Table, Tabular, counted, p_value, short
from vocable.data import Query
from vocable.evaluation.quality import notes
from vocable.evaluation.significance import ComparedEvaluations, mean_interval

BAKEOFF_MEASURES = ("R@1", "R@5", "RR@10", "nDCG@10")
DECISIVE = BAKEOFF_MEASURES[-1]
DIFFERING = 20  # queries that are shown with their hits
LISTED_HITS = 5  # of each search
HOW_MEASURED = (
    "Every search answered every query, one query at a time and in turns; the first query was asked once more before. "
    "A hit is a page: of several sections of a page the best counts. ± is the half of the 95 % interval of the mean "
    "(Student's t over the queries); p is of the paired t-test against the first search, not corrected for the number "
    "of tests."
)


class PageHit(NamedTuple):
    """A hit: the key of a page of the index, or the address of another page, with its title and address."""

    page: str
    title: str
    address: str


@dataclass(frozen=True)
class SearchAnswers:
    """The answers of a search to q queries.

    Attributes:
        name: the search.
        hits: the first pages of each query, best first.
        times: milliseconds of each answer [q]; None if the answers were read from a file.
        size: bytes, and the thing that has them: "index", "file" or "answer"; None if it is not known.
        unknown: number of hits that are no page of the index.
    """

    name: str
    hits: Sequence[Sequence[PageHit]]
    times: np.ndarray | None
    size: tuple[float, str] | None
    unknown: int = 0

    @property
    def milliseconds(self) -> float | None:
        """Return the median time of an answer."""
        return None if self.times is None else float(np.median(self.times))


@dataclass(frozen=True)
class BakeOff(Tabular):
    """Searches compared on the same q `queries`.

    Attributes:
        index: place of the index.
        queries: the judged queries.
        expected: the relevant pages of each query, those with the highest grade first.
        answers: the answers of each search.
        compared: the evaluation of each search; the first is the baseline.
        missing: number of judged documents that the index does not have.
    """

    index: str
    queries: Sequence[Query]
    expected: Sequence[Sequence[PageHit]]
    answers: Sequence[SearchAnswers]
    compared: ComparedEvaluations
    missing: int = 0

    def table(self) -> Table:
        """Return the table of quality, times and sizes."""
        evaluations = self.compared.evaluations
        header, rows = ["search"], [[each.name] for each in self.answers]
        for measure in BAKEOFF_MEASURES:
            header += [measure, "p"]
            for row, evaluation, p in zip(rows, evaluations, [{}, *self.compared.p_values], strict=True):
                mean, (low, _) = evaluation.values[measure], mean_interval(evaluation.per_query[measure])
                row += [f"{mean:.3f} ±{mean - low:.3f}", p_value(p[measure]) if measure in p else NONE]
        for row, each in zip(rows, self.answers, strict=True):
            row += [NONE if (ms := each.milliseconds) is None else short(ms), _size(each)]
        title = f"{evaluations[0].dataset} in {self.index}, {counted(len(self.queries), 'query', 'queries')}"
        groups = [2] * len(BAKEOFF_MEASURES) + [2]
        return Table(title, [*header, "answer p50 ms", "size"], rows, groups, self._notes())

    def html(self) -> str:
        """Return a page of HTML that needs no other file."""
        queries = counted(len(self.queries), "query", "queries")
        title = f"Bake-off: {counted(len(self.answers), 'search', 'searches')}, {queries}"
        table = self.table()
        result = Section("Result", [table._replace(notes=()), HOW_MEASURED, *table.notes])
        differing = self.differing()
        about = f"The {len(differing)} queries whose {DECISIVE} differs most. ✓ marks an expected page."
        about = about if differing else "The searches do not differ on any query."
        lists = [self._side_by_side(number, row) for number, row in enumerate(differing, start=1)]
        return page(title, [result, Section("Where the searches differ", [about, *lists])])

    def to_json(self) -> dict[str, object]:
        """Return the comparison as JSON values, with the hits of the queries that differ most."""
        systems = [
            {
                "name": each.name,
                "values": dict(evaluation.values),
                "intervals": {name: list(mean_interval(of_query)) for name, of_query in evaluation.per_query.items()},
                "p": p and dict(p),
                "answer_p50_ms": each.milliseconds,
                "bytes": each.size and {"of": each.size[1], "mean": each.size[0]},
                "unknown_hits": each.unknown,
            }
            for each, evaluation, p in zip(
                self.answers, self.compared.evaluations, [None, *self.compared.p_values], strict=True
            )
        ]
        differing = [
            {
                "id": self.queries[row].id,
                "query": self.queries[row].text,
                "expected": [hit.address for hit in self.expected[row]],
                "hits": {each.name: [hit.address for hit in each.hits[row]] for each in self.answers},
            }
            for row in self.differing()
        ]
        about = {"index": self.index, "dataset": self.compared[0].dataset, "queries": len(self.queries)}
        return {**about, "baseline": self.answers[0].name, "systems": systems, "differing": differing}

    def differing(self) -> list[int]:
        """Return the rows of the queries with the largest differences in nDCG@10, at most `DIFFERING`."""
        spreads = list[float]()
        for query in self.queries:
            values = [evaluation.per_query[DECISIVE][query.id] for evaluation in self.compared.evaluations]
            spreads.append(max(values) - min(values))
        order = sorted(range(len(spreads)), key=lambda row: -spreads[row])
        return [row for row in order[:DIFFERING] if spreads[row] > 0]

    def _notes(self) -> list[str]:
        first, *others = self.compared.evaluations
        lines = list[str]()
        for other in others:
            values = other.per_query[DECISIVE]
            change = {query: value - first.per_query[DECISIVE][query] for query, value in values.items()}
            low, high = mean_interval(change)
            mean = sum(change.values()) / len(change)
            lines.append(f"{other.name} against {first.name}: {DECISIVE} {mean:+.3f} [{low:+.3f}, {high:+.3f}]")
        for each in self.answers:
            if each.unknown:
                lines.append(f"{each.name}: {counted(each.unknown, 'hit')} that are no page of the index, as misses")
        if self.missing:
            lines.append(f"{counted(self.missing, 'judged document')} not in the index, which no search finds")
        return lines + notes(self.compared.evaluations)

    def _side_by_side(self, number: int, row: int) -> Lists:
        expected = self.expected[row]
        pages = {hit.page for hit in expected}
        lists = {"expected": ([Entry(hit.title, hit.address) for hit in expected[:LISTED_HITS]], "")}
        for each in self.answers:
            hits = each.hits[row]
            entries = [Entry(hit.title, hit.address, hit.page in pages) for hit in hits[:LISTED_HITS]]
            rank = next((rank for rank, hit in enumerate(hits, start=1) if hit.page in pages), None)
            line = (
                "no hit" if not hits else f"not among {counted(len(hits), 'hit')}" if rank is None else f"rank {rank}"
            )
            lists[each.name] = entries, line
        return Lists(f"{number}. {self.queries[row].text}", lists)


def _size(answers: SearchAnswers) -> str:
    """Return the bytes of a search for a table."""
    if answers.size is None:
        return NONE
    count, of = answers.size
    return f"{of} {short(count / 1e6)} MB" if count >= 1e5 else f"{of} {short(count / 1e3)} kB"
