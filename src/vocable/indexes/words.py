"""Posting lists of words with their counts. BM25's weights are computed from these for the collection as it is.

The weight of a word in a document, idf tf / (tf + k1 (1 - b + b length / mean length)), changes with every document of
the collection. Stored are only the counts and the lengths. `WeighedWords` computes the weights of a word when a query
first has it, as `BM25Index` computes all, so that scores are the same to the last bit.

Letters: n documents, v words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import csr_array

from vocable.core.arrays import Strings, typed
from vocable.core.storage import StrPath
from vocable.errors import VectorsError
from vocable.indexes.exact_numpy import WINDOW_SIZE, windows_of
from vocable.indexes.postings import WRONG, Postings
from vocable.indexes.word_counts import K1, B, count_texts

COUNTS = (np.uint8, np.uint16, np.uint32)


class WordPostings:
    """Counts of the words of n documents: a posting list for each word of a sorted `vocabulary`, and `lengths` [n]."""

    def __init__(self, vocabulary: Strings, postings: Postings, lengths: np.ndarray) -> None:
        self.vocabulary, self.postings, self.lengths = vocabulary, postings, lengths
        self._columns: dict[str, int] = {}

    @classmethod
    def of(cls, texts: Sequence[str], language: str) -> WordPostings:
        """Count the stemmed words of n texts."""
        vocabulary, counts, lengths = count_texts(texts, language)
        return cls.counted(Strings(vocabulary), counts, lengths)

    @classmethod
    def counted(cls, vocabulary: Strings, counts: csr_array, lengths: np.ndarray) -> WordPostings:
        """Return the posting lists of `counts` [n, v], with the words of each text, `lengths` int64 [n]."""
        kind = next(kind for kind in COUNTS if counts.data.max(initial=0) <= np.iinfo(kind).max)
        starts, places, numbers = Postings.of(counts).lists
        postings = Postings((starts, places, numbers.astype(kind)), counts.shape)
        return cls(vocabulary, postings, lengths.astype(np.int32))

    def __len__(self) -> int:
        return len(self.postings)

    def column(self, word: str) -> int:
        """Return the column of a stemmed word, or -1."""
        if (column := self._columns.get(word)) is None:
            column = self._columns[word] = self.vocabulary.find(word)
        return column

    def starting(self, initials: str) -> range | list[int]:
        """Return the columns of the words that begin with one of these letters."""
        columns = list[int]()
        for initial in sorted(set(initials)):
            first = self._place(initial)
            columns += range(first, self._place(f"{initial}\U0010ffff"))
        return columns

    def _place(self, word: str) -> int:
        """Return the number of words that are smaller."""
        low, high, wanted = 0, len(self.vocabulary), word.encode()
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.vocabulary.encoded(middle) < wanted else (low, middle)
        return low

    def counts(self) -> csr_array:
        """Return the counts of all words, csr_array [n, v]."""
        return self.postings.get()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to store."""
        named = zip(("starts", "places", "counts"), self.postings.lists, strict=True)
        lists = {f"word_{name}": array for name, array in named}
        return lists | {"word_lengths": self.lengths} | self.vocabulary.arrays("words")

    @classmethod
    def stored(
        cls, arrays: Mapping[str, np.ndarray], n: int, place: StrPath, *, verified: bool = False
    ) -> WordPostings:
        """Return the posting lists of n documents in stored arrays; raise `VectorsError` if they do not fit together.

        Contents that were `verified` before are not read again.
        """
        vocabulary = Strings.stored("words", arrays, place, verified=verified)
        starts, lengths = typed(arrays, "word_starts", np.int64, place), typed(arrays, "word_lengths", np.int32, place)
        places, counts = typed(arrays, "word_places", np.uint16, place), arrays.get("word_counts", np.empty(0))
        fits = counts.dtype in map(np.dtype, COUNTS) and counts.ndim == 1 and len(lengths) == n
        fits = fits and len(starts) == len(vocabulary) * windows_of(n) + 1
        if not fits or not starts[-1] == len(places) == len(counts):
            raise VectorsError(f"{place}: the index is damaged: its words do not fit together")
        postings = Postings((starts, places, counts), (n, len(vocabulary)))
        if not verified and ((wrong := postings.wrong()) or lengths.min(initial=0) < 0):
            raise VectorsError(f"{place}: the index is damaged: its words: {WRONG[wrong]}")
        return cls(vocabulary, postings, lengths)


class WeighedWords:
    """The words of a segment with BM25's weights in a collection; a column's weights are computed on first use."""

    def __init__(self, words: WordPostings, mean: float) -> None:
        """Weigh the words for documents of this mean length."""
        starts, places, counts = words.postings.lists
        self._counts, self._lengths, self._mean = counts, words.lengths, mean
        self._weights = np.empty(len(counts), np.float32)  # memory is only taken for the lists that are read
        self._weighed = np.zeros(words.postings.shape[1], bool)
        self.postings = Postings((starts, places, self._weights), words.postings.shape)

    def weigh(self, columns: np.ndarray, word_idf: np.ndarray) -> None:
        """Compute the weights of t `columns`, whose words have the IDF `word_idf` float32 [t].

        Threads that compute a weight at once compute the same: a lock would stay locked in a forked process.
        """
        new = ~self._weighed[columns]
        if not new.any():
            return
        for column, factor in zip(columns[new].tolist(), word_idf[new], strict=True):
            self._weigh(column, factor)

    def _weigh(self, column: int, factor: np.floating) -> None:
        (starts, places, _), n = self.postings.lists, len(self._lengths)
        windows = windows_of(n)
        for window in range(windows):
            here = slice(starts[column * windows + window], starts[column * windows + window + 1])
            counts = self._counts[here].astype(np.float32)
            lengths = self._lengths[window * WINDOW_SIZE :][places[here]]
            norms = K1 * ((1 - B) + B * lengths.astype(np.int64) / self._mean)
            self._weights[here] = factor * (counts / (norms + counts))
        self._weighed[column] = True
