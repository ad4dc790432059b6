"""What a batch is trained on: the losses of its vectors and their penalties, those of all devices together.

Letters: b queries of a batch, n documents, v terms; a column is that of the examples: queries, positives, negatives.

In how many documents each term is active, kept up while the model changes.

Letters: n documents, v terms.

How wacky each term is, measured again and again while the model changes.

Letters: m sampled texts, v terms.

The regularizers of a recipe on the vectors of a batch, each with its ramp.

Letters: b queries, n documents, v terms.

The losses of a recipe on the vectors of a batch, as a weighted sum.

Letters: b queries, c negatives of an example, n = b (1 + c) documents, v terms. The documents stand column by column:
first the b positives, then everybody's first negative, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import DatasetDict, concatenate_datasets
from sentence_transformers import SparseEncoder
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from vocable.encoder.encode import TextEncoder
from vocable.encoder.roles import Role
from vocable.encoder.terms import own_terms, terms
from vocable.evaluation.wackiness import wackiness, without_itself
from vocable.objectives.losses import Queue, alignment, info_nce, kl, margin_mse, top_k_mask
from vocable.objectives.regularizers import df_weights, flops, joint_flops, l1, overlap_distance, ramp
from vocable.search.exact import ExactIndex
from vocable.training import processes
from vocable.training.batch_statistics import Monitor
from vocable.training.data import Lessons
from vocable.training.momentum import Momentum
from vocable.training.processes import gathered
from vocable.training.recipe import (
    KL,
    TAUGHT,
    Alignment,
    InfoNCE,
    Joint,
    Loss,
    Regularizer,
    Regularizers,
    TopK,
    Training,
)
from vocable.training.teachers import SparseTeacher, Teacher

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


class Sample:
    """Queries and documents of the examples, on which the wackiness of one role's expansions is measured.

    Args:
        examples: of the run, one data set a source; their positives are the documents.
        size: how many examples to take; a text that is there twice counts once.
        role: whose expansions. The collection is the documents in either case; one of them does not retrieve itself.
        k: documents that are retrieved for a text.
        seed: decides which examples.
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
        counts = own_terms(model, self._documents)
        index = ExactIndex(documents)
        if self._queries is None:
            rows = without_itself(index.search(documents, self._k + 1).rows, np.arange(len(self._documents)))
            found = wackiness(documents, counts, rows, counts)
        else:
            queries = TextEncoder(model, "query").encode(self._queries)
            found = wackiness(queries, own_terms(model, self._queries), index.search(queries, self._k).rows, counts)
        return torch.from_numpy(np.nan_to_num(found.scores, nan=0.0)).float()


class MeasureWackiness(TrainerCallback):
    """Measures before the first step, then every so many steps; between two measurements the scores stay.

    The penalties keep them, in checkpoints, too, and what is measured depends on nothing but the model: a run that goes
    on from a checkpoint has the scores that it would have had.
    """

    def __init__(
        self, penalties: Penalties, settings: Mapping[Role, Regularizer], examples: DatasetDict, seed: int
    ) -> None:
        self._penalties, self._settings = penalties, settings
        self._samples = {side: Sample(examples, part.sample, side, part.k, seed) for side, part in settings.items()}

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: SparseEncoder | None = None,
        **kwargs: object,
    ) -> None:
        if model is None:
            return
        for side, part in self._settings.items():
            if state.global_step % part.every == 0:
                self._measure(model, side)

    def _measure(self, model: SparseEncoder, side: Role) -> None:
        kept = self._penalties.wackiness(side)
        if processes.is_first():
            kept.copy_(self._samples[side].scores(model))
            model.train()
        processes.take_over(kept)


class Penalties(nn.Module):
    """What sparsity costs: L1 or FLOPS of each side, the latter weighted or not, joint FLOPS of both, and overlap.

    Args:
        settings: of queries, documents and both; a weight of 0 takes one away.
        steps: of the whole training, which the ramps are a share of.
        v: terms of a vector.
        idf: [v], for `idf_flops`.
    """

    idf: Tensor | None

    def __init__(self, settings: Regularizers, steps: int, v: int, *, idf: Tensor | None = None) -> None:
        super().__init__()
        self._settings, self._steps = settings, steps
        self.register_buffer("idf", idf, persistent=False)
        self.frequencies = DocumentFrequencies(v) if "df_flops" in settings.names else None
        for side in settings.measured:
            self.register_buffer(f"{side}_wackiness", torch.zeros(v))

    def forward(self, queries: Tensor, documents: Tensor, step: int, *, learn: bool) -> dict[str, Tensor]:
        """The penalties of queries [b, v] and documents [n, v] in a step, counted from 0, times their weights.

        Args:
            learn: whether these are documents that the model learns from, which count for DF-FLOPS.
        """
        if self.frequencies is not None and learn:
            self.frequencies.count(documents, step)
        settings, found = self._settings, {}
        if settings.query.weight:
            found["query_regularizer_loss"] = self._one_side("query", queries, step)
        if settings.document.weight:
            found["document_regularizer_loss"] = self._one_side("document", documents, step)
        if settings.joint.weight:
            weight = self._weight(settings.joint, step)
            found["joint_regularizer_loss"] = weight * joint_flops(queries, documents)
        if settings.overlap.weight:
            weight = self._weight(settings.overlap, step)
            found["overlap_regularizer_loss"] = weight * overlap_distance(queries, documents[: len(queries)])
        return found

    def wackiness(self, side: Role) -> Tensor:
        """The wackiness of each term [v] as an expansion of one side's texts, 0 until `MeasureWackiness` writes it."""
        return self.get_buffer(f"{side}_wackiness")

    def weights(self, step: int) -> dict[str, float]:
        """The weights of a step."""
        settings = self._settings
        parts: dict[str, Joint] = {name: getattr(settings, name) for name in type(settings).model_fields}
        return {f"{name}_regularizer_weight": self._weight(part, step) for name, part in parts.items() if part.weight}

    def _weight(self, part: Joint, step: int) -> float:
        return part.weight * ramp(step, self._steps, shape=part.ramp, share=part.share)

    def _one_side(self, side: Role, vectors: Tensor, step: int) -> Tensor:
        part: Regularizer = getattr(self._settings, side)
        if part.name == "l1":
            return self._weight(part, step) * l1(vectors)
        penalty = flops(vectors, threshold=part.threshold, term_weights=self._term_weights(side, part.name))
        return self._weight(part, step) * penalty

    def _term_weights(self, side: Role, name: str) -> Tensor | None:
        """What FLOPS of one side multiplies the terms' weights by, [v]."""
        if name == "idf_flops":
            return self.idf
        if name == "wackiness_flops":
            return self.wackiness(side)
        return df_weights(self.frequencies.shares()) if self.frequencies is not None and name == "df_flops" else None

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep, as JSON values."""
        return {name: buffer.tolist() for name, buffer in self.state_dict().items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.load_state_dict({name: torch.tensor(values) for name, values in state.items()})


class Ranking:
    """What the vectors of a batch are to be: good at ranking, or like a teacher's.

    Args:
        losses: each with its weight.
        top_k: the losses are taken on the heaviest terms and, if it says so, on all, and the two are added
            (arXiv 2112.09628).
        teacher: of `kl` and `margin_mse`.
        sparse_teacher: of `alignment`.
    """

    def __init__(
        self,
        losses: Sequence[Loss],
        *,
        top_k: TopK | None = None,
        teacher: Teacher | None = None,
        sparse_teacher: SparseTeacher | None = None,
    ) -> None:
        self._losses, self._top_k = losses, top_k
        self._teacher = teacher if any(loss.name in TAUGHT for loss in losses) else None
        self._sparse_teacher = sparse_teacher

    def __call__(
        self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, queue: Queue | None = None
    ) -> dict[str, Tensor]:
        """Each loss of queries [b, v] and documents [n, v], times its weight, by its name.

        Args:
            labels: [b], the rows of the examples, by which the teachers know them.
            queue: further negatives of the in-batch loss, the same whether the others are masked or full.
        """
        nothing = queries.new_empty(0, 0)
        rows = np.empty(0, dtype=np.int64) if labels is None else labels.cpu().numpy()
        lesson = Lesson(
            scores=nothing if self._teacher is None else self._teacher.scores(rows).to(queries.device),
            vectors=nothing if self._sparse_teacher is None else self._sparse_teacher.vectors(rows).to(queries.device),
            queue=queue,
        )
        views = self._views(queries, documents)
        return {
            loss.name: loss.weight * torch.stack([_value(loss, *view, lesson) for view in views]).sum()
            for loss in self._losses
        }

    def _views(self, queries: Tensor, documents: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The vectors on which the losses are taken: full, masked, or both."""
        full = (queries, documents)
        if self._top_k is None:
            return [full]
        k = self._top_k
        masked = (
            queries if k.query is None else top_k_mask(queries, k.query),
            documents if k.document is None else top_k_mask(documents, k.document),
        )
        return [masked, full] if k.full else [masked]


class Lesson(NamedTuple):
    """What there is to a batch beside its vectors: what the teachers say of it, empty where there is none."""

    scores: Tensor  # [b, n] of all its documents, or [b, 1 + c] of each example's own, the positive first
    vectors: Tensor  # [b + n, v] of its queries and documents
    queue: Queue | None


def _value(loss: Loss, queries: Tensor, documents: Tensor, lesson: Lesson) -> Tensor:
    if isinstance(loss, InfoNCE):
        return info_nce(
            queries,
            documents,
            temperature=loss.temperature,
            margin=loss.margin,
            cosine=loss.cosine,
            queue=lesson.queue,
        )
    if isinstance(loss, Alignment):
        return alignment(torch.cat([queries, documents]), lesson.vectors, kind=loss.kind)
    if lesson.scores.shape[1] == len(documents):  # more than 1 + c of them: a batch has two examples at least
        scores, taught = positive_first(queries @ documents.T), positive_first(lesson.scores)
    else:
        scores, taught = own_scores(queries, documents), lesson.scores
    if isinstance(loss, KL):
        return kl(scores, taught, temperature=loss.temperature, teacher_temperature=loss.teacher_temperature)
    return margin_mse(scores, taught)


def own_scores(queries: Tensor, documents: Tensor) -> Tensor:
    """Each query [b, v] with the 1 + c documents of its own example [n, v]: [b, 1 + c], the positive first.

    >>> own_scores(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    tensor([[1., 3.],
            [4., 8.]])
    """
    return torch.einsum("bv,cbv->bc", queries, documents.unflatten(0, (-1, len(queries))))


def positive_first(scores: Tensor) -> Tensor:
    """Scores of every query with every document [b, n], each query's own column i moved to the front.

    >>> positive_first(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    tensor([[1, 2, 3],
            [5, 4, 6]])
    """
    own = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
    return torch.cat([scores.diagonal()[:, None], scores[~own].view(len(scores), -1)], dim=1)


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
