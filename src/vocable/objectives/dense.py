"""The loss of a model's dense vectors, which it gives in addition to its sparse vectors, against a dense teacher.

Letters: b queries of a batch, n documents (the first b are the positives), d dimensions, t dimensions of the teacher.
"""

from __future__ import annotations

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from vocable.objectives import Settings
from vocable.objectives.losses import kl


class DenseSettings(Settings):
    """Dense vectors from the same pass as the sparse vectors: the mean of the last hidden states, taught by a model."""

    teacher: str | None = Field(
        default=None, description="dense model to learn from; null: the first one of teacher.models"
    )
    dimensions: PositiveInt | None = Field(
        default=None, description="first dimensions of the hidden states that the vectors have; null: all"
    )
    shorter: list[PositiveInt] = Field(
        default=[], description="numbers of first dimensions whose scores learn, too (Matryoshka)"
    )
    temperature: PositiveFloat = Field(
        default=0.05, description="divisor of the cosines, the model's and the teacher's"
    )
    score_weight: NonNegativeFloat = Field(default=1.0, description="weight of the KL divergence of the scores")
    vector_weight: NonNegativeFloat = Field(
        default=1.0, description="weight of 1 - cosine to the teacher's vector, if it has as many dimensions"
    )


def dense_loss(
    queries: Tensor, documents: Tensor, teacher_queries: Tensor, teacher_documents: Tensor, settings: DenseSettings
) -> Tensor:
    """Return the distance of dense vectors from a teacher's vectors, both of the scores and of the vectors.

    The scores are cosines of every query with every document; their KL divergence is a mean over queries and over the
    numbers of dimensions (Kusupati et al. 2022, arXiv:2205.13147). The vectors are compared text by text.

    Args:
        queries: [b, d], all dimensions of the hidden states.
        documents: [n, d].
        teacher_queries: [b, t], unit vectors.
        teacher_documents: [n, t].

    >>> texts = torch.eye(2)
    >>> float(dense_loss(texts, texts, texts, texts, DenseSettings()))
    0.0
    """
    tau, taught = settings.temperature, teacher_queries @ teacher_documents.T
    losses = []
    for d in {settings.dimensions or queries.shape[1], *settings.shorter}:
        scores = normalize(queries[:, :d], dim=1) @ normalize(documents[:, :d], dim=1).T
        losses.append(kl(scores, taught, temperature=tau, teacher_temperature=tau))
    loss = settings.score_weight * torch.stack(losses).mean()
    if settings.vector_weight and queries.shape[1] == teacher_queries.shape[1]:
        texts, teacher = torch.cat([queries, documents]), torch.cat([teacher_queries, teacher_documents])
        loss = loss + settings.vector_weight * (1 - cosine_similarity(texts, teacher, dim=1)).mean()
    return loss
