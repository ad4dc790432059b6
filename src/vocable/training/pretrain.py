"""Masked language modelling, with logits at the masked positions only.

The order of the texts and the masks are a function of the seed and of the position in the run, so that a run that was
killed and resumed sees exactly what it would have seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from vocable.encoder.fuse import without_logits
from vocable.encoder.precision import native_bfloat16
from vocable.errors import ModelError
from vocable.training import masking
from vocable.training.checkpoints import last_checkpoint
from vocable.training.dropout import set_dropout
from vocable.training.progress import ProgressLog
from vocable.training.recipe import Pretraining
from vocable.training.windows import Windows, write_windows


def pretrain(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    settings: Pretraining,
    folder: Path,
    *,
    seed: int = 0,
) -> PreTrainedModel:
    """Adapt `mlm`, in place, to `texts` by masked language modelling; returns the model.

    Args:
        mlm: a masked language model whose output layer is a plain `Linear`.
        texts: read once, cut into windows and kept as tokens in `folder`; not read again when a run is resumed.
        settings: steps, rates and sizes: the `pretrain` part of a recipe.
        folder: checkpoints, tokens and `log.jsonl`; a run that finds a checkpoint there goes on from it.
        seed: decides the order of the texts, the masks and dropout.

    Raises:
        ModelError: the tokenizer has no mask token, or the output layer cannot be bypassed.
        DataError: there is no text.
    """
    if tokenizer.mask_token_id is None:
        raise ModelError("the tokenizer has no mask token")
    windows = write_windows(folder / "tokens", texts, tokenizer, settings.max_length)
    schedule = _MaskedWindows(windows, tokenizer, settings, mlm.config.vocab_size, seed)
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup_share,
        lr_scheduler_type="cosine",
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
    set_dropout(mlm, settings.dropout)
    with without_logits(mlm) as decoder:
        trainer = _MaskedTrainer(mlm, arguments, data_collator=_Collate(tokenizer), train_dataset=schedule)
        trainer.decoder = decoder
        trainer.model_accepts_loss_kwargs = False  # the loss is a mean: accumulated steps are averaged
        for callback in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(ProgressLog("pretrain", folder / "log.jsonl"))
        trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    return mlm.eval()


class _MaskedWindows(Dataset[masking.Masked]):
    """The run as a list: item i is the i-th text that the model sees, already masked."""

    def __init__(
        self, windows: Windows, tokenizer: PreTrainedTokenizerBase, settings: Pretraining, size: int, seed: int
    ) -> None:
        self._windows, self._settings, self._size, self._seed = windows, settings, size, seed
        self._mask_id = tokenizer.mask_token_id
        self._special = np.array(sorted(set(tokenizer.all_special_ids)))
        self._order: tuple[int, np.ndarray[Any, np.dtype[np.int64]]] = (-1, np.empty(0, np.int64))

    def __len__(self) -> int:
        return self._settings.steps * self._settings.batch_size * self._settings.gradient_accumulation

    def __getitem__(self, index: int) -> masking.Masked:
        epoch, place = divmod(index, len(self._windows))
        if self._order[0] != epoch:
            self._order = (epoch, np.random.default_rng((self._seed, epoch)).permutation(len(self._windows)))
        ids = self._windows[int(self._order[1][place])]
        rng = np.random.default_rng((self._seed, epoch, place))
        special = np.isin(ids, self._special)
        rate = self._settings.masking_rate
        return masking.uniform(ids, special, rng, rate=rate, mask_id=self._mask_id, size=self._size)


class _Collate:
    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._padding = tokenizer.pad_token_id

    def __call__(self, batch: list[masking.Masked]) -> dict[str, Tensor]:
        """Pad on the right: input_ids, attention_mask and labels, all [b, s]."""
        lengths = torch.tensor([len(masked.input_ids) for masked in batch])
        width = int(lengths.max())
        ids = torch.full((len(batch), width), self._padding)
        labels = torch.full((len(batch), width), masking.IGNORED)
        for row, masked in enumerate(batch):
            ids[row, : lengths[row]] = torch.from_numpy(masked.input_ids)
            labels[row, : lengths[row]] = torch.from_numpy(masked.labels)
        attention = torch.arange(width)[None, :] < lengths[:, None]
        return {"input_ids": ids, "attention_mask": attention.long(), "labels": labels}


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
        """Cross-entropy over the masked positions only: logits are [masked, v], never [b, s, v]."""
        labels = inputs.pop("labels")
        masked = labels != masking.IGNORED
        hidden = model(**inputs).logits[masked]
        logits = nn.functional.linear(hidden, self.decoder.weight, self.decoder.bias)
        return nn.functional.cross_entropy(logits.float(), labels[masked])
