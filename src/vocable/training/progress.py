"""What a training run tells: a progress bar for people and a JSON line a log step for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vocable.storage import replacing

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
