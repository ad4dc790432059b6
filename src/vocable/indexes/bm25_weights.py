"""The weights of BM25: counts of words, and saturating term frequencies.

Letters: n documents, v words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import csr_array

K1, B = 1.2, 0.75


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
    counts = [Counter(word for word in words if word in vocabulary) for words in texts]
    indptr = np.cumsum([0, *map(len, counts)])
    columns = np.array([vocabulary[word] for count in counts for word in count], dtype=np.int32)
    numbers = np.array([number for count in counts for number in count.values()], dtype=np.float32)
    vectors: csr_array = csr_array((numbers, columns, indptr), shape=(len(counts), size or len(vocabulary)))
    vectors.sort_indices()
    return vectors
