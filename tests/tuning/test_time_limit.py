"""The minutes of a tuning: how many steps are trained when the machine is slower than planned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import TrainerControl, TrainerState, get_linear_schedule_with_warmup

from vocable.core.storage import read_record
from vocable.tuning.plan import EXPORT_STEPS, Plan, Reading, TuningSpeed
from vocable.tuning.time_limit import FILLED, STEPS_FILE, TimeLimit

READING = Reading(1_000, 0, 80, 1.2, 0.0, 6.0)
PLAN = Plan(READING, TuningSpeed(100.0, 10.0), 1_000, minutes=10.0, steps=40)  # 400 s of training


def trained(seconds: Callable[[int], float], work: Path, plan: Plan = PLAN, first: int = 0) -> tuple[int, list[float]]:
    """Return the number of steps and the learning rates of a training whose n-th step takes so many seconds."""
    now = 0.0
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = get_linear_schedule_with_warmup(optimizer, 4, plan.steps)
    for _ in range(first):
        optimizer.step()
        scheduler.step()
    limit = TimeLimit(plan, plan.stages(graph=True), 0.0, work, lambda: now)
    state, control, rates = TrainerState(global_step=first, max_steps=plan.steps), TrainerControl(), []
    limit.on_train_begin(None, state, control)
    while not control.should_training_stop:
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
        now += seconds(state.global_step)
        state.global_step += 1
        control.should_training_stop = state.global_step >= state.max_steps
        limit.on_step_end(None, state, control, lr_scheduler=scheduler)
    limit.on_train_end(None, state, control)
    return state.global_step, rates


def test_a_machine_as_fast_as_planned_trains_all_steps_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        steps, rates = trained(lambda step: 10.0, tmp_path)
    assert (steps, caplog.messages) == (40, [])
    assert read_record(tmp_path / STEPS_FILE, dict[str, int]) == {"steps": 40}
    assert rates[-1] == pytest.approx(1 / 36)


def test_a_slow_machine_trains_fewer_steps_and_ends_in_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps, rates = trained(lambda step: 30.0, tmp_path)
    # Three steps took 90 s; the stages after the training take three times the planned (of 4 steps).
    left = 600 - 90 - 3 * EXPORT_STEPS * 10
    assert steps == 3 + int(FILLED * left / 30)
    assert caplog.messages == [
        f"plan: a training step takes 30.0 s, planned were 10.0 s: {steps} of 40 steps fit into 10 minutes"
    ]
    assert rates[:4] == [0.0, 0.25, 0.5, 0.75]
    # After the third step the rate falls in a line, to 0 after the last step.
    assert rates[4:] == pytest.approx([0.75 * (steps - step) / (steps - 3) for step in range(4, steps)])


def test_a_machine_that_becomes_slow_is_noticed_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps, rates = trained(lambda step: 10.0 if step < 20 else 60.0, tmp_path)
    assert 20 < steps < 30
    assert len(caplog.messages) <= 4
    spent = 20 * 10 + (steps - 20) * 60
    assert spent <= 600
    assert rates[4:] == sorted(rates[4:], reverse=True)


def test_without_time_the_training_ends_at_once(tmp_path: Path) -> None:
    assert trained(lambda step: 300.0, tmp_path)[0] == 3


def test_the_plan_is_told_again_if_the_speed_differs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        trained(lambda step: 4.0, tmp_path)
    # 12 s, 37 steps of 4 s, and two fifths of the 40 planned seconds afterwards: 176 s.
    assert caplog.messages == ["plan: a training step takes 4.0 s, planned were 10.0 s: about 3 of 10 minutes"]


def test_a_resumed_run_counts_its_own_steps_and_minutes(tmp_path: Path) -> None:
    assert trained(lambda step: 30.0, tmp_path, first=36)[0] == 40
