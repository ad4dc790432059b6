"""Top-k masking: what is left of a vector when only its heaviest terms are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from vocable.errors import ArgumentError


def top_k_mask(vectors: Tensor, k: int) -> Tensor:
    """The vectors with all but the k heaviest terms of each set to 0 (arXiv 2112.09628).

    Of terms that weigh the same at the k-th place, those with the lower ids are kept. Gradients go to the kept terms
    alone. What is not finite is not masked: it makes the result not finite.

    Args:
        vectors: [m, v] m texts over v terms, no weight negative.
        k: how many terms are kept. A text with fewer active ones is left as it is.

    Returns:
        [m, v]

    Raises:
        ArgumentError: k is not positive.

    >>> top_k_mask(torch.tensor([[3.0, 1.0, 2.0, 2.0], [0.0, 5.0, 0.0, 0.0]]), 2)
    tensor([[3., 0., 2., 0.],
            [0., 5., 0., 0.]])
    """
    if k < 1:
        raise ArgumentError(f"k must be at least 1, not {k}")
    if k >= vectors.shape[1]:
        return vectors
    lightest = vectors.detach().topk(k, dim=1).values[:, -1:]
    heavier, tied = vectors > lightest, vectors == lightest
    places = k - heavier.sum(dim=1, keepdim=True)
    kept = heavier | (tied & (tied.cumsum(dim=1, dtype=torch.int32) <= places))
    return vectors * kept
