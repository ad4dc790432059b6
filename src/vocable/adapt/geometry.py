"""The shape of an output matrix W [v, d]: how long its rows are, and how much they point the same way.

Both are the statistics of table 1 of "Rescaling MLM-Head for Neural Sparse Retrieval", for v terms of d dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def row_norms(weight: Tensor) -> Tensor:
    """The L2 norm of each row of `weight` [v, d], float32 [v].

    >>> row_norms(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([5., 0.])
    """
    norms: Tensor = torch.linalg.vector_norm(weight.detach(), dim=1, dtype=torch.float32)
    return norms


def anisotropy(weight: Tensor) -> float:
    """The mean cosine of two different rows of `weight` [v, d]; rows of zeros have no direction and are left out.

    Exact, and without the v x v cosines: the squared length of the sum of the v unit vectors is the sum over all pairs,
    of which v are pairs of a row with itself.

    >>> anisotropy(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 5.0]]))  # cosines 0, 0 and 1
    0.3333333333333333

    It is 0 where there are fewer than two rows.
    """
    norms = row_norms(weight)
    rows = int((norms > 0).sum())
    if rows < 2:
        return 0.0
    inverse = torch.where(norms > 0, norms.reciprocal(), 0.0)
    total = inverse @ weight.detach().float()
    return (float(total.double().square().sum()) - rows) / (rows * (rows - 1))
