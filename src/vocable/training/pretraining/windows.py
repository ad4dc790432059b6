"""A corpus as token windows on disk, the words of an output vocabulary among their tokens, and which tokens to mask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from vocable.adapt.alignment import bare_marks
from vocable.arrays import HEADER, load_arrays, save_arrays
from vocable.encoder.terms import (
    BATCH,
    REMEMBERED,
    WORD_MARKS,
    Splitter,
    normal_form,
    splitter,
    without_accents,
)
from vocable.errors import DataError, ModelError

IGNORED = -100  # the label of a token that is not to be guessed, torch's own convention
SPAN = 8  # tokens of a span that spells a term, at most
CONTINUATION = "##"
WHITE = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype=np.uint32)  # none is beyond
NO_WORD, GOES_ON = -1, -2  # in place of a word's number: a token of no word, and a later sub-token of one

Part = Literal["all", "first", "later"]


class Masked(NamedTuple):
    """A text prepared for guessing: what the model sees and what it should have seen, both [s] int64."""

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]


def mask_tokens(
    ids: NDArray[np.int64], probabilities: NDArray[np.float64], rng: np.random.Generator, *, mask_id: int, size: int
) -> Masked:
    """Choose tokens with the probabilities [s]; of the chosen, 80 % become [MASK], 10 % random, 10 % stay.

    Random tokens are drawn from range(size). At least one token is chosen, so that no text is without a loss, unless
    all probabilities are 0, which is that of a token never chosen.
    """
    draws, possible = rng.random(len(ids)), probabilities > 0
    chosen = draws < probabilities
    if not chosen.any() and possible.any():  # take the one that came nearest
        chosen[np.where(possible, draws / np.where(possible, probabilities, 1.0), np.inf).argmin()] = True
    masked = _replaced(ids, chosen, rng.random(len(ids)), rng, mask_id, size)
    return Masked(masked, np.where(chosen, ids, IGNORED))


def _replaced(
    ids: NDArray[np.int64],
    hidden: NDArray[np.bool_],
    fate: NDArray[np.float64],
    rng: np.random.Generator,
    mask_id: int,
    size: int,
) -> NDArray[np.int64]:
    """The tokens with the hidden ones replaced, or not, as the fate of each has it, a number from 0 to 1."""
    random = rng.integers(size, size=len(ids))
    masked = np.where(hidden & (fate < 0.8), mask_id, ids)
    return np.where(hidden & (fate >= 0.8) & (fate < 0.9), random, masked)


def overlap_aware(
    special: NDArray[np.bool_], new: NDArray[np.bool_], rate: float, weight: float = 2.0
) -> NDArray[np.float64]:
    """Probabilities [s] by which new tokens are masked `weight` times as often as shared ones, and `rate` on average.

    min(1, c) for shared and min(1, c weight) for new tokens, c such that their mean over the ordinary tokens is the
    rate; 0 for special ones. What one kind has no room for goes to the other, so that a text of new tokens only is
    masked as often as any other.

    The overlap-aware masking of "Why Advanced Encoders Lag on Sparse Retrieval?" (§4.2.3), which gives the weights 1
    and lambda; that the rate of every text stays the same is our reading.
    """
    tokens, of_new = int((~special).sum()), int((new & ~special).sum())
    of_shared = tokens - of_new
    chosen = rate * tokens  # how many of either kind are chosen on average
    chosen_new = min(of_new, chosen * weight * of_new / max(weight * of_new + of_shared, 1e-9))
    chosen_shared = min(of_shared, chosen - chosen_new)
    chosen_new = chosen - chosen_shared
    probabilities = np.where(new, chosen_new / max(of_new, 1), chosen_shared / max(of_shared, 1))
    return np.where(special, 0.0, probabilities)


def whole_words(
    ids: NDArray[np.int64],
    words: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    rate: float,
    mask_id: int,
    size: int,
    part: Part = "all",
) -> Masked:
    """Choose floor(rate n) of the n words of a text, but at least one; every hidden token has the label of its word.

    The masking of "The Pre-Training Study of Expanded-SPLADE Models" (appendix B.2): the number of words is fixed. Of
    the chosen words 80 % become [MASK], 10 % random tokens, 10 % stay; that this is drawn once for a word and done to
    all of its sub-tokens is our reading.

    Args:
        words: [s], for each token the number of the word that begins there, `GOES_ON` for the later sub-tokens of that
            word, `NO_WORD` for all others.
        rate: share of the words, in (0, 1].
        mask_id, size: as in `mask_tokens`.
        part: "all" sub-tokens of a chosen word are hidden, or only its "first", or only the "later" ones. For the last
            two, the n words are those of several sub-tokens.

    Without such a word nothing is hidden.
    """
    begins = np.flatnonzero(words >= 0)
    place = np.cumsum(words >= 0) - 1  # which of the words a token belongs to, where it belongs to one
    lengths = np.bincount(place[words != NO_WORD], minlength=len(begins))
    candidates = np.flatnonzero(lengths > (0 if part == "all" else 1))
    if not len(candidates):
        return Masked(ids, np.full(len(ids), IGNORED))
    # 0.15 of 100 is a little less than 15 in binary, in some order or other
    count = max(1, int(rate * len(candidates) + 1e-9))
    chosen = rng.choice(candidates, size=count, replace=False)
    fate = np.full(len(begins), np.inf)  # of those that are not chosen
    fate[chosen] = rng.random(len(chosen))
    hidden = (words != NO_WORD) & np.isfinite(fate[place])
    if part != "all":
        hidden &= (words >= 0) == (part == "first")
    labels = np.where(hidden, words[begins][place], IGNORED)
    return Masked(_replaced(ids, hidden, fate[place], rng, mask_id, size), labels)


class WordAlignment:
    """Finds words in texts that are cut into tokens, and counts in `cut` those that it passes over.

    A word is whole where tokens of one window have its characters and no other ones but white space. Where a token or
    the edge of a window cuts across a word, it is passed over.

    The words are `terms`, by their numbers; of two that are the same to the tokenizer the first counts. `split` is a
    splitter or its name.

    Raises:
        ModelError: a tokenizer without a backend of the `tokenizers` library, which alone knows the places of tokens.
    """

    def __init__(self, terms: Sequence[str], tokenizer: PreTrainedTokenizerBase, split: Splitter | str) -> None:
        if not tokenizer.is_fast:
            raise ModelError(f"{type(tokenizer).__name__} does not say where its tokens stand: save it as a fast one")
        self.terms, self.splitter = list(terms), split if isinstance(split, str) else ""
        split = splitter(tokenizer, split) if isinstance(split, str) else split
        normalize = normal_form(tokenizer)
        self._number: dict[str, int] = {}
        for number, term in enumerate(terms):
            self._number.setdefault(normalize(term), number)
        self._split, self._marks = split, np.array(sorted(bare_marks(tokenizer)))
        self.cut = 0

    def __call__(
        self, text: str, windows: Sequence[Sequence[int]], offsets: Sequence[Sequence[tuple[int, int]]]
    ) -> list[NDArray[np.int64]]:
        """Which word each token of a text belongs to, as `whole_words` takes it: [s_i] for each window.

        Args:
            windows: the text's tokens, in order; window i is [s_i] ids, special ones included.
            offsets: for each token its characters in the text, from and to.
        """
        words = list(self._split(text))
        numbers = np.array([self._number.get(word, -1) for word, _, _ in words], dtype=np.int64)
        spans = np.array([(start, end) for _, start, end in words], dtype=np.int64).reshape(-1, 2)
        tokens, starts, ends, window = _spelling(text, windows, offsets, self._marks)
        found = np.full(len(window), NO_WORD)
        # The tokens of a word are those from the first that reaches into it to the last that begins before its end.
        low = np.searchsorted(ends, spans[:, 0], side="right")
        high = np.searchsorted(starts, spans[:, 1], side="left") - 1
        apart = np.ones(len(spans) + 1, dtype=np.bool_)  # before each word, and after the last: "½" becomes two words
        apart[1:-1] = spans[1:, 0] >= spans[:-1, 1]
        whole = (low <= high) & apart[:-1] & apart[1:]
        low, high = np.where(whole, low, 0), np.where(whole, high, 0)
        if len(tokens):
            whole &= (starts[low] >= spans[:, 0]) & (ends[high] <= spans[:, 1])
            whole &= (tokens[high] - tokens[low] == high - low) & (window[tokens[low]] == window[tokens[high]])
        for place in np.flatnonzero(whole & (numbers >= 0)):
            begin, end = tokens[low[place]], tokens[high[place]]
            found[begin : end + 1] = GOES_ON
            found[begin] = numbers[place]
        self.cut += int((~whole & (numbers >= 0)).sum())
        return _by_window(found, windows)


class SpanAlignment:
    """Finds terms that are tokens of another tokenizer: from left to right the longest span of tokens that spells one.

    A span has SPAN tokens at most, of one window, and no white space. Within a word it is a continuation ("##ing"), or
    else a beginning, with the mark of one where terms have it ("Ġplay"); spelled as it stands, in lower case, or
    without accents. `cut` counts the tokens that no term spells. Arguments and errors are those of `WordAlignment`.

    This is what the authors of Geng and Yang 2026 label in their comparison with Kim et al. 2026 (table 6).
    """

    def __init__(self, terms: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.is_fast:
            raise ModelError(f"{type(tokenizer).__name__} does not say where its tokens stand: save it as a fast one")
        self.terms = list(terms)
        pieces = any(term.startswith(CONTINUATION) for term in terms)
        marked = any(term[:1] in WORD_MARKS[1:] for term in terms)
        self._beginnings = WORD_MARKS[::-1] if marked and not pieces else ("",)
        self._continuations = (CONTINUATION,) if pieces else ("",) if marked else ()
        self._number = {term: number for number, term in reversed([*enumerate(terms)])}
        self._marks, self.cut = np.array(sorted(bare_marks(tokenizer))), 0
        self._number_of = lru_cache(REMEMBERED)(self._look_up)

    def __call__(
        self, text: str, windows: Sequence[Sequence[int]], offsets: Sequence[Sequence[tuple[int, int]]]
    ) -> list[NDArray[np.int64]]:
        """Which term each token of a text belongs to, as `whole_words` takes it: [s_i] for each window."""
        tokens, starts, ends, window = _spelling(text, windows, offsets, self._marks)
        found = np.full(len(window), NO_WORD)
        joined = (ends[:-1] == starts[1:]) & (np.diff(tokens) == 1) & (np.diff(window[tokens]) == 0)
        # For each token the place after the last that may stand in a span with it.
        breaks = np.append(np.flatnonzero(~joined) + 1, len(tokens))
        limit = np.minimum(breaks[np.searchsorted(breaks, np.arange(len(tokens)), side="right")], len(tokens))
        place = 0
        while place < len(tokens):
            start = int(starts[place])
            goes_on = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
            for last in range(min(place + SPAN, int(limit[place])) - 1, place - 1, -1):
                if (number := self._number_of(text[start : int(ends[last])], goes_on)) is not None:
                    found[tokens[place] : tokens[last] + 1] = GOES_ON
                    found[tokens[place]] = number
                    place = last
                    break
            else:
                self.cut += 1
            place += 1
        return _by_window(found, windows)

    def _look_up(self, span: str, goes_on: bool) -> int | None:
        lower = span.lower()
        marks = self._continuations if goes_on else self._beginnings
        spelled = (mark + form for form in (span, lower, without_accents(lower)) for mark in marks)
        return next((self._number[form] for form in spelled if form in self._number), None)


def _spelling(
    text: str,
    windows: Sequence[Sequence[int]],
    offsets: Sequence[Sequence[tuple[int, int]]],
    marks: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The places [t] of the tokens that spell something, their characters from [t] to [t], and each token's window [s].

    White space in front of a token's first character does not count: some tokenizers make it part of the token.
    """
    window = np.repeat(np.arange(len(windows)), [len(ids) for ids in windows])
    ids = np.concatenate([np.asarray(some, dtype=np.int64) for some in windows])
    places = np.concatenate([np.asarray(pairs, dtype=np.int64).reshape(-1, 2) for pairs in offsets])
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    ink = np.append(~np.isin(characters, WHITE), True)
    following = np.where(ink, np.arange(len(ink)), len(text))  # the next character that is no white space
    following = np.minimum.accumulate(following[::-1])[::-1]
    starts, ends = following[places[:, 0]], places[:, 1]
    tokens = np.flatnonzero((starts < ends) & ~np.isin(ids, marks))
    return tokens, starts[tokens], ends[tokens], window


def _by_window(found: NDArray[np.int64], windows: Sequence[Sequence[int]]) -> list[NDArray[np.int64]]:
    return np.split(found, np.cumsum([len(ids) for ids in windows])[:-1])


WINDOWS = "token windows"
SHORTEST = 16  # a shorter tail of a longer text says too little to learn from


class WordCounts(NamedTuple):
    """What became of the words of an output vocabulary in a corpus."""

    words: int  # occurrences in windows, each of them whole
    cut: int  # occurrences passed over: a token or the edge of a window does not end where the word does
    without: int  # windows passed over: they have no word


class Windows:
    """Token windows on disk, memory-mapped; with those written for an output vocabulary, the words of their tokens."""

    def __init__(self, folder: Path) -> None:
        self._arrays, header = load_arrays(folder, WINDOWS, verify=False)
        self.counts = WordCounts(**header["counts"]) if "counts" in header else None

    def __len__(self) -> int:
        return len(self._arrays["offsets"]) - 1

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """The ids [s] of one window, special tokens included."""
        return self._part("tokens", index)

    def words(self, index: int) -> NDArray[np.int64] | None:
        """Which word each token [s] of one window belongs to, as `whole_words` takes it; None without words."""
        return self._part("words", index) if "words" in self._arrays else None

    def _part(self, name: str, index: int) -> NDArray[np.int64]:
        start, end = self._arrays["offsets"][index : index + 2]
        return self._arrays[name][start:end].astype(np.int64)


# A window [s] and, where words are found, those of its tokens.
Cut: TypeAlias = tuple[list[int] | NDArray[Any], NDArray[Any] | None]


def write_windows(
    folder: Path,
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    places: WordAlignment | SpanAlignment | None = None,
    *,
    cutting: Callable[..., Iterator[Cut]] | None = None,
) -> Windows:
    """Cut every text into windows of at most `length` tokens, special tokens included, and keep them in `folder`.

    With `places`, which finds the words of an output vocabulary, windows without such a word are passed over. Windows
    that are there already are used as they are, and the texts not read. `cutting` does the work in place of `cut`.

    Raises:
        DataError: no text gave a window.
    """
    if (folder / HEADER).exists():
        tokenizer("", truncation=True, max_length=length)  # which it keeps, and is saved with, as where it has cut
        return Windows(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lengths, words, without = [0], 0, 0
    with TemporaryFile(dir=folder.parent) as tokens_file, TemporaryFile(dir=folder.parent) as words_file:
        for ids, found in (cutting or cut)(texts, tokenizer, length, places):
            if found is not None:
                begun = int((found >= 0).sum())
                words, without = words + begun, without + (not begun)
                if not begun:
                    continue
                words_file.write(found.astype(np.int32).tobytes())
            tokens_file.write(np.asarray(ids, dtype=np.int32).tobytes())
            lengths.append(len(ids))
        if len(lengths) == 1:
            lacks = "no text with a word of the output vocabulary" if without else "no text to learn from"
            raise DataError(f"the corpus has {lacks}")
        arrays: dict[str, np.ndarray] = {"offsets": np.cumsum(lengths, dtype=np.int64)}
        arrays["tokens"], header = np.memmap(tokens_file, dtype=np.int32, mode="r"), {}
        if places is not None:
            arrays["words"] = np.memmap(words_file, dtype=np.int32, mode="r")
            header["counts"] = WordCounts(words, places.cut, without)._asdict()
        save_arrays(folder, WINDOWS, arrays, header)
    return Windows(folder)


def cut(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    places: WordAlignment | SpanAlignment | None = None,
) -> Iterator[Cut]:
    """Windows [s] of the texts and, with `places`, the words of their tokens [s]."""
    for batch in batches(texts):
        yield from cut_batch(batch, tokenizer, length, places)


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts that are not empty, some at a time."""
    nonempty = (text for text in texts if text.strip())
    while batch := list(islice(nonempty, BATCH)):
        yield batch


def cut_batch(
    batch: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    places: WordAlignment | SpanAlignment | None = None,
) -> list[Cut]:
    """What `cut` makes of some texts."""
    encoded = tokenizer(
        list(batch),
        truncation=True,
        max_length=length,
        return_overflowing_tokens=True,
        return_attention_mask=False,
        return_offsets_mapping=places is not None,
    )
    sources, windows = encoded["overflow_to_sample_mapping"], list[Cut]()
    for text, group in groupby(range(len(sources)), key=sources.__getitem__):
        members = [*group]
        ids = [encoded["input_ids"][i] for i in members]
        words: Sequence[NDArray[np.int64] | None] = [None] * len(ids)
        if places is not None:
            words = places(batch[text], ids, [encoded["offset_mapping"][i] for i in members])
        windows += [
            (window, words[number]) for number, window in enumerate(ids) if number == 0 or len(window) >= SHORTEST
        ]
    return windows
