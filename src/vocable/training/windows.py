"""A corpus as token windows on disk: written once in one pass, then read at random without being held in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from vocable.errors import DataError

SHORTEST = 16  # a shorter tail of a longer text says too little to learn from


class Windows:
    """Token windows in two files: `tokens.bin` (int32, one after the other) and `offsets.npy` (int64, windows + 1)."""

    def __init__(self, folder: Path) -> None:
        self._tokens = np.memmap(folder / "tokens.bin", dtype=np.int32, mode="r")
        self._offsets: NDArray[np.int64] = np.load(folder / "offsets.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """The ids [s] of one window, special tokens included."""
        return self._tokens[self._offsets[index] : self._offsets[index + 1]].astype(np.int64)


def write_windows(folder: Path, texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, length: int) -> Windows:
    """Cut every text into windows of at most `length` tokens, special tokens included, and write them to `folder`.

    The offsets are written last and renamed into place: a folder that has them is whole and is used as it is.

    Raises:
        DataError: no text gave a window.
    """
    if (folder / "offsets.npy").exists():
        return Windows(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lengths = [0]
    with (folder / "tokens.bin").open("wb") as file:
        for window in _cut(texts, tokenizer, length):
            file.write(np.asarray(window, dtype=np.int32).tobytes())
            lengths.append(len(window))
    if len(lengths) == 1:
        raise DataError("the corpus has no text to learn from")
    unfinished = folder / "offsets.partial.npy"
    np.save(unfinished, np.cumsum(lengths, dtype=np.int64))
    os.replace(unfinished, folder / "offsets.npy")
    return Windows(folder)


def _cut(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, length: int) -> Iterator[list[int]]:
    nonempty = (text for text in texts if text.strip())
    while batch := list(islice(nonempty, 1000)):
        encoded = tokenizer(
            batch, truncation=True, max_length=length, return_overflowing_tokens=True, return_attention_mask=False
        )
        previous = -1
        for ids, text in zip(encoded["input_ids"], encoded["overflow_to_sample_mapping"], strict=True):
            if text != previous or len(ids) >= SHORTEST:
                yield ids
            previous = text
