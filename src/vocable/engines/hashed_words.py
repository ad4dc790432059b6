"""BM25 of a collection on a server: words are numbered by a hash, and the server is asked how many documents have them.

The mean length is counted before the first vector is written, if the documents can be read twice. Else all vectors are
made anew at the end.

Writers need no common table of words. Two words may have one number, and are then one word to a search: of 100,000
words some 5 pairs, of a million some 500 (n (n - 1) / 2 pairs of n words, over `NUMBERS`).

A document's vector has tf / (tf + k1 (1 - b + b length / mean)) for each word, a query's vector the count of each word
times its inverse document frequency, so that a score is a dot product. The mean
length of the making stays in use: a weight changes by at most 0.75 of what the mean length does.

The vector also has an entry for each binary digit of the document's length, in columns that no query has. The number of
all words follows from the document frequencies of these columns, so it is right whoever writes, and after a kill.

Letters: m documents, q queries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.core.progress import progress
from vocable.data import Document
from vocable.engines.base import UNBOUNDED, Store
from vocable.engines.filters import Filter
from vocable.indexes.word_counts import count_words, term_frequency_weights
from vocable.language.words import stemmed

logger = logging.getLogger(__name__)
DRIFT = 0.1  # share that the mean length may differ from the length in use before a warning
LENGTH_DIGITS = 32  # binary digits of a length in words
LENGTHS_READ = 1_000  # documents whose words are counted together
NUMBERS = 1_000_000_000 - LENGTH_DIGITS  # numbers of words; PostgreSQL has at most 1e9 columns


@lru_cache(maxsize=1 << 17)
def number_of(word: str) -> int:
    """Return the number of a stemmed word.

    >>> number_of("cat"), number_of("cat") == number_of("cats")
    (105325391, False)
    """
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % NUMBERS


class HashedWords:
    """The words of the documents of a store on a server, in its space bm25."""

    def __init__(self, store: Store) -> None:
        self._store, self._language = store, str(store.settings["language"])

    def vectors(self, documents: Sequence[Document]) -> csr_array:
        """Return the vectors of m documents, csr_array [m, columns].

        Without a mean length so far, the mean length of these documents is taken into use.
        """
        settings: Mapping[str, Any] = self._store.settings
        if settings["whole"]:  # another process may have made the collection anew
            settings = self._store.settings_now()
        words, lengths = self._read(documents)
        if (mean := settings["mean_length"]) is None and lengths.any():
            mean = float(lengths.mean())
            self._store.configure({**settings, "mean_length": mean})
        return _weighed(words, lengths, mean or 1.0)

    def weigh_all(self) -> None:
        """Make all vectors anew with the mean length of all documents, if it was unknown when vectors were written.

        A killed call begins again when repeated.
        """
        store = self._store
        store.optimize()  # counts see what is written
        used, mean = self.mean_lengths()
        if used == mean:
            return
        ids = store.ids()
        with progress("weigh words", len(store)) as advance:
            while names := list(islice(ids, store.about.part)):
                documents = [document for document in store.documents(names) if document is not None]
                weights = _weighed(*self._read(documents), mean)
                store.replace_vectors([document.id for document in documents], "bm25", weights)
                advance(len(documents))
        store.configure(store.settings | {"mean_length": mean})

    def warn_of_drift(self) -> None:
        """Log a warning if the mean length of the documents differs much from the length that their weights use."""
        used, mean = self.mean_lengths()
        if used and abs(mean / used - 1) > DRIFT:
            lengths = f"BM25's weights are for documents of {used:.0f} words on average, now they have {mean:.0f}"
            logger.warning("%s: %s: index again, and replace it", self._store.place, lengths)

    def mean_lengths(self) -> tuple[float | None, float]:
        """Return the mean length in words that the weights are for, and the mean length of the documents now."""
        frequencies, documents = self._store.count_terms(NUMBERS + np.arange(LENGTH_DIGITS), "bm25")
        words = int(frequencies @ (1 << np.arange(LENGTH_DIGITS)))
        return self._store.settings_now()["mean_length"], words / max(1, documents)

    def columns(self, texts: Sequence[str]) -> list[int]:
        """Return the columns of the words of texts."""
        return sorted({number_of(word) for words in stemmed(texts, self._language) for word in words})

    def query_vectors(
        self, texts: Sequence[str], *, stems: bool = False, idf_filter: Filter | None = None
    ) -> csr_array:
        """Return the vectors of q texts, or `stems`, as queries [q, columns], without words that no document has."""
        counts = _counted([[text] for text in texts] if stems else stemmed(texts, self._language))
        columns, places = np.unique(counts.indices, return_inverse=True)
        is_known = self._store.count_terms(columns, "bm25")[0] > 0
        weights = self._store.idf(columns, "bm25", idf_filter) * is_known
        vectors = csr_array((counts.data * weights[places], counts.indices, counts.indptr), shape=counts.shape)
        vectors.eliminate_zeros()
        return vectors

    def words_like(self, initials: str, shortest: int, longest: int) -> list[tuple[str, int]]:
        """Return no words: the server has only their hashes."""
        return []

    def _read(self, documents: Sequence[Document]) -> tuple[list[list[str]], np.ndarray]:
        """Return the words of m documents, and their lengths, int64 [m]."""
        title_weight = int(self._store.settings["title_weight"])
        words = stemmed([document.weighed(title_weight) for document in documents], self._language)
        return words, np.array([len(stems) for stems in words], dtype=np.int64)


def mean_length(read: Callable[[], Iterable[Document]], title_weight: int, language: str) -> float:
    """Return the mean length of documents in words: when it is known, their vectors are written once."""
    words, count, left = 0, 0, iter(read())
    with progress("count words") as advance:
        while part := [document.weighed(title_weight) for document in islice(left, LENGTHS_READ)]:
            words, count = words + sum(map(len, stemmed(part, language))), count + len(part)
            advance(len(part))
    return words / max(1, count)


def _weighed(words: Sequence[Sequence[str]], lengths: np.ndarray, mean: float) -> csr_array:
    """Return the vectors [m, columns] of m documents with these words."""
    counts = _counted(words)
    weights = term_frequency_weights(counts, lengths.astype(np.float64), mean)
    matrix = csr_array((weights.astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)
    return matrix + _digits(lengths)


def _counted(texts: Sequence[Sequence[str]]) -> csr_array:
    """Return the counts [n, columns] of the words in n lists of words."""
    return count_words(texts, {word: number_of(word) for word in chain.from_iterable(texts)}, UNBOUNDED)


def _digits(lengths: np.ndarray) -> csr_array:
    """Return the binary digits [m, columns] of m lengths, in the columns from `NUMBERS` on.

    >>> (_digits(np.array([5, 0])).indices - NUMBERS).tolist()
    [0, 2]
    """
    rows, digits = np.nonzero(lengths[:, None] >> np.arange(LENGTH_DIGITS) & 1)
    ones = np.ones(len(rows), dtype=np.float32)
    return csr_array((ones, (rows, NUMBERS + digits)), shape=(len(lengths), UNBOUNDED))
