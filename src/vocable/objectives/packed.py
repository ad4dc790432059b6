"""Many sparse vectors in little memory, and queries' scores with them.

Letters: b queries, m vectors, v terms, z weights above zero in all vectors together.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Packed(NamedTuple):
    """The rows of a sparse matrix [m, v]: 8 bytes a weight, and no gradients."""

    offsets: Tensor  # [m + 1] int32, row i owns the places offsets[i] to offsets[i + 1]
    terms: Tensor  # [z] int32, of a row the heaviest first
    weights: Tensor  # [z]

    @property
    def rows(self) -> int:
        """m."""
        return len(self.offsets) - 1


def pack(vectors: Tensor, k: int) -> Packed:
    """The k heaviest terms of each vector [m, v]; of one with fewer active terms, all.

    >>> offsets, terms, weights = pack(torch.tensor([[0.0, 3.0, 4.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]), 2)
    >>> offsets.tolist(), terms.tolist(), weights.tolist()
    ([0, 2, 2, 3], [2, 1, 0], [4.0, 3.0, 2.0])
    """
    weights, terms = vectors.detach().topk(min(k, vectors.shape[1]), dim=1)
    active = weights > 0
    offsets = functional.pad(active.sum(dim=1).cumsum(dim=0), (1, 0))
    return Packed(offsets.int(), terms[active].int(), weights[active])


def nothing(like: Tensor) -> Packed:
    """No rows, of the type and on the device of weights such as these."""
    return Packed(like.new_zeros(1, dtype=torch.int32), like.new_empty(0, dtype=torch.int32), like.new_empty(0))


def join(first: Packed, second: Packed) -> Packed:
    """The rows of both, one after the other."""
    offsets = torch.cat([first.offsets, second.offsets[1:] + first.offsets[-1]])
    return Packed(offsets, torch.cat([first.terms, second.terms]), torch.cat([first.weights, second.weights]))


def last_rows(packed: Packed, count: int) -> Packed:
    """The last `count` rows, or all if there are no more."""
    offsets = packed.offsets[-count - 1 :]
    return Packed(offsets - offsets[0], packed.terms[offsets[0] :], packed.weights[offsets[0] :])


def unit(packed: Packed) -> Packed:
    """Each row over its length; a row without terms stays one."""
    row = torch.repeat_interleave(packed.offsets.diff())
    squares = packed.weights.new_zeros(packed.rows).index_add(0, row, packed.weights.square())
    return packed._replace(weights=packed.weights / squares.sqrt()[row])


def packed_scores(queries: Tensor, packed: Packed) -> Tensor:
    """Inner products of queries [b, v] with m vectors: [b, m], differentiable in the queries.

    >>> float(packed_scores(torch.tensor([[1.0, 2.0]]), pack(torch.tensor([[0.0, 3.0]]), 2)))
    6.0
    """
    if not packed.rows:
        return queries.new_empty(len(queries), 0)
    weights = packed.weights.to(queries.dtype)
    return functional.embedding_bag(  # which sums rows of a table with weights: of [v, b], this product
        packed.terms, queries.T, packed.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
    ).T
