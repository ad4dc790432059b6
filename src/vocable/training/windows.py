"""A corpus as token windows on disk: written once in one pass, then read at random without being held in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from vocable.errors import DataError
from vocable.training.word_places import WordPlaces
from vocable.unfinished import read_json, write_json

SHORTEST = 16  # a shorter tail of a longer text says too little to learn from


class WordCounts(NamedTuple):
    """What became of the words of an output vocabulary in a corpus."""

    words: int  # occurrences in windows, each of them whole
    cut: int  # occurrences passed over: a token or the edge of a window does not end where the word does
    without: int  # windows passed over: they have no word


class Windows:
    """Token windows in two files: `tokens.bin` (int32, one after the other) and `offsets.npy` (int64, windows + 1).

    Those written for an output vocabulary have two more: `words.bin` (int32, one for each token) and `words.json`.
    """

    def __init__(self, folder: Path) -> None:
        self._tokens = np.memmap(folder / "tokens.bin", dtype=np.int32, mode="r")
        self._offsets: NDArray[np.int64] = np.load(folder / "offsets.npy", mmap_mode="r")
        self._words = self.counts = None
        if (folder / "words.json").exists():
            self._words = np.memmap(folder / "words.bin", dtype=np.int32, mode="r")
            self.counts = WordCounts(**read_json(folder / "words.json"))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """The ids [s] of one window, special tokens included."""
        return self._part(self._tokens, index)

    def words(self, index: int) -> NDArray[np.int64] | None:
        """Which word each token [s] of one window belongs to, as `masking.whole_words` takes it; None without words."""
        return None if self._words is None else self._part(self._words, index)

    def _part(self, values: NDArray[np.int32], index: int) -> NDArray[np.int64]:
        return values[self._offsets[index] : self._offsets[index + 1]].astype(np.int64)


def write_windows(
    folder: Path,
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    places: WordPlaces | None = None,
) -> Windows:
    """Cut every text into windows of at most `length` tokens, special tokens included, and write them to `folder`.

    With `places`, which finds the words of an output vocabulary, windows without such a word are passed over. The
    offsets are written last and renamed into place: a folder that has them is whole and is used as it is.

    Raises:
        DataError: no text gave a window.
        ModelError: words are to be found, and the tokenizer does not say where its tokens stand in a text.
    """
    if (folder / "offsets.npy").exists():
        return Windows(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lengths, without, words = [0], 0, 0
    with (folder / "tokens.bin").open("wb") as tokens_file, (folder / "words.bin").open("wb") as words_file:
        for ids, found in _cut(texts, tokenizer, length, places):
            if found is not None:
                begun = int((found >= 0).sum())
                without, words = without + (not begun), words + begun
                if not begun:
                    continue
                words_file.write(found.astype(np.int32).tobytes())
            tokens_file.write(np.asarray(ids, dtype=np.int32).tobytes())
            lengths.append(len(ids))
    if len(lengths) == 1:
        lacks = "no text with a word of the output vocabulary" if without else "no text to learn from"
        raise DataError(f"the corpus has {lacks}")
    if places is None:
        (folder / "words.bin").unlink()
    else:
        write_json(folder / "words.json", WordCounts(words, places.cut, without)._asdict())
    unfinished = folder / "offsets.partial.npy"
    np.save(unfinished, np.cumsum(lengths, dtype=np.int64))
    os.replace(unfinished, folder / "offsets.npy")
    return Windows(folder)


def _cut(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, length: int, places: WordPlaces | None
) -> Iterator[tuple[list[int], NDArray[np.int64] | None]]:
    """Windows [s] and, with `places`, the words of their tokens [s]."""
    nonempty = (text for text in texts if text.strip())
    while batch := list(islice(nonempty, 1000)):
        encoded = tokenizer(
            batch,
            truncation=True,
            max_length=length,
            return_overflowing_tokens=True,
            return_attention_mask=False,
            return_offsets_mapping=places is not None,
        )
        sources = encoded["overflow_to_sample_mapping"]
        for text, group in groupby(range(len(sources)), key=sources.__getitem__):
            members = [*group]
            ids = [encoded["input_ids"][i] for i in members]
            words: Sequence[NDArray[np.int64] | None] = [None] * len(ids)
            if places is not None:
                words = places(batch[text], ids, [encoded["offset_mapping"][i] for i in members])
            for number, window in enumerate(ids):
                if number == 0 or len(window) >= SHORTEST:
                    yield window, words[number]
