"""Pruning and rounding of sparse vectors, in memory and on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol, cast, overload

import numpy as np
from annotated_types import Ge
from scipy.sparse import csr_array

from vocable.core.fingerprint import settings_of
from vocable.core.progress import track
from vocable.core.storage import StrPath, finished, replacing_folder
from vocable.encoding.vectors import Sources, as_vectors, places_of, read_shards, selected, write_vectors
from vocable.errors import ArgumentError
from vocable.options import Count, Share, checked


class ShardFilter(Protocol):
    """Extra pruning of each shard, from its ids and vectors [n, v]."""

    made_from: dict[str, object]  # everything that decides the result, as JSON values

    def __call__(self, ids: Sequence[str], matrix: csr_array, /) -> csr_array: ...


def quantize(matrix: csr_array, *, bits: int | None = None, scale: float | None = None) -> csr_array:
    """Round the weights [n, v] to integers (impact scores) and drop those that become zero.

    With `bits` (1 to 16) the largest weight becomes 2**bits - 1, as uint8 or uint16. With `scale` every weight becomes
    round(weight * scale), as int32, so that separately quantized matrices stay comparable. Exactly one of `bits` and
    `scale` is required.

    >>> quantize(csr_array(np.array([[0.1, 2.0, 1.0]], dtype=np.float32)), bits=2).toarray().tolist()
    [[0, 3, 2]]
    """
    if (bits is None) == (scale is None):
        raise ArgumentError("either bits or scale is required, not both")
    if bits is not None and not 1 <= bits <= 16:
        raise ArgumentError(f"bits must lie between 1 and 16, not {bits}")
    if scale is not None and not 0 < scale < np.inf:
        raise ArgumentError(f"scale must be a positive number, not {scale}")
    matrix = as_vectors(matrix)
    heaviest = float(matrix.data.max(initial=0.0))
    factor = scale or ((2 ** (bits or 1) - 1) / heaviest if heaviest else 1.0)
    if heaviest * factor > np.iinfo(np.int32).max:
        raise ArgumentError(f"scale {scale} takes the heaviest weight, {heaviest:.4g}, out of the range of int32")
    kind = np.int32 if bits is None else np.uint8 if bits <= 8 else np.uint16
    # In float64, so that the largest weight becomes its bound exactly; halves are rounded to even.
    rounded = np.rint(matrix.data.astype(np.float64) * factor).astype(kind)
    return selected(csr_array((rounded, matrix.indices, matrix.indptr), shape=matrix.shape), rounded > 0)


class Pruned(NamedTuple):
    """Numbers of postings of stored vectors before and after pruning."""

    postings_before: int
    postings: int

    def to_json(self) -> dict[str, int]:
        return self._asdict()

    def __str__(self) -> str:
        return f"{self.postings:,} of {self.postings_before:,} postings kept"


@overload
def prune(
    vectors: csr_array, max_terms: int | None = None, min_weight: float = 0.0, mass: float | None = None
) -> csr_array: ...
@overload
def prune(
    vectors: Sources,
    max_terms: int | None = None,
    min_weight: float = 0.0,
    mass: float | None = None,
    *,
    output: StrPath,
    then: ShardFilter | None = None,
) -> Pruned: ...
@checked
def prune(
    vectors: csr_array | Sources,
    max_terms: Count | None = None,
    min_weight: Annotated[float, Ge(0)] = 0.0,
    mass: Share | None = None,
    *,
    output: StrPath | None = None,
    then: ShardFilter | None = None,
) -> csr_array | Pruned:
    """Keep only the largest weights of vectors.

    A term stays if it meets every limit on the whole vector [n, v] (Lassance et al. 2023). Of terms with equal weights,
    the terms with lower indices are kept.

    Args:
        vectors: the output of `vocable encode`, a folder or several shards; in Python without `output` a matrix of
            sparse vectors.
        max_terms: keep only the terms with the largest weights, at most this many.
        min_weight: drop terms with a smaller weight.
        mass: keep the fewest terms that have this share of the total weight.
        output: output folder (written atomically).
        then: with `output`, extra pruning of each shard after these limits.

    Returns:
        the matrix; with `output`, the numbers of postings.

    >>> vectors = csr_array(np.array([[0.5, 2.0, 0.5, 1.0]], dtype=np.float32))
    >>> prune(vectors, max_terms=3).toarray().tolist()
    [[0.5, 2.0, 0.0, 1.0]]
    >>> prune(vectors, mass=0.75).toarray().tolist()
    [[0.0, 2.0, 0.0, 1.0]]

    Raises:
        ArgumentError: a limit is out of its range, or `output` exists.
        VectorsError: `vectors` are not sparse vectors, or stored vectors cannot be read.
    """
    # Each limit looks at the whole vectors, so their order does not matter.
    if output is None:
        matrix = as_vectors(vectors)
        keep = matrix.data >= np.float32(min_weight)
        if max_terms is not None or mass is not None:
            keep &= _heaviest(matrix, max_terms, mass)
        return matrix if keep.all() else selected(matrix, keep)
    # Stored vectors are pruned shard by shard.
    settings = settings_of(prune, locals(), then.made_from if then else {}, without=("then",))
    places = places_of(cast(Sources, vectors))
    if finished(output, settings):
        return Pruned(*(sum(shard.matrix.nnz for shard in read_shards(paths)) for paths in (places, [output])))
    postings_before, postings_after = 0, 0
    with replacing_folder(output, settings) as work:
        for number, shard in enumerate(track(read_shards(cast(Sources, vectors)), "prune")):
            kept = prune(shard.matrix, max_terms, min_weight, mass)
            kept = kept if then is None else then(shard.ids, kept)
            write_vectors(work / f"part-{number:05d}.parquet", shard.ids, kept, shard.meta, shard.dense)
            postings_before += shard.matrix.nnz
            postings_after += kept.nnz
    return Pruned(postings_before, postings_after)


def heaviest(vectors: csr_array, max_terms: np.ndarray) -> csr_array:
    """Return the vectors [n, v] with the `max_terms` [n] heaviest terms of each.

    >>> vectors = csr_array(np.array([[0.5, 2.0, 0.5, 1.0], [3.0, 1.0, 2.0, 0.0]], dtype=np.float32))
    >>> heaviest(vectors, np.array([1, 2])).toarray().tolist()
    [[0.0, 2.0, 0.0, 0.0], [3.0, 0.0, 2.0, 0.0]]
    """
    matrix = as_vectors(vectors)
    return selected(matrix, _heaviest(matrix, max_terms, None))


def _heaviest(matrix: csr_array, max_terms: int | np.ndarray | None, mass: float | None) -> np.ndarray:
    """Return a bool for each entry: True if it is among the `max_terms` largest of its row and within the `mass`."""
    starts = matrix.indptr[:-1]
    rows = np.repeat(np.arange(len(starts)), np.diff(matrix.indptr))
    # Positive floats have the order of their bits, so one integer sorts by row and then by descending weight.
    keys = (rows.astype(np.uint64) << np.uint64(32)) | ~matrix.data.view(np.uint32)
    order = np.argsort(keys, kind="stable")
    within = np.ones(len(rows), dtype=bool)  # in sorted order
    if max_terms is not None:
        within &= np.arange(len(rows)) - starts[rows] < np.broadcast_to(max_terms, len(starts))[rows]
    if mass is not None:
        totals, heavier = _running_sums(matrix, matrix.data[order].astype(np.float64))
        # The tolerance keeps rounding from adding a term: 0.3 of ten equal weights are three of them.
        within &= heavier < (mass - 1e-9) * totals[rows]
    keep = np.empty(len(rows), dtype=bool)
    keep[order] = within
    return keep


def _running_sums(matrix: csr_array, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the total of each row [n], and for each of the `weights` the sum of the earlier weights of its row."""
    filled = np.flatnonzero(np.diff(matrix.indptr))
    starts, totals = matrix.indptr[:-1][filled], np.zeros(matrix.shape[0])
    totals[filled] = np.add.reduceat(weights, starts) if len(filled) else 0
    steps = np.concatenate([[0.0], weights[:-1]])[: len(weights)]
    # Each row starts by subtracting the total of the previous row, so that the running sum stays within a row.
    steps[starts[1:]] -= totals[filled[:-1]]
    return totals, np.cumsum(steps)
