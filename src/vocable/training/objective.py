"""The objective of a training: losses and regularizers of a recipe on the vectors of all devices, and their monitor.

Letters: b queries of a batch, n documents (the first b are the positives), m examples, v terms. A column of the
examples has their queries, positives, first negatives and so on. The documents of a batch come column by column.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from torch import Tensor, nn
from torch.nn.functional import normalize

from vocable.adapt.statistics import RULES, BatchLoss
from vocable.objectives.losses import (
    Batch,
    Packed,
    Queue,
    empty,
    info_nce,
    join,
    last_rows,
    pack,
    top_k_mask,
)
from vocable.objectives.settings import AnyLoss, InfoNCE, QueueSettings
from vocable.torch_models.asymmetric import route
from vocable.torch_models.fuse import pack as without_padding
from vocable.training.data import TrainingData
from vocable.training.distributed import gather_rows
from vocable.training.micro_batches import Tokens, embedded, in_parts
from vocable.training.recipe import MaxTermsSettings, TrainingSettings
from vocable.training.teachers import Teacher
from vocable.training.term_statistics import WeightedRegularizers, term_statistics

LOSSES = "base_loss"


@dataclass(frozen=True, kw_only=True)
class BatchStatistics(BatchLoss):
    """Statistics of a batch."""

    query_terms: float  # mean number of active terms of a query
    document_terms: float
    empty_queries: float  # share of the queries without an active term
    empty_documents: float
    score: float  # mean score of a query with its own document
    spread: float  # standard deviation of a query's scores over the documents, mean over queries
    terms: int  # v
    finite: bool  # these statistics and the losses are finite
    shares: dict[str, float] = field(default_factory=dict)  # of each regularizer in the whole loss
    movement: float = 0.0  # change of the weights in the step, as a share of their norm

    @property
    def alike(self) -> bool:
        """True if the loss equals the loss of random scores: scores do not distinguish documents."""
        return abs(self.loss - self.chance) <= RULES["alike"].threshold * self.chance


class Monitor:
    """Statistics of the newest batch, and means since the last log; its InfoNCE has the settings `monitored_loss`."""

    def __init__(self, monitored_loss: InfoNCE = InfoNCE()) -> None:  # noqa: B008  (it is frozen)
        self._monitored_loss = monitored_loss
        self._sums, self._batches, self._weights = dict[str, float](), 0, dict[str, float]()
        self.newest: BatchStatistics | None = None

    @torch.no_grad()
    def see(
        self,
        queries: Tensor,
        documents: Tensor,
        losses: dict[str, Tensor],
        weights: Mapping[str, float] | None = None,
        costs: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Take the queries [b, v] and documents [n, v] of a batch and its losses.

        `weights` are the weights of its regularizers for the log, `costs` their parts of the loss, by name.
        """
        query_counts, document_counts = ((side > 0).sum(dim=1) for side in (queries, documents))
        temperature, cosine = self._monitored_loss.temperature, self._monitored_loss.cosine
        scores = normalize(queries, dim=1) @ normalize(documents, dim=1).T if cosine else queries @ documents.T
        statistics = {
            "query_terms": query_counts.float().mean(),
            "document_terms": document_counts.float().mean(),
            "score": (queries * documents[: len(queries)]).sum(dim=1).mean(),
            "spread": scores.std(dim=1, correction=0).mean(),
            "empty_queries": (query_counts == 0).float().mean(),
            "empty_documents": (document_counts == 0).float().mean(),
            "loss": info_nce(queries, documents, temperature=temperature, cosine=cosine),
        }
        costs = costs or {}
        # Stacked, to synchronize with an accelerator only once.
        tensors = (*statistics.values(), *losses.values(), *costs.values())
        values = torch.stack([figure.float() for figure in tensors]).tolist()
        measured, trained = dict(zip(statistics, values, strict=False)), values[len(statistics) :]
        whole = math.fsum(map(abs, trained))
        shares = {name: abs(cost) / whole for name, cost in zip(costs, trained[len(losses) :], strict=True) if whole}
        chance, finite = math.log(len(documents)), all(map(math.isfinite, values))
        self.newest = BatchStatistics(**measured, chance=chance, terms=queries.shape[1], finite=finite, shares=shares)
        figures = {name: measured[name] for name in ("query_terms", "document_terms", "score")}
        if len(losses) > 1:
            figures |= dict(zip(losses, trained, strict=False))
        self._sums = {name: self._sums.get(name, 0.0) + value for name, value in figures.items()}
        self._batches += 1
        self._weights = dict(weights or {})

    def figures(self) -> dict[str, float]:
        """Return the means since the last call, with each of several losses, and the newest weights of regularizers."""
        means = {name: total / self._batches for name, total in self._sums.items()} | self._weights
        self._sums, self._batches, self._weights = {}, 0, {}
        return means


class QueuedDocuments(NamedTuple):
    """Documents of the queue, or about to enter it."""

    texts: Tensor  # [n] fingerprints of the documents' tokens
    vectors: Packed  # n rows


class Momentum(CachedLossMixin):
    """A queue of documents from earlier batches, encoded by a momentum copy of the document encoder (MoCo).

    The copy reads `micro_batch` texts at a time. After arXiv 1911.05722 and Kim et al. 2026, J.4. They leave three
    things open. Here the queue adds to the negatives of the batch; all documents of a batch, including negatives, enter
    it; and a query's own positive in the queue is not a negative.
    """

    def __init__(self, model: SparseEncoder, settings: QueueSettings, micro_batch: int) -> None:
        self._followed = nn.Sequential(*route(model, "document"))
        self.model = copy.deepcopy(self._followed).eval().requires_grad_(False)
        self.mini_batch_size = micro_batch
        self._settings = settings
        weight = next(self.model.parameters())
        vectors = empty(weight.new_empty(0, dtype=torch.float32))
        self._queue = QueuedDocuments(weight.new_empty(0, dtype=torch.int64), vectors)

    def read(self, columns: Sequence[Tokens]) -> QueuedDocuments:
        """Encode the documents of a batch on all processes, given the tokens of this process by column."""
        texts, vectors = [], []
        for column in columns:
            parts = [part for part, _ in self.embed_minibatch_iter(column, with_grad=False, copy_random_state=False)]
            texts.append(gather_rows(fingerprints(column).to(self._queue.texts.device)))
            vectors.append(pack(gather_rows(torch.cat(parts)), self._settings.terms))
        return QueuedDocuments(torch.cat(texts), reduce(join, vectors))

    def negatives(self, positives: Tensor) -> Queue:
        """Return the documents in the queue as negatives of queries whose positives have these fingerprints [b]."""
        return Queue(self._queue.vectors, positives[:, None] == self._queue.texts)

    def push(self, newest: QueuedDocuments) -> None:
        """Add documents to the queue and drop the oldest."""
        size = self._settings.size
        texts = torch.cat([self._queue.texts, newest.texts])[-size:]
        self._queue = QueuedDocuments(texts, last_rows(join(self._queue.vectors, newest.vectors), size))

    @torch.no_grad()
    def follow(self) -> None:
        """Move the copy's weights by a share of 1 - momentum towards the encoder's."""
        for copied, followed in zip(self.model.parameters(), self._followed.parameters(), strict=True):
            copied.lerp_(followed, 1 - self._settings.momentum)

    def state_dict(self) -> dict[str, Tensor]:
        queue = {"texts": self._queue.texts, **self._queue.vectors._asdict()}
        return dict(self.model.named_parameters()) | {f"queue.{name}": tensor for name, tensor in queue.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, weight in self.model.named_parameters():
            weight.copy_(state[name])
        queue = {name: state[f"queue.{name}"].to(self._queue.texts.device) for name in ("texts", *Packed._fields)}
        self._queue = QueuedDocuments(queue.pop("texts"), Packed(**queue))


def fingerprints(column: Tokens) -> Tensor:
    """Return a hash of the tokens of each text in a column: [b] int64."""
    tokens, offsets = without_padding({**column, "token_embeddings": column["input_ids"]})
    ids = tokens.cpu().numpy()
    digests = (blake2b(ids[start:end].tobytes(), digest_size=8).digest() for start, end in pairwise(offsets))
    return torch.tensor([int.from_bytes(digest, "little", signed=True) for digest in digests])


class WeightedLosses(NamedTuple):
    """The losses of a recipe on the vectors of a batch, times their weights.

    With `max_terms` they are computed on the heaviest terms; with its `full`, the losses on all terms are added (arXiv
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
    ) -> dict[str, Tensor]:
        """Return each loss of queries [b, v] and documents [n, v], times its weight, by its name.

        The labels [b] are the examples' rows in the teachers' data. The queue has further negatives for the in-batch
        loss; they are never reduced to their heaviest terms.
        """
        needed = {loss.needs for loss in self.losses}
        rows = np.empty(0, dtype=np.int64) if labels is None else labels.cpu().numpy()
        scores, vectors = (
            queries.new_empty(0, 0) if teacher is None or need not in needed else teacher(rows).to(queries.device)
            for need, teacher in (("teacher_scores", self.teacher), ("teacher_vectors", self.sparse_teacher))
        )
        views = [(queries, documents)]
        if (k := self.max_terms) is not None:
            heaviest = (
                queries if k.query is None else top_k_mask(queries, k.query),
                documents if k.document is None else top_k_mask(documents, k.document),
            )
            views = [heaviest, *views] if k.full else [heaviest]
        batches = [Batch(*view, scores, vectors, queue) for view in views]
        return {
            loss.name: loss.weight * torch.stack([loss.value(batch) for batch in batches]).sum() for loss in self.losses
        }


class Objective(nn.Module):
    """The loss of `SparseEncoderTrainer` over the queries and documents of all devices; `monitor` sees every batch."""

    def __init__(self, model: SparseEncoder, settings: TrainingSettings, data: TrainingData) -> None:
        super().__init__()
        self.model: Any = model  # the trainer assigns the wrapped model to this name
        statistics = term_statistics(settings.regularizers, model, data.examples, data.folder)
        self.regularizers = WeightedRegularizers(settings.regularizers, settings.steps, statistics)
        self.momentum = None
        if settings.queue is not None:
            self.momentum = Momentum(model, settings.queue, settings.micro_batch or settings.batch_size)
        self.step = 0
        self._queue: Queue | None = None
        self._losses = WeightedLosses(settings.losses, settings.max_terms, data.teacher, data.sparse_teacher)
        self.monitor = Monitor(settings.monitored_loss)
        self._settings = settings

    def forward(self, sentence_features: Iterable[Tokens], labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return the parts of the loss, which the trainer adds up, for tokens by column and the examples' rows [b]."""
        columns = list(sentence_features)
        with self._queued(columns):
            return self.parts(embedded(self.model, columns, self._settings.micro_batch), labels)

    @contextmanager
    def _queued(self, columns: list[Tokens]) -> Iterator[None]:
        """Provide the queue within the context; afterwards, in training, the documents of the batch enter it."""
        if self.momentum is None:
            yield
            return
        newest = self.momentum.read(columns[1:])
        self._queue = self.momentum.negatives(newest.texts[: len(newest.texts) // (len(columns) - 1)])
        yield
        self._queue = None
        if self.model.training:
            self.momentum.push(newest)

    def parts(self, columns: list[Tensor], labels: Tensor | None) -> dict[str, Tensor]:
        """Return losses and regularizers of the vectors of all processes, given the columns [b, v] of this process."""
        queries, *others = [gather_rows(column) for column in columns]
        documents, rows = torch.cat(others), None if labels is None else gather_rows(labels)
        losses = self._losses(queries, documents, rows, self._queue)
        regularizers = self.regularizers(queries, documents, self.step, learn=self.model.training)
        costs = {name.removesuffix("_regularizer_loss"): value for name, value in regularizers.items()}
        self.monitor.see(queries, documents, losses, self.regularizers.weights(self.step), costs)
        return {LOSSES: torch.stack(list(losses.values())).sum(), **regularizers}

    def get_config_dict(self) -> dict[str, object]:  # for the model card
        return self._settings.model_dump(include={"losses", "regularizers"})


class CachedObjective(CachedLossMixin, Objective):
    """The objective with gradient caching (arXiv 2101.06983) on GPUs: only `micro_batch` texts at a time need memory.

    On a CPU `embedded` caches gradients.
    """

    forward_cached: Any  # defined by the mixin

    def __init__(self, model: SparseEncoder, settings: TrainingSettings, data: TrainingData) -> None:
        super().__init__(model, settings, data)
        self.mini_batch_size: int = settings.micro_batch or settings.batch_size
        self._parts: dict[str, Tensor] = {}

    def forward(self, sentence_features: Iterable[Tokens], labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return the parts of the loss; only the first part carries the gradient."""
        columns = list(sentence_features)
        if in_parts(self.model):
            return super().forward(columns, labels)
        with self._queued(columns):
            total = self.forward_cached(columns, labels)
        others = {name: value for name, value in self._parts.items() if name != LOSSES}
        return {LOSSES: total - sum(others.values()), **others}

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the whole loss of the vectors; each column is a list of micro batches."""
        parts = self.parts([torch.cat(column) for column in reps], labels)
        self._parts = {name: value.detach() for name, value in parts.items()}
        total = torch.stack(list(parts.values())).sum()
        if with_backward:
            total.backward()
            total = total.detach()
        return total


def make_objective(model: SparseEncoder, settings: TrainingSettings, data: TrainingData) -> Objective:
    """Return the objective of a recipe for its examples."""
    return (Objective if settings.micro_batch is None else CachedObjective)(model, settings, data)
