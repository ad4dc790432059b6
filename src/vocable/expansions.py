"""The entries of vectors that are expansions: terms that the text itself does not have.

Letters: m vectors, e entries of theirs, v output vocabulary.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import ArgumentError, VectorsError
from vocable.vectors import as_vectors, selected


def remove_expansions(vectors: csr_array, own: csr_array, terms: np.ndarray) -> csr_array:
    """`vectors` [m, v] without those of `terms` (columns) that are an expansion: one that stands in the text stays.

    `own` [m, v] has an entry where a term stands in the text.

    >>> vectors = csr_array(np.array([[1.0, 2.0, 3.0]], dtype=np.float32))
    >>> own = csr_array(np.array([[0.0, 1.0, 0.0]]))
    >>> remove_expansions(vectors, own, np.array([0, 1])).toarray().tolist()
    [[0.0, 2.0, 3.0]]

    Raises:
        ArgumentError: a term is not a column.
        VectorsError: the two are not of one shape.
    """
    vectors = as_vectors(vectors)
    return selected(vectors, ~(expansion_entries(vectors, own) & flags(terms, vectors.shape[1])[vectors.indices]))


def expansion_entries(vectors: csr_array, own: csr_array) -> np.ndarray:
    """One bool for each of the e entries of `vectors` [m, v]: whether `own` [m, v] has none there."""
    vectors, own = as_vectors(vectors), as_vectors(own, "the texts' own terms")
    if vectors.shape != own.shape:
        raise VectorsError(f"vectors of shape {vectors.shape} and own terms of shape {own.shape} are not of one text")
    places, standing = _places(vectors), _places(own)
    at = np.minimum(np.searchsorted(standing, places), max(0, len(standing) - 1))
    return standing[at] != places if len(standing) else np.ones(len(places), dtype=bool)


def _places(matrix: csr_array) -> np.ndarray:
    """The number of each entry's cell, counted row by row, int64 in ascending order."""
    m, v = matrix.shape
    rows = np.repeat(np.arange(m, dtype=np.int64), np.diff(matrix.indptr))
    places: np.ndarray = rows * v + matrix.indices
    return places


def flags(terms: np.ndarray, size: int) -> np.ndarray:
    """One bool for each of `size` columns."""
    if len(terms) and not 0 <= terms.min() <= terms.max() < size:
        raise ArgumentError(f"terms must lie between 0 and {size - 1}, not {terms.min()} to {terms.max()}")
    flags = np.zeros(size, dtype=bool)
    flags[terms] = True
    return flags
