"""The report of a tuning: measures before and after by kind of question, costs, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Literal, TypeAlias

from vocable.core.html import Section, Words, settings_section, write_page
from vocable.core.storage import write_record
from vocable.core.tables import Table, Tabled, counted
from vocable.evaluation.cost import Cost, cost_columns
from vocable.tuning.exam import ASKED, EXAM_MEASURE, EXAM_RECALL, Change, Exam, ExamAnswers, change
from vocable.tuning.plan import Plan
from vocable.tuning.settings import ENOUGH_ASKED

Verdict: TypeAlias = Literal["better", "no difference", "worse"]
REPORT = "report.json"
ALL_QUESTIONS = "all"
ABOUT = {
    "title": "the title of a document, which the document then lacks",
    "keywords": "two to five of its words; not trained",
    "sentence": "one or two of its sentences, which the document then lacks",
    "passage": "consecutive words, as long as an abstract, which the document then lacks; not trained",
    ASKED: "judged queries of people",
}
NEXT: dict[Verdict, str] = {
    "better": "These commands use the tuned model:",
    "no difference": "Judged queries of people would show smaller differences. These commands use the model as it was:",
    "worse": "These commands use the model as it was:",
}
TERMS = {
    EXAM_MEASURE: "quality of the first ten hits: 1 if each question finds its document first, 0 if none finds it",
    EXAM_RECALL: "share of the questions whose document is among the first hundred hits",
    "alone, with BM25": "the ranking of the model, and that ranking fused with BM25's, which compares words",
    "dense vectors": "further vectors of some models, which compare texts as a whole; a search then fuses all three",
    "interval": "the true difference lies in it with 95 % confidence; an interval with 0 shows no difference",
    "terms": "words and parts of words with a weight in a query or document, which a search compares",
    "FLOPS": "terms that a query and a document share, on average: the work of a search",
    "control": "questions about Python's documentation: a loss shows what the model forgot",
    "step": "a change of the weights after a batch of questions",
    "tokens per word": "parts into which the model's vocabulary cuts a word; many parts mean another language",
}


@dataclass(frozen=True)
class TuningReport(Tabled):
    """The result of a tuning, by kind of question and for all questions: R@100 in `recall`, nDCG@10 in the others.

    `alone` ranks with the sparse vectors, `hybrid` with these and BM25. If the model has a dense side, `dense` ranks
    with its dense vectors and `together` with all three.
    """

    model: str
    corpus: str
    verdict: Verdict
    reason: str  # reason for the verdict
    alone: Mapping[str, Change]
    hybrid: Mapping[str, Change]
    recall: Mapping[str, Change]
    control: Change  # nDCG@10 on the built-in collection
    costs: Sequence[Cost]  # before and after
    plan: Plan
    examples: int
    steps: int
    minutes: float  # duration of the last run
    output: Path = Path()
    made: str = ""  # day, and version of vocable
    dense: Mapping[str, Change] | None = None
    together: Mapping[str, Change] | None = None

    def table(self) -> list[Table | str]:
        """Return the verdict, and the tables of questions and costs."""
        return [f"verdict: {self.verdict} ({self.reason})", *self.tables(), *self.notes()]

    @property
    def better_model(self) -> str:
        """The name of the model to use: the trained model if it is better, or else the initial model."""
        return str(self.output) if self.verdict == "better" else self.model

    def next_commands(self) -> list[str]:
        """Return the commands that index the documents with the better model, and search and serve the index."""
        index = f"vocable index {quote(self.better_model)} {quote(self.corpus)} -o my-index --bm25"
        return [index, 'vocable search my-index "your question" --hybrid', "vocable serve my-index"]

    def tables(self) -> list[Table]:
        """Return nDCG@10 by kind of question, of each side alone and fused with BM25, and the costs."""
        return [*self.question_tables(), self.cost_table()]

    def question_tables(self) -> list[Table]:
        """Return nDCG@10 by kind of question, of each side alone and fused with BM25."""
        note = _sentence(f"{EXAM_RECALL} of all:", self.recall[ALL_QUESTIONS])
        whose = "the model" if self.dense is None else "the sparse vectors"
        sides = {
            f"of {whose} alone": self.alone,
            "with BM25": self.hybrid,
            "of the dense vectors alone": self.dense,
            "of all three": self.together,
        }
        return [
            _by_kind(f"{EXAM_MEASURE} {name}, with 95 % intervals", side, [note] if side is self.alone else ())
            for name, side in sides.items()
            if side is not None
        ]

    def cost_table(self) -> Table:
        """Return the costs before and after."""
        names, rows = cost_columns(self.costs)
        named = [[name, *row] for name, row in zip(("before", "after"), rows, strict=True)]
        return Table("cost", ["model", *names], named)

    def notes(self) -> list[str]:
        """Return sentences about the training, and about the control unless the model learned from it."""
        training = (
            f"{self.examples:,} questions learned from in {counted(self.steps, 'step')}; {self.minutes:.0f} minutes"
        )
        if self.corpus.startswith("pydocs:"):
            return [training]
        return [_sentence(f"control, Python's documentation: {EXAM_MEASURE}", self.control), training]

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return asdict(self) | {"output": str(self.output)}


def _by_kind(title: str, changes: Mapping[str, Change], notes: Sequence[str] = ()) -> Table:
    """Return a table of measures before and after, with 95 % intervals of the differences."""
    header = ["questions", "number", "before", "after", "difference", "interval"]
    rows = [
        [kind, str(change.queries), f"{change.before:.3f}", f"{change.after:.3f}", *interval(change).split(" ", 1)]
        for kind, change in changes.items()
    ]
    return Table(title, header, rows, (), notes)


def _sentence(what: str, change: Change) -> str:
    return f"{what} {change.before:.3f} before, {change.after:.3f} after, {interval(change)}"


def interval(change: Change) -> str:
    """Return a difference with its interval.

    >>> interval(Change(2, 0.5, 0.75, 0.125, 0.375))
    '+0.250 [+0.125, +0.375]'
    """
    return f"{change.difference:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"


def changes(start: ExamAnswers, end: ExamAnswers, exam: Exam) -> dict[str, dict[str, Change]]:
    """Return the changes `alone`, `hybrid` and `recall`, each by kind of question and for all questions.

    Models with a dense side have `dense` and `together`, too.
    """
    kinds = exam.by_kind()
    all_made = [query for kind, queries in kinds.items() if kind != ASKED for query in queries]
    groups = {**kinds, ALL_QUESTIONS: all_made}
    results = {
        "alone": {kind: change(start.alone, end.alone, queries) for kind, queries in groups.items()},
        "hybrid": {kind: change(start.hybrid, end.hybrid, queries) for kind, queries in groups.items()},
        "recall": {kind: change(start.alone, end.alone, queries, EXAM_RECALL) for kind, queries in groups.items()},
    }
    for name in ("dense", "together"):
        first, second = getattr(start, name), getattr(end, name)
        if first is not None and second is not None:
            results[name] = {kind: change(first, second, queries) for kind, queries in groups.items()}
    return results


def judge(results: Mapping[str, Mapping[str, Change]]) -> tuple[Verdict, str]:
    """Return the verdict and its reason: by the judged queries of people if there are 50, or else by all questions.

    "better": the 95 % interval is above 0 for the sparse vectors, and not below 0 for the hybrid, the dense vectors or
    all three.
    """
    asked = results["alone"].get(ASKED)
    kind = ASKED if asked is not None and asked.queries >= ENOUGH_ASKED else ALL_QUESTIONS
    alone, hybrid = results["alone"][kind], results["hybrid"][kind]
    figures = f"{EXAM_MEASURE} {interval(alone)} alone, {interval(hybrid)} with BM25"
    rest = [results[name][kind] for name in ("dense", "together") if name in results]
    if rest:
        figures += f", {interval(rest[0])} by its dense vectors, {interval(rest[1])} by all three"
    if any(side.high < 0 for side in (alone, hybrid, *rest)):
        return "worse", f"{figures}; the model stays as it was"
    if alone.low > 0:
        return "better", figures
    return "no difference", f"{figures}; too little to tell from chance, so the model stays as it was"


def write_report(folder: Path, report: TuningReport, recipe: Mapping[str, object]) -> None:
    """Write report.json and the page index.html into the folder of the model."""
    write_record(folder / REPORT, report.to_json())
    kinds = [[kind, ABOUT[kind]] for kind in report.alone if kind in ABOUT]
    sections = [
        Section("Verdict", [f"{report.verdict[0].upper()}{report.verdict[1:]}: {report.reason}.", report.made]),
        Section(
            "Next", [NEXT[report.verdict], Words(Table("", ["command"], [[line] for line in report.next_commands()]))]
        ),
        Section("Questions", [*report.question_tables(), Words(Table("", ["kind", "what it asks"], kinds))]),
        Section("Cost", [report.cost_table(), *report.notes()]),
        Section("Plan", [report.plan.table()]),
        Section("Terms", [Words(Table("", ["term", "meaning"], [[*pair] for pair in TERMS.items()]))]),
        settings_section({key: str(value) for key, value in recipe.items()}),
    ]
    write_page(folder, f"Tuning of {report.model} on {report.corpus}", sections)
