"""Detector of a collapsed training, and the batch statistics that it judges.

The rules are in `vocable.adapt.statistics.RULES`; docs/guard.md gives the reason for every figure.

Letters: b queries, n documents (the first b are the positives), v terms.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vocable.adapt.statistics import RULES, BatchLoss
from vocable.objectives.losses import InfoNCE, info_nce
from vocable.training.settings import TrainingSettings

FALL = 0.75  # a smaller share of the active terms of the COMPARED_STEPS before is a fall
COMPARED_STEPS = 20


class CollapseKind(StrEnum):
    """Kinds of failed trainings."""

    NON_FINITE = "a number that is not finite"
    HOPELESS = "hopeless scores"
    DENSE_COLLAPSE = "dense collapse"
    UNSTABLE = "scores that stay too large"
    DENSE = "vectors that stay dense"
    EMPTY = "dead vectors"
    SHRINKING = "shrinking vectors"
    ALIKE = "texts that are all alike"


class Collapse(NamedTuple):
    """A detected collapse."""

    kind: CollapseKind
    step: int
    batch: BatchStatistics
    first: BatchStatistics  # of the run


class CollapseDetector:
    """Judges the batch of each step, given the warm-up, the ramps and the regularized sides of the run."""

    def __init__(self, settings: TrainingSettings) -> None:
        parts = settings.regularizers
        self._warm = round(settings.steps * settings.warmup_share)
        self._sides = [
            (part.weight > 0 or parts.joint.weight > 0, round(settings.steps * max(part.share, parts.joint.share)))
            for part in (parts.query, parts.document)
        ]
        self._running: Counter[CollapseKind] = Counter()
        self._terms: deque[tuple[float, float]] = deque(maxlen=2 * COMPARED_STEPS)
        self._first: BatchStatistics | None = None

    def state(self) -> dict[str, object]:
        """Return the state for a checkpoint, as JSON values; none is written while a condition holds."""
        return {"first": None if self._first is None else asdict(self._first), "terms": [*map(list, self._terms)]}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._first = BatchStatistics(**state["first"]) if state["first"] else None
        self._terms.extend((queries, documents) for queries, documents in state["terms"])

    @property
    def suspicious(self) -> bool:
        """True while a condition holds, even if not yet for long enough."""
        return bool(self._running)

    def see(self, step: int, batch: BatchStatistics) -> Collapse | None:
        """Judge the batch of a step, counted from 1; return the first rule that is met, if any."""
        self._first = self._first or batch
        self._terms.append((batch.query_terms, batch.document_terms))
        holding = set(self._conditions(step, batch))
        self._running = Counter({kind: self._running[kind] + 1 for kind in holding})
        met = [kind for kind in CollapseKind if self._running[kind] >= RULES[kind.name.lower()].patience]
        return Collapse(met[0], step, batch, self._first) if met else None

    def _conditions(self, step: int, batch: BatchStatistics) -> Sequence[CollapseKind]:
        """Return the kinds whose condition holds."""
        if not batch.finite:
            return [CollapseKind.NON_FINITE]
        unstable = not batch.stable
        shares = (batch.query_terms / batch.terms, batch.document_terms / batch.terms)
        shrinking = False
        if len(self._terms) == 2 * COMPARED_STEPS:
            halves = [
                (fmean(side[:COMPARED_STEPS]), fmean(side[COMPARED_STEPS:])) for side in zip(*self._terms, strict=True)
            ]
            limit = RULES["shrinking"].threshold
            shrinking = any(now < limit and now <= FALL * before for before, now in halves)
        conditions = {
            CollapseKind.HOPELESS: RULES["hopeless"].beyond(batch.loss, batch.chance),
            CollapseKind.DENSE_COLLAPSE: unstable and RULES["dense_collapse"].beyond(max(shares)),
            CollapseKind.UNSTABLE: unstable and step > self._warm,
            CollapseKind.DENSE: any(
                RULES["dense"].beyond(share) and penalized and step > ramp
                for share, (penalized, ramp) in zip(shares, self._sides, strict=True)
            ),
            CollapseKind.EMPTY: max(batch.empty_queries, batch.empty_documents) >= RULES["empty"].threshold,
            CollapseKind.SHRINKING: shrinking,
            CollapseKind.ALIKE: batch.alike and step > self._warm,
        }
        return [kind for kind, holds in conditions.items() if holds]


LOGGED = ("query_terms", "document_terms", "score")


@dataclass(frozen=True, kw_only=True)
class BatchStatistics(BatchLoss):
    """Statistics of one batch."""

    query_terms: float  # active terms of a query, mean
    document_terms: float
    empty_queries: float  # share of the queries without an active term
    empty_documents: float
    score: float  # mean over queries, with their own documents
    terms: int  # v
    finite: bool  # these statistics and the losses are finite

    @property
    def alike(self) -> bool:
        """True if the loss equals the loss of random scores: scores do not distinguish documents."""
        return abs(self.loss - self.chance) <= RULES["alike"].threshold * self.chance


class Monitor:
    """Statistics of the newest batch, and means since the last log; its InfoNCE is computed as `monitored_loss`."""

    def __init__(self, monitored_loss: InfoNCE = InfoNCE()) -> None:  # noqa: B008  (it is frozen)
        self._monitored_loss = monitored_loss
        self._sums: dict[str, float] = {}
        self._batches = 0
        self._weights: dict[str, float] = {}
        self.newest: BatchStatistics | None = None

    @torch.no_grad()
    def see(
        self, queries: Tensor, documents: Tensor, losses: dict[str, Tensor], weights: dict[str, float] | None = None
    ) -> None:
        """Take the queries [b, v] and documents [n, v] of a batch, its losses, and the weights of its regularizers."""
        monitored = self._monitored_loss
        query_counts, document_counts = ((side > 0).sum(dim=1) for side in (queries, documents))
        statistics = {
            "query_terms": query_counts.float().mean(),
            "document_terms": document_counts.float().mean(),
            "empty_queries": (query_counts == 0).float().mean(),
            "empty_documents": (document_counts == 0).float().mean(),
            "score": (queries * documents[: len(queries)]).sum(dim=1).mean(),
            "loss": info_nce(queries, documents, temperature=monitored.temperature, cosine=monitored.cosine),
        }
        # Stacked, to synchronize with an accelerator once.
        values = torch.stack([figure.float() for figure in (*statistics.values(), *losses.values())]).tolist()
        found, trained = dict(zip(statistics, values, strict=False)), values[len(statistics) :]
        finite = all(map(math.isfinite, values))
        self.newest = BatchStatistics(**found, chance=math.log(len(documents)), terms=queries.shape[1], finite=finite)
        figures = {name: found[name] for name in LOGGED}
        if len(losses) > 1:
            figures |= dict(zip(losses, trained, strict=True))
        self._sums = {name: self._sums.get(name, 0.0) + value for name, value in figures.items()}
        self._batches += 1
        self._weights = weights or {}

    def figures(self) -> dict[str, float]:
        """Return means since the last call, of several losses also each loss, and the newest regularizer weights."""
        found = {name: total / self._batches for name, total in self._sums.items()} | self._weights
        self._sums, self._batches, self._weights = {}, 0, {}
        return found
