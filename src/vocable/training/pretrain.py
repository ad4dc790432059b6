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

from vocable.encoder.fuse import without_logits
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.precision import native_bfloat16
from vocable.errors import ArgumentError, ModelError
from vocable.training.checkpoints import last_checkpoint
from vocable.training.dropout import set_dropout
from vocable.training.held_out import Guesses, HeldOut, split
from vocable.training.masked_lm import MaskedWindows, Masker, collate, hidden_tokens
from vocable.training.progress import ProgressLog
from vocable.training.recipe import Pretraining
from vocable.training.windows import write_windows


class Pretrained(NamedTuple):
    """The adapted model, and how well it guessed held-out tokens before and after.

    Both are `{"all": ...}`, or `{"shared": ..., "new": ...}` where tokens are new, and empty without held-out windows.
    """

    mlm: PreTrainedModel
    before: dict[str, Guesses]
    after: dict[str, Guesses]


def pretrain(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    settings: Pretraining,
    folder: Path,
    *,
    new_tokens: Sequence[int] | NDArray[np.int64] | None = None,
    seed: int = 0,
) -> Pretrained:
    """Adapt `mlm`, in place, to `texts` by masked language modelling.

    With `trainable: embeddings` this is the adaptation of paper 001 (section 4.2.3): the transformer is frozen, the
    word embeddings and the decoder, tied or not, learn.

    Args:
        mlm: a masked language model whose output layer is a plain `Linear`.
        texts: read once, cut into windows and kept as tokens in `folder`; not read again when a run is resumed.
        settings: steps, rates and sizes: the `pretrain` part of a recipe.
        folder: checkpoints, tokens and `log.jsonl`; a run that finds a checkpoint there goes on from it.
        new_tokens: ids that the model's first vocabulary did not have, for overlap-aware masking and for the report.
        seed: decides the order of the texts, the masks, dropout, and which windows are held out.

    Raises:
        ModelError: the tokenizer has no mask token, the output terms are not its tokens, the output layer cannot be
            bypassed, or has no bias to train.
        ArgumentError: overlap-aware masking without `new_tokens`, or one that is no token of the model.
        DataError: there is no text.
    """
    if tokenizer.mask_token_id is None:
        raise ModelError("the tokenizer has no mask token")
    if output_vocabulary(mlm) is not None:
        raise ModelError("pretrain teaches to guess tokens, and this model's output terms are other ones: leave it out")
    size = mlm.config.vocab_size
    new = _is_new(new_tokens, size)
    if settings.masking == "overlap-aware" and new is None:
        raise ArgumentError(
            "overlap-aware masking needs to know the new tokens: pre-train a model that `vocable transfer` made, "
            "or mask uniformly"
        )
    # Where the trainer would put it: whether bfloat16 is native is asked of the device that is trained on.
    mlm.to(torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu"))
    windows = write_windows(folder / "tokens", texts, tokenizer, settings.max_length)
    learned, kept_apart = split(len(windows), settings.held_out, seed)
    masker, padding = Masker(tokenizer, settings, size, new), tokenizer.pad_token_id
    draws = settings.steps * settings.batch_size * settings.gradient_accumulation
    schedule = MaskedWindows(windows, learned, masker, draws, seed)
    held_out = HeldOut(windows, kept_apart, masker, new=new, padding=padding, seed=seed)
    set_dropout(mlm, settings.dropout)
    with without_logits(mlm) as decoder, _learning(mlm, settings):
        before = held_out.guess(mlm, decoder)
        trainer = _MaskedTrainer(
            mlm, _arguments(mlm, settings, folder, seed), partial(collate, padding=padding), train_dataset=schedule
        )
        trainer.decoder = decoder
        trainer.model_accepts_loss_kwargs = False  # the loss is a mean: accumulated steps are averaged
        for callback in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(_LogHeldOut(trainer, held_out))
        trainer.add_callback(ProgressLog("pretrain", folder / "log.jsonl"))
        trainer.train(resume_from_checkpoint=last_checkpoint(folder))
        # In bfloat16 the trainer has wrapped the model's forward, and whoever gets the model would compute in it.
        trainer.accelerator.unwrap_model(mlm, keep_fp32_wrapper=False)
        after = held_out.guess(mlm, decoder)
    return Pretrained(mlm.eval(), before, after)


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
def _learning(mlm: PreTrainedModel, settings: Pretraining) -> Iterator[None]:
    """Within the context only what is to learn has gradients."""
    if settings.trainable == "all":
        yield
        return
    decoder = mlm.get_output_embeddings()
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


def _arguments(mlm: PreTrainedModel, settings: Pretraining, folder: Path, seed: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup_share,
        lr_scheduler_type="cosine",
        use_cpu=mlm.device.type == "cpu",  # has to be said for bfloat16 there
        bf16=native_bfloat16(mlm.device),
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
        logits, labels = hidden_tokens(model, self.decoder, inputs)
        return nn.functional.cross_entropy(logits, labels)


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
            f"held_out_{name}" if group == "all" else f"held_out_{name}_{group}": getattr(found, name)
            for group, found in guesses.items()
            for name in ("loss", "accuracy")
        }
        if figures:
            loss_is_due = control.should_log
            self._trainer.log(figures)
            control.should_log = loss_is_due  # the trainer takes any log for that of the loss
