"""Static pruning: only the heaviest terms of a vector stay, of queries or of documents (Lassance et al. 2023).

One implementation for every place where vectors are: texts that are being encoded, stored vectors, and a search.

Shapes: n vectors, v terms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import ArgumentError
from vocable.storage import replacing_folder
from vocable.unfinished import refuse_taken
from vocable.vectors import as_vectors, read_shards, selected, write_vectors


def prune(matrix: csr_array, top_k: int | None = None, min_weight: float = 0.0, mass: float | None = None) -> csr_array:
    """Keep the heaviest terms of every vector [n, v].

    Each limit looks at the whole vector, and a term stays if it meets all of them. Of terms that weigh the same, those
    with the lower index come first.

    Args:
        matrix: sparse vectors.
        top_k: so many terms.
        min_weight: terms that weigh at least this.
        mass: the fewest terms that together have this share of the vector's total weight, above 0 and at most 1.

    >>> vectors = csr_array(np.array([[0.5, 2.0, 0.5, 1.0]], dtype=np.float32))
    >>> prune(vectors, top_k=3).toarray().tolist()
    [[0.5, 2.0, 0.0, 1.0]]
    >>> prune(vectors, mass=0.75).toarray().tolist()
    [[0.0, 2.0, 0.0, 1.0]]

    Raises:
        ArgumentError: a limit out of its range.
        VectorsError: not sparse vectors.
    """
    check_limits(top_k, min_weight, mass)
    matrix = as_vectors(matrix)
    keep = matrix.data >= np.float32(min_weight)
    if top_k is not None or mass is not None:
        keep &= _heaviest(matrix, top_k, mass)
    return matrix if keep.all() else selected(matrix, keep)


def prune_stored(
    source: str | os.PathLike[str],
    output: Path,
    *,
    top_k: int | None = None,
    min_weight: float = 0.0,
    mass: float | None = None,
    then: Callable[[Sequence[str], csr_array], csr_array] = lambda ids, matrix: matrix,
    advance: Callable[[int], object] = lambda done: None,
) -> tuple[int, int]:
    """Prune a file or folder of vectors, a shard at a time, into the folder `output`; limits and errors as in `prune`.

    Args:
        source: what `vocable.vectors.read_shards` reads.
        output: there only when it is whole.
        top_k: as in `prune`, like the other limits.
        min_weight: lightest weight.
        mass: share of a vector's weight.
        then: called with the ids and what the limits leave of a shard [n, v], to leave less of it.
        advance: called with the number of vectors of every shard.

    Returns:
        the numbers of postings before and after.

    Raises:
        ArgumentError: also when something is at `output` already, or another command is making it.
    """
    check_limits(top_k, min_weight, mass)
    refuse_taken(output)
    before, after = 0, 0
    with replacing_folder(output) as work:
        for number, shard in enumerate(read_shards(source)):
            kept = then(shard.ids, prune(shard.matrix, top_k, min_weight, mass))
            write_vectors(work / f"part-{number:05d}.parquet", shard.ids, kept, shard.meta)
            before, after = before + shard.matrix.nnz, after + kept.nnz
            advance(len(shard.ids))
    return before, after


def check_limits(top_k: int | None, min_weight: float, mass: float | None) -> None:
    """Raise `ArgumentError` for a limit of `prune` that is out of its range."""
    if top_k is not None and top_k < 1:
        raise ArgumentError(f"top_k must be at least 1, not {top_k}")
    if not 0 <= min_weight < np.inf:
        raise ArgumentError(f"min_weight must be 0 or more, and finite, not {min_weight}")
    if mass is not None and not 0 < mass <= 1:
        raise ArgumentError(f"mass is a share of the weight, above 0 and at most 1, not {mass}")


def _heaviest(matrix: csr_array, top_k: int | None, mass: float | None) -> np.ndarray:
    """One bool an entry: whether it is among the `top_k` heaviest of its row and among the fewest with the `mass`."""
    starts = matrix.indptr[:-1]
    rows = np.repeat(np.arange(len(starts)), np.diff(matrix.indptr))
    # Positive floats order as their bits do: one integer sorts by row and, within it, from heavy to light.
    keys = (rows.astype(np.uint64) << np.uint64(32)) | ~matrix.data.view(np.uint32)
    order = np.argsort(keys, kind="stable")
    among = np.ones(len(rows), dtype=bool)
    if top_k is not None:
        among &= np.arange(len(rows)) - starts[rows] < top_k
    if mass is not None:
        totals, heavier = _running_sums(matrix, matrix.data[order].astype(np.float64))
        # Rounding alone must not bring in a term more: 0.3 of ten equal weights is three of them.
        among &= heavier < (mass - 1e-9) * totals[rows]
    keep = np.empty(len(rows), dtype=bool)
    keep[order] = among
    return keep


def _running_sums(matrix: csr_array, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row's total [n], and for each of the `weights` the sum of those before it in its row."""
    filled = np.flatnonzero(np.diff(matrix.indptr))
    starts, totals = matrix.indptr[:-1][filled], np.zeros(matrix.shape[0])
    totals[filled] = np.add.reduceat(weights, starts) if len(filled) else 0
    steps = np.concatenate([[0.0], weights[:-1]])[: len(weights)]
    # Each row begins by taking the one before away, so that the sum never grows beyond a row's own.
    steps[starts[1:]] -= totals[filled[:-1]]
    return totals, np.cumsum(steps)
