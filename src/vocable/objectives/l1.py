"""L1: the penalty on the sum of a text's weights."""

from __future__ import annotations

from torch import Tensor


def l1(vectors: Tensor) -> Tensor:
    """mean_i sum_j w_j(i), where a common term costs no more than a rare one (paper 003, section 3.1).

    Args:
        vectors: [m, v] m texts over v terms, no weight negative.

    >>> import torch
    >>> float(l1(torch.tensor([[2.0, 0.0], [1.0, 4.0]])))
    3.5
    """
    return vectors.sum(dim=1).mean()
