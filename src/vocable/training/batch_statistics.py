"""Batch statistics of a training, and the detector that tells from them when it has collapsed.

The rules are in `vocable.adapt.statistics.RULES`; docs/guard.md gives the reason for every figure.

Letters: b queries, n documents, the first b of them the positives, v terms.
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

FALL = 0.75  # of the active terms of a text WINDOW steps before: what is less is a fall
WINDOW = 20


class CollapseKind(StrEnum):
    """The ways in which a training fails."""

    NON_FINITE = "a number that is not finite"
    HOPELESS = "hopeless scores"
    DENSE_COLLAPSE = "dense collapse"
    UNSTABLE = "scores that stay too large"
    DENSE = "vectors that stay dense"
    EMPTY = "dead vectors"
    SHRINKING = "shrinking vectors"
    ALIKE = "texts that are all alike"


class Collapse(NamedTuple):
    """What has happened."""

    kind: CollapseKind
    step: int
    batch: BatchStatistics
    first: BatchStatistics  # of the run


class CollapseDetector:
    """Follows the batches of a run, one a step, knowing its warm-up, ramps, and which sides have a penalty at all."""

    def __init__(self, settings: TrainingSettings) -> None:
        parts = settings.regularizers
        self._warm = round(settings.steps * settings.warmup_share)
        self._sides = [
            (part.weight > 0 or parts.joint.weight > 0, round(settings.steps * max(part.share, parts.joint.share)))
            for part in (parts.query, parts.document)
        ]
        self._running: Counter[CollapseKind] = Counter()
        self._terms: deque[tuple[float, float]] = deque(maxlen=2 * WINDOW)
        self._first: BatchStatistics | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep, as JSON values; one is written only while no rule's condition holds."""
        return {"first": None if self._first is None else asdict(self._first), "terms": [*map(list, self._terms)]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._first = BatchStatistics(**state["first"]) if state["first"] else None
        self._terms.extend((queries, documents) for queries, documents in state["terms"])

    @property
    def uneasy(self) -> bool:
        """Whether a rule's condition holds now, though perhaps not yet for long enough."""
        return bool(self._running)

    def see(self, step: int, batch: BatchStatistics) -> Collapse | None:
        """Look at a batch of the step, counted from 1; the first rule that is met, if one is."""
        self._first = self._first or batch
        self._terms.append((batch.query_terms, batch.document_terms))
        holding = set(self._conditions(step, batch))
        self._running = Counter({kind: self._running[kind] + 1 for kind in holding})
        met = [kind for kind in CollapseKind if self._running[kind] >= RULES[kind.name.lower()].patience]
        return Collapse(met[0], step, batch, self._first) if met else None

    def _conditions(self, step: int, batch: BatchStatistics) -> Sequence[CollapseKind]:
        """The kinds whose condition holds."""
        if not batch.finite:
            return [CollapseKind.NON_FINITE]
        unstable = not batch.stable
        shares = (batch.query_terms / batch.terms, batch.document_terms / batch.terms)
        shrinking = False
        if len(self._terms) == 2 * WINDOW:
            halves = [(fmean(side[:WINDOW]), fmean(side[WINDOW:])) for side in zip(*self._terms, strict=True)]
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
    """What a batch looks like."""

    query_terms: float  # active terms of a query, mean
    document_terms: float
    empty_queries: float  # share of the queries without an active term
    empty_documents: float
    score: float  # of a query with its own document, mean
    terms: int  # v
    finite: bool  # whether these and the losses trained on are

    @property
    def alike(self) -> bool:
        """Whether scores say nothing of which document is whose: the loss is that of guessing."""
        return abs(self.loss - self.chance) <= RULES["alike"].threshold * self.chance


class Monitor:
    """Figures of the newest batch, and of those since the last log step.

    Its InfoNCE is that of the `yardstick`, whatever the losses trained on are.
    """

    def __init__(self, yardstick: InfoNCE = InfoNCE()) -> None:  # noqa: B008  (it is frozen)
        self._yardstick = yardstick
        self._sums: dict[str, float] = {}
        self._batches = 0
        self._weights: dict[str, float] = {}
        self.newest: BatchStatistics | None = None

    @torch.no_grad()
    def see(
        self, queries: Tensor, documents: Tensor, losses: dict[str, Tensor], weights: dict[str, float] | None = None
    ) -> None:
        """Look at the queries [b, v] and documents [n, v] of a batch, its ranking losses and its penalties' weights."""
        like = self._yardstick
        query_counts, document_counts = ((side > 0).sum(dim=1) for side in (queries, documents))
        statistics = {
            "query_terms": query_counts.float().mean(),
            "document_terms": document_counts.float().mean(),
            "empty_queries": (query_counts == 0).float().mean(),
            "empty_documents": (document_counts == 0).float().mean(),
            "score": (queries * documents[: len(queries)]).sum(dim=1).mean(),
            "loss": info_nce(queries, documents, temperature=like.temperature, cosine=like.cosine),
        }
        # Stacked, so that an accelerator is waited for once.
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
        """Return means since the last call, with those of several losses, and the newest weights of the penalties."""
        found = {name: total / self._batches for name, total in self._sums.items()} | self._weights
        self._sums, self._batches, self._weights = {}, 0, {}
        return found
