"""Overlap: the penalty on a query and its document that differ in their terms.

The ramp of a regularizer's weight: from nothing to all of it over the first part of a training.

FLOPS: the penalty on how much of the batch each term is active in, and how strongly.

DF-FLOPS: what a term costs by the number of documents that it is active in.

Joint FLOPS: the penalty on terms that queries and documents have in common.

L1: the penalty on the sum of a text's weights.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vocable.errors import ArgumentError

Shape = Literal["constant", "linear", "quadratic"]
POWERS = {"constant": 0, "linear": 1, "quadratic": 2}


def ramp(step: int, total_steps: int, *, shape: Shape = "quadratic", share: float = 1 / 3) -> float:
    """min(1, step / (T · share))^p: what a weight is multiplied by (paper 000: quadratic over the first third).

    Args:
        step: how many steps are done: 0 in the first one.
        total_steps: T, how many there will be.
        shape: p is 0 for "constant", 1 for "linear" and 2 for "quadratic".
        share: of the steps that the ramp takes.

    Raises:
        ArgumentError: an unknown shape, or numbers out of range.

    >>> [ramp(step, 300) for step in (0, 50, 100, 200)]
    [0.0, 0.25, 1.0, 1.0]
    >>> ramp(75, 300, shape="linear", share=0.5), ramp(0, 300, shape="constant")
    (0.5, 1.0)
    """
    if shape not in POWERS:
        raise ArgumentError(f"a ramp is {', '.join(POWERS)}, not {shape}")
    if step < 0 or total_steps < 1 or not 0 < share <= 1:
        raise ArgumentError(f"no ramp at step {step} of {total_steps} over a share of {share}")
    return float(min(1.0, step / (total_steps * share)) ** POWERS[shape])


def flops(vectors: Tensor, *, threshold: int = 0, term_weights: Tensor | None = None) -> Tensor:
    """sum_j (mean_i w_j(i))^2 (Paria et al. 2020, arXiv 2004.05665; paper 004, eq. 3).

    The mean is over all texts given. Where a batch is spread over devices, its vectors are to be gathered first: the
    mean of the devices' own penalties is another number, never a smaller one.

    Args:
        vectors: [m, v] m texts over v terms.
        threshold: texts with this many active terms or fewer count as empty (L0-masked FLOPS, arXiv 2504.14839). They
            still count in the number of texts.
        term_weights: [v] what each term's weights are multiplied by: inverse document frequencies (arXiv 2504.14839),
            or g of `vocable.objectives.regularizers.df_weights`.

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


def df_weights(frequencies: Tensor, *, alpha: float = 0.1, beta: float = 10.0) -> Tensor:
    """g = 1 / (1 + (x^{log_alpha 2} - 1)^beta), the term weights of DF-FLOPS (arXiv 2505.15070).

    The penalty is `flops(vectors, term_weights=df_weights(frequencies))`. A term of no document costs nothing, one of
    every document as much as in FLOPS.

    Args:
        frequencies: [v] x, for each of v terms the share of documents that it is active in.
        alpha: the share at which g is one half.
        beta: how steeply g rises there.

    Returns:
        [v] from 0 to 1.

    Raises:
        ArgumentError: frequencies are not shares, or alpha or beta is out of its range.

    >>> import torch
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
    """sum_j mean_q w_j(q) · mean_d w_j(d), the mean score of all pairs (paper 004, eq. 4).

    As in `vocable.objectives.regularizers.flops`, the means are over all texts given.

    Args:
        queries: [b, v] b queries over v terms.
        documents: [n, v] n documents.

    >>> import torch
    >>> float(joint_flops(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), torch.tensor([[4.0, 0.0]])))
    8.0
    """
    return queries.mean(dim=0) @ documents.mean(dim=0)


def l1(vectors: Tensor) -> Tensor:
    """mean_i sum_j w_j(i), where a common term costs no more than a rare one (paper 003, section 3.1).

    Args:
        vectors: [m, v] m texts over v terms, no weight negative.

    >>> import torch
    >>> float(l1(torch.tensor([[2.0, 0.0], [1.0, 4.0]])))
    3.5
    """
    return vectors.sum(dim=1).mean()


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
