"""The objective of a training: the losses and regularizers of a recipe on the vectors of all devices together.

Letters: b queries of a batch, n documents, m examples, v terms. A column is one of the examples': queries, positives,
first negatives and so on. The documents of a batch come column by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from torch import Tensor, nn

from vocable.encoder.terms import terms
from vocable.objectives.losses import AnyLoss, Batch, Queue, top_k_mask
from vocable.objectives.regularizers import OneSide, Regularizers
from vocable.training.data import TrainingData
from vocable.training.detector import Monitor
from vocable.training.distributed import gathered
from vocable.training.micro_batches import Tokens, embedded
from vocable.training.momentum import Momentum
from vocable.training.settings import MaxTermsSettings, TrainingSettings
from vocable.training.teachers import Teacher
from vocable.training.term_statistics import TermStatistic, term_statistics

DECAY = 0.97  # of the counts of a source with each of its batches: a memory of about 33 batches


class QueryIdf(nn.Module):
    """The IDF of terms to a power, by which a search multiplies the weights of queries.

    Each source of the examples is a collection: its documents in the training so far. Older ones count less and less,
    since the model that encoded them has changed.
    """

    active: Tensor  # [sources, v], documents in which a term was active
    documents: Tensor  # [sources]

    def __init__(self, power: float, sources: NDArray[np.int64], v: int) -> None:
        super().__init__()
        self._power, self._sources = power, sources
        count = int(sources.max()) + 1
        self.register_buffer("active", torch.zeros(count, v))
        self.register_buffer("documents", torch.zeros(count))

    @torch.no_grad()
    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor, *, learn: bool) -> Tensor:
        """Return the factors [v] for queries [b, v], of mean 1 over their weights; labels [b] are of one source.

        Documents [n, v] that the model is to `learn` from are counted first.
        """
        source = int(self._sources[int(labels[0])])
        if learn:
            self.active[source].mul_(DECAY).add_((documents > 0).sum(dim=0))
            self.documents[source] = DECAY * self.documents[source] + len(documents)
        having, count = self.active[source], self.documents[source]
        factors = torch.log1p((count - having + 0.5) / (having + 0.5)) ** self._power  # `encoder.asymmetric.idf`
        return factors * (queries.sum() / (queries @ factors).sum().clamp(min=1e-9))


class WeightedRegularizers(nn.Module):
    """The regularizers of a recipe, times their weights, with the term statistics that they need, by side.

    Ramps are shares of `steps`, the steps of the whole training.
    """

    def __init__(self, settings: Regularizers, steps: int, statistics: dict[str, TermStatistic]) -> None:
        super().__init__()
        self._settings, self._steps = settings, steps
        self.statistics = nn.ModuleDict(statistics)

    def forward(self, queries: Tensor, documents: Tensor, step: int, *, learn: bool) -> dict[str, Tensor]:
        """Return the weighted regularizers of queries [b, v] and documents [n, v] in a step, counted from 0.

        The statistics observe documents that the model is to `learn` from.
        """
        statistics = {side: cast(TermStatistic, one) for side, one in self.statistics.items()}
        for one in statistics.values() if learn else ():
            one.observe(documents, step)
        found = {}
        for key, part in self._settings.active.items():
            weight = part.weight_at(step, self._steps)
            if isinstance(part, OneSide):
                statistic = statistics[key].values() if key in statistics else None
                value = part.value(queries if key == "query" else documents, statistic)
            else:
                value = part.value(queries, documents)
            found[f"{key}_regularizer_loss"] = weight * value
        return found

    def weights(self, step: int) -> dict[str, float]:
        """Return the weights in a step."""
        active = self._settings.active.items()
        return {f"{key}_regularizer_weight": part.weight_at(step, self._steps) for key, part in active}

    def begin_step(self, model: SparseEncoder, step: int) -> None:
        """Let the statistics look at the model before a step."""
        for one in self.statistics.values():
            cast(TermStatistic, one).begin_step(model, step)

    def state(self) -> dict[str, object]:
        """Return the state for a checkpoint, as JSON values."""
        return {name: buffer.tolist() for name, buffer in self.state_dict().items()}

    def restore(self, state: dict[str, object]) -> None:
        """Continue from what `state` returned."""
        self.load_state_dict({name: torch.tensor(values) for name, values in state.items()})


class WeightedLosses(NamedTuple):
    """The losses of a recipe on the vectors of a batch, times their weights.

    With `max_terms` they are computed on the heaviest terms; with its `full`, also on all terms, and added (arXiv
    2112.09628). The teachers give the scores and vectors that losses need.
    """

    losses: Sequence[AnyLoss]
    max_terms: MaxTermsSettings | None = None
    teacher: Teacher | None = None
    sparse_teacher: Teacher | None = None

    def __call__(
        self,
        queries: Tensor,
        documents: Tensor,
        labels: Tensor | None = None,
        queue: Queue | None = None,
        factors: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return each loss of queries [b, v] and documents [n, v], times its weight, by its name.

        Args:
            labels: [b], the rows of the examples in the teachers' data.
            queue: further negatives of the in-batch loss, never masked.
            factors: [v], factors of the queries' weights.
        """
        needed = {loss.needs for loss in self.losses}
        rows = np.empty(0, dtype=np.int64) if labels is None else labels.cpu().numpy()
        scores, vectors = (
            queries.new_empty(0, 0) if teacher is None or need not in needed else teacher(rows).to(queries.device)
            for need, teacher in (("teacher_scores", self.teacher), ("teacher_vectors", self.sparse_teacher))
        )
        views = [(queries, documents)]
        if (k := self.max_terms) is not None:
            masked = (
                queries if k.query is None else top_k_mask(queries, k.query),
                documents if k.document is None else top_k_mask(documents, k.document),
            )
            views = [masked, *views] if k.full else [masked]
        if factors is not None:
            views = [(one * factors, others) for one, others in views]
        batches = [Batch(*view, scores, vectors, queue) for view in views]
        return {
            loss.name: loss.weight * torch.stack([loss.value(batch) for batch in batches]).sum() for loss in self.losses
        }


LOSSES = "base_loss"


class Objective(nn.Module):
    """The loss of `SparseEncoderTrainer` over the queries and documents of all devices; `monitor` sees every batch."""

    def __init__(self, model: SparseEncoder, settings: TrainingSettings, data: TrainingData, monitor: Monitor) -> None:
        super().__init__()
        self.model: Any = model  # the trainer replaces it, under this name, by the wrapped model
        statistics = term_statistics(settings.regularizers, model, data.examples, data.folder, data.seed)
        self.regularizers = WeightedRegularizers(settings.regularizers, settings.steps, statistics)
        self.query_idf = None
        if settings.query_idf is not None:
            self.query_idf = QueryIdf(settings.query_idf, data.sources, len(terms(model)))
        self.momentum = None
        if settings.queue is not None:
            self.momentum = Momentum(model, settings.queue, settings.micro_batch or settings.batch_size)
        self.step = 0
        self._queue: Queue | None = None
        self._losses = WeightedLosses(settings.losses, settings.max_terms, data.teacher, data.sparse_teacher)
        self._settings, self._monitor = settings, monitor

    def forward(self, sentence_features: Iterable[Tokens], labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return the parts of the loss of tokens by column, which the trainer adds up; labels [b] are the examples'
        rows.
        """
        columns = list(sentence_features)
        with self._queued(columns):
            return self.parts(embedded(self.model, columns), labels)

    @contextmanager
    def _queued(self, columns: list[Tokens]) -> Iterator[None]:
        """Provide the queue within the context; afterwards, in training, the documents of the batch enter it."""
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
        """Return losses and regularizers of the vectors of all processes, given this one's, [b, v] a column."""
        queries, *others = [gathered(column) for column in columns]
        documents = torch.cat(others)
        rows, factors = None if labels is None else gathered(labels), None
        if self.query_idf is not None:
            factors = self.query_idf(queries, documents, rows, learn=self.model.training)
        losses = self._losses(queries, documents, rows, self._queue, factors)
        self._monitor.see(queries, documents, losses, self.regularizers.weights(self.step))
        regularizers = self.regularizers(queries, documents, self.step, learn=self.model.training)
        return {LOSSES: torch.stack(list(losses.values())).sum(), **regularizers}

    def get_config_dict(self) -> dict[str, object]:
        """Return the settings that the model card prints."""
        return self._settings.model_dump(include={"losses", "regularizers"})


class CachedObjective(CachedLossMixin, Objective):
    """The objective with gradient caching (arXiv 2101.06983): only `micro_batch` texts at a time need memory."""

    forward_cached: Any  # of the mixin

    def __init__(self, model: SparseEncoder, settings: TrainingSettings, data: TrainingData, monitor: Monitor) -> None:
        super().__init__(model, settings, data, monitor)
        self.mini_batch_size = settings.micro_batch
        self._parts: dict[str, Tensor] = {}

    def forward(self, sentence_features: Iterable[Tokens], labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return the parts of the loss; the first alone carries the gradient."""
        columns = list(sentence_features)
        with self._queued(columns):
            total = self.forward_cached(columns, labels)
        others = {name: value for name, value in self._parts.items() if name != LOSSES}
        return {LOSSES: total - sum(others.values()), **others}

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the whole loss of the vectors, a list of micro batches per column."""
        parts = self.parts([torch.cat(column) for column in reps], labels)
        self._parts = {name: value.detach() for name, value in parts.items()}
        total = torch.stack(list(parts.values())).sum()
        if with_backward:
            total.backward()
            total = total.detach()
        return total


def make_objective(model: SparseEncoder, settings: TrainingSettings, data: TrainingData, monitor: Monitor) -> Objective:
    """Return the objective of a recipe for its examples."""
    kind = Objective if settings.micro_batch is None else CachedObjective
    return kind(model, settings, data, monitor)
