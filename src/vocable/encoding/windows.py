"""Windows of a long text: parts within a model's length that end with a sentence, or else with a word.

Letters: b texts, w windows of all texts, v output terms, d dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

CharacterSpan = tuple[int, int]

OVERLAP = 8  # windows overlap by at most an eighth
SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n")
WORD_PATTERN = re.compile(r"\S+")
INSIDE, TOKEN_START, WORD_START, SENTENCE_START = range(4)  # kinds of starts; larger numbers are preferred


def windows(text: str, tokens: Sequence[CharacterSpan], room: int) -> list[CharacterSpan]:
    """Cut a text into windows of at most `room` tokens that cover the text; `tokens` are the tokens' characters.

    A window ends before the last sentence that begins in its second half, or else before the last word or token that
    does. The next window begins at that end, or up to an eighth of `room` earlier at the first sentence, or else word.

    >>> windows("One two. Three four five.", [(0, 3), (4, 7), (7, 8), (9, 14), (15, 19), (20, 24), (24, 25)], 4)
    [(0, 8), (9, 25)]
    """
    starts, begins = _begins(text, tokens)
    n = len(starts)
    if n <= room:
        return [(0, len(text))]
    spans, first = list[CharacterSpan](), 0
    while True:
        end = n if first + room >= n else _best(begins, first + room // 2 + 1, first + room, last=True)
        start, stop = int(starts[first]), len(text) if end == n else int(starts[end])
        if part := text[start:stop].rstrip():
            spans.append((start, start + len(part)))
        if end == n:
            return spans or [(0, 0)]  # a text of blanks
        first = _best(begins, max(first + 1, end - room // OVERLAP), end, last=False)


def _begins(text: str, tokens: Sequence[CharacterSpan]) -> tuple[np.ndarray, np.ndarray]:
    """Return the start of each token, after its leading blanks, and the kind of start."""
    words = {match.start() for match in WORD_PATTERN.finditer(text)}
    sentences = {match.end() for match in SENTENCE.finditer(text)}
    starts, begins, reached = list[int](), list[int](), 0
    for start, end in tokens:
        while start < end and text[start].isspace():
            start += 1
        kind = SENTENCE_START if start in sentences else WORD_START if start in words else TOKEN_START
        starts.append(start)
        begins.append(kind if reached <= start < end else INSIDE)  # blanks, or a character that several tokens share
        reached = max(reached, end)
    return np.array(starts, dtype=np.int64), np.array(begins, dtype=np.int64)


def _best(begins: np.ndarray, low: int, high: int, *, last: bool) -> int:
    """Return the first or last of the best places from `low` to `high`."""
    places = np.flatnonzero(begins[low : high + 1] == begins[low : high + 1].max())
    return low + int(places[-1 if last else 0])


def maximum(vectors: csr_array, counts: Sequence[int]) -> csr_array:
    """Return the element-wise maximum [b, v] over each text's windows, from vectors [w, v] and counts of windows [b].

    >>> maximum(csr_array(np.array([[1.0, 0.0], [0.5, 2.0], [3.0, 0.0]])), [2, 1]).toarray().tolist()
    [[1.0, 2.0], [3.0, 0.0]]
    """
    b, v = len(counts), vectors.shape[1]
    owners = np.repeat(np.arange(b), counts)
    keys = np.repeat(owners, np.diff(vectors.indptr)) * v + vectors.indices
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    fresh = np.flatnonzero(np.diff(keys, prepend=-1))
    data = np.maximum.reduceat(vectors.data[order], fresh) if len(fresh) else vectors.data
    rows, columns = np.divmod(keys[fresh], v)
    indptr = np.searchsorted(rows, np.arange(b + 1)).astype(np.int32)
    return csr_array((data, columns.astype(np.int32), indptr), shape=(b, v))


def mean_of_windows(dense: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Return unit vectors [b, d], the means over each text's windows, from vectors [w, d] and counts of windows [b].

    >>> mean_of_windows(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]), [3, 1]).round(3).tolist()
    [[0.447, 0.894], [0.0, 0.0]]
    """
    sums = np.add.reduceat(dense, np.cumsum([0, *counts[:-1]]), axis=0)
    return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
