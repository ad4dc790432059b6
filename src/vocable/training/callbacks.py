"""Parts of both trainings: the trainer's arguments, callbacks, checkpoints, dropout and checks of weights."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePath
from time import perf_counter
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from sentence_transformers import SparseEncoder
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from vocable.adapt.stages import OptimizerSettings
from vocable.core.progress import progress
from vocable.core.storage import force_all_to_disk, force_to_disk, replacing
from vocable.core.threads import release_memory
from vocable.errors import CollapseError, ModelError
from vocable.evaluation.plans import evaluate_system
from vocable.evaluation.quality import Evaluation
from vocable.torch_models.asymmetric import trainable_tables
from vocable.torch_models.cpu import in_bfloat16
from vocable.torch_models.opening import check_finite
from vocable.torch_models.output_vocabulary import special_tokens
from vocable.training import distributed
from vocable.training.log import read_log, state_of, summary
from vocable.training.objective import Objective
from vocable.training.recipe import EvaluationSettings
from vocable.wackiness.score import query_w_auc

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

Arguments = TypeVar("Arguments", bound=TrainingArguments)

CHECKPOINT = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)")
RELEASE_EVERY = 10  # steps
COMPLETE = "whole"  # an empty file that marks a checkpoint whose files are all on disk
QUEUE_FILE = "momentum.safetensors"  # file in a checkpoint


def trainer_arguments(
    kind: type[Arguments], settings: OptimizerSettings, device: torch.device, folder: Path, seed: int, **others: Any
) -> Arguments:
    """Return the arguments of a trainer that writes its checkpoints to `folder`; `others` are further arguments."""
    arguments: Arguments = kind(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup_share,
        bf16=in_bfloat16(settings.dtype, device),
        use_cpu=device.type == "cpu",  # required for bfloat16 on a CPU
        logging_steps=settings.log_every,
        logging_first_step=True,  # the end is compared with it (`LogLastStep`)
        logging_nan_inf_filter=False,  # the filter would hide losses that are not finite
        save_steps=settings.save_every,
        save_total_limit=2,
        seed=seed,
        dataloader_pin_memory=device.type == "cuda",
        disable_tqdm=True,
        report_to="none",
        accelerator_config={"split_batches": True},  # batch sizes count for all processes together
        **others,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # several GPUs are for torchrun, one process each
    return arguments


def last_checkpoint(folder: Path) -> str | None:
    """Return the newest complete checkpoint in `folder`."""
    steps = {int(match[1]): path for path in folder.glob("checkpoint-*") if (match := CHECKPOINT.fullmatch(path.name))}
    complete = [step for step, checkpoint in steps.items() if (checkpoint / COMPLETE).exists()]
    return str(steps[max(complete)]) if complete else None


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"


class MarkComplete(TrainerCallback):
    """Forces a checkpoint to disk, then marks it as complete; must come after the callbacks that add files to it."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: object, **kwargs: object) -> None:
        distributed.wait()  # every process has written the state of its random numbers
        if distributed.is_first():
            checkpoint = _checkpoint(args, state)
            force_all_to_disk(checkpoint)
            with replacing(checkpoint / COMPLETE):
                pass


class LogLastStep(TrainerCallback):
    """Logs the last step, too, in every process: the losses of all are added up. A short training has a log so."""

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        control.should_log |= state.global_step >= state.max_steps


def log_extra(trainer: Any, figures: dict[str, float], control: TrainerControl) -> None:
    """Log figures in addition to the loss of a step, which the trainer would not log after any other log."""
    loss_is_due = control.should_log
    trainer.log(figures)
    control.should_log = loss_is_due


_QUIET = {"epoch", "total_flos", "train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss"}


class ProgressLog(TrainerCallback):
    """Shows a progress bar with the state of the training, and appends every log step to a file of JSON lines.

    `more` returns further figures. A loss that is not finite ends the run, unless the guard has ended it.
    """

    def __init__(self, title: str, log_file: Path, more: Callable[[], dict[str, float]] = dict) -> None:
        self._title, self._log_file, self._more, self._bar = title, log_file, more, ExitStack()
        self._first, self._newest, self._measured = dict[str, float](), dict[str, float](), dict[str, float]()

    def on_train_begin(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        kept = [line for line in read_log(self._log_file) if line["step"] <= state.global_step]
        if self._log_file.exists():  # drop the lines that a killed run logged after its last checkpoint
            with replacing(self._log_file) as file:
                file.write("".join(json.dumps(line) + "\n" for line in kept).encode())
        self._first = next((line for line in kept if "loss" in line), {})
        self._start = perf_counter()
        self._advance = self._bar.enter_context(progress(self._title, state.max_steps, begun=state.global_step))

    def on_step_end(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        self._advance(1, total=state.max_steps)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Mapping[str, float], **_: Any
    ) -> None:
        figures = {key: value for key, value in logs.items() if key not in _QUIET}
        if not figures:
            return
        if "loss" in figures:
            figures |= self._more()
            self._first, self._newest = self._first or figures, figures
        else:
            self._measured = figures
        with self._log_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **figures}) + "\n")
        self._advance(0, more=state_of(self._first, self._newest, self._measured))
        if not math.isfinite(figures.get("loss", 0.0)) and not control.should_training_stop:
            self._bar.close()
            raise CollapseError(f"step {state.global_step}: the loss is not finite: {lower_rate(args.learning_rate)}")

    def on_save(self, args: object, state: object, control: object, **kwargs: object) -> None:
        if self._log_file.exists():
            force_to_disk(self._log_file)

    def on_train_end(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        self._bar.close()
        if self._newest:
            lines, seconds = read_log(self._log_file), perf_counter() - self._start
            logger.info("%s: %s", self._title, summary(lines, state.global_step, seconds))


def lower_rate(rate: float) -> str:
    """Return advice for a run whose weights or losses are not finite."""
    return f"lower learning_rate from {rate:g} to {rate / 10:g}"


def refuse_non_finite(name: str, model: nn.Module, rate: float) -> None:
    """Raise `CollapseError` if a training at this rate has left weights that are not finite."""
    try:
        check_finite(name, model)
    except ModelError as error:
        raise CollapseError(f"{error}: {lower_rate(rate)}") from error


def short_name(place: str) -> str:
    """Return a short name for a dataset.

    >>> short_name("beir:data/scifact"), short_name("beir:data/scifact#train"), short_name("ir_datasets:msmarco/dev")
    ('scifact', 'scifact#train', 'msmarco/dev')
    """
    scheme, _, rest = place.partition(":")
    return PurePath(rest).name if scheme == "beir" else rest or place


def evaluations(
    model: SparseEncoder, settings: EvaluationSettings, locate: Callable[[str], str]
) -> Iterator[tuple[str, Evaluation]]:
    """Evaluate on each dataset; yield a prefix for the names of its measures, and the evaluation."""
    for place in settings.datasets:
        prefix = f"{short_name(place)} " if len(settings.datasets) > 1 else ""
        further = query_w_auc if settings.wackiness else None
        yield prefix, evaluate_system(model, locate(place), settings.measures, further=further)


class EvaluateDuringTraining(TrainerCallback):
    """Evaluates on whole datasets every `every` steps, in the first process, and logs the measures.

    With `best` it also evaluates after the last step, and keeps the best weights in `work`.
    """

    def __init__(self, settings: EvaluationSettings, locate: Callable[[str], str], trainer: object, work: Path) -> None:
        self._settings, self._locate, self._trainer = settings, locate, trainer
        self._weights = work / "best.safetensors"

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        last = self._settings.best and state.global_step == state.max_steps
        if state.global_step % (self._settings.every or state.max_steps) and not last:
            return
        if distributed.is_first():
            model, figures, firsts = kwargs["model"], dict[str, float](), list[float]()
            for prefix, evaluation in evaluations(model, self._settings, self._locate):
                figures |= {f"{prefix}{measure}": value for measure, value in evaluation.values.items()}
                firsts.append(next(iter(evaluation.values.values())))
            if self._settings.best:
                self._keep(model, state.global_step, sum(firsts) / len(firsts))
            model.train()
            log_extra(self._trainer, figures, control)
        distributed.wait()

    def _keep(self, model: nn.Module, step: int, mean: float) -> None:
        """Save the weights if they are the best so far."""
        if not self._weights.exists() or self._best()[1] < mean:
            tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            with replacing(self._weights) as file:
                file.write(save(tensors, {"step": str(step), "mean": repr(mean)}))

    def _best(self) -> tuple[int, float]:
        with safe_open(self._weights, "pt") as file:
            kept = file.metadata()
        return int(kept["step"]), float(kept["mean"])

    def load_best(self, model: nn.Module) -> None:
        """Load the best weights into the model, if the settings ask for them."""
        if self._settings.best:
            model.load_state_dict(load_file(self._weights))
            step, mean = self._best()
            logger.info("the model is the best, from step %d: %s %.4f", step, self._settings.measures[0], mean)


class ObjectiveState(TrainerCallback, ExportableState):
    """Tells the objective the step, updates its momentum encoder, and keeps its state in the checkpoints."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    def state(self) -> dict[str, object]:
        buffers = self._objective.regularizers.state_dict()  # the momentum encoder has a file of its own
        return {"args": {}, "attributes": {name: buffer.tolist() for name, buffer in buffers.items()}}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: object, **kwargs: object) -> None:
        buffers = state.stateful_callbacks[type(self).__name__]["attributes"]
        self._objective.regularizers.load_state_dict({name: torch.tensor(values) for name, values in buffers.items()})
        if self._objective.momentum is not None and state.global_step:
            self._objective.momentum.load_state_dict(load_file(_checkpoint(args, state) / QUEUE_FILE))

    def on_step_begin(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        self._objective.step = state.global_step

    def on_step_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
        if self._objective.momentum is not None:
            self._objective.momentum.follow()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: object, **kwargs: object) -> None:
        if self._objective.momentum is not None and distributed.is_first():
            with replacing(_checkpoint(args, state) / QUEUE_FILE) as file:
                state_dict = self._objective.momentum.state_dict()
                file.write(save({key: tensor.contiguous() for key, tensor in state_dict.items()}))


class ReleaseMemory(TrainerCallback):
    """Returns freed memory to the system now and then: the arenas of the threads would grow from step to step.

    At each step it took an eighth of the CPU time, because the next step asks for the same pages.
    """

    def on_step_end(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        if state.global_step % RELEASE_EVERY == 0:
            release_memory()


class ValidWeights(TrainerCallback):
    """Keeps looked-up query weights non-negative, as in sparse vectors, and the weights of special tokens at 0."""

    @torch.no_grad()
    def on_step_end(self, args: object, state: object, control: object, **kwargs: Any) -> None:
        for table in trainable_tables(kwargs["model"]):
            table.weight.clamp_(min=0)
            table.weight[special_tokens(table.tokenizer, len(table.weight))] = 0


def set_dropout(model: nn.Module, rate: float | None) -> None:
    """Set every dropout layer of `model` to `rate`, in place; None keeps the model's rates.

    At 0, attention uses the fused kernel.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout) and rate is not None:
            module.p = rate
