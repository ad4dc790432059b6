"""What a batch is trained on: the losses and regularizers of a recipe, over the vectors of all devices together.

Letters: b queries of a batch, n documents, m sampled texts, v terms; a column is one of the examples: queries,
positives, first negatives and so on. The documents of a batch stand column by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import DatasetDict, concatenate_datasets
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from torch import Tensor, nn

from vocable.encoder.asymmetric import Role
from vocable.encoder.terms import input_terms, terms
from vocable.encoder.text_encoder import TextEncoder
from vocable.objectives.losses import AnyLoss, Batch, Queue, top_k_mask
from vocable.objectives.regularizers import OneSide, Regularizers, Statistic
from vocable.retrieval.exact_index import ExactIndex
from vocable.training.batch_statistics import Monitor
from vocable.training.data import TrainingData
from vocable.training.distributed import gathered
from vocable.training.micro_batches import embedded
from vocable.training.momentum import Momentum
from vocable.training.settings import MaxTermsSettings, TrainingSettings
from vocable.training.teachers import Teacher
from vocable.wackiness.score import wackiness, without_itself

REFRESH = 100  # steps between two estimates (arXiv 2505.15070)


class DocumentFrequencies(nn.Module):
    """The share of documents in which each term is active, estimated anew every `REFRESH` steps of the training.

    Until the first estimate is whole, it is that of the documents seen so far.
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


MEMORY = 0.97  # of the counts of a source, what a batch of it leaves: some 33 batches


class QueryIdf(nn.Module):
    """What a search multiplies queries' weights by: the IDF of terms in a collection, to a power.

    Each source of the examples is a collection of the documents that the training has seen of it, of which older ones
    are forgotten, as the model becomes another.
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
            self.active[source].mul_(MEMORY).add_((documents > 0).sum(dim=0))
            self.documents[source] = MEMORY * self.documents[source] + len(documents)
        having, count = self.active[source], self.documents[source]
        factors = torch.log1p((count - having + 0.5) / (having + 0.5)) ** self._power  # `encoder.roles.idf`
        return factors * (queries.sum() / (queries @ factors).sum().clamp(min=1e-9))


class Sample:
    """Queries and documents of the examples, on which the wackiness of one role's expansions is measured.

    Of `size` examples, which the seed decides, the positives are the collection in either role, of which k are
    retrieved for a text; a document does not retrieve itself. A text that is there twice counts once.
    """

    def __init__(self, examples: DatasetDict, size: int, role: Role, k: int, seed: int) -> None:
        together = concatenate_datasets([source.select_columns(["query", "positive"]) for source in examples.values()])
        rows = np.random.default_rng(seed).permutation(len(together))[:size]
        chosen = together.select(np.sort(rows))
        self._documents = list(dict.fromkeys(chosen["positive"]))
        self._queries = list(dict.fromkeys(chosen["query"])) if role == "query" else None
        self._k = k

    def scores(self, model: SparseEncoder) -> Tensor:
        """The Wackiness Scores [v] by this model as it is; 0 for a term that is nobody's expansion."""
        documents = TextEncoder(model).encode(self._documents)
        counts = input_terms(model, self._documents)
        index = ExactIndex(documents)
        if self._queries is None:
            rows = without_itself(index.search(documents, self._k + 1).rows, np.arange(len(self._documents)))
            found = wackiness(documents, counts, rows, counts)
        else:
            queries = TextEncoder(model, "query").encode(self._queries)
            found = wackiness(queries, input_terms(model, self._queries), index.search(queries, self._k).rows, counts)
        return torch.from_numpy(np.nan_to_num(found.scores, nan=0.0)).float()


class Penalties(nn.Module):
    """The regularizers of a recipe on the vectors of a batch, and the statistics of v terms that they need.

    The ramps are a share of `steps`, those of the whole training. `idf` [v] is for a regularizer that needs it.
    """

    idf: Tensor | None

    def __init__(self, settings: Regularizers, steps: int, v: int, *, idf: Tensor | None = None) -> None:
        super().__init__()
        self._settings, self._steps = settings, steps
        self.register_buffer("idf", idf, persistent=False)
        self.frequencies = DocumentFrequencies(v) if settings.needing("document_frequencies") else None
        for side in settings.needing("wackiness"):
            self.register_buffer(f"{side}_wackiness", torch.zeros(v))

    def forward(self, queries: Tensor, documents: Tensor, step: int, *, learn: bool) -> dict[str, Tensor]:
        """Return the penalties of queries [b, v] and documents [n, v] in a step, counted from 0, times their weights.

        Documents that the model is to `learn` from count for DF-FLOPS.
        """
        if self.frequencies is not None and learn:
            self.frequencies.count(documents, step)
        penalties = {}
        for key, part in self._settings.active.items():
            weight = part.weight_at(step, self._steps)
            if isinstance(part, OneSide):
                vectors = queries if key == "query" else documents
                penalty = part.penalty(vectors, self._statistic(key, part.needs))
            else:
                penalty = part.penalty(queries, documents)
            penalties[f"{key}_regularizer_loss"] = weight * penalty
        return penalties

    def wackiness(self, side: str) -> Tensor:
        """Return each term's wackiness [v] as an expansion of a side's texts, 0 until `MeasureWackiness` writes it."""
        return self.get_buffer(f"{side}_wackiness")

    def weights(self, step: int) -> dict[str, float]:
        active = self._settings.active.items()
        return {f"{key}_regularizer_weight": part.weight_at(step, self._steps) for key, part in active}

    def _statistic(self, side: str, name: Statistic | None) -> Tensor | None:
        if name == "document_frequencies":
            return None if self.frequencies is None else self.frequencies.shares()
        return self.idf if name == "idf" else self.wackiness(side) if name == "wackiness" else None

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep, as JSON values."""
        return {name: buffer.tolist() for name, buffer in self.state_dict().items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.load_state_dict({name: torch.tensor(values) for name, values in state.items()})


class WeightedLosses(NamedTuple):
    """The losses of a recipe on the vectors of a batch, each times its weight.

    With `max_terms` they are taken on the heaviest terms and, if it says so, on all, and the two are added (arXiv
    2112.09628). The teachers give the scores and the vectors that losses need.
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
            labels: [b], the rows of the examples, by which the teachers know them.
            queue: further negatives of the in-batch loss, the same whether the others are masked or full.
            factors: [v], what the weights of queries are multiplied by.
        """
        needed = {loss.needs for loss in self.losses}
        rows = np.empty(0, dtype=np.int64) if labels is None else labels.cpu().numpy()
        scores, vectors = (
            queries.new_empty(0, 0) if teacher is None or what not in needed else teacher(rows).to(queries.device)
            for what, teacher in (("teacher_scores", self.teacher), ("teacher_vectors", self.sparse_teacher))
        )
        views = [(queries, documents)]
        if (k := self.max_terms) is not None:
            masked = (
                queries if k.query is None else top_k_mask(queries, k.query),
                documents if k.document is None else top_k_mask(documents, k.document),
            )
            views = [masked, *views] if k.full else [masked]
        if factors is not None:
            views = [(asked * factors, answers) for asked, answers in views]
        batches = [Batch(*view, scores, vectors, queue) for view in views]
        return {
            loss.name: loss.weight * torch.stack([loss.value(batch) for batch in batches]).sum() for loss in self.losses
        }


LOSSES = "base_loss"


class Objective(nn.Module):
    """The loss of `SparseEncoderTrainer` over the queries and documents of all devices.

    Args:
        settings, data: of the recipe. A queue keeps documents of earlier batches, negatives of the ranking losses.
        monitor: sees every batch.
    """

    def __init__(self, model: SparseEncoder, settings: TrainingSettings, data: TrainingData, monitor: Monitor) -> None:
        super().__init__()
        self.model: Any = model  # under this name the trainer finds it, and replaces it by its wrapped self
        self.penalties = Penalties(settings.regularizers, settings.steps, len(terms(model)), idf=data.idf)
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

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> dict[str, Tensor]:
        """The parts of the loss, which the trainer adds up, of tokens by column; labels [b] are the examples' rows."""
        columns = list(sentence_features)
        with self._queued(columns):
            return self.parts(embedded(self.model, columns), labels)

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
        rows, factors = None if labels is None else gathered(labels), None
        if self.query_idf is not None:
            factors = self.query_idf(queries, documents, rows, learn=self.model.training)
        losses = self._losses(queries, documents, rows, self._queue, factors)
        self._monitor.see(queries, documents, losses, self.penalties.weights(self.step))
        penalties = self.penalties(queries, documents, self.step, learn=self.model.training)
        return {LOSSES: torch.stack(list(losses.values())).sum(), **penalties}

    def get_config_dict(self) -> dict[str, Any]:
        """Return what the model card says of the loss."""
        return self._settings.model_dump(include={"losses", "regularizers"})


class CachedObjective(CachedLossMixin, Objective):
    """The same with gradient caching (arXiv 2101.06983): only `micro_batch` texts at a time need memory."""

    forward_cached: Any  # of the mixin

    def __init__(self, model: SparseEncoder, settings: TrainingSettings, data: TrainingData, monitor: Monitor) -> None:
        super().__init__(model, settings, data, monitor)
        self.mini_batch_size = settings.micro_batch
        self._parts: dict[str, Tensor] = {}

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> dict[str, Tensor]:
        """As `Objective.forward`; the gradient hangs on the first part alone."""
        columns = list(sentence_features)
        with self._queued(columns):
            total = self.forward_cached(columns, labels)
        others = {name: value for name, value in self._parts.items() if name != LOSSES}
        return {LOSSES: total - sum(others.values()), **others}

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


def make_objective(model: SparseEncoder, settings: TrainingSettings, data: TrainingData, monitor: Monitor) -> Objective:
    """The objective of a recipe, for its examples."""
    kind = Objective if settings.micro_batch is None else CachedObjective
    return kind(model, settings, data, monitor)
