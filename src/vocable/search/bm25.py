"""The lexical baseline: BM25 weights by bm25s, searched as the sparse vectors that they are.

bm25s computes the weight of every term in every document when it indexes, so that a score is a dot product with the
counts of the query's terms. `ExactIndex` searches them: ties by id, threads and memory-mapping are as for a model, and
so is the time a query takes.

Shapes: n documents, q queries, v stemmed terms, k results.

RM3: a query is expanded with the words of the documents that BM25 finds first (pseudo-relevance feedback).

"Relevance-Based Language Models" (Lavrenko and Croft 2001) estimates what word a relevant document would use next;
"UMass at TREC 2004: Novelty and HARD" (Abdul-Jaleel et al. 2004) mixes that with the query. For a query Q, the
`fb_docs` first documents D that BM25 finds for it, and a word w,

    RM1(w)      = sum over D of P(w|D) score(Q, D) / sum over D of score(Q, D),   P(w|D) = tf(w, D) / |D|
    weight(w|Q) = a tf(w, Q) / |Q| + (1 - a) RM1'(w),                             a = `original_query_weight`

where RM1' is RM1 of its `fb_terms` most probable words, made to sum to 1 again, and |D| and |Q| count stemmed words.
The paper weighs a document by the probability that it gives the query; BM25's score stands for it here, as in Anserini,
whose defaults (10 documents, 10 words, a = 0.5) these are. Anserini also drops words that more than a tenth of the
documents have, and cuts each document to its most frequent words before it counts; here stop words alone are dropped.

Shapes: n documents, q queries, v stemmed words, k results.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import bm25s
import numpy as np
import Stemmer
from scipy.sparse import csc_array, csr_array

from vocable.errors import ArgumentError, VectorsError, check_texts
from vocable.search.exact import ExactIndex
from vocable.search.index import About, Immutable
from vocable.search.ranking import Ranking
from vocable.storage import Ids, load_arrays, save_arrays, strings_from_arrays, strings_to_arrays
from vocable.vectors import as_vectors, prune


class BM25Index(Immutable):
    """BM25 (Lucene's variant) over stemmed words of two or more letters, without stop words.

    >>> index = BM25Index(["A cat sat.", "Dogs bark at cats", ""], ids=["a", "b", "c"])
    >>> [document for document, _ in index.search(["barking cats"], k=3).hits(0)]
    ['b', 'a']
    """

    about = About("bm25", exact=True)
    meta = None

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

    @property
    def nbytes(self) -> int:
        """The bytes of postings, weights, offsets, document ids and the vocabulary."""
        return sum(array.nbytes for array in self.arrays().values())

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        return f"BM25Index({len(self):,} documents, {len(self.vocabulary):,} terms)"

    def arrays(self) -> dict[str, np.ndarray]:
        """The index as arrays: postings, document ids, and the vocabulary."""
        return self._index.arrays() | strings_to_arrays("terms", Ids(list(self.vocabulary)))

    def get(self, rows: Sequence[int] | np.ndarray | None = None) -> csr_array:
        """The weights of the terms of the documents in `rows`, csr_array [m, v]; of all n by default."""
        return self._index.get(rows)

    def search(
        self,
        queries: Sequence[str] | csr_array,
        k: int = 10,
        *,
        minimum_match: float = 0.0,
        threads: int | None = None,
    ) -> Ranking:
        """The k best documents for each of q queries; a document that shares no term is never a hit.

        `queries` are texts, or weights [q, v] of the vocabulary's terms, such as those of an expansion.
        """
        check_texts(queries, "queries")
        vectors = queries if isinstance(queries, csr_array) else self.query_vectors(queries)
        return self._index.search(vectors, k, minimum_match=minimum_match, threads=threads)

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


ENGINE = BM25Index


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


class RM3:
    """BM25 whose queries are expanded by feedback; `index.search` takes what `expand` gives.

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
        check_texts(texts)
        if len(texts) != len(index):
            raise VectorsError(f"{len(texts)} texts for an index of {len(index)} documents")
        _check(fb_docs, fb_terms, original_query_weight)
        self.index, self.vocabulary = index, index.vocabulary
        self._counts = index.query_vectors(texts)
        self._documents, self._terms, self._share = fb_docs, fb_terms, original_query_weight

    def expand(self, texts: Sequence[str], advance: Callable[[int], object] = lambda done: None) -> csr_array:
        """The weights of the words of each of q expanded queries, csr_array [q, v].

        Words that no document has drop out, and a query that finds nothing gets no other words. `advance` is called
        with the number of queries done.
        """
        check_texts(texts)
        queries = self.index.query_vectors(texts)
        found = self.index.search(queries, self._documents)
        expanded = interpolate(queries, relevance_model(found, self._counts), self._terms, self._share)
        advance(len(texts))
        return expanded


def relevance_model(ranking: Ranking, counts: csr_array) -> csr_array:
    """RM1: the probability of each word in the documents of a ranking, weighed by their scores.

    Args:
        ranking: [q, k].
        counts: csr_array [n, v], how often each document has each word.

    Returns:
        csr_array [q, v], rows that sum to 1; of a query without hits, 0.

    >>> ranking = Ranking(np.array([[1, 0]]), np.array([[3.0, 1.0]]))
    >>> relevance_model(ranking, csr_array(np.array([[1.0, 0.0], [1.0, 1.0]]))).toarray().tolist()
    [[0.625, 0.375]]
    """
    found = ranking.rows >= 0
    starts = np.cumsum([0, *found.sum(axis=1)])
    shape = len(ranking), counts.shape[0]
    scores = csr_array((ranking.scores[found], ranking.rows[found], starts), shape=shape)
    model: csr_array = _shares(scores) @ _shares(counts)
    return model


def interpolate(queries: csr_array, model: csr_array, fb_terms: int, original_query_weight: float) -> csr_array:
    """RM3: the words of `queries` mixed with the most probable ones of a relevance model.

    Args:
        queries: csr_array [q, v], how often each query has each word.
        model: csr_array [q, v] from `relevance_model`.
        fb_terms: how many words of the model; of equally probable ones those with the lower columns.
        original_query_weight: the share of the query's own words, from 0 to 1.

    >>> model = csr_array(np.array([[0.5, 0.3, 0.2]]))
    >>> interpolate(csr_array(np.array([[0.0, 2.0, 0.0]])), model, 2, 0.2).toarray().round(6).tolist()
    [[0.5, 0.5, 0.0]]

    Raises:
        ArgumentError: a setting out of its range.
    """
    _check(1, fb_terms, original_query_weight)
    own, other = _shares(queries), _shares(prune(model, fb_terms))
    return as_vectors(original_query_weight * own + (1 - original_query_weight) * other, "the expanded queries")


def _shares(matrix: csr_array) -> csr_array:
    """Each row [n, v] divided by its sum, float64."""
    sums = np.asarray(matrix.sum(axis=1, dtype=np.float64))
    values = matrix.data / np.repeat(sums, np.diff(matrix.indptr))
    return csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def _check(fb_docs: int, fb_terms: int, original_query_weight: float) -> None:
    if fb_docs < 1 or fb_terms < 1:
        raise ArgumentError(f"fb_docs and fb_terms must be at least 1, not {fb_docs} and {fb_terms}")
    if not 0 <= original_query_weight <= 1:
        raise ArgumentError(f"original_query_weight is a share between 0 and 1, not {original_query_weight}")
