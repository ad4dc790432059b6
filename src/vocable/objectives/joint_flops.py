"""Joint FLOPS: the penalty on terms that queries and documents have in common."""

from __future__ import annotations

from torch import Tensor


def joint_flops(queries: Tensor, documents: Tensor) -> Tensor:
    """sum_j mean_q w_j(q) · mean_d w_j(d), the mean score of all pairs (paper 004, eq. 4).

    As in `vocable.objectives.flops.flops`, the means are over all texts given.

    Args:
        queries: [b, v] b queries over v terms.
        documents: [n, v] n documents.

    >>> import torch
    >>> float(joint_flops(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), torch.tensor([[4.0, 0.0]])))
    8.0
    """
    return queries.mean(dim=0) @ documents.mean(dim=0)
