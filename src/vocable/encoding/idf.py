"""Document frequencies and inverse document frequency (IDF) of tokens and terms.

Letters: v terms, n documents, q queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vocable.data.texts import iter_texts
from vocable.encoding.terms import token_ids
from vocable.errors import ArgumentError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IdfFormula: TypeAlias = Literal["bm25", "log"]


def document_frequencies(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, *, size: int | None = None
) -> tuple[NDArray[np.int64], int]:
    """Count the texts that contain each token, int64 [v], and all texts; read the texts once.

    Texts are read to their ends, without the special tokens around them. `size` is v for a head that is wider than the
    tokenizer; the default is the highest id plus one.
    """
    counts = np.zeros(size or 1 + max(tokenizer.get_vocab().values()), dtype=np.int64)
    documents = 0
    for ids in token_ids(tokenizer, iter_texts(texts)):
        documents += 1
        counts[np.unique(np.asarray(ids, dtype=np.int64))] += 1
    return counts, documents


def idf(frequencies: NDArray[np.int64], documents: int, *, formula: IdfFormula = "bm25") -> NDArray[np.float32]:
    """Return the IDF of each term, float32 [v], not negative.

    df, an entry of `frequencies` [v], is the number of the n `documents` that contain the term. The formula `bm25` is
    log(1 + (n - df + 0.5) / (df + 0.5)), Lucene's variant of BM25, which inference-free retrievers use, too (Geng et
    al. 2024, arXiv 2411.04403): never negative, and largest for a term in no document. `log` is log(n / df), with df at
    least 1. Raises `ArgumentError` if there are no documents, or a term is in more documents than there are.

    >>> idf(np.array([0, 1, 2, 4]), 4).round(3)
    array([2.303, 1.204, 0.693, 0.105], dtype=float32)
    >>> idf(np.array([0, 1, 2, 4]), 4, formula="log").round(3)
    array([1.386, 1.386, 0.693, 0.   ], dtype=float32)
    """
    if (documents < 1 and len(frequencies)) or frequencies.min(initial=0) < 0 or frequencies.max(initial=0) > documents:
        raise ArgumentError(f"no document frequencies: {frequencies.max(initial=0)} of {documents} documents")
    if formula == "bm25":
        weights = np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))
    elif formula == "log":
        weights = np.log(documents / np.maximum(frequencies, 1))
    else:
        raise ArgumentError(f"the formula of an IDF is bm25 or log, not {formula!r}")
    return weights.astype(np.float32)


def weighed(
    vectors: csr_array, term_idf: Callable[[NDArray[np.int32]], NDArray[np.float32]] | None, power: float
) -> csr_array:
    """Multiply the weights of query vectors [q, v] by their terms' IDF to a power; return them unchanged without IDF.

    `term_idf` returns the IDF of t terms, float32 [t].
    """
    if term_idf is None or not power:
        return vectors
    terms, places = np.unique(vectors.indices, return_inverse=True)
    weights = vectors.data * (term_idf(terms) ** np.float32(power))[places]
    return csr_array((weights, vectors.indices, vectors.indptr), shape=vectors.shape)
