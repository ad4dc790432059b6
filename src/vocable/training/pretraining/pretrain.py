"""Masked language modelling, with logits at the masked positions only, or what a teacher says of whole texts.

The order of the texts and the masks are a function of the seed and of the position in the run, so that a run that was
killed and resumed sees exactly what it would have seen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset, SequentialSampler
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback

from vocable.data.texts import iter_texts
from vocable.encoder.few_shapes import use_few_shapes
from vocable.encoder.fuse import copy_with, parts, splade_modules, without_logits
from vocable.encoder.output_vocabulary import output_layer, output_vocabulary
from vocable.encoder.provenance import Step, describes, new_tokens, record, splitter_name
from vocable.encoder.special_terms import has_bias
from vocable.encoder.terms import terms
from vocable.encoder.text_encoder import positions
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.objectives import first_mistake
from vocable.options import CountOrZero, checked
from vocable.training import distributed
from vocable.training.callbacks import (
    MarkWhole,
    ProgressLog,
    float32_attention,
    last_checkpoint,
    log_beside_loss,
    lower_rate,
    refuse_wrecked,
    set_dropout,
)
from vocable.training.pretraining.mlm import Guessing, HeldOut, MaskedWindows, Masker, collate, in_order
from vocable.training.pretraining.mlm import split as split_windows
from vocable.training.pretraining.pseudo_classes import PseudoClasses, sort_windows
from vocable.training.pretraining.sap import Alignment, HeldOutTexts, SparseTeacher
from vocable.training.pretraining.window_workers import cut_in_processes
from vocable.training.pretraining.windows import SpanAlignment, WordAlignment, write_windows
from vocable.training.settings import WHOLE_TERMS, PretrainSettings
from vocable.training.teachers import dense_teacher

logger = logging.getLogger(__name__)

LOG = "log.jsonl"  # in the folder of a run
KEPT_LOG = "pretrain.jsonl"  # the same beside the finished model


@checked
def pretrain(
    model: SparseEncoder,
    texts: Iterable[str],
    *,
    work: str | Path | None = None,
    seed: CountOrZero = 0,
    **settings: Any,
) -> SparseEncoder:
    """Adapt a model to `texts` by masked language modelling or by a teacher, on all processes that `torchrun` started.

    With `trainable="embeddings"` this is the adaptation of "Why Advanced Encoders Lag on Sparse Retrieval?" (§4.2.3):
    the transformer is frozen, the word embeddings and the output layer, tied or not, learn. With
    `masking="whole-word"` and a model that `expand` made this is the pre-training of "The Pre-Training Study of
    Expanded-SPLADE Models on Web Document Titles" (appendix B.2): words of the output vocabulary are hidden and to be
    guessed. With a `teacher` it is the sparse alignment (SAP) of the first paper's table 6: of a model that has the
    teacher's output terms, as `transfer` with `head_only` makes it, the largest logits of a text become the teacher's.
    With `classes` and a dense `teacher` it is learned which class a text is of, one of so many clusters of the
    teacher's embeddings: the supervised pre-training that "The Pre-Training Study of Expanded-SPLADE Models" (§J.2)
    proposes.

    Args:
        model: from `vocable.load`, with an output layer that is a plain `Linear`; it is left as it is.
        texts: read once, cut into windows and kept as tokens in `work`; not read again when a run is resumed.
        work: a folder for checkpoints, tokens and `log.jsonl`, the same for all processes; a run that finds a
            checkpoint there goes on from it. By default one that is removed at the end.
        seed: decides the order of the texts, the masks, dropout, and which windows are held out.
        settings: the keys of a recipe's `pretrain` part (docs/recipe-keys.md), `steps` at least.

    Returns:
        a new model. Its provenance has the settings that are not the default ones and how well held-out tokens were
        guessed before and after, of "all" tokens or of "shared" and "new" ones (`vocable.training.pretraining.mlm.Guesses`), and
        where whole words were masked the counts of words (`vocable.training.pretraining.windows.WordCounts`); of a sparse teacher,
        how near to it the model was (`vocable.training.pretraining.sap.Aligned`); of classes, guesses of "all" texts.

    Raises:
        ModelError: the tokenizer has no mask token, the output terms are not its tokens and tokens are masked, they are
            not the teacher's, the output layer cannot be bypassed, or has no bias to train.
        ArgumentError: a setting that is unknown or out of its range, a batch that the processes cannot share,
            overlap-aware masking of a model without new
            tokens, whole-word or longest-span masking of one without an output vocabulary.
        DataError: there is no text, or not enough of it for so many steps in so few passes, or for so many classes.
    """
    texts = iter_texts(texts)
    checked = check_settings(settings)
    distributed.join()
    distributed.shared(checked.batch_size)
    with nullcontext(Path(work)) if work is not None else distributed.common_folder() as folder:
        return _pretrain(model, texts, checked, folder, seed)


def check_settings(settings: dict[str, Any]) -> PretrainSettings:
    """The settings of `pretrain` as a recipe's; `ArgumentError` for one that is unknown or out of its range."""
    given = {key: value for key, value in settings.items() if not (key == "masking_rate" and value is None)}
    try:
        return PretrainSettings.model_validate({**given, "texts": ["-"]})
    except ValidationError as error:
        keys, message = first_mistake(error, given)
        raise ArgumentError(": ".join([*map(str, keys), message])) from error


def _signature() -> Signature:
    """The signature of `pretrain` with the settings by name, for help and for whoever reads it."""
    own = [parameter for parameter in signature(pretrain).parameters.values() if parameter.name != "settings"]
    keys = []
    for name, field in PretrainSettings.model_fields.items():
        default = Parameter.empty if field.is_required() else field.get_default()
        if name != "texts":
            keys.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=field.annotation))
    return Signature([*own[:2], *keys, *own[2:]], return_annotation=SparseEncoder)


setattr(pretrain, "__signature__", _signature())  # noqa: B010  (a function's type has no such attribute)


def _pretrain(
    model: SparseEncoder, texts: Iterable[str], settings: PretrainSettings, folder: Path, seed: int
) -> SparseEncoder:
    adapted = copy_with(model)
    mlm, tokenizer, *_ = parts(adapted)
    size, padding, layer = mlm.config.vocab_size, tokenizer.pad_token_id, output_vocabulary(mlm)
    new = None if layer is not None else _is_new(new_tokens(model), size)
    _check_task(mlm, tokenizer, settings, new)
    task: Guessing | Alignment = Masker(tokenizer, settings, size, new)
    if settings.classes is not None:
        dense = dense_teacher(cast(str, settings.teacher), settings.max_length, str(mlm.device))
        task, new = PseudoClasses(mlm, splade_modules(adapted)[0][1], len(terms(adapted)), settings.classes), None
    elif settings.teacher is not None:
        task = Alignment(tokenizer, SparseTeacher(settings.teacher, terms(adapted), str(mlm.device), settings.dtype))
    places: WordAlignment | SpanAlignment | None = None
    if layer is not None and settings.teacher is None:
        places = (
            SpanAlignment(layer.terms, tokenizer)
            if settings.masking == "longest-span"
            else WordAlignment(layer.terms, tokenizer, splitter_name(model))
        )
    with distributed.first_alone():  # the others find them
        cut = tokenizer, _window_length(adapted, settings.max_length), places
        windows = write_windows(folder / "tokens", texts, *cut, cutting=cut_in_processes)
        learned, kept_apart = split_windows(len(windows), settings.held_out, seed)
        draws = settings.steps * settings.batch_size * settings.gradient_accumulation
        if settings.passes is not None and draws > (limit := settings.passes * len(learned)):
            enough = limit // (settings.batch_size * settings.gradient_accumulation)
            raise DataError(
                f"{settings.steps:,} steps see {draws:,} texts, and in {settings.passes} pass(es) the corpus has "
                f"{limit:,}, enough for {enough:,} steps: add texts, or allow more passes"
            )
    if settings.classes is not None:
        seen = np.union1d(in_order(learned, 0, seed)[:draws], kept_apart)
        with distributed.first_alone():
            windows = sort_windows(folder / "tokens", windows, seen, tokenizer, dense, settings, seed)
    held_out: HeldOut | HeldOutTexts
    if isinstance(task, Alignment):
        held_out = HeldOutTexts(windows, kept_apart, task, padding=padding, dtype=settings.dtype)
    else:
        held_out = HeldOut(windows, kept_apart, task, new=new, padding=padding, seed=seed, dtype=settings.dtype)
    schedule = MaskedWindows(windows, learned, task, draws, seed)
    set_dropout(mlm, settings.dropout)
    use_few_shapes(mlm)
    further = task.part_of_model() if isinstance(task, PseudoClasses) else nullcontext()
    with without_logits(mlm) as decoder, _learning(mlm, settings), float32_attention(mlm), further:
        before = held_out.guess(mlm, decoder)
        trainer = _Trainer(
            mlm, _arguments(mlm, settings, folder, seed), partial(collate, padding=padding), train_dataset=schedule
        )
        trainer.task, trainer.decoder, trainer.schedule_steps = task, decoder, settings.schedule_steps
        trainer.model_accepts_loss_kwargs = False  # the loss is a mean: accumulated steps are averaged
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_LogHeldOut(trainer, held_out))
        if distributed.is_first():
            trainer.add_callback(ProgressLog("pretrain", folder / LOG))
        trainer.add_callback(MarkWhole())
        with distributed.together():
            trainer.train(resume_from_checkpoint=last_checkpoint(folder))
        # In bfloat16 the trainer has wrapped the model's forward, and whoever gets the model would compute in it.
        trainer.accelerator.unwrap_model(mlm, keep_fp32_wrapper=False)
        refuse_wrecked("pretrain", mlm, settings.learning_rate)
        after = held_out.guess(mlm, decoder)
    for group, guess in after.items() if distributed.is_first() else ():
        if guess.loss > before[group].loss:
            values = group, before[group].loss, guess.loss, lower_rate(settings.learning_rate)
            logger.warning("the held-out loss (%s) rose from %.3f to %.3f: a worse model, %s", *values)
    guesses = (("before", before), ("after", after))
    figures = settings.model_dump(exclude_defaults=True, exclude={"texts"})
    figures["held_out"] = {when: {group: guess._asdict() for group, guess in found.items()} for when, found in guesses}
    if windows.counts is not None:
        figures["words"] = windows.counts._asdict()
    record(adapted, "pretrain", **figures)
    return adapted.eval()


def _window_length(model: SparseEncoder, asked: int) -> int:
    """The tokens of a window: as many as asked, if the model can read them."""
    most = min(positions(transformer) for transformer, _ in splade_modules(model))
    if asked > most and asked != PretrainSettings.model_fields["max_length"].default and distributed.is_first():
        logger.warning("max_length: the model has %d positions, where windows are cut, not %d", most, asked)
    return min(asked, most)


def _check_task(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: PretrainSettings, new: NDArray[np.bool_] | None
) -> None:
    """Make sure that what is masked can be guessed."""
    if settings.teacher is not None:
        return
    if tokenizer.mask_token_id is None:
        raise ModelError("the tokenizer has no mask token")
    layer = output_vocabulary(mlm)
    if layer is not None and settings.masking not in WHOLE_TERMS:
        ways = " or ".join(WHOLE_TERMS)
        raise ModelError(f"this model's output terms are not its tokens: pre-train it with masking {ways}")
    if settings.masking in WHOLE_TERMS and layer is None:
        needed = (
            "an output vocabulary: pre-train a model that `vocable expand-vocabulary` or `transfer --head-only` made"
        )
        raise ArgumentError(f"{settings.masking} masking needs {needed}")
    if settings.masking == "overlap-aware" and new is None:
        needed = "to know the new tokens: pre-train a model that `vocable transfer` made, or mask uniformly"
        raise ArgumentError(f"overlap-aware masking needs {needed}")


def _is_new(tokens: NDArray[np.int64] | None, size: int) -> NDArray[np.bool_] | None:
    """[v], True for the given tokens."""
    if tokens is None:
        return None
    if tokens.max(initial=-1) >= size:
        raise ModelError(f"new token {tokens.max()} is none of the model's {size:,}")
    new = np.zeros(size, dtype=np.bool_)
    new[tokens] = True
    return new


@contextmanager
def _learning(mlm: PreTrainedModel, settings: PretrainSettings) -> Iterator[None]:
    """Within the context only what is to learn has gradients."""
    if settings.trainable == "all":
        yield
        return
    decoder = output_layer(mlm)
    learning = {mlm.get_input_embeddings().weight, decoder.weight}
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


def _arguments(mlm: PreTrainedModel, settings: PretrainSettings, folder: Path, seed: int) -> TrainingArguments:
    arguments = TrainingArguments(
        **settings.trainer_arguments(mlm.device, folder, seed),
        accelerator_config={"split_batches": True},  # of all processes together: each takes its part of a batch
        ddp_find_unused_parameters=False,  # it would look for the decoder in the model's outputs, which are its inputs
        lr_scheduler_type=settings.schedule,
        remove_unused_columns=False,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # one process never spreads over several GPUs: torchrun does that
    return arguments


class _Trainer(Trainer):
    task: Guessing | Alignment
    decoder: nn.Linear
    schedule_steps: int | None = None

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """The schedule of a longer run, where this one is the beginning of it."""
        return super().create_scheduler(self.schedule_steps or num_training_steps, optimizer)

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)  # the data set is already in the order of the run

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], **others: Any) -> Tensor:
        """The mean over what all processes count."""
        return distributed.of_all(*self.task.loss(model, inputs, self.decoder))


class _LogHeldOut(TrainerCallback):
    """Logs the held-out guesses of every step that is saved, before it is: a resumed run has lost none.

    The first process makes them, the others wait.
    """

    def __init__(self, trainer: _Trainer, held_out: HeldOut | HeldOutTexts) -> None:
        self._trainer, self._held_out = trainer, held_out

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not control.should_save:
            return
        guesses = self._held_out.guess(kwargs["model"], self._trainer.decoder) if distributed.is_first() else {}
        figures = {
            f"held_out_{name}" if group == "all" else f"held_out_{name}_{group.replace(' ', '_')}": getattr(found, name)
            for group, found in guesses.items()
            for name in found._fields[1:]
        }
        if figures:
            log_beside_loss(self._trainer, figures, control)
        distributed.wait()


@describes("pretrain")
def _describe(step: Step) -> Iterator[str]:
    """The held-out loss and accuracy, before and after."""
    yield f"pre-trained for {step['steps']:,} steps"
    if counts := step.get("words"):
        cut, without = f"{counts['cut']:,} that tokens cut across", f"{counts['without']:,} texts without any"
        yield f"words to guess: {counts['words']:,}; passed over: {cut}, {without}"
    classes = step.get("classes")
    for group, before in step["held_out"]["before"].items():
        after = step["held_out"]["after"][group]
        loss = f"loss {before['loss']:.3f} -> {after['loss']:.3f}"
        if step.get("teacher") is not None and classes is None:
            yield f"held-out texts ({before['terms']:,} terms): {loss}, the mean squared difference of logits"
            continue
        accuracy = f"accuracy {before['accuracy']:.1%} -> {after['accuracy']:.1%}"
        items = "tokens" if classes is None else f"texts, of {classes:,} classes"
        yield f"held-out {items}, {group} ({before['tokens']:,}): {loss}, {accuracy}"
