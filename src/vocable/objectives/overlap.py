"""Overlap: the penalty on a query and its document that differ in their terms."""

from __future__ import annotations

import torch
from torch import Tensor


def overlap_distance(queries: Tensor, documents: Tensor) -> Tensor:
    """1 - sum_j min(a_j(q), a_j(d)) / sum_j max(a_j(q), a_j(d)), a = 1 - e^-w, the mean over pairs (paper 004, J.3).

    The paper asks for a penalty that has a query and its positive share many terms of medium weight, so that a search
    can ask for a share of the query's terms, and names the Jaccard distance. That it is taken of a, how far a term is
    active at all, is our reading: a rises from 0 to 1 and counts a term of weight 4 hardly more than one of weight 2.
    With weights of 0 and infinity only, this is the Jaccard distance of two sets.

    Args:
        queries: [b, v] b queries over v terms, no weight negative.
        documents: [b, v] document i is query i's positive.

    A pair without a term shares nothing: its distance is 1.

    >>> inf = float("inf")
    >>> float(overlap_distance(torch.tensor([[inf, inf, inf, 0.0]]), torch.tensor([[0.0, inf, inf, inf]])))  # 1 - 2 / 4
    0.5
    >>> half, most = torch.tensor([[2.0, 0.0]]).log(), torch.tensor([[4.0, 2.0]]).log()
    >>> round(float(overlap_distance(half.clamp(min=0), most)), 4)  # 1 - (1/2 + 0) / (3/4 + 1/2)
    0.6
    """
    active, given = -torch.expm1(-queries), -torch.expm1(-documents)
    shared = torch.minimum(active, given).sum(dim=1)
    either = torch.maximum(active, given).sum(dim=1)
    return (1 - shared / torch.where(either > 0, either, 1)).mean()
