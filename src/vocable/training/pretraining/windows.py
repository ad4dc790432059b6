"""A corpus as token windows on disk.

Letters: s tokens of a window.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from itertools import chain, groupby, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from vocable.arrays import HEADER, load_arrays, save_arrays
from vocable.encoder.terms import TOKENIZED_TEXTS
from vocable.errors import DataError, LostProcessError
from vocable.processes import worker_pool
from vocable.training.pretraining.finders import TermFinder
from vocable.training.pretraining.masking import Ids

WINDOWS = "token windows"
SHORTEST = 16  # tokens; a shorter tail of a longer text is dropped
HERE = 20  # batches that are cut before workers start: some seconds, about the time that a worker needs to start
MOST_WORKERS = 16  # of about 0.5 GB each


class WordCounts(NamedTuple):
    """Counts of whole and cut words of an output vocabulary in a corpus, and of windows without any."""

    words: int  # occurrences in windows, each of them whole
    cut: int  # occurrences passed over: a token or the edge of a window does not end where the word does
    without: int  # windows passed over: they have no word


class Windows:
    """Token windows on disk, memory-mapped; those written with a finder also have the term of each token."""

    def __init__(self, folder: Path) -> None:
        self._arrays, header = load_arrays(folder, WINDOWS, verify=False)
        self.counts = WordCounts(**header["counts"]) if "counts" in header else None

    def __len__(self) -> int:
        return len(self._arrays["offsets"]) - 1

    def __getitem__(self, index: int) -> Ids:
        """The ids [s] of one window, special tokens included."""
        return self._part("tokens", index)

    def words(self, index: int) -> Ids | None:
        """Return the word of each token [s] of one window, as `whole_words` takes it; None without words."""
        return self._part("words", index) if "words" in self._arrays else None

    def _part(self, name: str, index: int) -> Ids:
        start, end = self._arrays["offsets"][index : index + 2]
        return self._arrays[name][start:end].astype(np.int64)


# A window [s] and, with a finder, the words of its tokens.
Cut: TypeAlias = tuple[NDArray[np.int32], Ids | None]


class Cutter(NamedTuple):
    """Cuts texts into windows of at most `length` tokens, and finds the terms of an output vocabulary in them."""

    tokenizer: PreTrainedTokenizerBase
    length: int
    finder: TermFinder | None = None

    def __call__(self, texts: Sequence[str]) -> list[Cut]:
        """Return the windows of some texts."""
        encoded = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.length,
            return_overflowing_tokens=True,
            return_attention_mask=False,
            return_offsets_mapping=self.finder is not None,
        )
        sources, windows = encoded["overflow_to_sample_mapping"], list[Cut]()
        for text, group in groupby(range(len(sources)), key=sources.__getitem__):
            members = [*group]
            ids = [encoded["input_ids"][i] for i in members]
            words: Sequence[Ids | None] = [None] * len(ids)
            if self.finder is not None:
                words = self.finder(texts[text], ids, [encoded["offset_mapping"][i] for i in members])
            windows += [
                (np.array(window, np.int32), words[number])
                for number, window in enumerate(ids)
                if number == 0 or len(window) >= SHORTEST
            ]
        return windows


def write_windows(
    folder: Path,
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    finder: TermFinder | None = None,
) -> Windows:
    """Cut every text into windows of at most `length` tokens, special tokens included, and keep them in `folder`.

    With a finder, windows without a term of the output vocabulary are passed over. Windows that are in the folder
    already are used as they are, and the texts not read.

    Raises:
        DataError: no text gave a window.
        LostProcessError: a worker process has ended.
    """
    if (folder / HEADER).exists():
        tokenizer("", truncation=True, max_length=length)  # it keeps this setting, as after cutting, and is saved so
        return Windows(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lengths, words, without = [0], 0, 0
    with TemporaryFile(dir=folder.parent) as tokens_file, TemporaryFile(dir=folder.parent) as words_file:
        for ids, found in cut(texts, Cutter(tokenizer, length, finder)):
            if found is not None:
                begun = int((found >= 0).sum())
                words, without = words + begun, without + (not begun)
                if not begun:
                    continue
                words_file.write(found.astype(np.int32).tobytes())
            tokens_file.write(ids.tobytes())
            lengths.append(len(ids))
        if len(lengths) == 1:
            lacks = "no text with a word of the output vocabulary" if without else "no text to learn from"
            raise DataError(f"the corpus has {lacks}")
        arrays: dict[str, np.ndarray] = {"offsets": np.cumsum(lengths, dtype=np.int64)}
        arrays["tokens"], header = np.memmap(tokens_file, dtype=np.int32, mode="r"), {}
        if finder is not None:
            arrays["words"] = np.memmap(words_file, dtype=np.int32, mode="r")
            header["counts"] = WordCounts(words, finder.cut, without)._asdict()
        save_arrays(folder, WINDOWS, arrays, header)
    return Windows(folder)


def cut(texts: Iterable[str], cutter: Cutter, *, here: int = HERE, workers: int | None = None) -> Iterator[Cut]:
    """Cut texts into windows: the first `here` batches in this process, the others in `workers`, one a core by default.

    Without a finder, two or three cores are as busy with this process alone: the tokenizer has threads of its own.

    Raises:
        LostProcessError: a worker has ended.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    fewest = 4 if cutter.finder is None else 2
    count = min(workers or (cores if cores >= fewest else 1), MOST_WORKERS)
    if not type(cutter.tokenizer).__module__.startswith("transformers."):  # a worker cannot import another class
        count = 1
    batches = _batches(texts)
    for batch in batches if count == 1 else islice(batches, here):
        yield from cutter(batch)
    if (first := next(batches, None)) is not None:
        yield from _cut_in_processes(chain([first], batches), cutter, count)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    nonempty = (text for text in texts if text.strip())
    while batch := list(islice(nonempty, TOKENIZED_TEXTS)):
        yield batch


def _cut_in_processes(batches: Iterator[list[str]], cutter: Cutter, workers: int) -> Iterator[Cut]:
    waiting: deque[Future[tuple[list[Cut], int]]] = deque()
    try:
        with worker_pool(workers, _start_worker, cutter) as pool:
            waiting.extend(pool.submit(_cut_batch, batch) for batch in islice(batches, 2 * workers))
            while waiting:
                windows, passed_over = waiting.popleft().result()
                waiting.extend(pool.submit(_cut_batch, batch) for batch in islice(batches, 1))
                if cutter.finder is not None:
                    cutter.finder.cut += passed_over
                yield from windows
    except BrokenExecutor as error:
        raise LostProcessError(f"a process that cuts the corpus has ended: {error}") from error


_cutter: Cutter  # of a worker process


def _start_worker(cutter: Cutter) -> None:
    global _cutter
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _cutter = cutter


def _cut_batch(texts: list[str]) -> tuple[list[Cut], int]:
    """Return the windows of some texts, and the number of words that the finder passed over in them."""
    before = 0 if _cutter.finder is None else _cutter.finder.cut
    windows = _cutter(texts)
    return windows, 0 if _cutter.finder is None else _cutter.finder.cut - before
