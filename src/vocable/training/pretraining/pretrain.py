"""Pre-training before the retrieval training: masked language modelling, or learning from a teacher.

The order and the masks of the texts depend only on the seed and the position in the run. So a resumed run sees the same
texts as an uninterrupted run.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset, SequentialSampler
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback, TrainerCallback, TrainerControl

from vocable.adapt.stages import WHOLE_TERMS, PretrainSettings, check_pretrain_settings
from vocable.core.storage import finish, finished, resumable
from vocable.data import Example
from vocable.data.texts import iter_texts
from vocable.encoding.terms import terms
from vocable.errors import ArgumentError, CollapseError, DataError, ModelError
from vocable.options import Count, CountOrZero, checked, defaults
from vocable.torch_models.asymmetric import positions
from vocable.torch_models.cpu import float32_attention, use_few_shapes
from vocable.torch_models.fuse import copy_with, parts, splade_modules, without_logits
from vocable.torch_models.output_vocabulary import has_bias, output_layer, output_vocabulary
from vocable.torch_models.provenance import Step, describes, new_tokens, record, splitter_name
from vocable.torch_models.sparse_encoder import load_sparse_encoder, save_model
from vocable.training import callbacks, distributed, log
from vocable.training.pretraining.masking import TokenIds
from vocable.training.pretraining.mlm import (
    HeldOut,
    MaskedWindows,
    MaskingTask,
    Task,
    collate,
    split_windows,
)
from vocable.training.pretraining.teacher_tasks import AlignmentTask, ClassTask, classify_windows
from vocable.training.pretraining.windows import (
    LabelFinder,
    SpanFinder,
    TermFinder,
    WordFinder,
    labelled,
    write_windows,
)
from vocable.training.teachers import dense_teacher
from vocable.training_options import PretrainOptions

logger = logging.getLogger(__name__)

KEPT_LOG = "pretrain.jsonl"  # the log of a pre-training, in the folder of the finished model


@checked
def pretrain(
    model: SparseEncoder,
    texts: Iterable[str] | Iterable[Example],
    *,
    steps: Count,
    work: str | Path | None = None,
    seed: CountOrZero = 0,
    **settings: Unpack[PretrainOptions],
) -> SparseEncoder:
    """Adapt a model by masked language modelling.

    Tokens of `texts` are masked and predicted, on all processes that torchrun started. The report shows how well tokens
    of held-out texts are predicted, before and after; new tokens of a model made by `vocable transfer` are counted
    separately.

    - `trainable="embeddings"` is the adaptation of Geng and Yang 2026 (§4.2.3): the transformer is frozen; the word
      embeddings and the output layer, tied or not, learn. With `trainable="head"` the whole encoder is frozen.
    - `masking="whole-word"`, for a model of `vocable expand-vocabulary`, is the pre-training of Kim et al. 2026
      (appendix B.2): words of the output vocabulary are masked and predicted.
    - A sparse `teacher` is the sparse alignment (SAP) of Geng and Yang 2026 (table 6): a model with the teacher's
      output terms, as `vocable transfer --head-only` makes it, learns the largest logits of a text.
    - `classes` with a dense `teacher` is the supervised pre-training that Kim et al. 2026 propose (§J.2): the model
      learns which cluster of the teacher's embeddings a text is in. With `labels` the class of a text is its query, for
      example a query that led to a click on a document.

    Args:
        model: from `vocable.load`, with an output layer that is a plain `Linear`; it is not changed.
        texts: texts, or with `labels` examples. They are read once, cut into windows and kept as tokens in `work`; a
            resumed run does not read them again.
        work: folder of checkpoints, tokens and `log.jsonl`, the same for all processes; a run continues from the last
            checkpoint in it. By default a temporary folder.
        steps: number of optimizer steps.
        seed: seed of the order of texts, masks, dropout and held-out windows.
        settings: the fields of `vocable.training_options.PretrainOptions`.

    Returns:
        a new model. Its last step of provenance has the settings that are not defaults, the figures `held_out` before
        and after by group of tokens, and with whole words `words`, their counts in the corpus.

    Raises:
        ModelError: the model cannot predict masked tokens, its terms differ from the teacher's, or the output layer
            cannot be bypassed or has no bias to train.
        ArgumentError: a setting is unknown, out of its range or not for this model, or the processes cannot share a
            batch equally.
        DataError: there is no text, or not enough text for these steps and passes or for these classes.
    """
    checked = check_pretrain_settings(steps, settings)
    texts = labelled(cast(Iterable[Example], texts)) if checked.labels else iter_texts(texts)
    distributed.join()
    distributed.check_shared("batch_size", checked.batch_size)
    with nullcontext(Path(work)) if work is not None else distributed.common_folder() as folder:
        return _Pretraining(model, texts, checked, folder, seed).result()


def pretrain_folder(
    output: str | Path,
    made_from: Mapping[str, object],
    load_model: Callable[[], SparseEncoder],
    texts: Iterable[str] | Iterable[Example],
    *,
    steps: int,
    seed: int = 0,
    **settings: Unpack[PretrainOptions],
) -> SparseEncoder:
    """Pre-train a model into a folder (written atomically), or load the result of an earlier call.

    An interrupted run resumes when repeated. `made_from` is everything that determines the result, as JSON values. The
    other arguments are as in `pretrain`.
    """
    if finished(output, made_from):
        return load_sparse_encoder(output)
    check_pretrain_settings(steps, settings)  # before the model is read
    model = load_model()
    with resumable(output, made_from) as work:
        run, result = work / "run", work / "result"
        try:
            adapted = pretrain(model, texts, steps=steps, work=run, seed=seed, **settings)
        except (CollapseError, DataError):  # the same call would fail again: nothing is worth keeping
            shutil.rmtree(run, ignore_errors=True)  # another process may have removed it
            raise
        if distributed.is_first():
            shutil.rmtree(result, ignore_errors=True)
            save_model(adapted, result)
            shutil.copy(run / log.LOG, result / KEPT_LOG)
            finish(work, output, result)
        distributed.wait()
    return adapted


class _Pretraining:
    """A pre-training in `folder`."""

    def __init__(
        self, model: SparseEncoder, texts: Iterable[str], settings: PretrainSettings, folder: Path, seed: int
    ) -> None:
        self._settings, self._folder, self._seed = settings, folder, seed
        self._adapted = copy_with(model)
        self._mlm, self._tokenizer, *_ = parts(self._adapted)
        v = self._mlm.config.vocab_size
        new = None if output_vocabulary(self._mlm) is not None else _is_new(new_tokens(model), v)
        _check_task(self._mlm, self._tokenizer, settings, new)
        names, pooling = terms(self._adapted), splade_modules(self._adapted)[0][1]
        device, dense = str(self._mlm.device), None
        self._task: Task = MaskingTask(self._tokenizer, settings, v, new)
        if settings.teacher is not None and settings.classes is None:
            self._task = AlignmentTask(self._tokenizer, settings.teacher, names, device, settings.dtype)
        elif settings.teacher is not None and settings.classes is not None:
            dense = dense_teacher(settings.teacher, settings.max_length, device)
            self._task = ClassTask(self._mlm, pooling, len(names), settings.classes)
        draws = settings.steps * settings.batch_size * settings.gradient_accumulation
        with distributed.first_alone():  # the other processes read the files that the first has written
            length = _window_length(self._adapted, settings.max_length)
            finder = self._finder(splitter_name(model))
            self._windows = write_windows(folder / "tokens", texts, self._tokenizer, length, finder)
            if settings.labels:
                if self._windows.class_count < 2:
                    raise DataError("labels: all examples have the same query, and so the same class: add others")
                self._task = ClassTask(self._mlm, pooling, len(names), self._windows.class_count)
            learned, held_out = split_windows(len(self._windows), settings.held_out, seed)
            _check_passes(settings, draws, len(learned))
        self._examples = MaskedWindows(self._windows, learned, self._task, draws, seed)
        if dense is not None:
            seen = np.union1d(self._examples.order(0)[:draws], held_out)
            with distributed.first_alone():
                classify_windows(self._windows, seen, self._tokenizer, dense, settings, seed)
        padding, dtype = self._tokenizer.pad_token_id, settings.dtype
        self._held_out = HeldOut(self._windows, held_out, self._task, padding=padding, seed=seed, dtype=dtype)

    def _finder(self, splitter: str) -> TermFinder | None:
        layer = output_vocabulary(self._mlm)
        if self._settings.labels:
            return LabelFinder(self._tokenizer)
        if layer is None or self._settings.teacher is not None:
            return None
        if self._settings.masking == "longest-span":
            return SpanFinder(layer.terms, self._tokenizer)
        return WordFinder(layer.terms, self._tokenizer, splitter)

    def result(self) -> SparseEncoder:
        """Train, and return the adapted model with the step in its provenance."""
        mlm, settings = self._mlm, self._settings
        callbacks.set_dropout(mlm, settings.dropout)
        use_few_shapes(mlm)
        class_layer = self._task.part_of_model() if isinstance(self._task, ClassTask) else nullcontext()
        with without_logits(mlm) as decoder, _learning(mlm, settings), float32_attention(mlm), class_layer:
            start = self._held_out.evaluate(mlm, decoder)
            self._train(decoder)
            callbacks.refuse_non_finite("pretrain", mlm, settings.learning_rate)
            end = self._held_out.evaluate(mlm, decoder)
        for group, outcome in end.items() if distributed.is_first() else ():
            if outcome.loss > start[group].loss:
                values = group, start[group].loss, outcome.loss, callbacks.lower_rate(settings.learning_rate)
                logger.warning("the held-out loss (%s) rose from %.3f to %.3f: a worse model, %s", *values)
        figures = settings.model_dump(exclude_defaults=True, exclude={"texts"})
        figures["held_out"] = {
            when: {group: outcome._asdict() for group, outcome in outcomes.items()}
            for when, outcomes in (("before", start), ("after", end))
        }
        if settings.labels:
            figures["classes"] = self._windows.class_count
        elif self._windows.counts is not None:
            figures["words"] = self._windows.counts._asdict()
        record(self._adapted, "pretrain", **figures)
        return self._adapted.eval()

    def _train(self, decoder: nn.Linear) -> None:
        mlm, settings, folder = self._mlm, self._settings, self._folder
        arguments = callbacks.trainer_arguments(
            TrainingArguments,
            settings,
            mlm.device,
            folder,
            self._seed,
            ddp_find_unused_parameters=False,  # it would look for the decoder in the model's outputs, its inputs
            lr_scheduler_type=settings.schedule,
            remove_unused_columns=False,
        )
        collator = partial(collate, padding=self._tokenizer.pad_token_id)
        trainer = _PretrainTrainer(mlm, arguments, collator, train_dataset=self._examples)
        trainer.task, trainer.decoder, trainer.schedule_steps = self._task, decoder, settings.schedule_steps
        trainer.model_accepts_loss_kwargs = False  # the loss is a mean: accumulated steps are averaged
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_LogHeldOut(trainer, self._held_out))
        trainer.add_callback(callbacks.LogLastStep())
        if distributed.is_first():
            trainer.add_callback(callbacks.ProgressLog("pretrain", folder / log.LOG))
        trainer.add_callback(callbacks.MarkComplete())
        with distributed.naming_lost_processes():
            trainer.train(resume_from_checkpoint=callbacks.last_checkpoint(folder))
        # In bfloat16 the trainer wraps the model's forward: without this the result would compute in bfloat16.
        trainer.accelerator.unwrap_model(mlm, keep_fp32_wrapper=False)


def _check_passes(settings: PretrainSettings, draws: int, windows: int) -> None:
    if settings.passes is not None and draws > (limit := settings.passes * windows):
        enough = limit // (settings.batch_size * settings.gradient_accumulation)
        raise DataError(
            f"{settings.steps:,} steps see {draws:,} texts, and in {settings.passes} pass(es) the corpus has "
            f"{limit:,}, enough for {enough:,} steps: add texts, or allow more passes"
        )


def _window_length(model: SparseEncoder, max_length: int) -> int:
    """Return the tokens of a window: `max_length`, but no more than the model has positions."""
    limit = min(positions(transformer) for transformer, _ in splade_modules(model))
    asked_for = max_length != defaults(PretrainOptions)["max_length"]
    if max_length > limit and asked_for and distributed.is_first():
        logger.warning("max_length: the model has %d positions, where windows are cut, not %d", limit, max_length)
    return min(max_length, limit)


def _check_task(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: PretrainSettings, new: NDArray[np.bool_] | None
) -> None:
    if settings.teacher is not None or settings.labels:
        return
    if tokenizer.mask_token_id is None:
        raise ModelError("the tokenizer has no mask token")
    layer = output_vocabulary(mlm)
    if layer is not None and settings.masking not in WHOLE_TERMS:
        ways = " or ".join(WHOLE_TERMS)
        raise ModelError(f"this model's output terms are not its tokens: pre-train it with masking {ways}")
    if settings.masking in WHOLE_TERMS and layer is None:
        made_by = "`vocable expand-vocabulary` or `vocable transfer --head-only`"
        raise ArgumentError(f"{settings.masking} masking needs an output vocabulary: use a model of {made_by}")
    if settings.masking == "overlap-aware" and new is None:
        instead = "use a model of `vocable transfer`, or mask uniformly"
        raise ArgumentError(f"overlap-aware masking needs a model that knows its new tokens: {instead}")


def _is_new(tokens: TokenIds | None, size: int) -> NDArray[np.bool_] | None:
    """Return flags [v], True for `tokens`."""
    if tokens is None:
        return None
    if tokens.max(initial=-1) >= size:
        raise ModelError(f"new token {tokens.max()} is beyond the model's {size:,} tokens")
    new = np.zeros(size, dtype=np.bool_)
    new[tokens] = True
    return new


@contextmanager
def _learning(mlm: PreTrainedModel, settings: PretrainSettings) -> Iterator[None]:
    """Freeze the weights that are not to learn within the context."""
    if settings.trainable == "all":
        yield
        return
    decoder = output_layer(mlm)
    learning = {mlm.get_input_embeddings().weight, decoder.weight}
    if settings.trainable == "head":
        learning = {decoder.weight, *mlm.parameters()} - {*mlm.base_model.parameters()} | {decoder.weight}
    if settings.train_bias:
        if not has_bias(decoder):
            raise ModelError(f"{type(mlm).__name__} has no output bias to train")
        learning.add(decoder.bias)
    frozen = [parameter for parameter in mlm.parameters() if parameter.requires_grad and parameter not in learning]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)


class _PretrainTrainer(Trainer):
    task: Task
    decoder: nn.Linear
    schedule_steps: int | None = None

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """Return the schedule of a longer run, if this run is only its beginning."""
        return super().create_scheduler(self.schedule_steps or num_training_steps, optimizer)

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)  # the data set is in the order of the run

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], **others: object) -> Tensor:
        return distributed.weighted_by_rows(*self.task.loss(model, inputs, self.decoder))


class _LogHeldOut(TrainerCallback):
    """Logs the held-out figures before each checkpoint, in the first process, so that a resumed run has them all."""

    def __init__(self, trainer: _PretrainTrainer, held_out: HeldOut) -> None:
        self._trainer, self._held_out = trainer, held_out

    def on_step_end(self, args: object, state: object, control: TrainerControl, **kwargs: Any) -> None:
        if not control.should_save:
            return
        outcomes = self._held_out.evaluate(kwargs["model"], self._trainer.decoder) if distributed.is_first() else {}
        figures = {
            "_".join(["held_out", name, *([] if group == "all" else group.split())]): getattr(outcome, name)
            for group, outcome in outcomes.items()
            for name in outcome._fields[1:]
        }
        if figures:
            callbacks.log_extra(self._trainer, figures, control)
        distributed.wait()


@describes("pretrain")
def _describe(step: Step) -> Iterator[str]:
    yield f"pre-trained for {step['steps']:,} steps"
    if counts := step.get("words"):
        cut, without = f"{counts['cut']:,} that tokens cut across", f"{counts['without']:,} texts without any"
        yield f"words to guess: {counts['words']:,}; passed over: {cut}, {without}"
    classes = step.get("classes")
    for group, start in step["held_out"]["before"].items():
        end = step["held_out"]["after"][group]
        loss = f"loss {start['loss']:.3f} -> {end['loss']:.3f}"
        if step.get("teacher") is not None and classes is None:
            yield f"held-out texts ({start['terms']:,} terms): {loss}, the mean squared difference of logits"
            continue
        accuracy = f"accuracy {start['accuracy']:.1%} -> {end['accuracy']:.1%}"
        items = "tokens" if classes is None else f"texts, of {classes:,} classes"
        yield f"held-out {items}, {group} ({start['tokens']:,}): {loss}, {accuracy}"
