"""Guard of a retrieval training: stops a collapsed run and names the likely cause and repair."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import ExportableState

from vocable.core.storage import read_record, write_record
from vocable.errors import CollapseError
from vocable.training import distributed
from vocable.training.advice import advise, at_the_start, describe
from vocable.training.callbacks import last_checkpoint
from vocable.training.detector import Collapse, CollapseDetector, History
from vocable.training.objective import BatchStatistics, Monitor
from vocable.training.recipe import Recipe

logger = logging.getLogger(__name__)

STOPPED = "stopped.json"  # file in the folder of the run
SAMPLED = 1024  # weights of each matrix whose movement is measured


class Guard(TrainerCallback, ExportableState):
    """Judges every step and, by `training.guard`, stops the trainer or warns once; tries repairs with `texts`.

    Checkpoints keep its state. No checkpoint is written while a condition holds, unless negatives are mined at this
    step, so the guard comes after the callbacks of transformers, which decide about checkpoints. All processes judge
    the batch of the first process.
    """

    def __init__(
        self, recipe: Recipe, model: SparseEncoder, texts: Sequence[str], monitor: Monitor, work: Path
    ) -> None:
        self._recipe, self._model, self._texts, self._monitor, self._work = recipe, model, texts, monitor, work
        self._detector = None if recipe.training.guard == "off" else CollapseDetector(recipe.training)
        self.history = History() if self._detector is None else self._detector.history
        self._weights: Tensor | None = None  # a sample, after the newest step
        self._gradient_is_finite = True
        self._collapse: Collapse | None = None

    def state(self) -> dict[str, object]:
        # There is no detector after a warning, or with the guard off.
        return {"args": {}, "attributes": {"watch": None if self._detector is None else self._detector.state()}}

    def on_train_begin(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        kept = state.stateful_callbacks[type(self).__name__]["attributes"]["watch"]
        if kept is None:
            self._detector = None
        elif self._detector is not None:
            self._detector.restore(kept)
        self._weights = sampled(self._model)

    def on_pre_optimizer_step(self, args: object, state: object, control: object, **kwargs: object) -> None:
        if self._detector is not None:
            gradients = [weight.grad for weight in self._model.parameters() if weight.grad is not None]
            self._gradient_is_finite = bool(nn.utils.get_total_norm(gradients).isfinite())

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        batch = self._monitor.newest
        if batch is None:
            return
        movement, finite = self._movement(), batch.finite and self._gradient_is_finite
        batch = distributed.from_first(replace(batch, finite=finite, movement=movement))
        if self._detector is None:
            self.history.see(batch)
            return
        if state.global_step == 1 and distributed.is_first():
            self._judge_start(batch)
        collapse = self._detector.see(state.global_step, batch)
        if self._detector.suspicious:
            control.should_save = False
        if collapse is None:
            return
        self._detector = None
        if self._recipe.training.guard == "stop":
            self._collapse = collapse
            control.should_training_stop = True
        elif distributed.is_first():
            logger.warning(self._message(collapse))

    def _movement(self) -> float:
        """Return the change of the sampled weights in the newest step, as a share of their norm."""
        previous, self._weights = self._weights, sampled(self._model)
        if previous is None or not (norm := float(previous.norm())):
            return 0.0
        return float((self._weights - previous).norm()) / norm

    def _judge_start(self, batch: BatchStatistics) -> None:
        finding = at_the_start(batch, self._recipe, self._model, self._texts)
        if finding is not None:
            logger.warning("step 1: %s", finding)

    def check(self) -> None:
        """Raise `CollapseError` after a training that was stopped, and write the reason to the run's folder."""
        if self._collapse is None:
            return
        with distributed.first_alone():
            if distributed.is_first():
                checkpoint = last_checkpoint(self._work / "train")
                kept = "" if checkpoint is None else f"; the last good checkpoint is {checkpoint}"
                reason = f"stopped at {self._message(self._collapse)}{kept}"
                write_record(self._work / STOPPED, {"reason": reason})
            refuse_stopped(self._work)

    def _message(self, collapse: Collapse) -> str:
        advice = advise(collapse, self._recipe, self._model, self._texts)
        return f"step {collapse.step}, {collapse.kind}: {describe(collapse, self._recipe)}; {advice}"


@torch.no_grad()
def sampled(model: nn.Module) -> Tensor:
    """Return some weights of each matrix that learns, evenly spread over it."""
    matrices = [weight.flatten() for weight in model.parameters() if weight.requires_grad and weight.dim() > 1]
    return torch.cat([torch.empty(0), *(weight[:: len(weight) // SAMPLED + 1].float().cpu() for weight in matrices)])


def refuse_stopped(work: Path) -> None:
    """Raise `CollapseError` if an earlier call stopped the run in `work`, with its reason."""
    if (work / STOPPED).exists():
        raise CollapseError(read_record(work / STOPPED, dict[str, str])["reason"])
