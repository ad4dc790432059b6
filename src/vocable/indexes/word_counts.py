"""Counts of words, as numbers: each distinct word of many texts is kept as a string only once; the weights of BM25.

Letters: n texts, v words.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from vocable.core.progress import track
from vocable.language.languages import language_of
from vocable.language.words import counted_words

K1, B = 1.2, 0.75
TEXTS_AT_ONCE = 2_048  # texts whose words are strings at the same time
NO_COLUMN = -1  # of a word that the vocabulary does not have
ENTRIES = 1 << 22  # entries of a matrix that are changed at a time


def term_frequency_weights(
    counts: csr_array, lengths: np.ndarray, mean: float, k1: float = K1, b: float = B
) -> np.ndarray:
    """Return tf / (tf + k1 (1 - b + b length / mean)) for the counts [n, v] of words in n texts, float64 [nonzeros].

    >>> term_frequency_weights(csr_array(np.array([[1.0, 2.0]])), np.array([3]), 3.0).round(3).tolist()
    [0.455, 0.625]
    """
    norms = k1 * ((1 - b) + b * lengths / mean)
    return counts.data / (np.repeat(norms, np.diff(counts.indptr)) + counts.data)


def count_words(texts: Sequence[Sequence[str]], vocabulary: Mapping[str, int], size: int | None = None) -> csr_array:
    """Count the words of the vocabulary {word: column} in n lists of words, csr_array [n, v].

    >>> count_words([["cat", "sat", "cat"], ["owl"]], {"cat": 0, "dog": 1, "sat": 2}).toarray().tolist()
    [[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    columns = np.fromiter((vocabulary.get(word, NO_COLUMN) for words in texts for word in words), np.int32)
    known = columns != NO_COLUMN
    indptr = np.concatenate([[0], np.cumsum(known)])[np.cumsum([0, *map(len, texts)])]
    shape = len(texts), size or len(vocabulary)
    counts: csr_array = csr_array((np.ones(indptr[-1], np.float32), columns[known], indptr), shape=shape)
    counts.sum_duplicates()
    return counts


class CountedTexts(NamedTuple):
    """The `vocabulary` {word: column}, the `counts` csr_array [n, v], and the words of each text, `lengths` int64 [n].

    Lengths count all words except stop words, whether the vocabulary has them or not.
    """

    vocabulary: Mapping[str, int]
    counts: csr_array
    lengths: np.ndarray


def count_texts(
    texts: Sequence[str], language: str, vocabulary: Mapping[str, int] | None = None, progress: bool = False
) -> CountedTexts:
    """Count the stemmed words (`stemmed`) of n texts that a vocabulary has, by default all words, sorted.

    >>> counted = count_texts(["The cat sat on a cat.", "Owls"], "english")
    >>> dict(counted.vocabulary), counted.counts.toarray().tolist(), counted.lengths.tolist()
    ({'cat': 0, 'owl': 1, 'sat': 2}, [[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [3, 1])
    """
    spoken = language_of(language)
    columns = dict[str, int]() if vocabulary is None else vocabulary
    # Arrays of a CSR matrix that grow text by text, at 4 or 8 bytes an entry.
    column_of: dict[str, int] = {}  # column of each spelling
    indices, numbers, indptr, lengths = array("i"), array("f"), array("q", [0]), array("q")
    starts_of_parts = range(0, len(texts), TEXTS_AT_ONCE)
    for start in track(starts_of_parts, "words") if progress else starts_of_parts:
        words_of_texts = counted_words(texts[start : start + TEXTS_AT_ONCE], language)
        # Stem each spelling once; several spellings share a column.
        new = [word for word in dict.fromkeys(chain.from_iterable(words_of_texts)) if word not in column_of]
        for word, stem in zip(new, spoken.stems(new), strict=True):
            if vocabulary is None:
                columns.setdefault(stem, len(columns))  # type: ignore[attr-defined]
            column_of[word] = columns.get(stem, NO_COLUMN)
        part = count_words(words_of_texts, column_of, len(columns))
        indices.frombytes(part.indices.astype(np.int32, copy=False).tobytes())
        numbers.frombytes(part.data.tobytes())
        indptr.extend((part.indptr[1:].astype(np.int64) + indptr[-1]).tolist())
        lengths.extend(map(len, words_of_texts))
    starts = _view(indptr, np.int64)
    if len(indices) <= np.iinfo(np.int32).max:  # SciPy takes the wider type for both
        starts = starts.astype(np.int32)
    arrays = _view(numbers, np.float32), _view(indices, np.int32), starts
    # A new vocabulary is in the order of the texts: sort it, and renumber the columns.
    if vocabulary is None:
        columns = _sort(columns, arrays[1])
    counts = csr_array(arrays, shape=(len(texts), len(columns)))
    counts.sort_indices()
    return CountedTexts(columns, counts, _view(lengths, np.int64))


def _sort(columns: Mapping[str, int], indices: np.ndarray) -> dict[str, int]:
    """Return the columns of the words in alphabetical order, and replace the old columns in `indices`."""
    ordered = sorted(columns)
    new = np.empty(len(ordered), np.int32)
    new[[columns[word] for word in ordered]] = np.arange(len(ordered), dtype=np.int32)
    for start in range(0, len(indices), ENTRIES):
        indices[start : start + ENTRIES] = new[indices[start : start + ENTRIES]]
    return {word: column for column, word in enumerate(ordered)}


def _view(values: array[float] | array[int], kind: type[np.generic]) -> np.ndarray:
    return np.frombuffer(values, kind) if len(values) else np.empty(0, kind)
