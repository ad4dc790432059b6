"""The report of a tuning: measures before and after by kind of question, costs, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple, TypeAlias

from vocable.core.html import Section, Words, settings_section, write_page
from vocable.core.storage import read_record, write_record
from vocable.core.tables import Table, Tabled, counted
from vocable.evaluation.cost import Cost, cost_columns
from vocable.tuning.exam import ASKED, ENOUGH_ASKED, EXAM_MEASURE, EXAM_RECALL, Change, Exam, ExamAnswers, change
from vocable.tuning.plan import Plan
from vocable.tuning.questions import LEARNED_KINDS

Verdict: TypeAlias = Literal["better", "kept", "worse"]
REPORT, TRAINED = "report.json", "trained"
ALL_QUESTIONS = "titles and sentences"
# Mean difference of nDCG@10 on queries of people in the study, with its interval; docs/experiments/tuning.md
EXPECTED_GAIN = "+0.010 [+0.004, +0.017] alone, +0.007 [+0.003, +0.011] with BM25, on 16 collections"
ABOUT = {
    "title": "the title of a document, which is searched without it",
    "sentence": "one or two sentences of a document, or a third of its only one, which is searched without them",
    "keywords": "two to five words of a document; not trained, so they do not decide",
    ASKED: "judged queries of people",
}
NEXT: dict[Verdict, str] = {
    "better": "The tuned model finds more, and is in this folder. These commands use it:",
    "kept": "The questions that decide show neither a gain nor harm. The tuned model is in this folder, and these "
    "commands use it. Judged queries of people (--queries and --judgments) would tell more:",
    "worse": "The model as it was is in this folder. These commands use it:",
}
ABOUT_EXAM = "The exam asks about documents that the training did not read; each question looks for its own document."
TERMS = {
    EXAM_MEASURE: "quality of the first ten hits: 1 if each question finds its document first, 0 if none finds it",
    EXAM_RECALL: "share of the questions whose document is among the first hundred hits",
    "alone, as searched": "the ranking of the model, and the ranking of a search: fused with BM25's, which compares "
    "words, and with the ranking of dense vectors if the index has some",
    "interval": "the true difference lies in it with 95 % confidence; an interval with 0 shows no difference",
    "terms": "words and parts of words with a weight in a query or document, which a search compares",
    "FLOPS": "terms that a query and a document share, on average: the work of a search",
    "step": "a change of the weights after a batch of questions",
    "tokens per word": "parts into which the model's vocabulary cuts a word; many parts mean another language",
}


@dataclass(frozen=True)
class TuningReport(Tabled):
    """The result of a tuning, by kind of question: nDCG@10 `alone` and as searched (`hybrid`), and R@100 alone."""

    model: str
    corpus: str
    verdict: Verdict
    reason: str  # reason for the verdict
    decided_by: str  # kind of question that decided
    alone: Mapping[str, Change]
    hybrid: Mapping[str, Change]
    recall: Mapping[str, Change]
    costs: Sequence[Cost]  # before and after
    plan: Plan
    examples: int
    steps: int
    minutes: float  # duration of the last run
    output: Path = Path()
    made: str = ""  # day, and version of vocable

    @classmethod
    def read(cls, folder: str | Path) -> TuningReport:
        """Read the report in the folder of a tuned model."""
        return read_record(Path(folder, REPORT), cls)

    def table(self) -> list[Table | str]:
        """Return the verdict, and the tables of questions and costs."""
        return [f"verdict: {self.verdict} ({self.reason})", *self.tables(), self.note()]

    @property
    def better_model(self) -> str:
        """The name of the model to use: the tuned model, or the initial model if the tuned model is worse."""
        return self.model if self.verdict == "worse" else str(self.output)

    def next_commands(self) -> list[str]:
        """Return the commands that index the documents with the better model, and search and serve the index."""
        index = f"vocable index {quote(self.better_model)} {quote(self.corpus)} -o my-index"
        return [index, 'vocable search my-index "your question"', "vocable serve my-index"]

    def tables(self) -> list[Table]:
        """Return nDCG@10 by kind of question, and the costs."""
        return [*self.question_tables(), self.cost_table()]

    def question_tables(self) -> list[Table]:
        """Return nDCG@10 by kind of question, alone and as searched."""
        note = _sentence(f"{EXAM_RECALL} of {self.decided_by}:", self.recall[self.decided_by])
        return [
            _by_kind(f"{EXAM_MEASURE} of the model alone, with 95 % intervals", self.alone, self.decided_by, [note]),
            _by_kind(f"{EXAM_MEASURE} as searched, with 95 % intervals", self.hybrid, self.decided_by),
        ]

    def section(self) -> str:
        """Return the exam as a section of the model's card, without the name of the collection and times."""
        verdict = f"Verdict: {self.verdict}, {self.reason}."
        tables = [f"{table.title}\n\n{table.markdown()}" for table in self.question_tables()]
        return "\n" + "\n\n".join(["## What it scores", ABOUT_EXAM, verdict, *tables, self.made]) + "\n"

    def cost_table(self) -> Table:
        """Return the costs before and after."""
        names, rows = cost_columns(self.costs)
        named = [[name, *row] for name, row in zip(("before", "after"), rows, strict=True)]
        return Table("cost", ["model", *names], named)

    def note(self) -> str:
        """Return a sentence about the training."""
        steps = counted(self.steps, "step")
        return f"{self.examples:,} questions learned from in {steps}; {self.minutes:.0f} minutes"

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return asdict(self) | {"output": str(self.output)}


def _by_kind(title: str, changes: Mapping[str, Change], decided_by: str, notes: Sequence[str] = ()) -> Table:
    """Return a table of measures before and after, with 95 % intervals of the differences."""
    header = ["questions", "number", "before", "after", "difference", "interval"]
    rows = [
        [name, str(change.queries), f"{change.before:.3f}", f"{change.after:.3f}", *interval(change).split(" ", 1)]
        for kind, change in changes.items()
        for name in [f"{kind}: decides" if kind == decided_by else kind]
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
    """Return the changes `alone`, `hybrid` and `recall`, by kind of question and for the trained kinds together."""
    kinds = exam.by_kind()
    if learned := [query for kind in LEARNED_KINDS for query in kinds.get(kind, ())]:
        kinds[ALL_QUESTIONS] = learned
    sides = {
        "alone": (start.alone, end.alone, EXAM_MEASURE),
        "hybrid": (start.hybrid, end.hybrid, EXAM_MEASURE),
        "recall": (start.alone, end.alone, EXAM_RECALL),
    }
    return {
        side: {kind: change(first, second, queries, measure) for kind, queries in kinds.items()}
        for side, (first, second, measure) in sides.items()
    }


class Judgment(NamedTuple):
    """A verdict, its reason, and the kind of question that decided."""

    verdict: Verdict
    reason: str
    decided_by: str


def judge(results: Mapping[str, Mapping[str, Change]]) -> Judgment:
    """Return the verdict by 95 % intervals of the differences of nDCG@10; docs/experiments/tuning.md measures the rule.

    Ten or more judged queries of people decide; otherwise titles and sentences together. Keywords never decide.

    - "worse": the interval alone or of the hybrid is below 0. The initial model is handed out.
    - "better": neither is below 0, and one is above 0. The tuned model is handed out.
    - "kept": neither. The tuned model is handed out, as in the study such models gained on average.
    """
    asked = results["alone"].get(ASKED)
    kind = ASKED if asked is not None and asked.queries >= ENOUGH_ASKED else ALL_QUESTIONS
    alone, hybrid = results["alone"][kind], results["hybrid"][kind]
    figures = f"on {counted(alone.queries, 'judged query', 'judged queries') if kind == ASKED else kind}"
    figures += f", {EXAM_MEASURE} changed by {interval(alone)} alone and {interval(hybrid)} as searched"
    if lost := "; ".join(_losses(results, kind)):
        figures += f"; it lost on {lost}"
    if asked is not None and kind != ASKED:
        figures += f"; {counted(asked.queries, 'judged query', 'judged queries')}, of {ENOUGH_ASKED} that would decide"
    if min(alone.high, hybrid.high) < 0:
        return Judgment("worse", f"{figures}; the model stays as it was", kind)
    if max(alone.low, hybrid.low) > 0:
        return Judgment("better", figures, kind)
    harm = "no harm shown" if not lost else f"no harm shown on {'judged queries' if kind == ASKED else kind}"
    return Judgment("kept", f"{figures}; {harm}, and tuned models gained on average: {EXPECTED_GAIN}", kind)


def _losses(results: Mapping[str, Mapping[str, Change]], decided_by: str) -> Iterator[str]:
    """Yield each kind of question that did not decide, with its intervals below 0."""
    for kind in results["alone"]:
        sides = {"alone": results["alone"][kind], "as searched": results["hybrid"][kind]}
        lost = [f"{interval(change)} {side}" for side, change in sides.items() if change.high < 0]
        if lost and kind not in (decided_by, ALL_QUESTIONS):
            yield f"{kind}, {' and '.join(lost)}"


def write_report(folder: Path, report: TuningReport, recipe: Mapping[str, object]) -> None:
    """Write report.json and the page index.html into the folder of the model."""
    write_record(folder / REPORT, report.to_json())
    kinds = [[kind, ABOUT[kind]] for kind in report.alone if kind in ABOUT]
    sections = [
        Section("Verdict", [f"{report.verdict[0].upper()}{report.verdict[1:]}: {report.reason}.", report.made]),
        Section(
            "Next", [NEXT[report.verdict], Words(Table("", ["command"], [[line] for line in report.next_commands()]))]
        ),
        Section(
            "Questions", [ABOUT_EXAM, *report.question_tables(), Words(Table("", ["kind", "what it asks"], kinds))]
        ),
        Section("Cost", [report.cost_table(), report.note()]),
        Section("Plan", [report.plan.table()]),
        Section("Terms", [Words(Table("", ["term", "meaning"], [[*pair] for pair in TERMS.items()]))]),
        settings_section(_flat(recipe)),
    ]
    write_page(folder, f"Tuning of {report.model} on {report.corpus}", sections)


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return nested settings as texts by dotted keys, as the command line writes them.

    >>> _flat({"seed": 0, "training": {"losses": [{"name": "kl"}], "steps": 2}})
    {'seed': '0', 'training.losses.0.name': 'kl', 'training.steps': '2'}
    """
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, list):
            value = {str(number): item for number, item in enumerate(value)}
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
    return flat
