"""What to look at while a retriever learns: how many terms are active, how large scores are, how well it ranks."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Any, NamedTuple

import torch
from sentence_transformers import SparseEncoder
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vocable.evaluation import evaluate
from vocable.objectives.info_nce import info_nce
from vocable.training.recipe import Evaluation

LOGGED = ("query_terms", "document_terms", "score")


class Signs(NamedTuple):
    """What a batch looks like: b queries, n documents, v terms."""

    query_terms: float  # active terms of a query, mean
    document_terms: float
    empty_queries: float  # share of the queries without an active term
    empty_documents: float
    score: float  # of a query with its own document, mean
    loss: float  # InfoNCE
    guess: float  # log(n), the loss of guessing
    terms: int  # v
    finite: bool  # whether these and the losses trained on are


class Monitor:
    """Figures of the newest batch, and of those since the last log step.

    Args:
        temperature, cosine: of the InfoNCE in `Signs`, which is looked at whatever the losses trained on are.

    Letters: b queries, n documents, the first b of them the positives, v terms.
    """

    def __init__(self, *, temperature: float = 1.0, cosine: bool = False) -> None:
        self._temperature, self._cosine = temperature, cosine
        self._sums: dict[str, float] = {}
        self._batches = 0
        self._weights: dict[str, float] = {}
        self.newest: Signs | None = None

    @torch.no_grad()
    def see(
        self, queries: Tensor, documents: Tensor, losses: dict[str, Tensor], weights: dict[str, float] | None = None
    ) -> None:
        """Look at the queries [b, v] and documents [n, v] of a batch, its ranking losses and its penalties' weights."""
        asked, given = ((side > 0).sum(dim=1) for side in (queries, documents))
        looks = {
            "query_terms": asked.float().mean(),
            "document_terms": given.float().mean(),
            "empty_queries": (asked == 0).float().mean(),
            "empty_documents": (given == 0).float().mean(),
            "score": (queries * documents[: len(queries)]).sum(dim=1).mean(),
            "loss": info_nce(queries, documents, temperature=self._temperature, cosine=self._cosine),
        }
        # Stacked, so that an accelerator is waited for once.
        values = torch.stack([figure.float() for figure in (*looks.values(), *losses.values())]).tolist()
        found, trained = dict(zip(looks, values, strict=False)), values[len(looks) :]
        finite = all(map(math.isfinite, values))
        self.newest = Signs(**found, guess=math.log(len(documents)), terms=queries.shape[1], finite=finite)
        figures = {name: found[name] for name in LOGGED}
        if len(losses) > 1:
            figures |= dict(zip(losses, trained, strict=True))
        for name, value in figures.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._batches += 1
        self._weights = weights or {}

    def figures(self) -> dict[str, float]:
        """Means since the last call, and the penalties' weights of the last batch.

        query_terms and document_terms are active terms of a text, score is the mean score of a query's positive. Where
        there are several losses, each has its own figure.
        """
        means = {name: total / self._batches for name, total in self._sums.items()}
        found = means | self._weights
        self._sums, self._batches, self._weights = {}, 0, {}
        return found


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
