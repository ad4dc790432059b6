"""When a retrieval training has collapsed, told from what its batches look like.

A rule is a condition and the number of steps running in which it must hold, so that one odd batch decides nothing.
docs/training.md gives the reason for every figure.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple

from vocable.adapt.rescale import CALM
from vocable.adapt.verdict import DENSE
from vocable.training.monitor import Signs
from vocable.training.settings import Training

HOPELESS = 1000.0  # times the loss of guessing: no start this loud has been seen to come down
EMPTY = 0.5  # share of the texts of one side without a term
ALIKE = 1e-3  # of the loss of guessing, around it: texts that are told apart at all do not stay there
FEW = 3.0  # active terms of a text, mean over WINDOW steps
FALL = 0.75  # ... of what they were WINDOW steps before
WINDOW = 20
SOON, HALFWAY, LATE = 10, 50, 100  # steps running


class Kind(StrEnum):
    """The ways in which a training fails."""

    NON_FINITE = "a number that is not finite"
    HOPELESS = "hopeless scores"
    DENSE_COLLAPSE = "dense collapse"
    LOUD = "scores that stay too large"
    DENSE = "vectors that stay dense"
    DEAD = "dead vectors"
    SHRINKING = "shrinking vectors"
    ALIKE = "texts that are all alike"


PATIENCE = {
    Kind.NON_FINITE: 1,
    Kind.HOPELESS: SOON,
    Kind.DENSE_COLLAPSE: SOON,
    Kind.LOUD: LATE,
    Kind.DENSE: LATE,
    Kind.DEAD: SOON,
    Kind.SHRINKING: WINDOW,
    Kind.ALIKE: HALFWAY,
}


class Collapse(NamedTuple):
    """What has happened."""

    kind: Kind
    step: int
    signs: Signs
    first: Signs  # of the run


class Watch:
    """Follows the batches of a run, one a step.

    Args:
        settings: of the training: the warm-up, the ramps, and which sides have a penalty at all.
    """

    def __init__(self, settings: Training) -> None:
        parts = settings.regularizers
        self._warm = round(settings.steps * settings.warmup_share)
        self._sides = [
            (part.weight > 0 or parts.joint.weight > 0, round(settings.steps * max(part.share, parts.joint.share)))
            for part in (parts.query, parts.document)
        ]
        self._running: Counter[Kind] = Counter()
        self._terms: deque[tuple[float, float]] = deque(maxlen=2 * WINDOW)
        self._first: Signs | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep, as JSON values; one is written only while no rule's condition holds."""
        return {"first": None if self._first is None else self._first._asdict(), "terms": [*map(list, self._terms)]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._first = None if state["first"] is None else Signs(**state["first"])
        self._terms.extend((queries, documents) for queries, documents in state["terms"])

    @property
    def uneasy(self) -> bool:
        """Whether a rule's condition holds now, though perhaps not yet for long enough."""
        return bool(self._running)

    def see(self, step: int, signs: Signs) -> Collapse | None:
        """Look at a batch of the step, counted from 1; the first rule that is met, if one is."""
        self._first = self._first or signs
        self._terms.append((signs.query_terms, signs.document_terms))
        holding = set(self._conditions(step, signs))
        self._running = Counter({kind: self._running[kind] + 1 for kind in holding})
        met = [kind for kind in Kind if self._running[kind] >= PATIENCE[kind]]
        return Collapse(met[0], step, signs, self._first) if met else None

    def _conditions(self, step: int, signs: Signs) -> Sequence[Kind]:
        """The kinds whose condition holds."""
        if not signs.finite:
            return [Kind.NON_FINITE]
        loud, shares = is_loud(signs), active_shares(signs)
        conditions = {
            Kind.HOPELESS: signs.loss > HOPELESS * signs.guess,
            Kind.DENSE_COLLAPSE: loud and max(shares) > DENSE,
            Kind.LOUD: loud and step > self._warm,
            Kind.DENSE: any(
                share > DENSE and penalized and step > ramp
                for share, (penalized, ramp) in zip(shares, self._sides, strict=True)
            ),
            Kind.DEAD: max(signs.empty_queries, signs.empty_documents) >= EMPTY,
            Kind.SHRINKING: self._shrinking(),
            Kind.ALIKE: are_alike(signs) and step > self._warm,
        }
        return [kind for kind, holds in conditions.items() if holds]

    def _shrinking(self) -> bool:
        if len(self._terms) < 2 * WINDOW:
            return False
        sides = zip(*self._terms, strict=True)
        halves = [(fmean(side[:WINDOW]), fmean(side[WINDOW:])) for side in sides]
        return any(now < FEW and now <= FALL * before for before, now in halves)


def is_loud(signs: Signs) -> bool:
    """Whether the loss is too far above that of guessing to learn from."""
    return signs.loss > CALM * signs.guess


def are_alike(signs: Signs) -> bool:
    """Whether scores say nothing of which document is whose: the loss is that of guessing."""
    return abs(signs.loss - signs.guess) <= ALIKE * signs.guess


def active_shares(signs: Signs) -> tuple[float, float]:
    """The share of the terms that is active in a query, and in a document."""
    return signs.query_terms / signs.terms, signs.document_terms / signs.terms
