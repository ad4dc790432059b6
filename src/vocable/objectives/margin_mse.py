"""MarginMSE: the student's margins between positive and negative are drawn to the teacher's."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from vocable.errors import ArgumentError


def margin_mse(scores: Tensor, teacher_scores: Tensor) -> Tensor:
    """((s(q,d+) - s(q,d-)) - (t+ - t-))^2, the mean over all triples (Hofstätter et al. 2020, arXiv 2010.02666).

    Args:
        scores: [b, k] the student's scores s of each query's k candidates, the positive first.
        teacher_scores: [b, k] the teacher's scores t of the same candidates. Their scale becomes the student's.

    Raises:
        ArgumentError: there is no negative, or the two are not of one shape.

    >>> import torch
    >>> scores, taught = torch.tensor([[5.0, 3.0, 1.0]]), torch.tensor([[9.0, 6.0, 6.0]])
    >>> float(margin_mse(scores, taught))  # margins 2 and 4 where 3 and 3 are taught
    1.0
    """
    if scores.shape != teacher_scores.shape or scores.shape[1] < 2:
        shapes = f"{list(scores.shape)} and {list(teacher_scores.shape)}"
        raise ArgumentError(f"MarginMSE needs scores of a positive and of negatives, alike in shape, not {shapes}")
    return functional.mse_loss(scores[:, :1] - scores[:, 1:], teacher_scores[:, :1] - teacher_scores[:, 1:])
