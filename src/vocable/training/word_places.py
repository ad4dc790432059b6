"""Where the words of an output vocabulary stand among the tokens of a text: found by their characters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from vocable.adapt.subtokens import bare_marks
from vocable.encoder.splitters import Splitter, normal_form
from vocable.errors import ModelError
from vocable.training.masking import GOES_ON, NO_WORD


class WordPlaces:
    """Finds words in texts that are cut into tokens, and counts in `cut` those that it passes over.

    A word is whole where tokens of one window have its characters and no other ones but white space. A tokenizer may
    cut across words (a token for "don't", or for the end of one word and the beginning of the next), and a window may
    end within one: such words are passed over.

    Args:
        terms: the words, by their numbers. Of two that are the same to the tokenizer the first counts.
        tokenizer: what the model reads with.
        split: what a word of a text is.

    Raises:
        ModelError: a tokenizer without a backend of the `tokenizers` library, which alone knows the places of tokens.
    """

    def __init__(self, terms: Sequence[str], tokenizer: PreTrainedTokenizerBase, split: Splitter) -> None:
        if not tokenizer.is_fast:
            raise ModelError(f"{type(tokenizer).__name__} does not say where its tokens stand: save it as a fast one")
        normalize = normal_form(tokenizer)
        self._number: dict[str, int] = {}
        for number, term in enumerate(terms):
            self._number.setdefault(normalize(term), number)
        self._split, self._marks = split, np.array(sorted(bare_marks(tokenizer)))
        self.cut = 0

    def __call__(
        self, text: str, windows: Sequence[Sequence[int]], offsets: Sequence[Sequence[tuple[int, int]]]
    ) -> list[NDArray[np.int64]]:
        """Which word each token of a text belongs to, as `masking.whole_words` takes it.

        Args:
            text: n characters.
            windows: the text's tokens, in order; window i is [s_i] ids, special ones included.
            offsets: for each token its characters in the text, from and to.

        Returns:
            [s_i] for each window.
        """
        lengths = [len(window) for window in windows]
        found = np.full(sum(lengths), NO_WORD)
        words = list(self._split(text))
        numbers = np.array([self._number.get(word, -1) for word, _, _ in words], dtype=np.int64)
        spans = np.array([(start, end) for _, start, end in words], dtype=np.int64).reshape(-1, 2)
        window = np.repeat(np.arange(len(windows)), lengths)
        tokens, starts, ends = self._spelling(text, windows, offsets)
        # The tokens of a word are those from the first that reaches into it to the last that begins before its end.
        low = np.searchsorted(ends, spans[:, 0], side="right")
        high = np.searchsorted(starts, spans[:, 1], side="left") - 1
        whole = (low <= high) & _apart(spans)
        low, high = np.where(whole, low, 0), np.where(whole, high, 0)
        if len(tokens):
            whole &= (starts[low] >= spans[:, 0]) & (ends[high] <= spans[:, 1])
            whole &= (tokens[high] - tokens[low] == high - low) & (window[tokens[low]] == window[tokens[high]])
        for place in np.flatnonzero(whole & (numbers >= 0)):
            begin, end = tokens[low[place]], tokens[high[place]]
            found[begin : end + 1] = GOES_ON
            found[begin] = numbers[place]
        self.cut += int((~whole & (numbers >= 0)).sum())
        return np.split(found, np.cumsum(lengths)[:-1])

    def _spelling(
        self, text: str, windows: Sequence[Sequence[int]], offsets: Sequence[Sequence[tuple[int, int]]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The places [t] of the tokens that spell something, and their characters, from [t] and to [t].

        White space in front of a token's first character does not count: some tokenizers make it part of the token.
        """
        ids = np.concatenate([np.asarray(window, dtype=np.int64) for window in windows])
        places = np.concatenate([np.asarray(pairs, dtype=np.int64).reshape(-1, 2) for pairs in offsets])
        ink = np.array([*(not character.isspace() for character in text), True])
        following = np.where(ink, np.arange(len(ink)), len(text))  # the next character that is no white space
        following = np.minimum.accumulate(following[::-1])[::-1]
        starts, ends = following[places[:, 0]], places[:, 1]
        tokens = np.flatnonzero((starts < ends) & ~np.isin(ids, self._marks))
        return tokens, starts[tokens], ends[tokens]


def _apart(spans: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which words [w] share no character with a neighbour: normalization makes two words of "½"."""
    apart = np.ones(len(spans) + 1, dtype=np.bool_)  # before each word, and after the last
    apart[1:-1] = spans[1:, 0] >= spans[:-1, 1]
    found: NDArray[np.bool_] = apart[:-1] & apart[1:]
    return found
