"""Inverse document frequency in the tokens of a model: what a token weighs in a query that no encoder reads.

Letters: v tokens of the vocabulary, n documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from vocable.errors import ArgumentError, check_texts

Formula = Literal["bm25", "log"]
BATCH = 1000  # texts tokenized at a time


def document_frequencies(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, *, size: int | None = None
) -> tuple[NDArray[np.int64], int]:
    """In how many texts each token occurs, and how many texts there are.

    Args:
        texts: read once, in a stream; counted to their ends, however long the model reads.
        tokenizer: the document encoder's. The special tokens that it puts around a text are not counted.
        size: v, for a head that is wider than the tokenizer; by default the highest id and one.

    Returns:
        int64 [v], and n.
    """
    check_texts(texts)
    counts = np.zeros(size or 1 + max(tokenizer.get_vocab().values()), dtype=np.int64)
    documents, stream = 0, iter(texts)
    while batch := list(islice(stream, BATCH)):
        documents += len(batch)
        for ids in tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]:
            counts[np.unique(np.asarray(ids, dtype=np.int64))] += 1
    return counts, documents


def idf(frequencies: NDArray[np.int64], documents: int, *, formula: Formula = "bm25") -> NDArray[np.float32]:
    """The weight of each token by the number of documents that have it.

    Args:
        frequencies: [v] df, for each token the number of documents that it occurs in.
        documents: n, how many documents were counted.
        formula: `bm25` is log(1 + (n - df + 0.5) / (df + 0.5)), Lucene's variant, which inference-free retrievers use
            (Geng et al. 2024, arXiv 2411.04403): never negative, and largest for a token that no document has. `log` is
            log(n / df), where such a token counts as one of a single document.

    Returns:
        float32 [v], no weight negative.

    Raises:
        ArgumentError: there are no documents, fewer than a token has, or no such formula.

    >>> idf(np.array([0, 1, 2, 4]), 4).round(3)
    array([2.303, 1.204, 0.693, 0.105], dtype=float32)
    >>> idf(np.array([0, 1, 2, 4]), 4, formula="log").round(3)
    array([1.386, 1.386, 0.693, 0.   ], dtype=float32)
    """
    if documents < 1 or frequencies.min(initial=0) < 0 or frequencies.max(initial=0) > documents:
        raise ArgumentError(f"no document frequencies: {frequencies.max(initial=0)} of {documents} documents")
    if formula == "bm25":
        weights = np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))
    elif formula == "log":
        weights = np.log(documents / np.maximum(frequencies, 1))
    else:
        raise ArgumentError(f"the formula of an IDF is bm25 or log, not {formula!r}")
    return weights.astype(np.float32)
