"""Several teachers as one: each one's scores standardized, so that none drowns the others by its scale."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def ensemble(scores: Sequence[Tensor]) -> Tensor:
    """The mean of the teachers' scores, each teacher's standardized over a query's candidates.

    Args:
        scores: of each teacher [b, k]. A teacher to whom all candidates of a query are alike says nothing about it.

    Returns:
        [b, k], in standard deviations.

    >>> ensemble([torch.tensor([[0.1, 0.1, 0.4, 0.2]]), torch.tensor([[0.0, 0.0, 30.0, 0.0]])]).round(decimals=2)
    tensor([[-0.7000, -0.7000,  1.6800, -0.2900]])
    """
    centred = [each - each.mean(dim=1, keepdim=True) for each in scores]
    spreads = [each.square().mean(dim=1, keepdim=True).sqrt() for each in centred]
    standardized = [each / torch.where(spread > 0, spread, 1) for each, spread in zip(centred, spreads, strict=True)]
    return torch.stack(standardized).mean(dim=0)
