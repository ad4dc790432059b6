"""The plan of a tuning: the arithmetic of minutes, documents and steps."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vocable.core.storage import read_record, write_record
from vocable.errors import ArgumentError, DataError
from vocable.tuning.plan import (
    EXPORT_STEPS,
    FEWEST_DOCUMENTS,
    FEWEST_STEPS,
    FULL_BATCHES,
    LEAST_STEPS,
    MOST_DOCUMENTS,
    RESERVE,
    TRAINING_STEPS,
    TUNING_FILE,
    Plan,
    Reading,
    Tuned,
    TuningSpeed,
    check_questions,
    make_plan,
    warn_of_few_steps,
)
from vocable.tuning.recipe import QUESTIONS_PER_STEP


def reading(documents: int = 5_000, repeated: int = 0, questions: float = 6.0) -> Reading:
    return Reading(documents, repeated, 80, 1.2, 0.0, questions)


@given(
    st.integers(300, 300_000),
    st.floats(0.2, 30.0),
    st.floats(5, 5_000),
    st.floats(0.01, 200),
    st.floats(0.1, 500),
    st.booleans(),
)
def test_the_plan_stays_within_the_minutes_and_its_bounds(
    documents: int, questions: float, rate: float, step: float, minutes: float, indexed: bool
) -> None:
    speed, repeated = TuningSpeed(rate, step), documents // 10
    found = reading(documents, repeated, questions)
    try:
        plan = make_plan(found, speed, minutes, indexed=indexed)
    except ArgumentError as error:
        [least] = map(int, re.findall(r"at least (\d+)", str(error)))
        assert least > minutes
        plan = make_plan(found, speed, least, indexed=indexed)  # the minutes that it names are enough
        assert minutes <= (plan.expected_minutes / RESERVE) * 1.001
    assert plan.expected_minutes <= plan.minutes * (1 if plan.steps <= LEAST_STEPS else RESERVE) * 1.001
    assert min(FEWEST_DOCUMENTS, documents - repeated) <= plan.documents <= min(MOST_DOCUMENTS, documents - repeated)
    assert 1 <= plan.steps <= TRAINING_STEPS
    assert plan.steps <= max(1, FULL_BATCHES * questions * plan.documents / QUESTIONS_PER_STEP)
    encoded = plan.documents / rate if indexed else 0
    assert plan.expected_minutes == pytest.approx((encoded + plan.steps * step) / 60)


@given(st.floats(5, 5_000), st.floats(0.01, 200), st.floats(0.1, 500), st.booleans())
def test_more_minutes_are_never_worse(rate: float, step: float, minutes: float, indexed: bool) -> None:
    speed = TuningSpeed(rate, step)
    try:
        plan = make_plan(reading(50_000), speed, minutes, indexed=indexed)
    except ArgumentError:
        assume(False)
    more = make_plan(reading(50_000), speed, 2 * minutes, indexed=indexed)
    assert more.documents >= plan.documents
    assert more.steps >= min(plan.steps, FEWEST_STEPS)


def test_a_plan_by_hand() -> None:
    speed = TuningSpeed(100.0, 6.0)
    # 60 minutes x 0.85 = 3060 s; all 5,000 documents are encoded in 50 s, where queries look for them.
    for indexed, encoding in ((False, 0), (True, 50)):
        plan = make_plan(reading(5_000), speed, 60, indexed=indexed)
        assert plan.documents == 5_000
        questions = int(FULL_BATCHES * 30_000) // QUESTIONS_PER_STEP
        assert plan.steps == min(TRAINING_STEPS, int((3060 - encoding) / 6), questions)
    assert make_plan(reading(500_000), speed, 5, indexed=True).documents == int(0.4 * 5 * 60 * 0.85 * 100)
    with pytest.raises(ArgumentError, match=f" {ceil((20 + FEWEST_STEPS * 6) / 0.85 / 60)} "):
        make_plan(reading(5_000), speed, 0.5, indexed=True)


def test_the_stages_of_a_plan_have_its_seconds() -> None:
    plan = make_plan(reading(5_000), TuningSpeed(100.0, 6.0), 60, indexed=False)
    assert plan.stages(graph=True) == {"train": 6.0 * plan.steps, "export-model": 6.0 * EXPORT_STEPS}
    assert list(plan.stages(graph=False)) == ["train"]
    searched = replace(plan, indexed=True)
    assert searched.stages(graph=False) == {"index": 50.0, "train": 6.0 * plan.steps}
    assert searched.expected_minutes == pytest.approx(plan.expected_minutes + 50 / 60)


def test_a_short_time_takes_fewer_steps_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    speed = TuningSpeed(100.0, 6.0)
    for minutes, steps in ((3, 10), (0.6, 5), (0.3, 2)):
        plan = make_plan(reading(5_000), speed, minutes, indexed=False)
        assert min(plan.steps, FEWEST_STEPS) == steps
        caplog.clear()
        warn_of_few_steps(plan)
        assert [f"{minutes:g} minutes" in one and f"{steps} step" in one for one in caplog.messages] == [True] * (
            steps < FEWEST_STEPS
        )
    few = make_plan(reading(300, questions=0.5), TuningSpeed(1_000.0, 0.1), 60, indexed=False)
    caplog.clear()
    warn_of_few_steps(few)
    assert few.steps == 1
    [message] = caplog.messages
    assert message.startswith("300 documents: questions for 1 step of training, and fewer than 10 rarely make a diff")


def test_a_plan_is_kept_and_shown(tmp_path: Path) -> None:
    plan = make_plan(reading(5_000, 7), TuningSpeed(100.0, 6.0), 60, indexed=True)
    write_record(tmp_path / "plan.json", plan)
    assert read_record(tmp_path / "plan.json", Plan) == plan
    shown = str(plan)
    for figure in ("5,000", "7 of them", f"{plan.steps:,} steps", "100 texts/s", "60 minutes"):
        assert figure in shown
    assert "texts/s" not in str(replace(plan, indexed=False))
    assert plan.to_json()["expected_minutes"] == plan.expected_minutes


def test_the_result_names_its_folder_wherever_it_is(tmp_path: Path) -> None:
    write_record(tmp_path / TUNING_FILE, Tuned("m", "my docs", 1234, 12, 3.6))
    tuned = Tuned.read(tmp_path)
    assert (tuned.output, tuned.next_command()) == (tmp_path, f"vocable index {tmp_path} 'my docs' -o my-index")
    for part in ("1,234 questions learned from in 12 steps; 4 minutes", f"vocable evaluate m {tmp_path} --dataset"):
        assert part in str(tuned)
    assert tuned.to_json()["output"] == str(tmp_path)


def test_too_few_questions_name_what_helps() -> None:
    check_questions(reading(300, questions=0.32))
    with pytest.raises(DataError, match=r"95 questions.*96.*queries of people or a generator"):
        check_questions(reading(310, repeated=10, questions=0.319))


def test_a_plan_that_exceeds_the_free_memory_is_refused() -> None:
    plan = make_plan(reading(), TuningSpeed(100.0, 6.0, 0.5), 60, indexed=False)
    plan.check_memory()
    with pytest.raises(ArgumentError, match=r"100000\.0 GB"):
        replace(plan, speed=TuningSpeed(100.0, 6.0, 1e5)).check_memory()
