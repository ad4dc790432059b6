"""The verdict, and the report that is written and read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vocable.core.storage import read_record
from vocable.evaluation.cost import Cost
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.quality import Evaluation
from vocable.tuning.exam import ASKED, ENOUGH_ASKED, EXAM_MEASURE, EXAM_RECALL, Change, Exam, ExamAnswers
from vocable.tuning.plan import Reading, TuningSpeed, make_plan
from vocable.tuning.report import (
    ALL_QUESTIONS,
    EXPECTED_GAIN,
    REPORT,
    TuningReport,
    changes,
    interval,
    judge,
    write_report,
)

UP, DOWN, EVEN = (
    Change(90, 0.4, 0.5, 0.05, 0.15),
    Change(90, 0.5, 0.4, -0.15, -0.05),
    Change(90, 0.4, 0.41, -0.02, 0.04),
)


def found(alone: Change, hybrid: Change, asked: tuple[Change, Change] | None = None) -> dict[str, dict[str, Change]]:
    extra = {} if asked is None else {ASKED: asked}
    return {
        name: {ALL_QUESTIONS: change} | {kind: pair[row] for kind, pair in extra.items()}
        for row, (name, change) in enumerate([("alone", alone), ("hybrid", hybrid)])
    }


@pytest.mark.parametrize(
    ("alone", "hybrid", "verdict"),
    [
        (UP, UP, "better"),
        (UP, EVEN, "better"),
        (UP, DOWN, "worse"),
        (EVEN, UP, "better"),
        (EVEN, EVEN, "kept"),
        (EVEN, DOWN, "worse"),
        (DOWN, UP, "worse"),
        (DOWN, EVEN, "worse"),
        (DOWN, DOWN, "worse"),
        (Change(90, 0.4, 0.5, 0.0, 0.2), EVEN, "kept"),  # an interval that ends at 0 shows nothing
        (UP, Change(90, 0.5, 0.4, -0.2, 0.0), "better"),
        (EVEN, Change(90, 0.5, 0.4, -0.2, 0.0), "kept"),
    ],
)
def test_the_verdict_follows_from_the_interval_of_the_change(alone: Change, hybrid: Change, verdict: str) -> None:
    said, reason, decided_by = judge(found(alone, hybrid))
    assert (said, decided_by) == (verdict, ALL_QUESTIONS)
    assert interval(alone) in reason
    assert interval(hybrid) in reason
    assert ("stays as it was" in reason) == (verdict == "worse")
    assert (EXPECTED_GAIN in reason) == (verdict == "kept")


def test_keywords_do_not_decide() -> None:
    results = {name: kinds | {"keywords": DOWN} for name, kinds in found(UP, UP).items()}
    assert judge(results).verdict == "better"


def test_the_verdict_names_each_kind_of_question_that_lost() -> None:
    results = found(UP, UP)
    assert "it lost on" not in judge(results).reason
    results["alone"] = results["alone"] | {"keywords": DOWN, "title": UP, "sentence": EVEN}
    results["hybrid"] = results["hybrid"] | {"keywords": EVEN, "title": DOWN, "sentence": EVEN}
    reason = f"; it lost on keywords, {interval(DOWN)} alone; title, {interval(DOWN)} as searched"
    assert judge(results).reason.endswith(reason)
    results["hybrid"]["keywords"] = DOWN
    assert f"keywords, {interval(DOWN)} alone and {interval(DOWN)} as searched" in judge(results).reason
    # A verdict without harm says on which questions.
    results["alone"][ALL_QUESTIONS] = results["hybrid"][ALL_QUESTIONS] = EVEN
    assert judge(results).verdict == "kept"
    assert f"no harm shown on {ALL_QUESTIONS}, and" in judge(results).reason


@pytest.mark.parametrize("queries", [ENOUGH_ASKED - 1, ENOUGH_ASKED])
def test_queries_of_people_decide_where_there_are_enough(queries: int) -> None:
    worse = Change(queries, 0.5, 0.4, -0.15, -0.05)
    verdict, reason, decided_by = judge(found(UP, UP, (worse, worse)))
    assert decided_by == (ASKED if queries >= ENOUGH_ASKED else ALL_QUESTIONS)
    assert verdict == ("worse" if queries >= ENOUGH_ASKED else "better")
    assert interval(worse if queries >= ENOUGH_ASKED else UP) in reason


def test_an_exam_of_judged_queries_alone_has_no_row_of_titles_and_sentences() -> None:
    names = {f"asked-{i}": i / 10 for i in range(ENOUGH_ASKED)}
    evaluation = Evaluation(
        "m", "exam", {}, dict.fromkeys((EXAM_MEASURE, EXAM_RECALL), names), convention="trec_eval", ties="search"
    )
    exam = Exam(Dataset("exam", [], [], []), dict.fromkeys(names, ASKED), [])
    results = changes(ExamAnswers(evaluation, evaluation), ExamAnswers(evaluation, evaluation), exam)
    assert {(side, *kinds) for side, kinds in results.items()} == {(s, ASKED) for s in ("alone", "hybrid", "recall")}
    assert results["recall"][ASKED] == Change(ENOUGH_ASKED, 0.45, 0.45, 0.0, 0.0)
    assert judge(results).decided_by == ASKED


@pytest.fixture
def report(tmp_path: Path) -> TuningReport:
    plan = make_plan(Reading(5_000, 3, 80, 1.2, 0.01, 6.0), TuningSpeed(100.0, 6.0), 60)
    kinds = {"title": UP, ALL_QUESTIONS: EVEN}
    costs = [Cost(flops=1.5, index_bytes=2_000), Cost(flops=2.5, index_bytes=3_000)]
    return TuningReport(
        *(
            "<m>",
            "docs/",
            "worse",
            "too little",
            ALL_QUESTIONS,
            kinds,
            kinds,
            kinds,
            costs,
            plan,
            960,
            10,
            12.0,
        ),
        tmp_path / "my model",
        "Made on 2026-01-02 with vocable 1.0.",
    )


def test_the_report_is_read_as_it_was_written(report: TuningReport, tmp_path: Path) -> None:
    write_report(tmp_path, report, {"model": "<m>", "training": {"losses": [{"name": "kl"}]}})
    assert read_record(tmp_path / REPORT, TuningReport) == report
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    for shown in (
        "Worse: too little",
        "Made on 2026-01-02",
        "tokens per word",
        "vocable index",
        "&lt;m&gt;",
        "docs/",
        "+0.100",
        "[+0.050, +0.150]",
        "1.50",
        "2.50",
        "titles and sentences: decides",
        "training.losses.0.name",
    ):
        assert shown in page, shown
    assert "<m>" not in page
    assert "--dense" not in page


def test_the_next_command_uses_the_better_model(report: TuningReport) -> None:
    assert report.next_commands()[0] == "vocable index '<m>' docs/ -o my-index"
    for verdict in ("better", "kept"):
        tuned = replace(report, verdict=verdict, corpus="my docs", model="m")  # type: ignore[arg-type]
        assert tuned.next_commands()[0] == f"vocable index '{report.output}' 'my docs' -o my-index"
    assert replace(report, model="vocable-mini").next_commands()[0] == "vocable index vocable-mini docs/ -o my-index"


def test_a_card_has_the_exam(report: TuningReport) -> None:
    section = report.section()
    assert section.startswith("\n## What it scores\n")
    assert f"Verdict: {report.verdict}, {report.reason}." in section
    assert all(table.markdown() in section for table in report.question_tables())
    assert report.corpus not in section


def test_the_report_prints_its_figures(report: TuningReport) -> None:
    shown = str(report)
    for figures in (
        "verdict: worse",
        "960 questions",
        "10 steps",
        "[-0.020, +0.040]",
    ):
        assert figures in shown, figures
    values = json.loads(json.dumps(report.to_json()))
    assert values["alone"]["title"] == {"queries": 90, "before": 0.4, "after": 0.5, "low": 0.05, "high": 0.15}
