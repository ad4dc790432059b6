"""Which tokens a masked language model has to guess."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IGNORED = -100  # the label of a token that is not to be guessed, torch's own convention


class Masked(NamedTuple):
    """A text prepared for guessing: what the model sees and what it should have seen, both [s] int64."""

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]


def uniform(
    ids: NDArray[np.int64],
    special: NDArray[np.bool_],
    rng: np.random.Generator,
    *,
    rate: float,
    mask_id: int,
    size: int,
) -> Masked:
    """Choose each ordinary token with probability `rate`; of the chosen, 80 % become [MASK], 10 % random, 10 % stay.

    Args:
        ids: [s] token ids.
        special: [s], True where a token is never masked.
        rate: probability in (0, 1].
        mask_id: the [MASK] token.
        size: v, random tokens are drawn from range(size).

    At least one ordinary token is chosen where there is one, so that no text is without a loss.
    """
    chosen = (rng.random(len(ids)) < rate) & ~special
    if not chosen.any() and not special.all():
        chosen[rng.choice(np.flatnonzero(~special))] = True
    fate = rng.random(len(ids))
    labels = np.where(chosen, ids, IGNORED)
    masked = np.where(chosen & (fate < 0.8), mask_id, ids)
    random = rng.integers(size, size=len(ids))
    masked = np.where(chosen & (fate >= 0.8) & (fate < 0.9), random, masked)
    return Masked(masked, labels)
