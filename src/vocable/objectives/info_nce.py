"""InfoNCE: each query shall find its own document among all documents of the batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from vocable.errors import ArgumentError
from vocable.objectives.packed import Packed, packed_scores, unit


class Queue(NamedTuple):
    """Negatives from beyond the batch."""

    documents: Packed  # m rows
    left_out: Tensor  # [b, m], True where a document is none of the query's negatives: it is its positive


def info_nce(
    queries: Tensor,
    documents: Tensor,
    *,
    temperature: float = 1.0,
    margin: float = 0.0,
    cosine: bool = False,
    queue: Queue | None = None,
) -> Tensor:
    """-log of the positive's share of e^{s / tau} over all documents, the mean over queries (paper 004, eq. 2).

    Args:
        queries: [b, v] b queries over v terms.
        documents: [n, v] with n >= b: document i is query i's positive, every other one a negative.
        temperature: tau, what the scores are divided by.
        margin: taken from the positive's score before the division (the additive margin of paper 004, J.4).
        cosine: s is the cosine and not the inner product. With a vector without terms it is 0.
        queue: further negatives, which get no gradients (paper 004, J.4, after arXiv 1911.05722).

    Raises:
        ArgumentError: a query has no positive.

    >>> queries, documents = torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> round(float(info_nce(queries, documents)), 4)  # log(e^2 + e^0 + e^1) - 2
    0.4076
    >>> round(float(info_nce(queries, documents, margin=2.0)), 4)  # log(e^0 + e^0 + e^1) - 0
    1.5514
    """
    if len(documents) < len(queries):
        raise ArgumentError(f"each query needs a positive: {len(documents)} documents for {len(queries)} queries")
    if cosine:
        queries, documents = _unit(queries), _unit(documents)
        queue = None if queue is None else queue._replace(documents=unit(queue.documents))
    scores = queries @ documents.T
    if margin:
        scores = scores - margin * torch.eye(*scores.shape, dtype=scores.dtype, device=scores.device)
    if queue is not None:
        further = packed_scores(queries, queue.documents)
        scores = torch.cat([scores, further.masked_fill(queue.left_out, -torch.inf)], dim=1)
    own = torch.arange(len(queries), device=scores.device)
    return functional.cross_entropy(scores / temperature, own)


def _unit(vectors: Tensor) -> Tensor:
    """Each row over its length; a row of zeros stays one, and so does its gradient stay finite."""
    lengths = vectors.norm(dim=1, keepdim=True)
    return vectors / torch.where(lengths > 0, lengths, 1)
