"""The minutes of a tuning as a limit: a training that is slower than planned gets fewer steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from vocable.core.storage import write_record
from vocable.tuning.plan import FEWEST_STEPS, Plan

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

STEPS_FILE = "steps.json"  # file in the work folder: the steps that were trained
MEASURED = 3  # steps of this run before its speed counts
DIFFERENT = 1.25  # the plan is told again if a step takes so many times the planned seconds, or so many times less
FILLED = 0.9  # share of the time left that a shortened training fills, so that it is rarely shortened again


class TimeLimit(TrainerCallback):
    """Lowers the steps of a training if not all fit into the minutes of the plan; the learning rate falls to 0 there.

    The minutes count from `began`, in this run of the command. `planned` are the seconds of the stages; those after the
    training are expected to be slower to the same extent. `clock` returns seconds.
    """

    def __init__(
        self,
        plan: Plan,
        planned: Mapping[str, float],
        began: float,
        work: Path,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._plan, self._began, self._work, self._clock = plan, began, work, clock
        names = list(planned)
        self._after = sum(planned[name] for name in names[names.index("train") + 1 :])

    def on_train_begin(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        self._first, self._start = state.global_step, self._clock()

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if (done := state.global_step - self._first) < MEASURED or state.global_step >= state.max_steps:
            return
        seconds = (self._clock() - self._start) / done
        ratio = seconds / self._plan.speed.seconds_per_step
        left = self._plan.minutes * 60 - (self._clock() - self._began) - ratio * self._after
        speed = f"plan: a training step takes {seconds:.1f} s, planned were {self._plan.speed.seconds_per_step:.1f} s"
        if state.global_step + int(left / seconds) < state.max_steps:
            planned, state.max_steps = state.max_steps, state.global_step + max(0, int(FILLED * left / seconds))
            _end_at(state.max_steps, kwargs["lr_scheduler"])
            control.should_training_stop |= state.max_steps == state.global_step
            texts = speed, state.max_steps, planned, self._plan.minutes
            few = ", and so few rarely show a difference: give it more minutes" * (state.max_steps < FEWEST_STEPS)
            logger.warning("%s: %d of %d steps fit into %g minutes%s", *texts, few)
        elif done == MEASURED and not 1 / DIFFERENT < ratio < DIFFERENT:
            steps = state.max_steps - state.global_step
            minutes = (self._plan.minutes * 60 - left + steps * seconds) / 60
            logger.info("%s: about %.0f of %g minutes", speed, max(1, minutes), self._plan.minutes)

    def on_train_end(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        write_record(self._work / STEPS_FILE, {"steps": state.global_step})


def _end_at(step: int, scheduler: Any) -> None:
    """Let the learning rates fall from their newest values to 0 at a step."""
    newest = scheduler.last_epoch
    factors = [rate / base for rate, base in zip(scheduler.get_last_lr(), scheduler.base_lrs, strict=True)]

    def falling(factor: float) -> Callable[[int], float]:
        return lambda number: factor * max(0.0, (step - number) / max(1, step - newest))

    scheduler.lr_lambdas = [falling(factor) for factor in factors]
