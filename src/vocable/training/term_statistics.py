"""The regularizers of a recipe, and the statistics of terms that they need, computed while a model is trained.

A new statistic is a class here, a case in `term_statistics`, and a name in `objectives.settings.Statistic`.

Letters: b queries of a batch, n documents, v terms.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import DatasetDict
from sentence_transformers import SparseEncoder
from torch import Tensor, nn

from vocable.core.steps import array_once
from vocable.encoding.idf import document_frequencies, idf
from vocable.encoding.terms import terms
from vocable.errors import ModelError
from vocable.objectives.settings import OneSide, Regularizers
from vocable.torch_models.asymmetric import route
from vocable.torch_models.output_vocabulary import output_vocabulary
from vocable.training import distributed

REFRESH = 100  # steps between two estimates of document frequencies (arXiv 2505.15070)


class TermStatistic(nn.Module):
    """A statistic [v]; checkpoints keep its persistent buffers."""

    def observe(self, documents: Tensor, step: int) -> None:
        """Look at the documents [n, v] that the model learns from in a step."""

    def values(self) -> Tensor:
        """Return the statistic [v]."""
        raise NotImplementedError


class FixedStatistic(TermStatistic):
    """A statistic that is known before the training."""

    fixed: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("fixed", values, persistent=False)

    def values(self) -> Tensor:
        return self.fixed


class DocumentFrequencies(TermStatistic):
    """The share of documents that have each term, estimated every `REFRESH` steps.

    Before the first estimate it is the share of all documents seen.
    """

    seen: Tensor  # [v], number of documents with each term since the last estimate
    documents: Tensor  # number of all documents since the last estimate
    estimate: Tensor  # [v]
    estimated_at: Tensor  # the step of the last estimate

    def __init__(self, v: int) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(v, dtype=torch.int64))
        self.register_buffer("documents", torch.tensor(0))
        self.register_buffer("estimate", torch.zeros(v))
        self.register_buffer("estimated_at", torch.tensor(0))

    @torch.no_grad()
    def observe(self, documents: Tensor, step: int) -> None:
        if step - int(self.estimated_at) >= REFRESH:
            self.estimate.copy_(self.seen / self.documents.clamp(min=1))
            self.estimated_at.fill_(step)
            self.seen.zero_()
            self.documents.zero_()
        self.seen += (documents > 0).sum(dim=0)
        self.documents += len(documents)

    def values(self) -> Tensor:
        return self.estimate if int(self.estimated_at) else self.seen / self.documents.clamp(min=1)


def term_statistics(
    settings: Regularizers, model: SparseEncoder, examples: DatasetDict, folder: Path
) -> dict[str, TermStatistic]:
    """Return the statistic of each side whose active regularizer needs one; `folder` keeps files for a resumed run."""
    statistics: dict[str, TermStatistic] = {}
    for side, part in settings.active.items():
        if not isinstance(part, OneSide) or part.needs is None:
            continue
        if part.needs == "idf":
            statistics[side] = FixedStatistic(_idf(model, examples, folder / "idf.npy"))
        else:
            statistics[side] = DocumentFrequencies(len(terms(model)))
    return statistics


def _idf(model: SparseEncoder, examples: DatasetDict, path: Path) -> Tensor:
    transformer: Any = route(model, "document")[0]
    if output_vocabulary(transformer.auto_model) is not None:
        raise ModelError("idf_flops counts the tokens of documents, but this model's output terms are not its tokens")
    columns = [(source, column) for source in examples.values() for column in source.column_names]
    texts = (text for source, column in columns if column not in ("query", "label") for text in source[column])
    size = len(terms(model))
    with distributed.first_alone():
        values = array_once(path, lambda: idf(*document_frequencies(texts, transformer.tokenizer, size=size)))
    return torch.from_numpy(values)


class WeightedRegularizers(nn.Module):
    """The regularizers of a recipe, times their weights, with the term statistics that they need, by side."""

    def __init__(self, settings: Regularizers, steps: int, statistics: dict[str, TermStatistic]) -> None:
        super().__init__()
        self._settings, self._steps = settings, steps
        self.statistics: Any = nn.ModuleDict(statistics)  # a module, so that checkpoints have their buffers

    def forward(self, queries: Tensor, documents: Tensor, step: int, *, learn: bool) -> dict[str, Tensor]:
        """Return the weighted regularizers of queries [b, v] and documents [n, v] in a step, counted from 0.

        The statistics observe documents that the model is to `learn` from.
        """
        for statistic in self.statistics.values() if learn else ():
            statistic.observe(documents, step)
        losses = {}
        for key, part in self._settings.active.items():
            if isinstance(part, OneSide):
                values = self.statistics[key].values() if key in self.statistics else None
                value = part.value(queries if key == "query" else documents, values)
            else:
                value = part.value(queries, documents)
            losses[f"{key}_regularizer_loss"] = part.weight_at(step, self._steps) * value
        return losses

    def weights(self, step: int) -> dict[str, float]:
        active = self._settings.active.items()
        return {f"{key}_regularizer_weight": part.weight_at(step, self._steps) for key, part in active}
