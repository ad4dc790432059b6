"""What is added to the host library's trainer: callbacks, the choice of a checkpoint, dropout.

Letters: v terms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

from datasets import DatasetDict
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import load_file, save
from sentence_transformers import SparseEncoder
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from vocable.evaluation import evaluate_system
from vocable.objectives.regularizers import OneSide, WackinessFlops
from vocable.storage import replacing
from vocable.training import processes
from vocable.training.momentum import Momentum
from vocable.training.objective import Objective, Penalties, Sample
from vocable.training.recipe import EvaluationSettings

NAME = re.compile(r"checkpoint-(\d+)")
WRITTEN_LAST = "trainer_state.json"
QUEUE_FILE = "momentum.safetensors"  # in a checkpoint, of the queue


def last_checkpoint(folder: Path, then: str | None = None) -> str | None:
    """Return the newest whole checkpoint of the host trainer in `folder`: one with its state, which is written last.

    Args:
        then: a file that we write after it, all at once, where there is one.
    """
    steps = {int(found[1]): path for path in folder.glob("checkpoint-*") if (found := NAME.fullmatch(path.name))}
    return next((str(steps[step]) for step in sorted(steps, reverse=True) if _is_whole(steps[step], then)), None)


def _is_whole(checkpoint: Path, then: str | None) -> bool:
    try:
        json.loads((checkpoint / WRITTEN_LAST).read_bytes())
    except (OSError, ValueError):
        return False
    return then is None or (checkpoint / then).exists()


_QUIET = {"epoch", "total_flos", "train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss"}


class ProgressLog(TrainerCallback):
    """Shows a bar with the newest figures on stderr and appends every log step to a file of JSON lines.

    `more` gives further figures for a step of the training loss.
    """

    def __init__(self, title: str, log_file: Path, more: Callable[[], dict[str, float]] = dict) -> None:
        self._log_file, self._more = log_file, more
        self._task: Any = None
        self._progress = Progress(
            TextColumn(title),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=(console := Console(stderr=True)),
            disable=not console.is_terminal,
        )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._log_file.exists():  # what a killed run logged after its last checkpoint comes again
            lines = self._log_file.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= state.global_step]
            with replacing(self._log_file) as file:
                file.write("".join(kept).encode())
        self._progress.start()
        self._task = self._progress.add_task("", total=state.max_steps, completed=state.global_step, figures="")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._progress.update(self._task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        figures = {key: value for key, value in (logs or {}).items() if key not in _QUIET}
        if not figures:
            return
        if "loss" in figures:
            figures |= self._more()
        with self._log_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **figures}) + "\n")
        if self._task is not None:
            shown = " ".join(f"{key} {value:.4g}" for key, value in figures.items() if isinstance(value, float))
            self._progress.update(self._task, figures=shown)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._progress.stop()


def short_name(place: str) -> str:
    """What a dataset is called where there is no room for its place.

    >>> short_name("beir:data/scifact"), short_name("beir:data/scifact#train"), short_name("ir_datasets:msmarco/dev")
    ('scifact', 'scifact#train', 'msmarco/dev')
    """
    scheme, _, rest = place.partition(":")
    return PurePath(rest).name if scheme == "beir" else rest or place


class EvaluateDuringTraining(TrainerCallback):
    """Every so many steps, search whole datasets and log the measures, those of several with the dataset's name."""

    def __init__(self, settings: EvaluationSettings, datasets: list[str], trainer: Any) -> None:
        self._settings, self._datasets, self._trainer = settings, datasets, trainer

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: SparseEncoder | None = None,
        **kwargs: Any,
    ) -> None:
        if model is None or state.global_step % self._settings.every:
            return
        found: dict[str, float] = {}
        for dataset in self._datasets:
            prefix = f"{short_name(dataset)} " if len(self._datasets) > 1 else ""
            values = evaluate_system(model, dataset, self._settings.measures).values
            found |= {f"{prefix}{measure}": value for measure, value in values.items()}
        model.train()
        loss_is_due = control.should_log
        self._trainer.log(found)
        control.should_log = loss_is_due  # the trainer takes any log for that of the loss


class ObjectiveState(TrainerCallback, ExportableState):
    """Tells the objective which step it is, and keeps its state in the checkpoints, in `trainer_state.json`."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    def state(self) -> dict[str, Any]:
        """What the trainer writes down."""
        return {"args": {}, "attributes": self._objective.penalties.state()}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._objective.penalties.restore(state.stateful_callbacks[type(self).__name__]["attributes"])

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._objective.step = state.global_step


class MomentumState(TrainerCallback):
    """After every step the copy follows, and every checkpoint has a file of its state, written last."""

    def __init__(self, momentum: Momentum) -> None:
        self._momentum = momentum

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step:
            self._momentum.restore(load_file(_file(args, state)))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._momentum.follow()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if processes.is_first():
            with replacing(_file(args, state)) as file:
                file.write(save({name: tensor.contiguous() for name, tensor in self._momentum.state().items()}))


def _file(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}" / QUEUE_FILE


class MeasureWackiness(TrainerCallback):
    """Measures wackiness before the first step, then every so many steps; the penalties keep it in checkpoints."""

    def __init__(self, penalties: Penalties, settings: Mapping[str, OneSide], examples: DatasetDict, seed: int) -> None:
        self._penalties = penalties
        self._settings = {side: part for side, part in settings.items() if isinstance(part, WackinessFlops)}
        self._samples = {
            side: Sample(examples, part.sample, "query" if side == "query" else "document", part.k, seed)
            for side, part in self._settings.items()
        }

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: SparseEncoder | None = None,
        **kwargs: object,
    ) -> None:
        if model is None:
            return
        for side, part in self._settings.items():
            if state.global_step % part.every == 0:
                kept = self._penalties.wackiness(side)
                if processes.is_first():
                    kept.copy_(self._samples[side].scores(model))
                    model.train()
                processes.take_over(kept)


def set_dropout(model: nn.Module, rate: float) -> None:
    """Set every dropout layer of `model` to `rate`, in place; at 0, attention takes the fused kernel."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
