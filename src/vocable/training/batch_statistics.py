"""What to look at while a retriever learns: how many terms are active, how large scores are, how well it ranks.

When a retrieval training has collapsed, told from what its batches look like.

A rule is a condition and the number of steps running in which it must hold, so that one odd batch decides nothing.
docs/training.md gives the reason for every figure.
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

from vocable.adapt.inspection import DENSE
from vocable.adapt.rescale import CALM
from vocable.objectives.losses import info_nce
from vocable.training.recipe import TrainingSettings

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

    def __init__(self, settings: TrainingSettings) -> None:
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


LOGGED = ("query_terms", "document_terms", "score")


class Signs(NamedTuple):
    """What a batch looks like: b queries, n documents, v terms."""

    query_terms: float  # active terms of a query, mean
    document_terms: float
    empty_queries: float  # share of the queries without an active term
    empty_documents: float
    score: float  # of a query with its own document, mean
    loss: float  # InfoNCE
    guess: float  # log(n), the loss of guessing
    terms: int  # v
    finite: bool  # whether these and the losses trained on are


class Monitor:
    """Figures of the newest batch, and of those since the last log step.

    Args:
        temperature, cosine: of the InfoNCE in `Signs`, which is looked at whatever the losses trained on are.

    Letters: b queries, n documents, the first b of them the positives, v terms.
    """

    def __init__(self, *, temperature: float = 1.0, cosine: bool = False) -> None:
        self._temperature, self._cosine = temperature, cosine
        self._sums: dict[str, float] = {}
        self._batches = 0
        self._weights: dict[str, float] = {}
        self.newest: Signs | None = None

    @torch.no_grad()
    def see(
        self, queries: Tensor, documents: Tensor, losses: dict[str, Tensor], weights: dict[str, float] | None = None
    ) -> None:
        """Look at the queries [b, v] and documents [n, v] of a batch, its ranking losses and its penalties' weights."""
        asked, given = ((side > 0).sum(dim=1) for side in (queries, documents))
        looks = {
            "query_terms": asked.float().mean(),
            "document_terms": given.float().mean(),
            "empty_queries": (asked == 0).float().mean(),
            "empty_documents": (given == 0).float().mean(),
            "score": (queries * documents[: len(queries)]).sum(dim=1).mean(),
            "loss": info_nce(queries, documents, temperature=self._temperature, cosine=self._cosine),
        }
        # Stacked, so that an accelerator is waited for once.
        values = torch.stack([figure.float() for figure in (*looks.values(), *losses.values())]).tolist()
        found, trained = dict(zip(looks, values, strict=False)), values[len(looks) :]
        finite = all(map(math.isfinite, values))
        self.newest = Signs(**found, guess=math.log(len(documents)), terms=queries.shape[1], finite=finite)
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
