"""The lexical baseline: BM25 weights by bm25s, searched as the sparse vectors that they are.

bm25s computes the weight of every term in every document when it indexes, so that a score is a dot product with the
counts of the query's terms. `ExactIndex` searches them: ties by id, threads and memory-mapping are as for a model, and
so is the time a query takes.

Shapes: n documents, q queries, v stemmed terms, k results.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import bm25s
import numpy as np
import Stemmer
from scipy.sparse import csc_array, csr_array

from vocable.errors import ArgumentError, VectorsError, check_texts
from vocable.search.exact import ExactIndex
from vocable.search.ranking import Ranking
from vocable.storage import Ids, load_arrays, save_arrays, strings_from_arrays, strings_to_arrays


class BM25Index:
    """BM25 (Lucene's variant) over stemmed words of two or more letters, without stop words.

    >>> index = BM25Index(["A cat sat.", "Dogs bark at cats", ""], ids=["a", "b", "c"])
    >>> [document for document, _ in index.search(["barking cats"], k=3).hits(0)]
    ['b', 'a']
    """

    def __init__(
        self,
        texts: Sequence[str],
        ids: Sequence[str] | None = None,
        *,
        k1: float = 1.2,
        b: float = 0.75,
        stemmer: str | None = "english",
        stopwords: str | None = "en",
        progress: bool = False,
    ) -> None:
        """Index n `texts`; `stemmer` is one of Snowball's languages, `stopwords` one of the lists of bm25s (or None).

        `progress` shows progress bars on stderr. Raises `VectorsError` if the number of ids is not n.
        """
        if k1 < 0 or not 0 <= b <= 1:
            raise ArgumentError(f"k1 must not be negative and b lie between 0 and 1, not {k1} and {b}")
        self.settings: dict[str, Any] = {"k1": k1, "b": b, "stemmer": stemmer, "stopwords": stopwords}
        self._stemmer = _stemmer(stemmer)
        words = self.words(texts, progress)
        terms = sorted(set().union(*words))
        self.vocabulary = {term: position for position, term in enumerate(terms)}
        self._index = ExactIndex(self._weights(words, progress), ids)

    @property
    def ids(self) -> Sequence[str] | None:
        """The document ids by row, if there are any."""
        return self._index.ids

    @property
    def document_frequency(self) -> np.ndarray:
        """How many documents have each term, int64 [v]."""
        return self._index.document_frequency

    def __len__(self) -> int:
        return len(self._index)

    def arrays(self) -> dict[str, np.ndarray]:
        """The index as arrays: postings, document ids, and the vocabulary."""
        return self._index.arrays() | strings_to_arrays("terms", Ids(list(self.vocabulary)))

    def vectors(self) -> csr_array:
        """The weights of the documents' terms, csr_array [n, v]."""
        return self._index.vectors()

    def search(self, queries: Sequence[str] | csr_array, k: int = 10, *, threads: int | None = None) -> Ranking:
        """The k best documents for each of q queries; a document that shares no term is never a hit.

        `queries` are texts, or weights [q, v] of the vocabulary's terms, such as those of an expansion.
        """
        check_texts(queries, "queries")
        vectors = queries if isinstance(queries, csr_array) else self.query_vectors(queries)
        return self._index.search(vectors, k, threads=threads)

    def query_vectors(self, texts: Sequence[str]) -> csr_array:
        """How often each known term occurs in each of q texts, csr_array [q, v]."""
        return count_words(self.words(texts), self.vocabulary)

    def words(self, texts: Sequence[str], progress: bool = False) -> list[list[str]]:
        """The stemmed words of each text, in order, also those that no document has."""
        check_texts(texts)
        if not texts:
            return []
        stopwords = self.settings["stopwords"]
        try:
            words = bm25s.tokenize(
                list(texts), stopwords=stopwords, stemmer=self._stemmer, return_ids=False, show_progress=progress
            )
        except ValueError as error:
            raise ArgumentError(f"{stopwords!r} is not a list of stop words: {error}") from error
        return [[word for word in text if word] for text in words]  # bm25s gives an empty text an empty word

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index as a folder, whole or not at all."""
        save_arrays(folder, "bm25", self.arrays(), self._index.header() | {"settings": self.settings})

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, verify: bool = True) -> BM25Index:
        """The index in `folder`, its postings memory-mapped; `verify` is as in `ExactIndex.load`.

        Raises `VectorsError` if the folder is not a BM25 index, or is damaged or cut short.
        """
        arrays, header = load_arrays(folder, "bm25", verify=verify)
        if "terms_offsets" not in arrays or "terms_bytes" not in arrays or not isinstance(header.get("settings"), dict):
            raise VectorsError(f"{folder}: the index is not complete")
        index = cls.__new__(cls)
        index.settings = header["settings"]
        index._stemmer = _stemmer(index.settings.get("stemmer"))
        index.vocabulary = {term: position for position, term in enumerate(strings_from_arrays("terms", arrays))}
        index._index = ExactIndex.from_arrays(arrays, header)
        if index._index.shape[1] != len(index.vocabulary):
            raise VectorsError(f"{folder}: the index is damaged: its vocabulary does not fit its postings")
        return index

    def _weights(self, words: list[list[str]], progress: bool) -> csr_array:
        """The BM25 weights of the documents, csr_array [n, v]."""
        shape = len(words), len(self.vocabulary)
        if not self.vocabulary:
            return csr_array(shape, dtype=np.float32)
        model = bm25s.BM25(k1=self.settings["k1"], b=self.settings["b"], method="lucene")
        numbers = [[self.vocabulary[word] for word in text] for text in words]
        model.index((numbers, self.vocabulary), create_empty_token=False, show_progress=progress)
        parts = model.scores["data"], model.scores["indices"], model.scores["indptr"]
        return csc_array(parts, shape=shape).tocsr()


def count_words(texts: Sequence[Sequence[str]], vocabulary: Mapping[str, int]) -> csr_array:
    """How often each word of the vocabulary {word: column} occurs in each of n lists of words, csr_array [n, v].

    >>> count_words([["cat", "sat", "cat"], ["owl"]], {"cat": 0, "dog": 1, "sat": 2}).toarray().tolist()
    [[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    counts = [Counter(word for word in words if word in vocabulary) for words in texts]
    indptr = np.cumsum([0, *map(len, counts)])
    columns = np.array([vocabulary[word] for count in counts for word in count], dtype=np.int32)
    numbers = np.array([number for count in counts for number in count.values()], dtype=np.float32)
    vectors: csr_array = csr_array((numbers, columns, indptr), shape=(len(counts), len(vocabulary)))
    vectors.sort_indices()
    return vectors


def _stemmer(language: str | None) -> Any:
    if language is None:
        return None
    try:
        return Stemmer.Stemmer(language)
    except KeyError as error:
        raise ArgumentError(f"{language!r} is not a stemmer: choose from {', '.join(Stemmer.algorithms())}") from error
