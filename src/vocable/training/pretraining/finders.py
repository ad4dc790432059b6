"""Finders: the terms of an output vocabulary among the tokens of a text.

Letters: s tokens of a window, t tokens of a text that spell something.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from transformers import PreTrainedTokenizerBase

from vocable.encoder.terms import CACHED_WORDS, Splitter, normal_form, splitter, without_accents
from vocable.encoder.tokens import CONTINUATION_MARKS, WORD_MARKS, bare_marks
from vocable.errors import ModelError
from vocable.training.pretraining.masking import CONTINUES, NO_WORD, Ids

TokenWindows: TypeAlias = Sequence[Sequence[int]]
Offsets: TypeAlias = Sequence[Sequence[tuple[int, int]]]  # for each token its first and last character

SPAN = 8  # tokens of a span that spells a term, at most
WHITE = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype=np.uint32)  # none is beyond


class TermFinder(ABC):
    """Finds the `terms` of an output vocabulary in a text that is cut into token windows.

    `cut` counts what was passed over. A finder can be pickled, and then begins to count anew.

    Raises:
        ModelError: the tokenizer has no backend of the `tokenizers` library, which alone reports token offsets.
    """

    def __init__(self, terms: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.is_fast:
            raise ModelError(f"{type(tokenizer).__name__} does not report token offsets: save it as a fast tokenizer")
        self.terms, self._tokenizer = list(terms), tokenizer
        self._marks = np.array(sorted(bare_marks(tokenizer)))
        self.cut = 0

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.terms, self._tokenizer)

    @abstractmethod
    def __call__(self, text: str, windows: TokenWindows, offsets: Offsets) -> list[Ids]:
        """Return the term that each token belongs to, as `whole_words` takes it: [s_i] for window i.

        Args:
            windows: the text's tokens, in order; window i is [s_i] ids, special tokens included.
            offsets: for each token its characters in the text, from and to.
        """


class WordFinder(TermFinder):
    """Finds words whose characters are spelled by whole tokens of one window, and by no other characters but spaces.

    A word that a token or the edge of a window cuts across is passed over. Terms that are the same to the tokenizer
    count as the first of them. `split` is a splitter or its name; only a named one can be pickled.
    """

    def __init__(self, terms: Sequence[str], tokenizer: PreTrainedTokenizerBase, split: Splitter | str) -> None:
        super().__init__(terms, tokenizer)
        self._given = split
        self._split = splitter(tokenizer, split) if isinstance(split, str) else split
        normalize = normal_form(tokenizer)
        self._number: dict[str, int] = {}
        for number, term in enumerate(terms):
            self._number.setdefault(normalize(term), number)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.terms, self._tokenizer, self._given)

    def __call__(self, text: str, windows: TokenWindows, offsets: Offsets) -> list[Ids]:
        words = list(self._split(text))
        numbers = np.array([self._number.get(word, -1) for word, _, _ in words], dtype=np.int64)
        spans = np.array([(start, end) for _, start, end in words], dtype=np.int64).reshape(-1, 2)
        tokens, starts, ends, window = _spelling(text, windows, offsets, self._marks)
        found = np.full(len(window), NO_WORD)
        # A word has the tokens from the first that reaches into it to the last that begins before its end.
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
            found[begin : end + 1] = CONTINUES
            found[begin] = numbers[place]
        self.cut += int((~whole & (numbers >= 0)).sum())
        return _by_window(found, windows)


class SpanFinder(TermFinder):
    """Finds terms that are tokens of another tokenizer: from left to right the longest span of tokens that spells one.

    A span has at most SPAN tokens, of one window, and no white space. Within a word it is a continuation ("##ing"),
    elsewhere a beginning, with its mark if terms have one ("Ġplay"); spelled as it stands, in lower case, or without
    accents. `cut` counts the tokens that no term spells.

    The authors of Geng and Yang 2026 label these spans in their comparison with Kim et al. 2026 (table 6).
    """

    def __init__(self, terms: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(terms, tokenizer)
        pieces = any(term.startswith(CONTINUATION_MARKS) for term in terms)
        marked = any(term.startswith(WORD_MARKS) for term in terms)
        self._beginnings = (*WORD_MARKS[::-1], "") if marked and not pieces else ("",)
        self._continuations = CONTINUATION_MARKS if pieces else ("",) if marked else ()
        self._number = {term: number for number, term in reversed([*enumerate(terms)])}
        self._number_of = lru_cache(CACHED_WORDS)(self._look_up)

    def __call__(self, text: str, windows: TokenWindows, offsets: Offsets) -> list[Ids]:
        tokens, starts, ends, window = _spelling(text, windows, offsets, self._marks)
        found = np.full(len(window), NO_WORD)
        joined = (ends[:-1] == starts[1:]) & (np.diff(tokens) == 1) & (np.diff(window[tokens]) == 0)
        # For each token the end of the longest span that may begin with it.
        breaks = np.append(np.flatnonzero(~joined) + 1, len(tokens))
        limit = np.minimum(breaks[np.searchsorted(breaks, np.arange(len(tokens)), side="right")], len(tokens))
        place = 0
        while place < len(tokens):
            start = int(starts[place])
            continues = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
            for last in range(min(place + SPAN, int(limit[place])) - 1, place - 1, -1):
                if (number := self._number_of(text[start : int(ends[last])], continues)) is not None:
                    found[tokens[place] : tokens[last] + 1] = CONTINUES
                    found[tokens[place]] = number
                    place = last
                    break
            else:
                self.cut += 1
            place += 1
        return _by_window(found, windows)

    def _look_up(self, span: str, continues: bool) -> int | None:
        lower = span.lower()
        marks = self._continuations if continues else self._beginnings
        spelled = (mark + form for form in (span, lower, without_accents(lower)) for mark in marks)
        return next((self._number[form] for form in spelled if form in self._number), None)


def _spelling(
    text: str,
    windows: TokenWindows,
    offsets: Offsets,
    marks: Ids,
) -> tuple[Ids, Ids, Ids, Ids]:
    """Return the positions [t] of tokens that spell something, their first and last characters [t], all windows [s].

    Leading white space of a token does not count: some tokenizers make it part of the token.
    """
    window = np.repeat(np.arange(len(windows)), [len(ids) for ids in windows])
    ids = np.concatenate([np.asarray(some, dtype=np.int64) for some in windows])
    places = np.concatenate([np.asarray(pairs, dtype=np.int64).reshape(-1, 2) for pairs in offsets])
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    ink = np.append(~np.isin(characters, WHITE), True)
    following = np.where(ink, np.arange(len(ink)), len(text))  # the next character that is not white space
    following = np.minimum.accumulate(following[::-1])[::-1]
    starts, ends = following[places[:, 0]], places[:, 1]
    tokens = np.flatnonzero((starts < ends) & ~np.isin(ids, marks))
    return tokens, starts[tokens], ends[tokens], window


def _by_window(found: Ids, windows: TokenWindows) -> list[Ids]:
    return np.split(found, np.cumsum([len(ids) for ids in windows])[:-1])
