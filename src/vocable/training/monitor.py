"""What to look at while a retriever learns: how many terms are active, how large scores are, how well it ranks."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vocable.evaluation import evaluate
from vocable.training.recipe import Evaluation


class RankingMonitor(nn.Module):
    """A ranking loss that also remembers active terms and scores of the batches since the last log step."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss: Any = loss  # a module, so that the trainer finds the model in it
        self._sums: dict[str, float] = {}
        self._batches = 0

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        """The loss of embeddings[0] (queries [b, v]), embeddings[1] (positives [b, v]) and further negatives."""
        with torch.no_grad():
            queries, positives = embeddings[0], embeddings[1]
            self._remember("query_terms", (queries > 0).sum(dim=1))
            self._remember("document_terms", (torch.cat(embeddings[1:]) > 0).sum(dim=1))
            self._remember("score", (queries * positives).sum(dim=1))
        self._batches += 1
        loss: Tensor = self.loss.compute_loss_from_embeddings(embeddings, labels)
        return loss

    def _remember(self, name: str, values: Tensor) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + float(values.float().mean())

    def figures(self) -> dict[str, float]:
        """Means since the last call: query_terms, document_terms, and score, the mean score of a query's positive."""
        means = {name: total / self._batches for name, total in self._sums.items()}
        self._sums, self._batches = {}, 0
        return means


def short_name(place: str) -> str:
    """What a dataset is called where there is no room for its place.

    >>> short_name("beir:data/scifact"), short_name("beir:data/scifact#train"), short_name("ir_datasets:msmarco/dev")
    ('scifact', 'scifact#train', 'msmarco/dev')
    """
    scheme, _, rest = place.partition(":")
    return PurePath(rest).name if scheme == "beir" else rest or place


class EvaluateDuringTraining(TrainerCallback):
    """Every so many steps, search whole datasets with the model as it is and log the measures.

    Of several datasets, each measure is logged with the dataset's short name in front.
    """

    def __init__(self, settings: Evaluation, datasets: list[str], trainer: Any) -> None:
        self._settings, self._datasets, self._trainer = settings, datasets, trainer

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: SparseEncoder | None = None,
        **kwargs: Any,
    ) -> None:
        if model is None or state.global_step % self._settings.every:
            return
        found: dict[str, float] = {}
        for dataset in self._datasets:
            prefix = f"{short_name(dataset)} " if len(self._datasets) > 1 else ""
            values = evaluate(model, dataset, self._settings.measures).values
            found |= {f"{prefix}{measure}": value for measure, value in values.items()}
        model.train()
        loss_is_due = control.should_log
        self._trainer.log(found)
        control.should_log = loss_is_due  # the trainer takes any log for that of the loss
