"""What is added to the host library's trainer: callbacks, the choice of a checkpoint, dropout, attention.

Letters: v terms.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePath
from typing import Any, cast

import torch
from datasets import DatasetDict
from safetensors import safe_open
from safetensors.torch import load_file, save
from sentence_transformers import SparseEncoder
from torch import nn
from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from vocable.encoder.asymmetric import Role, trainable_tables
from vocable.encoder.hub import check_finite
from vocable.encoder.special_terms import special_tokens
from vocable.errors import CollapseError, ModelError
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.retrieval import evaluate_system
from vocable.objectives.regularizers import OneSide, WackinessFlops
from vocable.progress import progress
from vocable.storage import force_all_to_disk, force_to_disk, replacing
from vocable.training import distributed
from vocable.training.objective import Objective, Penalties, Sample
from vocable.training.recipe import Recipe
from vocable.training.settings import EvaluationSettings
from vocable.wackiness.score import query_w_auc

NAME = re.compile(r"checkpoint-(\d+)")
COMPLETE = "whole"  # an empty file in a checkpoint that is on disk with all its files
QUEUE_FILE = "momentum.safetensors"  # in a checkpoint, of the queue
IDF_FILE = "query-idf.safetensors"


def last_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint of the host trainer in `folder` that is on disk with all its files."""
    steps = {int(found[1]): path for path in folder.glob("checkpoint-*") if (found := NAME.fullmatch(path.name))}
    whole = [step for step, checkpoint in steps.items() if (checkpoint / COMPLETE).exists()]
    return str(steps[max(whole)]) if whole else None


class MarkComplete(TrainerCallback):
    """Forces a checkpoint to disk, then marks it as whole; the last of the callbacks, as others add files to it."""

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        distributed.wait()  # each has written the state of its random numbers
        if distributed.is_first():
            checkpoint = _checkpoint(args, state)
            force_all_to_disk(checkpoint)
            with replacing(checkpoint / COMPLETE):
                pass


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"


def log_beside_loss(trainer: Any, figures: dict[str, float], control: TrainerControl) -> None:
    """Log figures in a step, whether or not its loss is logged: the trainer takes any log for that of the loss."""
    loss_is_due = control.should_log
    trainer.log(figures)
    control.should_log = loss_is_due


_QUIET = {"epoch", "total_flos", "train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss"}


class ProgressLog(TrainerCallback):
    """Shows a bar with the newest figures on stderr and appends every log step to a file of JSON lines.

    `more` gives further figures for a step of the training loss. A loss that is not finite ends the run, unless the
    guard has done so.
    """

    def __init__(self, title: str, log_file: Path, more: Callable[[], dict[str, float]] = dict) -> None:
        self._title, self._log_file, self._more = title, log_file, more
        self._bar = ExitStack()

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._log_file.exists():  # what a killed run logged after its last checkpoint comes again
            lines = self._log_file.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= state.global_step]
            with replacing(self._log_file) as file:
                file.write("".join(kept).encode())
        self._advance = self._bar.enter_context(progress(self._title, state.max_steps))
        self._advance(state.global_step)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._advance(1)

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        figures = {key: value for key, value in kwargs["logs"].items() if key not in _QUIET}
        if not figures:
            return
        if "loss" in figures:
            figures |= self._more()
        with self._log_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **figures}) + "\n")
        shown = " ".join(f"{key} {value:.4g}" for key, value in figures.items() if isinstance(value, float))
        self._advance(0, more=shown)
        if not math.isfinite(figures.get("loss", 0.0)) and not control.should_training_stop:
            self._bar.close()
            raise CollapseError(f"step {state.global_step}: the loss is not finite: {lower_rate(args.learning_rate)}")

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._log_file.exists():
            force_to_disk(self._log_file)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._bar.close()


def lower_rate(rate: float) -> str:
    """What to change in a recipe whose weights or losses are no numbers any more."""
    return f"lower learning_rate from {rate:g} to {rate / 10:g}"


def refuse_wrecked(name: str, model: nn.Module, rate: float) -> None:
    """Raise `CollapseError` after a training at this rate that has left weights that are not finite."""
    try:
        check_finite(name, model)
    except ModelError as error:
        raise CollapseError(f"{error}: {lower_rate(rate)}") from error


def short_name(place: str) -> str:
    """What a dataset is called where there is no room for its place.

    >>> short_name("beir:data/scifact"), short_name("beir:data/scifact#train"), short_name("ir_datasets:msmarco/dev")
    ('scifact', 'scifact#train', 'msmarco/dev')
    """
    scheme, _, rest = place.partition(":")
    return PurePath(rest).name if scheme == "beir" else rest or place


def evaluations(model: SparseEncoder, recipe: Recipe) -> Iterator[tuple[str, Evaluation]]:
    """Evaluate on each dataset of a recipe; in front of an evaluation what its measures' names begin with."""
    if recipe.evaluation is None:
        return
    for place in recipe.evaluation.datasets:
        prefix = f"{short_name(place)} " if len(recipe.evaluation.datasets) > 1 else ""
        settings = recipe.evaluation
        further = query_w_auc if settings.wackiness else None
        yield prefix, evaluate_system(model, recipe.place(place), settings.measures, further=further)


class EvaluateDuringTraining(TrainerCallback):
    """Every so many steps, search whole datasets and log the measures, those of several with the dataset's name.

    The first process does, the others wait. Where the best state is wanted, its weights are kept in `work`; the last
    one is measured, too, as it may be the best.
    """

    def __init__(self, recipe: Recipe, settings: EvaluationSettings, trainer: Any, work: Path) -> None:
        self._recipe, self._settings, self._trainer = recipe, settings, trainer
        self._weights = work / "best.safetensors"

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        last = self._settings.best and state.global_step == state.max_steps
        if state.global_step % (self._settings.every or state.max_steps) and not last:
            return
        if distributed.is_first():
            found, firsts = dict[str, float](), list[float]()
            for prefix, evaluation in evaluations(kwargs["model"], self._recipe):
                found |= {f"{prefix}{measure}": value for measure, value in evaluation.values.items()}
                firsts.append(next(iter(evaluation.values.values())))
            if self._settings.best:
                self._keep(kwargs["model"], state.global_step, sum(firsts) / len(firsts))
            kwargs["model"].train()
            log_beside_loss(self._trainer, found, control)
        distributed.wait()

    def _keep(self, model: nn.Module, step: int, mean: float) -> None:
        """Write the weights down if they are the best so far."""
        if self._weights.exists() and self._best()[1] >= mean:
            return
        tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        with replacing(self._weights) as file:
            file.write(save(tensors, {"step": str(step), "mean": repr(mean)}))

    def _best(self) -> tuple[int, float]:
        with safe_open(self._weights, "pt") as file:
            kept = file.metadata()
        return int(kept["step"]), float(kept["mean"])

    def take_best(self, model: nn.Module) -> str | None:
        """Load the best weights into the model, if they were wanted, and say which they are."""
        if not self._settings.best:
            return None
        model.load_state_dict(load_file(self._weights))
        step, mean = self._best()
        return f"the model is that of step {step}, the best one: {self._settings.measures[0]} {mean:.4f}"


class ObjectiveState(TrainerCallback, ExportableState):
    """Tells the objective which step it is, has its momentum follow, and keeps its state in the checkpoints.

    That of the penalties is in `trainer_state.json`, those of the momentum and of the IDF in files of their own.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective, self._momentum = objective, objective.momentum
        parts = {QUEUE_FILE: objective.momentum, IDF_FILE: objective.query_idf}
        self._files = {name: part for name, part in parts.items() if part is not None}

    def state(self) -> dict[str, Any]:
        """What the trainer writes down."""
        return {"args": {}, "attributes": self._objective.penalties.state()}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._objective.penalties.restore(state.stateful_callbacks[type(self).__name__]["attributes"])
        for name, part in self._files.items() if state.global_step else ():
            part.load_state_dict(load_file(_checkpoint(args, state) / name))

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._objective.step = state.global_step

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._momentum is not None:
            self._momentum.follow()

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        for name, part in self._files.items() if distributed.is_first() else ():
            with replacing(_checkpoint(args, state) / name) as file:
                file.write(save({key: tensor.contiguous() for key, tensor in part.state_dict().items()}))


class MeasureWackiness(TrainerCallback):
    """Measures wackiness before the first step, then every so many steps; the penalties keep it in checkpoints."""

    def __init__(self, penalties: Penalties, settings: Mapping[str, OneSide], examples: DatasetDict, seed: int) -> None:
        self._penalties = penalties
        self._measured = [
            (side, part.every, Sample(examples, part.sample, cast(Role, side), part.k, seed))
            for side, part in settings.items()
            if isinstance(part, WackinessFlops)
        ]

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        for side, every, sample in self._measured:
            if state.global_step % every == 0:
                scores = distributed.by_first(partial(sample.scores, kwargs["model"]))
                self._penalties.wackiness(side).copy_(scores)
                kwargs["model"].train()


class ValidWeights(TrainerCallback):
    """After every step, no looked-up weight is negative, and special tokens weigh nothing.

    A sparse vector has no negative weights: what the training would gain by them, a search would lose.
    """

    @torch.no_grad()
    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        for table in trainable_tables(kwargs["model"]):
            table.weight.clamp_(min=0)
            table.weight[special_tokens(table.tokenizer, len(table.weight))] = 0


def set_dropout(model: nn.Module, rate: float) -> None:
    """Set every dropout layer of `model` to `rate`, in place; at 0, attention takes the fused kernel."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
