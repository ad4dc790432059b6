"""Pruning by wackiness: a model's wackiest expansion terms leave stored vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.data import Document
from vocable.encoder.own_terms import own_terms
from vocable.errors import DataError
from vocable.expansions import remove_expansions


def wacky_pruner(
    model: SparseEncoder, wackiest: np.ndarray, documents: Iterable[Document], place: str
) -> Callable[[Sequence[str], csr_array], csr_array]:
    """What `vocable.pruning.prune_stored` calls to remove terms where they are expansions, never from the text's own.

    Args:
        model: that made the vectors.
        wackiest: columns of the terms to remove.
        documents: the texts that were encoded, queries as documents without a title, in their order; others may stand
            between them. They are read once, as far as the vectors reach.
        place: where they come from, for messages.

    Returns:
        a function of the ids and the vectors [n, v] of one shard after the other, which raises `DataError` if there is
        no text with one of the ids.
    """
    stream = iter(documents)

    def without_wacky(ids: Sequence[str], matrix: csr_array) -> csr_array:
        own = own_terms(model, [_text(name, stream, place) for name in ids])
        return remove_expansions(matrix, own, wackiest)

    return without_wacky


def _text(name: str, stream: Iterator[Document], place: str) -> str:
    for document in stream:
        if document.id == name:
            return document.full
    raise DataError(f"has no text {name!r}, or not in the order of the vectors", place=place)
