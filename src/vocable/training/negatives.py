"""Which of an example's hard negatives are taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np


class Candidate(NamedTuple):
    """A negative, by its text or id, and its teacher's score if there is one."""

    name: str
    score: float | None = None


class Chooser:
    """Takes up to `count` negatives of an example, evenly from the systems that found them.

    Args:
        count: how many.
        margin: a negative whose score is above the positive's less `margin` is left out, since it may be an answer
            that nobody has judged; None takes all.
        rng: the systems and the negatives of each are taken in random order; None takes them as they stand.

    `dropped` counts what the margin left out. Of the systems' other candidates as few as possible are looked at.
    """

    def __init__(self, count: int, margin: float | None = None, rng: np.random.Generator | None = None) -> None:
        self._count, self._margin, self._rng = count, margin, rng
        self.dropped = 0

    def choose(
        self,
        systems: Sequence[Sequence[Candidate]],
        positive: float | None = None,
        usable: Callable[[str], bool] = lambda name: True,
    ) -> list[Candidate]:
        """The negatives taken, each name once.

        Args:
            systems: the candidates of each system, best first.
            positive: the positive's score, needed with a margin.
            usable: says which names can be taken at all.

        >>> lists = [[Candidate("a"), Candidate("b")], [Candidate("a"), Candidate("c")]]
        >>> [candidate.name for candidate in Chooser(3).choose(lists)]
        ['a', 'c', 'b']
        """
        chosen: dict[str, Candidate] = {}
        dropped: set[str] = set()
        turns = deque(iter(system) for system in self._in_order(systems))
        while turns and len(chosen) < self._count:
            system = turns.popleft()
            taken = self._next(system, positive, usable, chosen, dropped)
            if taken is not None:
                chosen[taken.name] = taken
                turns.append(system)
        self.dropped += len(dropped)
        return list(chosen.values())

    def _next(
        self,
        system: Iterator[Candidate],
        positive: float | None,
        usable: Callable[[str], bool],
        chosen: dict[str, Candidate],
        dropped: set[str],
    ) -> Candidate | None:
        for candidate in system:
            if candidate.name in chosen or candidate.name in dropped:
                continue
            if self._too_good(candidate, positive):
                dropped.add(candidate.name)
            elif usable(candidate.name):
                return candidate
        return None

    def _too_good(self, candidate: Candidate, positive: float | None) -> bool:
        if self._margin is None or candidate.score is None or positive is None:
            return False
        return candidate.score > positive - self._margin

    def _in_order(self, systems: Sequence[Sequence[Candidate]]) -> list[Sequence[Candidate]]:
        if self._rng is None:
            return list(systems)
        rng = self._rng
        shuffled = [[system[i] for i in rng.permutation(len(system))] for system in systems]
        return [shuffled[i] for i in rng.permutation(len(shuffled))]
