"""KL distillation: the student's distribution over a query's candidates is drawn to the teacher's."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def kl(scores: Tensor, teacher_scores: Tensor, *, temperature: float = 1.0, teacher_temperature: float = 1.0) -> Tensor:
    """KL(softmax(t / T) || softmax(s / tau)), the mean over queries.

    The host library's SparseDistillKLDivLoss multiplies the same value by tau squared. Here a loss's weight is left to
    the recipe.

    Args:
        scores: [b, k] the student's scores s of each query's k candidates.
        teacher_scores: [b, k] the teacher's scores t of the same candidates.
        temperature: tau, what the student's scores are divided by.
        teacher_temperature: T, what the teacher's are divided by: of the order of the differences that matter to it.

    >>> import torch
    >>> same = torch.tensor([[2.0, 1.0, 0.0]])
    >>> round(float(kl(same, same)), 6)
    0.0
    >>> round(float(kl(torch.zeros(1, 3), same)), 4)  # log(3) less the entropy of the teacher's distribution
    0.2662
    """
    return functional.kl_div(
        functional.log_softmax(scores / temperature, dim=1),
        functional.log_softmax(teacher_scores / teacher_temperature, dim=1),
        log_target=True,
        reduction="batchmean",
    )
