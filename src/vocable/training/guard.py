"""The guard of a retrieval training: it stops a run that has collapsed, and says why and what to do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import SparseEncoder
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from vocable.errors import CollapseError
from vocable.training import processes
from vocable.training.checkpoints import last_checkpoint
from vocable.training.collapse import Collapse, Watch
from vocable.training.monitor import Monitor
from vocable.training.recipe import Recipe
from vocable.training.repair import advise, describe
from vocable.unfinished import read_json, write_json

logger = logging.getLogger(__name__)

STOPPED = "stopped.json"  # in the folder of the run


class Guard(TrainerCallback, ExportableState):
    """Watches every step and, by `training.guard`, stops the trainer or warns once.

    What it has seen is kept in the checkpoints, so that a run which was killed is judged as a whole. Of several
    processes, all see what the first one sees, and stop at the same step.

    While something looks wrong no checkpoint is written, so that the last one is from before the trouble. The host's
    own callbacks decide about checkpoints: this one has to come after them.

    Args:
        recipe: of the run.
        model: that learns.
        texts: on which repairs are tried.
        monitor: has seen the batch of each step.
        work: the run's folder; its checkpoints are in work/train.
    """

    def __init__(
        self, recipe: Recipe, model: SparseEncoder, texts: Sequence[str], monitor: Monitor, work: Path
    ) -> None:
        self._recipe, self._model, self._texts = recipe, model, texts
        self._monitor, self._work = monitor, work
        self._watch: Watch | None = None if recipe.training.guard == "off" else Watch(recipe.training)
        self._gradient_is_finite = True
        self._collapse: Collapse | None = None

    def state(self) -> dict[str, Any]:
        """What the trainer writes down; no watch after a warning, or if there never was one."""
        return {"args": {}, "attributes": {"watch": None if self._watch is None else self._watch.state()}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        kept = state.stateful_callbacks[type(self).__name__]["attributes"]["watch"]
        if kept is None:
            self._watch = None
        elif self._watch is not None:
            self._watch.restore(kept)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._watch is not None:
            gradients = [weight.grad for weight in self._model.parameters() if weight.grad is not None]
            self._gradient_is_finite = bool(nn.utils.get_total_norm(gradients).isfinite())

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        signs = self._monitor.newest
        if self._watch is None or signs is None:
            return
        signs = processes.from_first(signs._replace(finite=signs.finite and self._gradient_is_finite))
        collapse = self._watch.see(state.global_step, signs)
        if self._watch.uneasy:
            control.should_save = False
        if collapse is None:
            return
        self._watch = None
        if self._recipe.training.guard == "stop":
            self._collapse = collapse
            control.should_training_stop = True
        elif processes.is_first():
            logger.warning(self._message(collapse))

    def check(self) -> None:
        """After the training: raise `CollapseError` if it was stopped, and leave the reason in the run's folder."""
        if self._collapse is None:
            return
        with processes.first_alone():
            if processes.is_first():
                reason = f"stopped at {self._message(self._collapse)}{self._kept()}"
                write_json(self._work / STOPPED, {"reason": reason})
            refuse_stopped(self._work)

    def _message(self, collapse: Collapse) -> str:
        advice = advise(collapse, self._recipe, self._model, self._texts)
        return f"step {collapse.step}, {collapse.kind}: {describe(collapse, self._recipe)}; {advice}"

    def _kept(self) -> str:
        checkpoint = last_checkpoint(self._work / "train")
        return "" if checkpoint is None else f"; the last good checkpoint is {checkpoint}"


def refuse_stopped(work: Path) -> None:
    """Raise `CollapseError` with the reason for which an earlier call stopped the run in `work`, if one did."""
    if (work / STOPPED).exists():
        raise CollapseError(read_json(work / STOPPED)["reason"])
