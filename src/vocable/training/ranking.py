"""The losses of a recipe on the vectors of a batch, as a weighted sum.

Letters: b queries, c negatives of an example, n = b (1 + c) documents, v terms. The documents stand column by column:
first the b positives, then everybody's first negative, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vocable.objectives.alignment import alignment
from vocable.objectives.info_nce import Queue, info_nce
from vocable.objectives.kl import kl
from vocable.objectives.margin_mse import margin_mse
from vocable.objectives.top_k import top_k_mask
from vocable.training.settings import KL, TAUGHT, Alignment, InfoNCE, Loss, TopK
from vocable.training.sparse_teacher import SparseTeacher
from vocable.training.teacher import Teacher


class Ranking:
    """What the vectors of a batch are to be: good at ranking, or like a teacher's.

    Args:
        losses: each with its weight.
        top_k: the losses are taken on the heaviest terms and, if it says so, on all, and the two are added
            (arXiv 2112.09628).
        teacher: of `kl` and `margin_mse`.
        sparse_teacher: of `alignment`.
    """

    def __init__(
        self,
        losses: Sequence[Loss],
        *,
        top_k: TopK | None = None,
        teacher: Teacher | None = None,
        sparse_teacher: SparseTeacher | None = None,
    ) -> None:
        self._losses, self._top_k = losses, top_k
        self._teacher = teacher if any(loss.name in TAUGHT for loss in losses) else None
        self._sparse_teacher = sparse_teacher

    def __call__(
        self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, queue: Queue | None = None
    ) -> dict[str, Tensor]:
        """Each loss of queries [b, v] and documents [n, v], times its weight, by its name.

        Args:
            labels: [b], the rows of the examples, by which the teachers know them.
            queue: further negatives of the in-batch loss, the same whether the others are masked or full.
        """
        nothing = queries.new_empty(0, 0)
        rows = np.empty(0, dtype=np.int64) if labels is None else labels.cpu().numpy()
        lesson = Lesson(
            scores=nothing if self._teacher is None else self._teacher.scores(rows).to(queries.device),
            vectors=nothing if self._sparse_teacher is None else self._sparse_teacher.vectors(rows).to(queries.device),
            queue=queue,
        )
        views = self._views(queries, documents)
        return {
            loss.name: loss.weight * torch.stack([_value(loss, *view, lesson) for view in views]).sum()
            for loss in self._losses
        }

    def _views(self, queries: Tensor, documents: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The vectors on which the losses are taken: full, masked, or both."""
        full = (queries, documents)
        if self._top_k is None:
            return [full]
        k = self._top_k
        masked = (
            queries if k.query is None else top_k_mask(queries, k.query),
            documents if k.document is None else top_k_mask(documents, k.document),
        )
        return [masked, full] if k.full else [masked]


class Lesson(NamedTuple):
    """What there is to a batch beside its vectors: what the teachers say of it, empty where there is none."""

    scores: Tensor  # [b, n] of all its documents, or [b, 1 + c] of each example's own, the positive first
    vectors: Tensor  # [b + n, v] of its queries and documents
    queue: Queue | None


def _value(loss: Loss, queries: Tensor, documents: Tensor, lesson: Lesson) -> Tensor:
    if isinstance(loss, InfoNCE):
        return info_nce(
            queries,
            documents,
            temperature=loss.temperature,
            margin=loss.margin,
            cosine=loss.cosine,
            queue=lesson.queue,
        )
    if isinstance(loss, Alignment):
        return alignment(torch.cat([queries, documents]), lesson.vectors, kind=loss.kind)
    if lesson.scores.shape[1] == len(documents):  # more than 1 + c of them: a batch has two examples at least
        scores, taught = positive_first(queries @ documents.T), positive_first(lesson.scores)
    else:
        scores, taught = own_scores(queries, documents), lesson.scores
    if isinstance(loss, KL):
        return kl(scores, taught, temperature=loss.temperature, teacher_temperature=loss.teacher_temperature)
    return margin_mse(scores, taught)


def own_scores(queries: Tensor, documents: Tensor) -> Tensor:
    """Each query [b, v] with the 1 + c documents of its own example [n, v]: [b, 1 + c], the positive first.

    >>> own_scores(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    tensor([[1., 3.],
            [4., 8.]])
    """
    return torch.einsum("bv,cbv->bc", queries, documents.unflatten(0, (-1, len(queries))))


def positive_first(scores: Tensor) -> Tensor:
    """Scores of every query with every document [b, n], each query's own column i moved to the front.

    >>> positive_first(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    tensor([[1, 2, 3],
            [5, 4, 6]])
    """
    own = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
    return torch.cat([scores.diagonal()[:, None], scores[~own].view(len(scores), -1)], dim=1)
