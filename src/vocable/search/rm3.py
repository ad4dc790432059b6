"""RM3: a query is expanded with the words of the documents that BM25 finds first (pseudo-relevance feedback).

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

from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import ArgumentError, VectorsError, check_texts
from vocable.pruning import prune
from vocable.search.bm25 import BM25Index
from vocable.search.ranking import Ranking
from vocable.vectors import as_vectors


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
