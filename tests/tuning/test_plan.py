"""The plan of a tuning: the arithmetic of minutes, documents and steps."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vocable.core.storage import read_record, write_record
from vocable.errors import ArgumentError, DataError
from vocable.tuning.plan import (
    EXPORT_STEPS,
    FEWEST_SEARCHED,
    FEWEST_STEPS,
    FULL_BATCHES,
    LEAST_STEPS,
    MOST_SEARCHED,
    RESERVE,
    TRAINING_STEPS,
    Plan,
    Reading,
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
)
def test_the_plan_stays_within_the_minutes_and_its_bounds(
    documents: int, questions: float, rate: float, step: float, minutes: float
) -> None:
    speed, repeated = TuningSpeed(rate, step), documents // 10
    found = reading(documents, repeated, questions)
    try:
        plan = make_plan(found, speed, minutes)
    except ArgumentError as error:
        [least] = map(int, re.findall(r"at least (\d+)", str(error)))
        assert least > minutes
        plan = make_plan(found, speed, least)  # the minutes that it names are enough
        assert minutes <= (plan.expected_minutes / RESERVE) * 1.001
    assert plan.expected_minutes <= plan.minutes * (1 if plan.steps <= LEAST_STEPS else RESERVE) * 1.001
    assert min(FEWEST_SEARCHED, documents - repeated) <= plan.collection <= min(MOST_SEARCHED, documents - repeated)
    assert 1 <= plan.steps <= TRAINING_STEPS
    made = questions * plan.collection * 0.8
    assert plan.steps <= max(1, FULL_BATCHES * made / QUESTIONS_PER_STEP)
    encoded = 2 * plan.collection / rate
    assert plan.expected_minutes == pytest.approx((encoded + plan.steps * step) / 60)


@given(st.floats(5, 5_000), st.floats(0.01, 200), st.floats(0.1, 500))
def test_more_minutes_are_never_worse(rate: float, step: float, minutes: float) -> None:
    speed = TuningSpeed(rate, step)
    try:
        plan = make_plan(reading(50_000), speed, minutes)
    except ArgumentError:
        assume(False)
    more = make_plan(reading(50_000), speed, 2 * minutes)
    assert more.collection >= plan.collection
    assert more.steps >= min(plan.steps, FEWEST_STEPS)


def stages_of(seconds: float) -> dict[str, float]:
    return {"before": seconds, "after": seconds, "dense": seconds}


def test_a_plan_by_hand() -> None:
    speed = TuningSpeed(100.0, 6.0)
    plan = make_plan(reading(5_000), speed, 60)
    # 60 minutes x 0.85 = 3060 s; 0.4 of it would encode 61,200 texts twice; all 5,000 take 100 s.
    assert plan.collection == 5_000
    assert plan.steps == min(TRAINING_STEPS, int((3060 - 100) / 6), int(0.97 * 24_000) // QUESTIONS_PER_STEP)
    with pytest.raises(ArgumentError, match=f" {ceil((40 + FEWEST_STEPS * 6) / 0.85 / 60)} "):
        make_plan(reading(5_000), speed, 0.8)


def test_the_stages_of_a_plan_have_its_seconds() -> None:
    plan = make_plan(reading(5_000), TuningSpeed(100.0, 6.0), 60)
    stages = plan.stages(asked=False, graph=True)
    assert stages == {"train": 6.0 * plan.steps, "export-model": 6.0 * EXPORT_STEPS, "before": 50.0, "after": 50.0}
    assert list(plan.stages(asked=True, graph=True)) == ["before", "train", "export-model", "after"]
    assert list(plan.stages(asked=False, graph=False)) == ["train", "before", "after"]
    beside = make_plan(reading(5_000), TuningSpeed(100.0, 6.0, models=3), 60)
    assert beside.stages(asked=False, graph=False) == {"train": 6.0 * beside.steps, **stages_of(50.0)}
    assert beside.expected_minutes == pytest.approx(plan.expected_minutes + 50 / 60)


def test_a_short_time_takes_fewer_steps_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    speed = TuningSpeed(100.0, 6.0)  # 40 s of encoding
    for minutes, steps in ((3, 10), (1.3, 4), (0.9, 2)):
        plan = make_plan(reading(5_000), speed, minutes)
        assert min(plan.steps, FEWEST_STEPS) == steps
        caplog.clear()
        warn_of_few_steps(plan)
        assert [f"{minutes:g} minutes" in one and f"{steps} step" in one for one in caplog.messages] == [True] * (
            steps < FEWEST_STEPS
        )
    few = make_plan(reading(300, questions=0.5), TuningSpeed(1_000.0, 0.1), 60)
    caplog.clear()
    warn_of_few_steps(few)  # there are no more questions
    assert (few.steps, caplog.messages) == (1, [])


def test_a_plan_is_kept_and_shown(tmp_path) -> None:
    plan = make_plan(reading(5_000, 7), TuningSpeed(100.0, 6.0), 60)
    write_record(tmp_path / "plan.json", plan)
    assert read_record(tmp_path / "plan.json", Plan) == plan
    shown = str(plan)
    for figure in (
        "5,000",
        "7 of them",
        f"{plan.steps:,} steps",
        "100 texts/s",
        "60 minutes",
        "600 questions",
        "0.012",
    ):
        assert figure in shown
    assert plan.to_json()["expected_minutes"] == plan.expected_minutes


@pytest.mark.parametrize(
    ("documents", "questions", "asked", "gain"),
    [(300, 6.0, 60, 0.0380), (1_000, 6.0, 200, 0.0208), (3_000, 6.0, 600, 0.0120), (9_000, 6.0, 600, 0.0120),
     (1_000, 0.1, 100, 0.0294)],
)  # fmt: skip
def test_the_plan_says_which_gain_its_exam_can_show(documents: int, questions: float, asked: int, gain: float) -> None:
    plan = make_plan(reading(documents, questions=questions), TuningSpeed(100.0, 1.0), 60)
    assert plan.exam_questions == asked
    assert plan.visible_gain == pytest.approx(gain, abs=5e-5)


def test_too_few_questions_name_what_helps() -> None:
    check_questions(reading(300, questions=0.32))
    with pytest.raises(DataError, match=r"95 questions.*96.*queries of people or a generator"):
        check_questions(reading(310, repeated=10, questions=0.319))


def test_a_plan_that_exceeds_the_free_memory_is_refused() -> None:
    plan = make_plan(reading(), TuningSpeed(100.0, 6.0, 0.5), 60)
    plan.check_memory()
    with pytest.raises(ArgumentError, match=r"100000\.0 GB"):
        replace(plan, speed=TuningSpeed(100.0, 6.0, 1e5)).check_memory()
