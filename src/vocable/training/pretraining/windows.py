"""A corpus as token windows on disk, with the terms of an output vocabulary that the tokens spell.

Letters: s tokens of a window, t tokens of a text that spell something, w words of a text.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
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

from vocable.core.arrays import load_arrays, save_arrays
from vocable.core.processes import worker_pool
from vocable.data import Example
from vocable.encoding.terms import TOKENIZED_TEXTS, Splitter, normal_form, splitter
from vocable.encoding.tokens import CONTINUATION_MARKS, WORD_MARKS, bare_marks, special_columns_of
from vocable.errors import ArgumentError, DataError, LostProcessError, ModelError
from vocable.training.pretraining.masking import CONTINUES, NO_WORD, TokenIds

WINDOWS = "token windows"
WINDOWS_FILE = "windows"  # in the folder of a corpus, beside what is made of its windows
SHORTEST = 16  # tokens; a shorter tail of a longer text is dropped
HERE = 20  # batches that are cut before workers start: a few seconds, about the time that a worker needs to start
MOST_WORKERS = 16  # a worker takes about 0.5 GB
SPAN = 8  # most tokens of a span that spells a term
WHITE = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype=np.uint32)  # all white space

TokenWindows: TypeAlias = Sequence[Sequence[int]]  # ids [s], including special tokens
Offsets: TypeAlias = Sequence[Sequence[tuple[int, int]]]  # for each token its characters, from start to end


class TermFinder(ABC):
    """Finds the terms of an output vocabulary in a text that is cut into token windows.

    `passed_over` counts the terms of the texts that tokens or windows cut across. A finder can be pickled; its copy
    counts from 0. Raises `ModelError` if the tokenizer has no backend of the `tokenizers` library, because only these
    backends return token offsets.
    """

    def __init__(self, terms: Sequence[str], tokenizer: PreTrainedTokenizerBase, *others: object) -> None:
        if not tokenizer.is_fast:
            raise ModelError(f"{type(tokenizer).__name__} does not return token offsets: save it as a fast tokenizer")
        self._made_from = list(terms), tokenizer, *others
        self._marks = np.array(sorted(bare_marks(tokenizer)))
        self.passed_over = 0

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._made_from

    @abstractmethod
    def __call__(self, text: str, windows: TokenWindows, offsets: Offsets) -> list[TokenIds]:
        """Return the term of each token as `masking.whole_words` takes it: [s_i] for window i of the text."""


class WordFinder(TermFinder):
    """Finds words that whole tokens of one window spell; the tokens may also spell spaces, but nothing else.

    A word is passed over if a token or the edge of a window cuts across it. Terms that are the same to the tokenizer
    count as the first of them. `split` is a splitter or its name; only a finder with a name can be pickled.
    """

    def __init__(self, terms: Sequence[str], tokenizer: PreTrainedTokenizerBase, split: Splitter | str) -> None:
        super().__init__(terms, tokenizer, split)
        self._split = splitter(tokenizer, split) if isinstance(split, str) else split
        normalize = normal_form(tokenizer)
        self._number: dict[str, int] = {}
        for number, term in enumerate(terms):
            self._number.setdefault(normalize(term), number)

    def __call__(self, text: str, windows: TokenWindows, offsets: Offsets) -> list[TokenIds]:
        # The words of the text: their terms [w], -1 for other words, and their characters from start to end [w, 2].
        words = list(self._split(text))
        numbers = np.array([self._number.get(word, -1) for word, _, _ in words], dtype=np.int64)
        spans = np.array([(start, end) for _, start, end in words], dtype=np.int64).reshape(-1, 2)
        # A word has the tokens from the first that reaches into it to the last that begins before its end, both [w].
        places, starts, ends, window = _spelling_tokens(text, windows, offsets, self._marks)
        first = np.searchsorted(ends, spans[:, 0], side="right")
        last = np.searchsorted(starts, spans[:, 1], side="left") - 1
        # Words without a token, and words that share characters with a neighbour ("½" becomes two words), are cut.
        apart = np.ones(len(spans) + 1, dtype=np.bool_)  # before each word, and after the last
        apart[1:-1] = spans[1:, 0] >= spans[:-1, 1]
        uncut = (first <= last) & apart[:-1] & apart[1:]
        # A word is also cut if its tokens reach beyond it, have other tokens between them, or lie in two windows.
        first, last = np.where(uncut, first, 0), np.where(uncut, last, 0)
        if len(places):
            uncut &= (starts[first] >= spans[:, 0]) & (ends[last] <= spans[:, 1])
            uncut &= (places[last] - places[first] == last - first) & (window[first] == window[last])
        # The term of each token, one window after the other.
        lengths = [len(ids) for ids in windows]
        terms = np.full(sum(lengths), NO_WORD)
        for word in np.flatnonzero(uncut & (numbers >= 0)):
            begin, end = places[first[word]], places[last[word]]
            terms[begin : end + 1] = CONTINUES
            terms[begin] = numbers[word]
        self.passed_over += int((~uncut & (numbers >= 0)).sum())
        return np.split(terms, np.cumsum(lengths)[:-1])


class Labelled(str):
    """A text with the number of its class."""

    label: int


class LabelFinder(TermFinder):
    """Gives each token of a `Labelled` text the class of the text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__((), tokenizer)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._made_from[1:]

    def __call__(self, text: str, windows: TokenWindows, offsets: Offsets) -> list[TokenIds]:
        assert isinstance(text, Labelled)
        return [np.full(len(ids), text.label) for ids in windows]


def labelled(examples: Iterable[Example]) -> Iterator[Labelled]:
    """Yield the positives of examples; their classes are the different queries, numbered in order."""
    numbers: dict[str, int] = {}
    for example in examples:
        if not isinstance(example, Example):
            raise ArgumentError(f"with labels, the texts must be examples, not {type(example).__name__}")
        text = Labelled(example.positive)
        text.label = numbers.setdefault(example.query, len(numbers))
        yield text


class SpanFinder(TermFinder):
    """Finds terms by their tokens: from left to right, the longest span of tokens that are the tokens of a term.

    A span has at most SPAN tokens, in a single window. `passed_over` counts the tokens that belong to no term.

    The authors of Geng and Yang 2026 label these spans in their comparison with Kim et al. 2026 (table 6, EMLM). Only
    ids are compared, so a lower-case term does not label a cased word, and a comma after a word is "##,".
    """

    def __init__(self, terms: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(terms, tokenizer)
        self._number = terms_by_tokens(terms, tokenizer)
        self._special = set(tokenizer.all_special_ids)
        self._lengths: dict[int, list[int]] = {}  # first token -> lengths of its terms, longest first
        for first, length in sorted({(ids[0], len(ids)) for ids in self._number}, reverse=True):
            self._lengths.setdefault(first, []).append(length)

    def __call__(self, text: str, windows: TokenWindows, offsets: Offsets) -> list[TokenIds]:
        return [self._of_window(tuple(ids)) for ids in windows]

    def _of_window(self, ids: tuple[int, ...]) -> TokenIds:
        terms, start = np.full(len(ids), NO_WORD), 0
        while start < len(ids):
            lengths = self._lengths.get(ids[start], ())
            length = next((length for length in lengths if self._is_term(ids[start : start + length])), 0)
            if length:
                terms[start : start + length] = CONTINUES
                terms[start] = self._number[ids[start : start + length]]
            else:
                self.passed_over += ids[start] not in self._special
            start += max(1, length)
        return terms

    def _is_term(self, span: tuple[int, ...]) -> bool:
        return self._special.isdisjoint(span) and span in self._number


def terms_by_tokens(terms: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> dict[tuple[int, ...], int]:
    """Return the number of each term by the tokens that spell it; the last of several terms with the same tokens.

    A term that begins a word is spelled after a space, a continuation ("##ing") without a space. If this gives more
    than SPAN tokens or an unknown token, the term is spelled the other way. Special and unused terms, and terms that
    neither way can spell, have no tokens.
    """
    # A vocabulary marks continuations, such as ##ing, or beginnings of words, such as Ġing.
    pieces = any(term.startswith(CONTINUATION_MARKS) for term in terms)
    marked = not pieces and any(term.startswith(WORD_MARKS) for term in terms)
    special = {*special_columns_of(terms).tolist()}
    spelled: dict[int, tuple[str, str]] = {}  # both ways, the better first
    for number, term in enumerate(terms):
        mark = next((mark for mark in CONTINUATION_MARKS if pieces and term.startswith(mark) and term != mark), "")
        begin = next((mark for mark in WORD_MARKS if marked and term.startswith(mark)), "")
        core, continues = term[len(mark or begin) :], bool(mark) or (marked and not begin)
        if core and number not in special:
            spelled[number] = (core, f" {core}") if continues else (f" {core}", core)
    # Try the better way, then the other way for terms that are left.
    tokens_of: dict[int, tuple[int, ...]] = {}
    for way in (0, 1):
        left = [number for number in spelled if number not in tokens_of]
        encoded = tokenizer([spelled[number][way] for number in left], add_special_tokens=False) if left else {}
        for number, ids in zip(left, encoded.get("input_ids", ()), strict=True):
            if ids and len(ids) <= SPAN and tokenizer.unk_token_id not in ids:
                tokens_of[number] = tuple(ids)
    return {tokens_of[number]: number for number in sorted(tokens_of)}


class SpellingTokens(NamedTuple):
    """The tokens of a text that spell something, in order."""

    places: TokenIds  # [t], among the tokens of all windows
    starts: TokenIds  # [t], the first character of each that is not white space
    ends: TokenIds  # [t], the next character after each
    window: TokenIds  # [t], the window of each, by number


def _spelling_tokens(text: str, windows: TokenWindows, offsets: Offsets, marks: TokenIds) -> SpellingTokens:
    """Find the tokens that spell something: neither special tokens, nor white space, nor one of the bare `marks`."""
    # The tokens of all windows, one after the other: windows, ids, and characters from start to end.
    window = np.repeat(np.arange(len(windows)), [len(ids) for ids in windows])
    ids = np.concatenate([np.asarray(window_ids, dtype=np.int64) for window_ids in windows])
    spans = np.concatenate([np.asarray(pairs, dtype=np.int64).reshape(-1, 2) for pairs in offsets])
    # For each character the next that is not white space: some tokenizers make leading white space part of a token.
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    ink = np.append(~np.isin(characters, WHITE), True)
    following = np.where(ink, np.arange(len(ink)), len(text))
    following = np.minimum.accumulate(following[::-1])[::-1]
    starts, ends = following[spans[:, 0]], spans[:, 1]
    places = np.flatnonzero((starts < ends) & ~np.isin(ids, marks))
    return SpellingTokens(places, starts[places], ends[places], window[places])


class WordCounts(NamedTuple):
    """Counts of whole and cut words of an output vocabulary in a corpus, and of windows without a word."""

    words: int  # whole occurrences in windows
    cut: int  # occurrences that were passed over, because a token or the edge of a window cuts across the word
    without: int  # windows that were passed over, because they have no word


class Windows:
    """Token windows on disk, memory-mapped; windows written with a finder also have a label of each token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._classes: TokenIds | None = None
        # Of all windows, one after the other: "tokens", labels of tokens ("words"), and "offsets" of the windows.
        self._arrays, header = load_arrays(folder / WINDOWS_FILE, WINDOWS, verify=False)
        self.counts = WordCounts(**header["counts"]) if "counts" in header else None

    def __len__(self) -> int:
        return len(self._arrays["offsets"]) - 1

    @property
    def class_count(self) -> int:
        """The number of classes of labelled texts."""
        return 1 + int(self._arrays["words"].max())

    def classify(self, classes: TokenIds) -> None:
        """Give each window a class [windows]; -1 for windows that are not used."""
        self._classes = classes

    def __getitem__(self, index: int) -> TokenIds:
        """Return the ids [s] of a window, including special tokens."""
        return self._part("tokens", index)

    def labels(self, index: int) -> TokenIds | None:
        """Return the labels of a window, if any: its class [1] after `classify`, else a label of each token [s].

        A token has its term, as `masking.whole_words` takes it, or with `LabelFinder` the class of its text.
        """
        if self._classes is not None:
            return self._classes[index : index + 1]
        return self._part("words", index) if "words" in self._arrays else None

    def _part(self, name: str, index: int) -> TokenIds:
        start, end = self._arrays["offsets"][index : index + 2]
        return self._arrays[name][start:end].astype(np.int64)


# The ids of a window [s] and, with a finder, the terms of its tokens [s].
Window: TypeAlias = tuple[NDArray[np.int32], TokenIds | None]


class Cutter(NamedTuple):
    """Cuts texts into windows of at most `length` tokens, and finds the terms of an output vocabulary in them."""

    tokenizer: PreTrainedTokenizerBase
    length: int
    finder: TermFinder | None = None

    def __call__(self, texts: Sequence[str]) -> list[Window]:
        encoded = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.length,
            return_overflowing_tokens=True,
            return_attention_mask=False,
            return_offsets_mapping=self.finder is not None,
        )
        sources, windows = encoded["overflow_to_sample_mapping"], list[Window]()
        for text, group in groupby(range(len(sources)), key=sources.__getitem__):
            members = [*group]
            ids = [encoded["input_ids"][i] for i in members]
            words: Sequence[TokenIds | None] = [None] * len(ids)
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
    """Cut every text into windows of at most `length` tokens, including special tokens, and keep them in `folder`.

    With a finder, windows without a term of the output vocabulary are passed over. If the folder has windows already,
    they are used and the texts are not read. Raises `DataError` if no text gives a window.
    """
    if (folder / WINDOWS_FILE).exists():
        tokenizer("", truncation=True, max_length=length)  # it keeps and saves this setting, as after cutting
        return Windows(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Tokens and words go into temporary files, because a corpus can exceed the memory.
    lengths, words, without = [0], 0, 0
    with TemporaryFile(dir=folder) as tokens_file, TemporaryFile(dir=folder) as words_file:
        for ids, terms in cut_texts(texts, Cutter(tokenizer, length, finder)):
            if terms is not None:
                begun = int((terms >= 0).sum())
                words, without = words + begun, without + (not begun)
                if not begun:
                    continue
                words_file.write(terms.astype(np.int32).tobytes())
            tokens_file.write(ids.tobytes())
            lengths.append(len(ids))
        if len(lengths) == 1:
            lacks = "no text with a word of the output vocabulary" if without else "no text to learn from"
            raise DataError(f"the corpus has {lacks}")
        # Offsets [windows + 1] of the windows in the tokens.
        arrays: dict[str, np.ndarray] = {"offsets": np.cumsum(lengths, dtype=np.int64)}
        arrays["tokens"], header = np.memmap(tokens_file, dtype=np.int32, mode="r"), {}
        if finder is not None:
            arrays["words"] = np.memmap(words_file, dtype=np.int32, mode="r")
            header["counts"] = WordCounts(words, finder.passed_over, without)._asdict()
        save_arrays(folder / WINDOWS_FILE, WINDOWS, arrays, header)
    return Windows(folder)


def cut_texts(
    texts: Iterable[str], cutter: Cutter, *, here: int = HERE, workers: int | None = None
) -> Iterator[Window]:
    """Cut texts into windows: the first `here` batches in this process, the others in `workers` processes.

    By default each core has a worker. Without a finder, this process alone keeps two or three cores busy, because the
    tokenizer runs several threads. Raises `LostProcessError` if a worker has ended.
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


def _cut_in_processes(batches: Iterator[list[str]], cutter: Cutter, workers: int) -> Iterator[Window]:
    waiting: deque[Future[tuple[list[Window], int]]] = deque()
    try:
        with worker_pool(workers, _start_worker, cutter) as pool:
            waiting.extend(pool.submit(_cut_batch, batch) for batch in islice(batches, 2 * workers))
            while waiting:
                windows, passed_over = waiting.popleft().result()
                waiting.extend(pool.submit(_cut_batch, batch) for batch in islice(batches, 1))
                if cutter.finder is not None:
                    cutter.finder.passed_over += passed_over
                yield from windows
    except BrokenExecutor as error:
        raise LostProcessError(f"a process that cuts the corpus has ended: {error}") from error


_cutter: Cutter  # of a worker process


def _start_worker(cutter: Cutter) -> None:
    global _cutter
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _cutter = cutter


def _cut_batch(texts: list[str]) -> tuple[list[Window], int]:
    """Return the windows of texts, and the number of terms that the finder passed over in them."""
    if _cutter.finder is None:
        return _cutter(texts), 0
    _cutter.finder.passed_over = 0
    return _cutter(texts), _cutter.finder.passed_over
