"""The rules by which a collapse is recognized: when each is met, and what must never meet one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.toys import sound_batch
from vocable.training.detector import Collapse, CollapseDetector, CollapseKind, History
from vocable.training.objective import BatchStatistics
from vocable.training.recipe import TrainingSettings

HEALTHY = sound_batch(32)
SETTINGS = TrainingSettings(steps=300, warmup_share=0.1)


def watched(batches: Iterable[BatchStatistics], settings: TrainingSettings = SETTINGS) -> Collapse | None:
    """The first collapse of a run with these batches."""
    detector = CollapseDetector(settings)
    return next(filter(None, (detector.see(step, batch) for step, batch in enumerate(batches, start=1))), None)


def batches(count: int, **changes: Any) -> list[BatchStatistics]:
    return [replace(HEALTHY, **changes)] * count


@pytest.mark.parametrize(
    ("changes", "kind", "step"),
    [
        ({"finite": False}, CollapseKind.NON_FINITE, 1),
        ({"loss": 1001 * math.log(32)}, CollapseKind.HOPELESS, 10),
        ({"loss": 627.0, "document_terms": 28_090.0}, CollapseKind.DENSE_COLLAPSE, 10),
        ({"loss": 627.0, "query_terms": 28_090.0}, CollapseKind.DENSE_COLLAPSE, 10),
        ({"loss": 10.0}, CollapseKind.UNSTABLE, 130),  # 100 steps after a warm-up of 30
        ({"query_terms": 28_090.0}, CollapseKind.DENSE, 200),  # 100 steps after a ramp over a third
        ({"document_terms": 28_090.0}, CollapseKind.DENSE, 200),
        ({"empty_queries": 0.5}, CollapseKind.EMPTY, 10),
        ({"empty_documents": 1.0}, CollapseKind.EMPTY, 10),
        ({"loss": 0.01 * math.log(32)}, CollapseKind.IDLE, 20),
        ({"loss": math.log(32) * 1.0009}, CollapseKind.ALIKE, 80),
        ({"loss": math.log(32) * 0.9991}, CollapseKind.ALIKE, 80),
    ],
)
def test_each_rule_is_met_after_its_steps(changes: dict[str, Any], kind: CollapseKind, step: int) -> None:
    found = watched(batches(300, **changes))
    assert found is not None
    assert (found.kind, found.step) == (kind, step)
    # One step short of it, and once more after a healthy batch, nothing has happened yet.
    short = batches(step - 1, **changes)
    assert watched(short) is None
    if kind not in (CollapseKind.NON_FINITE, CollapseKind.UNSTABLE, CollapseKind.DENSE, CollapseKind.ALIKE):
        assert watched([*short, HEALTHY, *short]) is None


@pytest.mark.parametrize(("share", "step"), [(0.975, 11), (1.025, 11), (0.96, None), (1.04, None)])
def test_a_loss_that_falls_back_to_chance_is_met(share: float, step: int | None) -> None:
    lost = batches(20, loss=share * math.log(32))
    collapse = watched([HEALTHY, *lost])
    assert (collapse and (collapse.kind, collapse.step)) == (step and (CollapseKind.LOST, step))
    assert watched([HEALTHY, *lost[:9], HEALTHY, *lost[:9]]) is None
    assert watched([*batches(1, loss=0.8 * math.log(32)), *lost]) is None  # a model that knew nothing


def test_the_largest_share_and_movement_are_remembered() -> None:
    costs = [{"query": 0.1}, {"query": 0.3, "document": 0.2}, {"query": 0.2}]
    run = [replace(HEALTHY, shares=c, movement=m) for c, m in zip(costs, [0.0, 0.04, 0.01], strict=True)]
    collapse = watched([*run, *batches(1, finite=False)])
    assert collapse is not None
    assert collapse.history == History({"query": 0.3, "document": 0.2}, 0.04)
    again = CollapseDetector(SETTINGS)
    detector = CollapseDetector(SETTINGS)
    for step, batch in enumerate(run, start=1):
        detector.see(step, batch)
    again.restore(json.loads(json.dumps(detector.state())))
    assert again.history == collapse.history


def test_a_loss_of_almost_0_is_success_later_and_with_a_teacher() -> None:
    learned = [*batches(30), *batches(270, loss=0.0)]
    assert watched(learned) is None
    taught = TrainingSettings.model_validate({"steps": 300, "losses": [{"name": "info_nce"}, {"name": "margin_mse"}]})
    assert watched(batches(300, loss=0.0), taught) is None
    cosines = TrainingSettings.model_validate({"steps": 300, "losses": [{"name": "cosine"}]})
    collapse = watched(batches(300, loss=0.0), cosines)
    assert collapse is not None
    assert (collapse.kind, collapse.step) == (CollapseKind.IDLE, 20)


@pytest.mark.parametrize("side", ["query_terms", "document_terms"])
def test_a_steady_fall_towards_no_term_is_met(side: str) -> None:
    falling = [replace(HEALTHY, **{side: 60 * 0.97**step}) for step in range(300)]
    found = watched(falling)
    assert found is not None
    assert found.kind is CollapseKind.SHRINKING
    # The mean of 20 steps is under 3 from there on, and it was so for 20 steps.
    means = [sum(60 * 0.97**i for i in range(end - 20, end)) / 20 for end in range(20, 300)]
    assert found.step == next(i for i, mean in enumerate(means, start=20) if mean < 3) + 19


@given(
    st.lists(st.floats(0.011 * math.log(32), 2.5 * math.log(32)), min_size=1, max_size=20),
    st.lists(st.floats(3, 0.6 * 30_522), min_size=1, max_size=20),
    st.floats(0, 0.49),
)
def test_a_run_within_the_bounds_passes(losses: list[float], terms: list[float], empty: float) -> None:
    seen = [
        replace(HEALTHY, loss=loss, query_terms=count, document_terms=count, empty_queries=empty)
        for loss, count in islice(zip(cycle(losses), cycle(terms), strict=False), 300)
    ]
    # Not the loss of guessing, again and again.
    assume(any(abs(loss - math.log(32)) > 0.01 for loss in losses))
    assume(sum(abs(loss - math.log(32)) <= 0.03 * math.log(32) for loss in losses) < min(10, len(losses)))
    assert watched(seen) is None


def test_starts_that_have_come_down_pass() -> None:
    """Loss, query terms and document terms of a start at twice vocable-mini's scale, measured; then at rest."""
    ratios = [373, 343, 217, 399, 238, 103, 79.3, 11.8, 31.9, 8.22, 13.2, 9.86, 9.4]
    queries = [10_700, 10_700, 9_200, 6_810, 5_170, 3_780, 2_630, 2_220, 1_860, 1_370, 1_480, 1_120, 1_100]
    documents = [15_200, 15_300, 13_700, 11_000, 8_030, 5_350, 3_800, 3_790, 2_710, 2_020, 1_770, 1_360, 1_230]
    start = [
        replace(HEALTHY, loss=ratio * math.log(32), query_terms=float(asked), document_terms=float(given_))
        for ratio, asked, given_ in zip(ratios, queries, documents, strict=True)
    ]
    assert watched([*start, *batches(287)]) is None


def test_sparse_vectors_that_stay_sparse_pass() -> None:
    assert watched(batches(300, query_terms=1.5)) is None


def test_a_side_without_a_penalty_may_be_dense() -> None:
    settings = TrainingSettings(steps=300, regularizers={"query": 0, "document": 0})  # type: ignore[arg-type]
    assert watched(batches(300, document_terms=28_090.0), settings) is None


def test_uneasy_from_the_first_bad_step_to_the_last() -> None:
    detector = CollapseDetector(SETTINGS)
    seen = []
    for step, batch in enumerate([HEALTHY, *batches(3, empty_queries=1.0), HEALTHY], start=1):
        assert detector.see(step, batch) is None
        seen.append(detector.suspicious)
    assert seen == [False, True, True, True, False]


def test_the_first_batch_is_remembered() -> None:
    found = watched([HEALTHY, *batches(1, finite=False)])
    assert found is not None
    assert (found.first, found.step) == (HEALTHY, 2)


@given(st.integers(1, 59), st.floats(0.9, 1.0))
def test_a_restored_watch_continues_its_counts(kept: int, fall: float) -> None:
    """From what a checkpoint holds: only such states are kept in which no condition holds."""
    run = [replace(HEALTHY, query_terms=8 * fall**step) for step in range(60)]
    detector = CollapseDetector(SETTINGS)
    found = [detector.see(step, batch) for step, batch in enumerate(run[:kept], start=1)]
    if detector.suspicious or any(found):
        return
    again = CollapseDetector(SETTINGS)
    again.restore(json.loads(json.dumps(detector.state())))
    rest = list(enumerate(run[kept:], start=kept + 1))
    assert [again.see(*batch) for batch in rest] == [detector.see(*batch) for batch in rest]
