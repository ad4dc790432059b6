"""The ramp of a regularizer's weight: from nothing to all of it over the first part of a training."""

from __future__ import annotations

from typing import Literal

from vocable.errors import ArgumentError

Shape = Literal["constant", "linear", "quadratic"]
POWERS = {"constant": 0, "linear": 1, "quadratic": 2}


def ramp(step: int, total_steps: int, *, shape: Shape = "quadratic", share: float = 1 / 3) -> float:
    """min(1, step / (T · share))^p: what a weight is multiplied by (paper 000: quadratic over the first third).

    Args:
        step: how many steps are done: 0 in the first one.
        total_steps: T, how many there will be.
        shape: p is 0 for "constant", 1 for "linear" and 2 for "quadratic".
        share: of the steps that the ramp takes.

    Raises:
        ArgumentError: an unknown shape, or numbers out of range.

    >>> [ramp(step, 300) for step in (0, 50, 100, 200)]
    [0.0, 0.25, 1.0, 1.0]
    >>> ramp(75, 300, shape="linear", share=0.5), ramp(0, 300, shape="constant")
    (0.5, 1.0)
    """
    if shape not in POWERS:
        raise ArgumentError(f"a ramp is {', '.join(POWERS)}, not {shape}")
    if step < 0 or total_steps < 1 or not 0 < share <= 1:
        raise ArgumentError(f"no ramp at step {step} of {total_steps} over a share of {share}")
    return float(min(1.0, step / (total_steps * share)) ** POWERS[shape])
