"""What a batch is trained on: the losses of its vectors and their penalties, those of all devices together.

Letters: b queries of a batch, n documents, v terms; a column is that of the examples: queries, positives, negatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from vocable.encoder.terms import terms
from vocable.objectives.info_nce import Queue
from vocable.training.lessons import Lessons
from vocable.training.momentum import Momentum
from vocable.training.monitor import Monitor
from vocable.training.penalties import Penalties
from vocable.training.processes import gathered
from vocable.training.ranking import Ranking
from vocable.training.settings import Training

RANKING = "base_loss"


class Objective(nn.Module):
    """The loss of `SparseEncoderTrainer` over a batch as a whole.

    The host library's `SpladeLoss` shows its regularizers one side at a time, and those of one device. This one has the
    queries and documents of all devices before it when it computes losses and penalties.

    Args:
        model: gives the vectors.
        ranking: their losses.
        penalties: what their terms cost.
        monitor: looks on.
        description: of the recipe, for the model card.
        momentum: keeps documents of earlier batches, which are negatives of the ranking losses.
    """

    def __init__(
        self,
        model: SparseEncoder,
        ranking: Ranking,
        penalties: Penalties,
        monitor: Monitor,
        description: dict[str, Any] | None = None,
        momentum: Momentum | None = None,
    ) -> None:
        super().__init__()
        self.model: Any = model  # under this name the trainer finds it, and replaces it by its wrapped self
        self.penalties, self.momentum = penalties, momentum
        self.step = 0
        self._queue: Queue | None = None
        self._ranking, self._monitor, self._description = ranking, monitor, description or {}

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> dict[str, Tensor]:
        """The parts of the loss, which the trainer adds up.

        Args:
            sentence_features: tokens, one dictionary a column.
            labels: [b], the examples' rows, where somebody teaches.
        """
        columns = list(sentence_features)
        with self._queued(columns):
            return self.parts(embed_columns(self.model, columns), labels)

    @contextmanager
    def _queued(self, columns: list[dict[str, Any]]) -> Iterator[None]:
        """Within the context the queue is at hand; then the batch's own documents go into it, if they are learned."""
        if self.momentum is None:
            yield
            return
        newest = self.momentum.read(columns[1:])
        b = len(newest.texts) // (len(columns) - 1)
        self._queue = self.momentum.negatives(newest.texts[:b])
        yield
        self._queue = None
        if self.model.training:
            self.momentum.push(newest)

    def parts(self, columns: list[Tensor], labels: Tensor | None) -> dict[str, Tensor]:
        """Losses and penalties of this process's vectors, one [b, v] a column, and those of the others."""
        queries, *others = [gathered(column) for column in columns]
        documents = torch.cat(others)
        losses = self._ranking(queries, documents, None if labels is None else gathered(labels), self._queue)
        self._monitor.see(queries, documents, losses, self.penalties.weights(self.step))
        penalties = self.penalties(queries, documents, self.step, learn=self.model.training)
        return {RANKING: torch.stack(list(losses.values())).sum(), **penalties}

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says of the loss."""
        return self._description


class CachedObjective(CachedLossMixin, Objective):
    """The same with gradient caching (arXiv 2101.06983): only `micro_batch` texts at a time need memory.

    The vectors are computed without gradients, then the loss and its gradient with respect to them, then the vectors
    again, micro batch by micro batch, this time with gradients and the same dropout.
    """

    forward_cached: Any  # of the mixin

    def __init__(self, *arguments: Any, micro_batch: int) -> None:
        super().__init__(*arguments)
        self.mini_batch_size = micro_batch
        self._parts: dict[str, Tensor] = {}

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> dict[str, Tensor]:
        """As `Objective.forward`; the gradient hangs on the first part alone."""
        columns = list(sentence_features)
        with self._queued(columns):
            total = self.forward_cached(columns, labels)
        others = {name: value for name, value in self._parts.items() if name != RANKING}
        return {RANKING: total - sum(others.values()), **others}

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """The whole loss of the vectors, one list of micro batches a column."""
        parts = self.parts([torch.cat(column) for column in reps], labels)
        self._parts = {name: value.detach() for name, value in parts.items()}
        total = torch.stack(list(parts.values())).sum()
        if with_backward:
            total.backward()
            total = total.detach()
        return total


def make_objective(model: SparseEncoder, settings: Training, lessons: Lessons, monitor: Monitor) -> Objective:
    """The objective of a recipe, for its examples."""
    teacher, sparse_teacher = lessons.teacher, lessons.sparse_teacher
    ranking = Ranking(settings.losses, top_k=settings.top_k, teacher=teacher, sparse_teacher=sparse_teacher)
    penalties = Penalties(settings.regularizers, settings.steps, len(terms(model)), idf=lessons.idf)
    description = settings.model_dump(include={"losses", "regularizers"})
    momentum = None
    if settings.queue is not None:
        momentum = Momentum(model, settings.queue, settings.micro_batch or settings.batch_size)
    parts = (model, ranking, penalties, monitor, description, momentum)
    if settings.micro_batch is None:
        return Objective(*parts)
    return CachedObjective(*parts, micro_batch=settings.micro_batch)


class ObjectiveState(TrainerCallback, ExportableState):
    """Tells the objective which step it is, and keeps its state in the checkpoints.

    The trainer writes the state of its callbacks into `trainer_state.json`, the file that is written last: a checkpoint
    that is whole has it.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    def state(self) -> dict[str, Any]:
        """What the trainer writes down."""
        return {"args": {}, "attributes": self._objective.penalties.state()}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._objective.penalties.restore(state.stateful_callbacks[type(self).__name__]["attributes"])

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._objective.step = state.global_step
