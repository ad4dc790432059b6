"""Masked language modelling, with logits at the masked positions only.

The order of the texts and the masks are a function of the seed and of the position in the run, so that a run that was
killed and resumed sees exactly what it would have seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
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
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from vocable.encoder.encode import in_bfloat16
from vocable.encoder.fuse import without_logits
from vocable.encoder.output_vocabulary import output_layer, output_vocabulary
from vocable.encoder.terms import Splitter, splitter
from vocable.errors import ArgumentError, DataError, ModelError, check_texts
from vocable.training.mlm import Guesses, HeldOut, MaskedWindows, Masker, collate, hidden_tokens, mean_cross_entropy
from vocable.training.mlm import split as split_windows
from vocable.training.recipe import PretrainSettings
from vocable.training.trainer import ProgressLog, last_checkpoint, set_dropout
from vocable.training.windows import WordCounts, WordPlaces, write_windows

LOG = "log.jsonl"  # in the folder of a run
KEPT_LOG = "pretrain.jsonl"  # the same beside the finished model


class Pretrained(NamedTuple):
    """The adapted model, and how well it guessed held-out tokens before and after.

    Both are `{"all": ...}`, or `{"shared": ..., "new": ...}` where tokens are new, and empty without held-out windows.
    Where whole words were masked there are "first sub-word" and "later sub-words", too (`vocable.training.mlm`).
    """

    mlm: PreTrainedModel
    before: dict[str, Guesses]
    after: dict[str, Guesses]
    words: WordCounts | None = None  # where whole words were masked: how many there were, and what was passed over


def pretrain(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    settings: PretrainSettings,
    folder: Path,
    *,
    new_tokens: Sequence[int] | NDArray[np.int64] | None = None,
    split: Splitter | None = None,
    seed: int = 0,
) -> Pretrained:
    """Adapt `mlm`, in place, to `texts` by masked language modelling.

    With `trainable: embeddings` this is the adaptation of paper 001 (section 4.2.3): the transformer is frozen, the
    word embeddings and the output layer, tied or not, learn. With `masking: whole-word` and a model that `expand` made
    this is the pre-training of paper 004 (appendix B.2): words of the output vocabulary are hidden and to be guessed.

    Args:
        mlm: a masked language model whose output layer is a plain `Linear`.
        texts: read once, cut into windows and kept as tokens in `folder`; not read again when a run is resumed.
        settings: steps, rates and sizes: the `pretrain` part of a recipe.
        folder: checkpoints, tokens and `log.jsonl`; a run that finds a checkpoint there goes on from it.
        new_tokens: ids that the model's first vocabulary did not have, for overlap-aware masking and for the report.
        split: what a word of a text is, for whole-word masking; by default the splitter "words".
        seed: decides the order of the texts, the masks, dropout, and which windows are held out.

    Raises:
        ModelError: the tokenizer has no mask token, the output terms are not its tokens and tokens are masked, the
            output layer cannot be bypassed, or has no bias to train.
        ArgumentError: overlap-aware masking without `new_tokens`, or one that is no token of the model; whole-word
            masking without an output vocabulary.
        DataError: there is no text, or not enough of it for so many steps in so few passes.
    """
    check_texts(texts)
    size = mlm.config.vocab_size
    new = _is_new(new_tokens, size)
    _check_task(mlm, tokenizer, settings, new)
    layer, places = output_vocabulary(mlm), None
    if layer is not None:
        new, places = None, WordPlaces(layer.terms, tokenizer, split or splitter(tokenizer))
    # Where the trainer would put it: whether bfloat16 is native is asked of the device that is trained on.
    mlm.to(torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu"))
    windows = write_windows(folder / "tokens", texts, tokenizer, settings.max_length, places)
    learned, kept_apart = split_windows(len(windows), settings.held_out, seed)
    masker, padding = Masker(tokenizer, settings, size, new), tokenizer.pad_token_id
    draws = settings.steps * settings.batch_size * settings.gradient_accumulation
    _check_passes(settings, draws, len(learned))
    schedule = MaskedWindows(windows, learned, masker, draws, seed)
    held_out = HeldOut(windows, kept_apart, masker, new=new, padding=padding, seed=seed, dtype=settings.dtype)
    set_dropout(mlm, settings.dropout)
    with without_logits(mlm) as decoder, _learning(mlm, settings):
        before = held_out.guess(mlm, decoder)
        trainer = _MaskedTrainer(
            mlm, _arguments(mlm, settings, folder, seed), partial(collate, padding=padding), train_dataset=schedule
        )
        trainer.decoder, trainer.schedule_steps = decoder, settings.schedule_steps
        trainer.model_accepts_loss_kwargs = False  # the loss is a mean: accumulated steps are averaged
        for callback in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(_LogHeldOut(trainer, held_out))
        trainer.add_callback(ProgressLog("pretrain", folder / LOG))
        trainer.train(resume_from_checkpoint=last_checkpoint(folder))
        # In bfloat16 the trainer has wrapped the model's forward, and whoever gets the model would compute in it.
        trainer.accelerator.unwrap_model(mlm, keep_fp32_wrapper=False)
        after = held_out.guess(mlm, decoder)
    return Pretrained(mlm.eval(), before, after, windows.counts)


def _check_task(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    settings: PretrainSettings,
    new: NDArray[np.bool_] | None,
) -> None:
    """Make sure that what is masked can be guessed."""
    if tokenizer.mask_token_id is None:
        raise ModelError("the tokenizer has no mask token")
    own_terms = output_vocabulary(mlm) is not None
    if own_terms and settings.masking != "whole-word":
        raise ModelError("this model's output terms are not its tokens: pre-train it with masking whole-word")
    if settings.masking == "whole-word" and not own_terms:
        raise ArgumentError(
            "whole-word masking needs an output vocabulary of words: pre-train a model that `vocable expand` made"
        )
    if settings.masking == "overlap-aware" and new is None:
        raise ArgumentError(
            "overlap-aware masking needs to know the new tokens: pre-train a model that `vocable transfer` made, "
            "or mask uniformly"
        )


def _check_passes(settings: PretrainSettings, draws: int, windows: int) -> None:
    """Make sure that the data last for the run, where they may be seen only so often."""
    if settings.passes is not None and draws > settings.passes * windows:
        enough = settings.passes * windows // (settings.batch_size * settings.gradient_accumulation)
        raise DataError(
            f"{settings.steps:,} steps see {draws:,} texts, and in {settings.passes} pass(es) the corpus has "
            f"{settings.passes * windows:,}, enough for {enough:,} steps: add texts, or allow more passes"
        )


def _is_new(tokens: Sequence[int] | NDArray[np.int64] | None, size: int) -> NDArray[np.bool_] | None:
    """[v], True for the given tokens."""
    if tokens is None:
        return None
    ids = np.asarray(tokens, dtype=np.int64)
    outside = ids[(ids < 0) | (ids >= size)]
    if len(outside):
        raise ArgumentError(f"new token {outside[0]} is none of the model's {size:,}")
    new = np.zeros(size, dtype=np.bool_)
    new[ids] = True
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
        if decoder.bias is None:
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
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup_share,
        lr_scheduler_type=settings.schedule,
        use_cpu=mlm.device.type == "cpu",  # has to be said for bfloat16 there
        bf16=in_bfloat16(settings.dtype, mlm.device),
        logging_steps=settings.log_every,
        save_steps=settings.save_every,
        save_total_limit=2,
        seed=seed,
        dataloader_pin_memory=mlm.device.type == "cuda",
        disable_tqdm=True,
        report_to="none",
        remove_unused_columns=False,
    )


class _MaskedTrainer(Trainer):
    decoder: nn.Linear
    schedule_steps: int | None = None

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """The schedule of a longer run, where this one is the beginning of it."""
        return super().create_scheduler(self.schedule_steps or num_training_steps, optimizer)

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)  # the data set is already in the order of the run

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | None = None,
    ) -> Tensor:
        """Cross-entropy over the masked positions only."""
        states, labels = hidden_tokens(model, inputs)
        return mean_cross_entropy(states, self.decoder.weight, self.decoder.bias, labels)


class _LogHeldOut(TrainerCallback):
    """Logs the held-out guesses of every step that is saved, before it is: a resumed run has lost none."""

    def __init__(self, trainer: _MaskedTrainer, held_out: HeldOut) -> None:
        self._trainer, self._held_out = trainer, held_out

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel | None = None,
        **kwargs: Any,
    ) -> None:
        if model is None or not control.should_save:
            return
        guesses = self._held_out.guess(model, self._trainer.decoder)
        figures = {
            f"held_out_{name}" if group == "all" else f"held_out_{name}_{group.replace(' ', '_')}": getattr(found, name)
            for group, found in guesses.items()
            for name in ("loss", "accuracy")
        }
        if figures:
            loss_is_due = control.should_log
            self._trainer.log(figures)
            control.should_log = loss_is_due  # the trainer takes any log for that of the loss
