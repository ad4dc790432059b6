"""BM25 (Lucene's variant), RM3, and an index of texts for both.

The weight of a word in a document is idf tf / (tf + k1 (1 - b + b length / mean length)), so that a score is a dot
product with the counts of the query's words (Kamphuis et al. 2020).

Shapes: n documents, q queries, v stemmed words, k results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, Unpack

import numpy as np
from scipy.sparse import csr_array

from vocable.core.arrays import Strings
from vocable.data.texts import Texts, as_texts
from vocable.encoding.idf import idf
from vocable.encoding.pruning import prune
from vocable.encoding.vectors import as_vectors
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.ranking import Ranking
from vocable.indexes.word_counts import K1, B, count_texts, count_words, term_frequency_weights
from vocable.language.languages import language_of
from vocable.language.words import stemmed
from vocable.options import Matching

WEIGHED_AT_ONCE = 65_536  # documents weighed at a time


class BM25Index(ExactIndex):
    """BM25 over stemmed words of two or more letters, without stop words.

    >>> index = BM25Index(["A cat sat.", "Dogs bark at cats", ""], ids=["a", "b", "c"])
    >>> print(*(document for document, _ in index.search(["barking cats"], k=3).hits(0)))
    b a
    """

    kind = "bm25"
    readable = ("bm25",)

    def __init__(
        self,
        texts: Texts,
        ids: Sequence[str] | None = None,
        *,
        k1: float = K1,
        b: float = B,
        language: str = "english",
        progress: bool = False,
    ) -> None:
        """Index n `texts` in a `language`, which stems words and drops stop words (docs/bm25.md), or "none".

        `progress` shows a progress bar on stderr. Raises `VectorsError` if the number of ids is not n, `ArgumentError`
        for an unknown language.
        """
        if k1 < 0 or not 0 <= b <= 1:
            raise ArgumentError(f"k1 must not be negative and b lie between 0 and 1, not {k1} and {b}")
        self.settings: dict[str, Any] = {"k1": k1, "b": b, "language": language_of(language).name}
        super().__init__(self._weights(as_texts(texts), progress), ids)

    def _weights(self, texts: list[str], progress: bool) -> csr_array:
        """Return the weights of the words of n texts, csr_array [n, v], and keep their columns in `vocabulary`."""
        self.vocabulary, counts, lengths = count_texts(texts, self.settings["language"], progress=progress)
        frequencies = np.bincount(counts.indices, minlength=counts.shape[1])
        word_idf = idf(frequencies, len(texts))
        mean = float(lengths.mean()) if counts.nnz else 1.0
        for start in range(0, len(texts), WEIGHED_AT_ONCE):  # float64 of all texts would take most of the memory
            end = min(start + WEIGHED_AT_ONCE, len(texts))
            part, entries = counts[start:end], slice(*counts.indptr[[start, end]])
            saturated = term_frequency_weights(
                part, lengths[start : start + WEIGHED_AT_ONCE], mean, self.settings["k1"], self.settings["b"]
            )
            counts.data[entries] = word_idf[part.indices] * saturated
        return counts

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to store: postings, document ids, and the vocabulary."""
        return super().arrays() | Strings(self.vocabulary).arrays("terms")

    def header(self) -> dict[str, object]:
        """Return the properties that `arrays` does not contain, as JSON values."""
        return {**super().header(), "settings": self.settings}

    def search(
        self,
        queries: Texts | csr_array,
        k: int = 10,
        *,
        allowed: np.ndarray | None = None,
        threads: int | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        """Return the k best documents for each of q queries; a hit shares at least one term with its query.

        `queries` are texts, or weights [q, v] of the vocabulary's terms, for example from an expansion.
        """
        vectors = queries if isinstance(queries, csr_array) else self.query_vectors(as_texts(queries, "queries"))
        return super().search(vectors, k, allowed=allowed, threads=threads, **matching)

    def query_vectors(self, texts: Texts, *, stems: bool = False) -> csr_array:
        """Count the known words of q texts, csr_array [q, v]; with `stems` each text is a single stem."""
        return count_words([[stem] for stem in as_texts(texts)] if stems else self.words(texts), self.vocabulary)

    def words_like(self, initials: str, shortest: int, longest: int) -> list[tuple[str, int]]:
        """Return words of these lengths that begin with a letter of `initials`, with their document frequencies."""
        counts = self.document_frequency
        words = (word for word in self.vocabulary if word[0] in initials and shortest <= len(word) <= longest)
        return [(word, int(counts[self.vocabulary[word]])) for word in words]

    def words(self, texts: Texts, progress: bool = False) -> list[list[str]]:
        """Return the stemmed words of each text, in order, including unknown words."""
        return stemmed(texts, self.settings["language"], progress)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], header: dict[str, Any], place: str) -> Self:
        index = super().from_arrays(arrays, header, place)
        settings = header.get("settings")
        if not isinstance(settings, dict) or type(settings.get("language")) is not str:
            raise VectorsError(f"{place}: the index is damaged: its settings name no language of its words")
        language_of(settings["language"])
        index.settings = settings
        index.vocabulary = {term: position for position, term in enumerate(Strings.stored("terms", arrays, place))}
        if index.shape[1] != len(index.vocabulary):
            raise VectorsError(f"{place}: the index is damaged: its vocabulary does not fit its postings")
        return index


class RM3:
    """BM25 whose queries are expanded by feedback; `index.search` takes the results of `expand`.

    A query gets words of the documents that BM25 finds first (Lavrenko and Croft 2001; Abdul-Jaleel et al. 2004). For a
    query Q, the `fb_docs` first documents D that BM25 finds for it, and a word w,

        RM1(w)      = sum over D of P(w|D) score(Q, D) / sum over D of score(Q, D),   P(w|D) = tf(w, D) / |D|
        weight(w|Q) = a tf(w, Q) / |Q| + (1 - a) RM1'(w),                             a = `original_query_weight`

    where RM1' is RM1 of its `fb_terms` most probable words, scaled to sum to 1; |D| and |Q| count stemmed words. BM25's
    score stands for the probability that a document generates the query, as in Anserini, whose defaults are used here.
    Anserini also drops words that a tenth of the documents have, and cuts each document to its most frequent words.

    >>> texts = ["cats sleep", "cats purr", "owls hoot at night"]
    >>> rm3 = RM3(BM25Index(texts), texts, fb_docs=2, fb_terms=2)
    >>> expanded = rm3.expand(["cat"])
    >>> {word: round(float(expanded[0, column]), 2) for word, column in rm3.vocabulary.items() if expanded[0, column]}
    {'cat': 0.83, 'purr': 0.17}
    >>> rm3.index.search(expanded, k=2).hits(0)[0][0]
    '1'
    """

    def __init__(
        self,
        index: BM25Index,
        texts: Sequence[str],
        *,
        fb_docs: int = 10,
        fb_terms: int = 10,
        original_query_weight: float = 0.5,
    ) -> None:
        """Expand with the words of `texts`, the n documents of `index` in its order.

        Raises `VectorsError` if there are not n texts, `ArgumentError` for a setting out of its range.
        """
        texts = as_texts(texts)
        if len(texts) != len(index):
            raise VectorsError(f"{len(texts)} texts for an index of {len(index)} documents")
        if fb_docs < 1 or fb_terms < 1:
            raise ArgumentError(f"fb_docs and fb_terms must be at least 1, not {fb_docs} and {fb_terms}")
        if not 0 <= original_query_weight <= 1:
            raise ArgumentError(f"original_query_weight is a share between 0 and 1, not {original_query_weight}")
        self.index, self.vocabulary = index, index.vocabulary
        self._counts = count_texts(texts, index.settings["language"], index.vocabulary).counts
        self._documents, self._terms, self._share = fb_docs, fb_terms, original_query_weight

    def expand(self, texts: Sequence[str], advance: Callable[[int], object] = lambda done: None) -> csr_array:
        """Return the weights of the words of q expanded queries, csr_array [q, v].

        Words that no document has are dropped, and a query without hits gets no further words. Of equally probable
        words, the words with the lower columns are taken. `advance` is called with the number of finished queries.
        """
        queries = self.index.query_vectors(texts)
        ranking = self.index.search(queries, self._documents)
        hits = ranking.rows >= 0
        rows, columns = np.unique(ranking.rows[hits], return_inverse=True)  # the distinct documents among the hits
        parts = ranking.scores[hits], columns, np.cumsum([0, *hits.sum(axis=1)])
        scores = csr_array(parts, shape=(len(ranking), len(rows)))
        relevance = _shares(scores) @ _shares(self._counts[rows])
        original, feedback = _shares(queries), _shares(prune(relevance, self._terms))
        mixed = self._share * original + (1 - self._share) * feedback
        advance(len(texts))
        return as_vectors(mixed, "the expanded queries")


def _shares(matrix: csr_array) -> csr_array:
    """Divide each row of a matrix [n, v] by its sum, in float64."""
    sums = np.asarray(matrix.sum(axis=1, dtype=np.float64))
    values = matrix.data / np.repeat(sums, np.diff(matrix.indptr))
    return csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)
