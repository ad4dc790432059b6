"""One dropout rate for a whole model.

Which checkpoint a killed run goes on from.

What a training run tells: a progress bar for people and a JSON line a log step for programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vocable.storage import replacing

NAME = re.compile(r"checkpoint-(\d+)")
WRITTEN_LAST = "trainer_state.json"


def last_checkpoint(folder: Path, then: str | None = None) -> str | None:
    """The newest whole checkpoint of the host trainer in `folder`; None if there is none.

    The trainer writes into a checkpoint's folder under its final name, so that a kill can leave half of one behind. Its
    state is written last: a checkpoint that has it, readable, is whole.

    Args:
        then: a file that we write after it, all at once, where there is one.
    """
    steps = {
        int(found[1]): path for path in folder.glob("checkpoint-*") if (found := NAME.fullmatch(path.name)) is not None
    }
    whole = (str(steps[step]) for step in sorted(steps, reverse=True) if _is_whole(steps[step], then))
    return next(whole, None)


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
        self._forget_after(state.global_step)
        self._progress.start()
        self._task = self._progress.add_task("", total=state.max_steps, completed=state.global_step, figures="")

    def _forget_after(self, step: int) -> None:
        """Drop what a killed run logged after the checkpoint that this one goes on from: it comes again."""
        if self._log_file.exists():
            lines = self._log_file.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
            with replacing(self._log_file) as file:
                file.write("".join(kept).encode())

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


def set_dropout(model: nn.Module, rate: float) -> None:
    """Set every dropout layer of `model` to `rate`, in place.

    Short runs that see each text once do not overfit, and without dropout attention takes the fused kernel: on two
    cores a step of a small encoder takes half the time.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
