"""Rules that recognize a collapse of a retrieval training by the statistics of its batches.

The thresholds are in `vocable.adapt.statistics.RULES`; docs/guard.md gives the reason for every figure.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple

from vocable.adapt.statistics import RULES
from vocable.objectives.settings import Cosine, InfoNCE
from vocable.training.objective import BatchStatistics
from vocable.training.recipe import TrainingSettings

FALL = 0.75  # a smaller share of the active terms of the previous COMPARED_STEPS steps is a fall
COMPARED_STEPS = 20
FIRST_STEPS = 40
LEARNED = 0.75  # a first loss below this share of the loss of chance: the initial model finds its way


class CollapseKind(StrEnum):
    """Kinds of failed trainings."""

    NON_FINITE = "a number that is not finite"
    HOPELESS = "hopeless scores"
    DENSE_COLLAPSE = "dense collapse"
    UNSTABLE = "scores that stay too large"
    DENSE = "vectors that stay dense"
    EMPTY = "dead vectors"
    SHRINKING = "shrinking vectors"
    IDLE = "nothing to learn"
    ALIKE = "texts that are all alike"
    LOST = "a loss back at chance"


@dataclass
class History:
    """The largest figures of the steps so far, which tell a strong regularizer from a high learning rate."""

    shares: dict[str, float] = field(default_factory=dict)  # of each regularizer in the whole loss
    movement: float = 0.0  # change of the weights in a step, as a share of their norm

    def see(self, batch: BatchStatistics) -> None:
        for name, share in batch.shares.items():
            self.shares[name] = max(share, self.shares.get(name, 0.0))
        self.movement = max(batch.movement, self.movement)


class Collapse(NamedTuple):
    """A detected collapse."""

    kind: CollapseKind
    step: int
    batch: BatchStatistics
    first: BatchStatistics  # the first batch of the run
    history: History = History()


class CollapseDetector:
    """Judges the batch of each step, given the warm-up, the ramps and the regularized sides of the run."""

    def __init__(self, settings: TrainingSettings) -> None:
        parts = settings.regularizers
        self._warm = round(settings.steps * settings.warmup_share)
        self._contrastive = all(isinstance(loss, InfoNCE | Cosine) for loss in settings.losses)
        self._sides = [
            (part.weight > 0 or parts.joint.weight > 0, round(settings.steps * max(part.share, parts.joint.share)))
            for part in (parts.query, parts.document)
        ]
        self._running: Counter[CollapseKind] = Counter()
        self._terms: deque[tuple[float, float]] = deque(maxlen=2 * COMPARED_STEPS)
        self._first: BatchStatistics | None = None
        self.history = History()

    def state(self) -> dict[str, object]:
        """Return the state for a checkpoint, as JSON values. While a condition holds, the run writes no checkpoint."""
        return {
            "first": None if self._first is None else asdict(self._first),
            "terms": [*map(list, self._terms)],
            "history": asdict(self.history),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._first = BatchStatistics(**state["first"]) if state["first"] else None
        self._terms.extend((queries, documents) for queries, documents in state["terms"])
        self.history.shares, self.history.movement = state["history"]["shares"], state["history"]["movement"]

    @property
    def suspicious(self) -> bool:
        """True while a condition holds, even if it has not held for long enough yet."""
        return bool(self._running)

    def see(self, step: int, batch: BatchStatistics) -> Collapse | None:
        """Judge the batch of a step, counted from 1; return the first rule that is met, if any."""
        self._first = self._first or batch
        self._terms.append((batch.query_terms, batch.document_terms))
        self.history.see(batch)
        holding = set(self._conditions(step, batch))
        self._running = Counter({kind: self._running[kind] + 1 for kind in holding})
        met = [kind for kind in CollapseKind if self._running[kind] >= RULES[kind.name.lower()].patience]
        return Collapse(met[0], step, batch, self._first, self.history) if met else None

    def _conditions(self, step: int, batch: BatchStatistics) -> list[CollapseKind]:
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
            shrinking = any(now < limit and now <= FALL * earlier for earlier, now in halves)
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
            # Later such a loss is success.
            CollapseKind.IDLE: self._contrastive
            and step <= FIRST_STEPS
            and not RULES["idle"].beyond(batch.loss, batch.chance),
            CollapseKind.ALIKE: batch.alike and step > self._warm,
            CollapseKind.LOST: self._first is not None
            and self._first.loss <= LEARNED * self._first.chance
            and abs(batch.loss - batch.chance) <= RULES["lost"].threshold * batch.chance,
        }
        return [kind for kind, holds in conditions.items() if holds]
