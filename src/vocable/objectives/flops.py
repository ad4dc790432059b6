"""FLOPS: the penalty on how much of the batch each term is active in, and how strongly."""

from __future__ import annotations

from torch import Tensor


def flops(vectors: Tensor, *, threshold: int = 0, term_weights: Tensor | None = None) -> Tensor:
    """sum_j (mean_i w_j(i))^2 (Paria et al. 2020, arXiv 2004.05665; paper 004, eq. 3).

    The mean is over all texts given. Where a batch is spread over devices, its vectors are to be gathered first: the
    mean of the devices' own penalties is another number, never a smaller one.

    Args:
        vectors: [m, v] m texts over v terms.
        threshold: texts with this many active terms or fewer count as empty (L0-masked FLOPS, arXiv 2504.14839). They
            still count in the number of texts.
        term_weights: [v] what each term's weights are multiplied by: inverse document frequencies (arXiv 2504.14839),
            or g of `vocable.objectives.df_flops.df_weights`.

    >>> import torch
    >>> vectors = torch.tensor([[2.0, 0.0, 0.0], [2.0, 4.0, 1.0]])
    >>> float(flops(vectors))  # 2^2 + 2^2 + 0.5^2
    8.25
    >>> float(flops(vectors, threshold=1))  # 1^2 + 2^2 + 0.5^2
    5.25
    >>> float(flops(vectors, term_weights=torch.tensor([0.0, 1.0, 2.0])))
    5.0
    """
    if threshold:
        vectors = vectors * ((vectors > 0).sum(dim=1, keepdim=True) > threshold)
    means = vectors.mean(dim=0)
    if term_weights is not None:
        means = means * term_weights
    return means.square().sum()
