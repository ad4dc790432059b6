"""Regularizers: costs of the terms of a batch's vectors, which make them sparse.

`vocable.objectives.settings` has the regularizers of a recipe, which compute these functions.

Letters: b queries, n documents, m texts of one side, v terms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vocable.errors import ArgumentError


def flops(vectors: Tensor, *, threshold: int = 0, term_weights: Tensor | None = None) -> Tensor:
    """Return sum_j (mean_i w_j(i))^2 (Paria et al. 2020, arXiv 2004.05665; Kim et al. 2026, eq. 3).

    Gather the vectors of a batch that is spread over devices first.

    Args:
        vectors: [m, v].
        threshold: texts with at most this many active terms count as empty vectors in the mean (L0-masked FLOPS,
            arXiv 2504.14839).
        term_weights: [v] factors of the terms' weights: inverse document frequencies (arXiv 2504.14839), or the result
            of `df_weights`.

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
    # [v]
    means = vectors.mean(dim=0)
    if term_weights is not None:
        means = means * term_weights
    return means.square().sum()


def df_weights(frequencies: Tensor, *, alpha: float = 0.1, beta: float = 10.0) -> Tensor:
    """Return g = 1 / (1 + (x^{log_alpha 2} - 1)^beta), the term weights of DF-FLOPS (arXiv 2505.15070).

    `frequencies` [v] are x, the share of documents whose vectors have each term; the result [v] lies between 0 and 1.
    It is one half at the share `alpha`, and steeper there with a larger `beta`. A term that no document has costs
    nothing, and a term that every document has costs as much as in FLOPS.

    >>> df_weights(torch.tensor([0.0, 0.05, 0.1, 0.2, 1.0])).round(decimals=3)
    tensor([0.0000, 0.0220, 0.5000, 0.9910, 1.0000])
    """
    if not 0 < alpha < 1 or beta <= 0:
        raise ArgumentError(f"alpha must be between 0 and 1 and beta above 0, not {alpha} and {beta}")
    if not bool(((frequencies >= 0) & (frequencies <= 1)).all()):
        raise ArgumentError("document frequencies must be shares of the documents, from 0 to 1")
    exponent = math.log(2) / math.log(alpha)
    return 1 / (1 + (frequencies**exponent - 1) ** beta)


def joint_flops(queries: Tensor, documents: Tensor) -> Tensor:
    """Return sum_j mean_q w_j(q) · mean_d w_j(d), the mean score of all pairs (Kim et al. 2026, eq. 4).

    `queries` are [b, v], `documents` [n, v].

    >>> float(joint_flops(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), torch.tensor([[4.0, 0.0]])))
    8.0
    """
    return queries.mean(dim=0) @ documents.mean(dim=0)


def l1(vectors: Tensor) -> Tensor:
    """Return mean_i sum_j w_j(i) of vectors [m, v] without negative weights (Polyakov et al. 2026, section 3.1).

    >>> float(l1(torch.tensor([[2.0, 0.0], [1.0, 4.0]])))
    3.5
    """
    return vectors.sum(dim=1).mean()


def overlap_distance(queries: Tensor, documents: Tensor) -> Tensor:
    """Return 1 - sum_j min(a_j(q), a_j(d)) / sum_j max(a_j(q), a_j(d)), a = 1 - e^-w, averaged over pairs.

    Kim et al. 2026, appendix J.3, name the Jaccard distance; computing it on a is our interpretation. With weights of 0
    and infinity only, it is the Jaccard distance of two sets. The distance of a pair of empty vectors is 1.
    `queries` and `documents` are [b, v] without negative weights; document i is query i's positive.

    >>> inf = float("inf")
    >>> float(overlap_distance(torch.tensor([[inf, inf, inf, 0.0]]), torch.tensor([[0.0, inf, inf, inf]])))  # 1 - 2 / 4
    0.5
    >>> half, most = torch.tensor([[2.0, 0.0]]).log(), torch.tensor([[4.0, 2.0]]).log()
    >>> round(float(overlap_distance(half.clamp(min=0), most)), 4)  # 1 - (1/2 + 0) / (3/4 + 1/2)
    0.6
    """
    queries, documents = -torch.expm1(-queries), -torch.expm1(-documents)
    shared = torch.minimum(queries, documents).sum(dim=1)
    either = torch.maximum(queries, documents).sum(dim=1)
    return (1 - shared / torch.where(either > 0, either, 1)).mean()


def differing_terms(queries: Tensor, documents: Tensor) -> Tensor:
    """Return sum_j |a_j(q) - a_j(d)|, a = 1 - e^-w, averaged over pairs.

    Kim et al. 2026, appendix J.3, name the Hamming distance; computing it on a is our interpretation. With weights of 0
    and infinity only, it is the number of terms that exactly one vector of the pair has. Arguments as in
    `overlap_distance`.

    >>> inf = float("inf")
    >>> float(differing_terms(torch.tensor([[inf, inf, inf, 0.0]]), torch.tensor([[0.0, inf, inf, inf]])))
    2.0
    """
    return (torch.expm1(-queries) - torch.expm1(-documents)).abs().sum(dim=1).mean()
