"""Batch statistics of a training, and the detector that tells from them when it has collapsed.

A rule (`vocable.adapt.statistics.RULES`) is a condition and the number of steps running in which it must hold, so that
one odd batch decides nothing. docs/training.md gives the reason for every figure.

Letters: b queries, n documents, the first b of them the positives, v terms.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vocable.adapt.statistics import RULES, Rule
from vocable.objectives.losses import info_nce
from vocable.training.recipe import TrainingSettings

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

    @property
    def rule(self) -> Rule:
        """The rule that tells it."""
        return RULES[self.name.lower()]


class Collapse(NamedTuple):
    """What has happened."""

    kind: CollapseKind
    step: int
    batch: BatchStatistics
    first: BatchStatistics  # of the run


class CollapseDetector:
    """Follows the batches of a run, one a step.

    Args:
        settings: of the training: the warm-up, the ramps, and which sides have a penalty at all.
    """

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
        return {"first": None if self._first is None else self._first._asdict(), "terms": [*map(list, self._terms)]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        first = state["first"]
        if first is not None:
            first = BatchStatistics(**{{"guess": "chance"}.get(name, name): value for name, value in first.items()})
        self._first = first
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
        met = [kind for kind in CollapseKind if self._running[kind] >= kind.rule.patience]
        return Collapse(met[0], step, batch, self._first) if met else None

    def _conditions(self, step: int, batch: BatchStatistics) -> Sequence[CollapseKind]:
        """The kinds whose condition holds."""
        if not batch.finite:
            return [CollapseKind.NON_FINITE]
        unstable, shares = is_unstable(batch), active_shares(batch)
        conditions = {
            CollapseKind.HOPELESS: RULES["hopeless"].beyond(batch.loss, batch.chance),
            CollapseKind.DENSE_COLLAPSE: unstable and RULES["dense_collapse"].beyond(max(shares)),
            CollapseKind.UNSTABLE: unstable and step > self._warm,
            CollapseKind.DENSE: any(
                RULES["dense"].beyond(share) and penalized and step > ramp
                for share, (penalized, ramp) in zip(shares, self._sides, strict=True)
            ),
            CollapseKind.EMPTY: max(batch.empty_queries, batch.empty_documents) >= RULES["empty"].threshold,
            CollapseKind.SHRINKING: self._shrinking(),
            CollapseKind.ALIKE: are_alike(batch) and step > self._warm,
        }
        return [kind for kind, holds in conditions.items() if holds]

    def _shrinking(self) -> bool:
        if len(self._terms) < 2 * WINDOW:
            return False
        sides = zip(*self._terms, strict=True)
        halves = [(fmean(side[:WINDOW]), fmean(side[WINDOW:])) for side in sides]
        return any(now < RULES["shrinking"].threshold and now <= FALL * before for before, now in halves)


def is_unstable(batch: BatchStatistics) -> bool:
    """Whether the loss is too far above that of guessing to learn from."""
    return RULES["unstable"].beyond(batch.loss, batch.chance)


def are_alike(batch: BatchStatistics) -> bool:
    """Whether scores say nothing of which document is whose: the loss is that of guessing."""
    return abs(batch.loss - batch.chance) <= RULES["alike"].threshold * batch.chance


def active_shares(batch: BatchStatistics) -> tuple[float, float]:
    """The share of the terms that is active in a query, and in a document."""
    return batch.query_terms / batch.terms, batch.document_terms / batch.terms


LOGGED = ("query_terms", "document_terms", "score")


class BatchStatistics(NamedTuple):
    """What a batch looks like: b queries, n documents, v terms."""

    query_terms: float  # active terms of a query, mean
    document_terms: float
    empty_queries: float  # share of the queries without an active term
    empty_documents: float
    score: float  # of a query with its own document, mean
    loss: float  # InfoNCE
    chance: float  # log(n), the loss of guessing
    terms: int  # v
    finite: bool  # whether these and the losses trained on are


class Monitor:
    """Figures of the newest batch, and of those since the last log step.

    Args:
        temperature, cosine: of the InfoNCE in `BatchStatistics`, which is looked at whatever the losses trained on are.

    Letters: b queries, n documents, the first b of them the positives, v terms.
    """

    def __init__(self, *, temperature: float = 1.0, cosine: bool = False) -> None:
        self._temperature, self._cosine = temperature, cosine
        self._sums: dict[str, float] = {}
        self._batches = 0
        self._weights: dict[str, float] = {}
        self.newest: BatchStatistics | None = None

    @torch.no_grad()
    def see(
        self, queries: Tensor, documents: Tensor, losses: dict[str, Tensor], weights: dict[str, float] | None = None
    ) -> None:
        """Look at the queries [b, v] and documents [n, v] of a batch, its ranking losses and its penalties' weights."""
        query_counts, document_counts = ((side > 0).sum(dim=1) for side in (queries, documents))
        statistics = {
            "query_terms": query_counts.float().mean(),
            "document_terms": document_counts.float().mean(),
            "empty_queries": (query_counts == 0).float().mean(),
            "empty_documents": (document_counts == 0).float().mean(),
            "score": (queries * documents[: len(queries)]).sum(dim=1).mean(),
            "loss": info_nce(queries, documents, temperature=self._temperature, cosine=self._cosine),
        }
        # Stacked, so that an accelerator is waited for once.
        values = torch.stack([figure.float() for figure in (*statistics.values(), *losses.values())]).tolist()
        found, trained = dict(zip(statistics, values, strict=False)), values[len(statistics) :]
        finite = all(map(math.isfinite, values))
        self.newest = BatchStatistics(**found, chance=math.log(len(documents)), terms=queries.shape[1], finite=finite)
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
