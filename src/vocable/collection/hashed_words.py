"""BM25 of a collection on a server: words are numbered by a hash, and the server is asked how many documents have them.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

import numpy as np
from scipy.sparse import csr_array

from vocable.core.progress import progress
from vocable.data import Document
from vocable.encoding.idf import idf
from vocable.engines.base import UNBOUNDED, Store
from vocable.indexes.word_counts import count_words, term_frequency_weights
from vocable.language.words import stemmed

logger = logging.getLogger(__name__)
DRIFT = 0.1  # share that the mean length may differ from the length in use before a warning
LENGTH_DIGITS = 32  # binary digits of a length in words
NUMBERS = 1_000_000_000 - LENGTH_DIGITS  # numbers of words; PostgreSQL has at most 1e9 columns


@lru_cache(maxsize=1 << 17)
def number_of(word: str) -> int:
    """Return the number of a stemmed word.

    >>> number_of("cat"), number_of("cat") == number_of("cats")
    (105325391, False)
    """
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % NUMBERS


class HashedWords:
    """The words of a collection in the space bm25 of a store on a server.

    `mean` is the mean length in use, None before the first documents.
    """

    def __init__(self, store: Store, language: str, mean: float | None) -> None:
        self._store, self._language, self.mean = store, language, mean

    @contextmanager
    def changing(self, added: Sequence[str]) -> Iterator[csr_array | None]:
        """Give the documents another version at the end of the block; yields the vectors of the added texts."""
        if self._store.settings["whole"]:  # finished: another process may have made it anew
            self.mean = self._store.settings_now()["mean_length"]
        weights = self.weights(added) if added else None
        with self._store.changing():
            yield weights

    def weights(self, texts: Sequence[str]) -> csr_array:
        """Return the vectors of m texts as documents, csr_array [m, columns].

        Without a mean length so far, the mean length of these texts is taken into use.
        """
        words = stemmed(texts, self._language)
        lengths = np.array([len(stems) for stems in words], dtype=np.int64)
        if self.mean is None and lengths.any():
            self.mean = float(lengths.mean())
        counts = _counted(words)
        weights = term_frequency_weights(counts, lengths.astype(np.float64), self.mean or 1.0)
        matrix = csr_array((weights.astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)
        return matrix + _digits(lengths)

    def weigh_all(
        self, parts: Iterable[Sequence[Document]], texts_of: Callable[[Sequence[Document]], Sequence[str]]
    ) -> None:
        """Make all vectors anew with the mean length of all documents, unknown when the first vectors were written.

        A killed call begins again when repeated.
        """
        self._store.optimize()  # counts see what is written
        if (mean := self.mean_now()) == self.mean:
            return
        self.mean = mean
        with progress("weigh words", len(self._store)) as advance:
            for part in parts:
                self._store.replace_vectors([document.id for document in part], "bm25", self.weights(texts_of(part)))
                advance(len(part))
        self._store.configure(self._store.settings | {"mean_length": mean})

    def warn_of_drift(self) -> None:
        """Log a warning if the mean length of the documents differs much from the length that their weights use."""
        now = self.mean_now()
        if self.mean and abs(now / self.mean - 1) > DRIFT:
            lengths = f"BM25's weights are for documents of {self.mean:.0f} words on average, now they have {now:.0f}"
            logger.warning("%s: %s: index again, and replace it", self._store.place, lengths)

    def mean_now(self) -> float:
        """Return the mean length of the documents as they are now."""
        frequencies, documents = self._store.count_terms(NUMBERS + np.arange(LENGTH_DIGITS), "bm25")
        return int(frequencies @ (1 << np.arange(LENGTH_DIGITS))) / max(1, documents)

    def query_vectors(self, texts: Sequence[str], *, stems: bool = False) -> csr_array:
        """Return the vectors of q texts, or `stems`, as queries [q, columns], without words that no document has."""
        counts = _counted([[text] for text in texts] if stems else stemmed(texts, self._language))
        columns, places = np.unique(counts.indices, return_inverse=True)
        frequencies, documents = self._store.count_terms(columns, "bm25")
        # A server that is written to counts documents and words at two moments.
        weights = idf(np.minimum(frequencies, documents), max(1, documents)) * (frequencies > 0)
        vectors = csr_array((counts.data * weights[places], counts.indices, counts.indptr), shape=counts.shape)
        vectors.eliminate_zeros()
        return vectors


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
