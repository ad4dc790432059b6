"""Vectors to take losses of."""

from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture(scope="session")
def sparse() -> Callable[..., np.ndarray]:
    """sparse(seed, m, v) -> float64 [m, v], about half of the weights zero, a text without terms now and then."""

    def draw(seed: int, *shape: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        active = rng.random(shape) < rng.choice([0.0, 0.5, 0.7], p=[0.1, 0.5, 0.4], size=(shape[0], 1))
        return 3 * rng.random(shape) * active

    return draw
