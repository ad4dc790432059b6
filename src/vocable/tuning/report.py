"""The report of a tuning: measures before and after by kind of question, costs, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from vocable.evaluation.cost import Cost, cost_columns
from vocable.html import Section, settings_section, write_page
from vocable.storage import write_record
from vocable.tables import Table, Tabled
from vocable.tuning.exam import ASKED, EXAM_MEASURE, EXAM_RECALL, Change, Exam, ExamAnswers, change
from vocable.tuning.plan import Plan

Verdict: TypeAlias = Literal["better", "no difference", "worse"]
ENOUGH_ASKED = 50  # judged queries of people that decide alone
REPORT = "report.json"
ALL_QUESTIONS = "all"
ABOUT = {
    "title": "the title of a document, which it then lacks",
    "keywords": "two to five of its words, not trained",
    "sentence": "one or two of its sentences, which it then lacks",
    "passage": "consecutive words, as long as an abstract, which it then lacks, not trained",
    ASKED: "judged queries of people",
}


@dataclass(frozen=True)
class TuningReport(Tabled):
    """The result of a tuning. `alone` and `hybrid` have nDCG@10, `recall` R@100, by kind of question and of all."""

    model: str
    corpus: str
    verdict: Verdict
    reason: str  # of the verdict
    alone: Mapping[str, Change]
    hybrid: Mapping[str, Change]
    recall: Mapping[str, Change]
    control: Change | None  # nDCG@10 on the built-in collection
    costs: Sequence[Cost]  # before and after
    plan: Plan
    examples: int
    steps: int
    minutes: float  # of all runs together
    output: Path = Path()

    def table(self) -> list[Table | str]:
        """Return the verdict, and the tables of questions and costs."""
        return [f"{self.verdict}: {self.reason}", self.questions(), self.cost_table(), *self._notes()]

    def questions(self) -> Table:
        """Return nDCG@10 before and after by kind of question, with 95 % intervals of the differences."""
        header = [
            "questions",
            "number",
            "before",
            "after",
            "difference, 95 %",
            "hybrid before",
            "after",
            "difference, 95 %",
        ]
        rows = []
        for kind, alone in self.alone.items():
            hybrid = self.hybrid[kind]
            cells = [
                cell for one in (alone, hybrid) for cell in (f"{one.before:.3f}", f"{one.after:.3f}", interval(one))
            ]
            rows.append([kind, str(alone.queries), *cells])
        recall = self.recall[ALL_QUESTIONS]
        note = f"{EXAM_RECALL} of all, alone: {recall.before:.3f} before, {recall.after:.3f} after, {interval(recall)}"
        return Table(f"{EXAM_MEASURE} of questions about documents not learned from", header, rows, (1, 3, 3), [note])

    def cost_table(self) -> Table:
        """Return the costs before and after."""
        names, rows = cost_columns(self.costs)
        return Table(
            "cost", ["model", *names], [[name, *row] for name, row in zip(("before", "after"), rows, strict=False)]
        )

    def _notes(self) -> list[str]:
        notes = []
        if self.control is not None:
            before, after, apart = _cells(self.control)
            notes.append(f"control, Python's documentation: {EXAM_MEASURE} {before} before, {after} after, {apart}")
        notes.append(f"{self.examples:,} questions learned from in {self.steps:,} steps; {self.minutes:.0f} minutes")
        return notes

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return asdict(self) | {"output": str(self.output)}


def _cells(one: Change) -> list[str]:
    return [f"{one.before:.3f}", f"{one.after:.3f}", interval(one)]


def interval(one: Change) -> str:
    """Return a difference with its interval.

    >>> interval(Change(2, 0.5, 0.75, 0.125, 0.375))
    '+0.250 [+0.125, +0.375]'
    """
    return f"{one.difference:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"


def changes(before: ExamAnswers, after: ExamAnswers, exam: Exam) -> dict[str, dict[str, Change]]:
    """Return the changes `alone`, `hybrid` and `recall`, each by kind of question and of all."""
    kinds = exam.by_kind()
    made = {kind: some for kind, some in kinds.items() if kind != ASKED}
    groups = {**kinds, ALL_QUESTIONS: [query for some in made.values() for query in some]}
    return {
        "alone": {kind: change(before.alone, after.alone, some) for kind, some in groups.items()},
        "hybrid": {kind: change(before.hybrid, after.hybrid, some) for kind, some in groups.items()},
        "recall": {kind: change(before.alone, after.alone, some, EXAM_RECALL) for kind, some in groups.items()},
    }


def judge(found: Mapping[str, Mapping[str, Change]]) -> tuple[Verdict, str]:
    """Return the verdict and its reason, by the judged queries of people if there are 50, else by all questions.

    Better means that the interval of the difference lies above 0 alone, and not below 0 in the hybrid.
    """
    asked = found["alone"].get(ASKED)
    kind = ASKED if asked is not None and asked.queries >= ENOUGH_ASKED else ALL_QUESTIONS
    alone, hybrid = found["alone"][kind], found["hybrid"][kind]
    figures = f"{EXAM_MEASURE} {interval(alone)} alone, {interval(hybrid)} with BM25"
    if alone.high < 0 or hybrid.high < 0:
        return "worse", f"{figures}; the model stays as it was"
    if alone.low > 0:
        return "better", figures
    return "no difference", f"none is shown, {figures}; the model stays as it was"


def write_report(folder: Path, report: TuningReport, recipe: Mapping[str, Any]) -> None:
    """Write report.json and the page index.html into the folder of the model."""
    write_record(folder / REPORT, report.to_json())
    kinds = [[kind, ABOUT[kind]] for kind in report.alone if kind in ABOUT]
    sections = [
        Section("Verdict", [f"{report.verdict}: {report.reason}."]),
        Section("Questions", [report.questions(), Table("", ["kind", "what it asks"], kinds)]),
        Section("Cost", [report.cost_table(), *report._notes()]),
        Section("Plan", [report.plan.table()]),
        settings_section({key: str(value) for key, value in recipe.items()}),
    ]
    write_page(folder, f"Tuning of {report.model} on {report.corpus}", sections)
