"""The lexicon of stores that number words as they are asked: columns of queries in the space bm25 are these numbers.

Letters: q queries, t words.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from vocable.engines.base import UNBOUNDED, Store
from vocable.engines.filters import Filter
from vocable.engines.protocols import Lexicon
from vocable.indexes.word_counts import count_words
from vocable.language.languages import ENGLISH
from vocable.language.words import stemmed


class WordNumbers:
    """Numbers of words, as columns of queries in the space bm25; words are numbered as they are asked."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def __call__(self, word: str) -> int:
        """Return the number of a word, a new one if it has none."""
        if (number := self._numbers.get(word)) is None:
            number = self._numbers.setdefault(word, len(self.words))
            self.words.append(word)
        return number

    def spelled(self, numbers: np.ndarray) -> list[str]:
        """Return the words with these numbers."""
        return [self.words[number] for number in numbers.tolist()]


class NumberedWords(Store):
    """A store that counts words by their spelling, and weighs the words of documents by the IDF of all documents."""

    _numbers: WordNumbers

    @abstractmethod
    def count_words(self, words: Sequence[str], filter: Filter | None = None) -> np.ndarray:
        """Count the documents that have each of t stemmed words and pass a filter, int64 [t]."""

    @property
    def lexicon(self) -> Lexicon:
        return self if self.settings.get("bm25") else super().lexicon  # type: ignore[return-value]

    def query_vectors(
        self, texts: Sequence[str], *, stems: bool = False, idf_filter: Filter | None = None
    ) -> csr_array:
        """Return the vectors [q, words] of texts, or of `stems`, as queries, without words that no document has.

        The words of documents are weighed by the IDF of all documents, a query's by what `idf_filter` makes of it.
        """
        language = str(self.settings.get("language", ENGLISH))
        words = [[text] for text in texts] if stems else stemmed(texts, language)
        distinct = list(dict.fromkeys(word for text in words for word in text))
        counts = self.count_words(distinct)
        known = {word: self._numbers(word) for word, count in zip(distinct, counts.tolist(), strict=True) if count}
        vectors = count_words(words, known, UNBOUNDED)
        if idf_filter is not None:
            columns, places = np.unique(vectors.indices, return_inverse=True)
            vectors.data *= (self.idf(columns, "bm25", idf_filter) / self.idf(columns, "bm25"))[places]
        return vectors
