"""Sparse alignment: the student's vectors are drawn to a sparse teacher's, term by term."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vocable.errors import ArgumentError

Kind = Literal["mse", "kl"]
ABSENT = 1e-8  # the share of a vector's weight that a term without weight counts as, in a logarithm


def alignment(student: Tensor, teacher: Tensor, *, kind: Kind = "mse") -> Tensor:
    """How far the student's vectors are from the teacher's (SAP of paper 001, table 6, after arXiv 2510.00671).

    Paper 001 gives no formula, and both kinds are this project's reading. The code published with arXiv 2510.00671
    takes mean squared error over the terms that either has active, and of the pooled logits before the activation.

    - `mse`: the mean of squared differences over all pairs of a text and a term that both have active. What only one of
      them has counts nothing: the regularizers take from the student what it has too much. Without a common term the
      loss is 0.
    - `kl`: KL(teacher || student) of the vectors normalized to sum 1, the mean over texts. A term that the student
      lacks counts as a share of 1e-8, because the divergence would be infinite. A text for which the teacher has no
      term counts 0.

    Args:
        student: [m, v] m texts over v terms, no weight negative.
        teacher: [m, v] the teacher's vectors of the same texts, over the same terms.
        kind: one of the two above.

    Raises:
        ArgumentError: the two are not of one shape, or the kind is unknown.

    >>> student, teacher = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[1.0, 4.0, 5.0]])
    >>> float(alignment(student, teacher, kind="mse"))  # over two terms
    2.0
    >>> float(alignment(teacher, 3 * teacher, kind="kl"))
    0.0
    """
    if student.shape != teacher.shape:
        raise ArgumentError(f"vectors of shapes {list(student.shape)} and {list(teacher.shape)} cannot be aligned")
    if kind == "mse":
        shared = (student > 0) & (teacher > 0)
        return ((student - teacher).square() * shared).sum() / shared.sum().clamp(min=1)
    if kind == "kl":
        wanted, found = _shares(teacher), _shares(student)
        return torch.xlogy(wanted, wanted).sub(wanted * found.clamp(min=ABSENT).log()).sum(dim=1).mean()
    raise ArgumentError(f"alignment is mse or kl, not {kind}")


def _shares(vectors: Tensor) -> Tensor:
    """Each row over its sum; a row of zeros stays one."""
    sums = vectors.sum(dim=1, keepdim=True)
    return vectors / torch.where(sums > 0, sums, 1)
