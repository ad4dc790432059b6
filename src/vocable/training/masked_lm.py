"""The task of masked language modelling: batches of masked windows, and what the decoder gets of hidden tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from vocable.training import masking
from vocable.training.recipe import Pretraining
from vocable.training.windows import Windows


class Masker:
    """Hides tokens of a window as the settings say: random ones, or whole words where the windows have words.

    Args:
        size: v, the tokens that the model reads: some hidden ones become another, drawn from all.
        new: [v], True for the tokens that are not of the source vocabulary; needed for overlap-aware masking.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, settings: Pretraining, size: int, new: NDArray[np.bool_] | None = None
    ) -> None:
        self._settings, self._new = settings, new
        self._common: dict[str, Any] = {
            "rate": settings.masking_rate,
            "mask_id": tokenizer.mask_token_id,
            "size": size,
        }
        self._special = np.array(sorted(set(tokenizer.all_special_ids)))

    def __call__(
        self, ids: NDArray[np.int64], rng: np.random.Generator, words: NDArray[np.int64] | None = None
    ) -> masking.Masked:
        """Hide tokens of a window [s]; `words` [s] says which word each belongs to, where whole words are masked."""
        if words is not None:
            return masking.whole_words(ids, words, rng, **self._common)
        if self._settings.masking == "uniform" or self._new is None:
            return self.uniform(ids, rng)
        weight = self._settings.new_token_weight
        return masking.overlap_aware(
            ids, np.isin(ids, self._special), self._new[ids], rng, weight=weight, **self._common
        )

    def uniform(self, ids: NDArray[np.int64], rng: np.random.Generator) -> masking.Masked:
        """Hidden without regard to what is new: for texts by which ways of masking are compared."""
        return masking.uniform(ids, np.isin(ids, self._special), rng, **self._common)

    def part_of_words(
        self, ids: NDArray[np.int64], rng: np.random.Generator, words: NDArray[np.int64], part: masking.Part
    ) -> masking.Masked:
        """Of words of several sub-tokens only the first, or only the later ones: what is left helps to guess."""
        return masking.whole_words(ids, words, rng, part=part, **self._common)


class MaskedWindows(Dataset[masking.Masked]):
    """The run as a list: item i is the i-th text that the model sees, already masked.

    Every epoch shows each of `rows` once, in another order and under other masks.
    """

    def __init__(self, windows: Windows, rows: NDArray[np.int64], masker: Masker, draws: int, seed: int) -> None:
        self._windows, self._rows, self._masker, self._draws, self._seed = windows, rows, masker, draws, seed
        self._order: tuple[int, NDArray[np.int64]] = (-1, rows)

    def __len__(self) -> int:
        return self._draws

    def __getitem__(self, index: int) -> masking.Masked:
        epoch, place = divmod(index, len(self._rows))
        if self._order[0] != epoch:
            self._order = (epoch, np.random.default_rng((self._seed, epoch)).permutation(self._rows))
        row = int(self._order[1][place])
        rng = np.random.default_rng((self._seed, epoch, place))
        return self._masker(self._windows[row], rng, self._windows.words(row))


def collate(batch: Iterable[masking.Masked], padding: int) -> dict[str, Tensor]:
    """Pad masked texts on the right with the token `padding`: input_ids, attention_mask and labels, all [b, s]."""
    texts: Sequence[masking.Masked] = list(batch)
    lengths = torch.tensor([len(masked.input_ids) for masked in texts])
    width = int(lengths.max())
    ids = torch.full((len(texts), width), padding)
    labels = torch.full((len(texts), width), masking.IGNORED)
    for row, masked in enumerate(texts):
        ids[row, : lengths[row]] = torch.from_numpy(masked.input_ids)
        labels[row, : lengths[row]] = torch.from_numpy(masked.labels)
    attention = torch.arange(width)[None, :] < lengths[:, None]
    return {"input_ids": ids, "attention_mask": attention.long(), "labels": labels}


def hidden_tokens(mlm: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """What the m hidden tokens of a batch give the decoder [m, d], and their labels [m]: of no other token more.

    `mlm` gives the decoder's inputs in place of logits, as within `encoder.fuse.without_logits`.
    """
    inputs = dict(batch)
    labels = inputs.pop("labels")
    hidden = labels != masking.IGNORED
    return mlm(**inputs).logits[hidden], labels[hidden]
