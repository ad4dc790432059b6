"""In how many documents each term is active, kept up while the model changes.

Letters: n documents, v terms.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

REFRESH = 100  # steps between two estimates (arXiv 2505.15070)


class DocumentFrequencies(nn.Module):
    """The share of documents in which each term is active, estimated from the documents trained on.

    The estimate holds for `REFRESH` steps and is then replaced by that of the documents seen in the meantime. Until the
    first of them is whole, it is that of the documents seen so far.
    """

    seen: Tensor  # [v], documents since the last estimate in which a term was active
    documents: Tensor  # how many these are
    estimate: Tensor  # [v]
    estimated: Tensor  # the step of the last estimate

    def __init__(self, v: int) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(v, dtype=torch.int64))
        self.register_buffer("documents", torch.tensor(0))
        self.register_buffer("estimate", torch.zeros(v))
        self.register_buffer("estimated", torch.tensor(0))

    @torch.no_grad()
    def count(self, documents: Tensor, step: int) -> None:
        """Take note of documents [n, v] that are trained on in a step, counted from 0."""
        if step - int(self.estimated) >= REFRESH:
            self.estimate.copy_(self.seen / self.documents.clamp(min=1))
            self.estimated.fill_(step)
            self.seen.zero_()
            self.documents.zero_()
        self.seen += (documents > 0).sum(dim=0)
        self.documents += len(documents)

    def shares(self) -> Tensor:
        """[v], each from 0 to 1."""
        return self.estimate if int(self.estimated) else self.seen / self.documents.clamp(min=1)
