"""Pack vectors into documents of Elasticsearch and OpenSearch, and scale dense queries."""

from __future__ import annotations

import base64
import math

import numpy as np

from vocable.engines.base import VectorRow
from vocable.engines.protocols import Space

DENSE_ZERO = 1.0  # score of the product 0; OpenSearch gives a product p > 0 the score p + 1
DENSE_EXPONENT = 40  # the largest weight of a scaled query is below 2 to this power
CANDIDATES = 100  # a search of a graph looks for at least this many documents; the best k are hits


def features(columns: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Return weights by the names of their columns, which are numbers as text."""
    return dict(zip(map(str, columns.tolist()), weights.tolist(), strict=True))


def packed(row: VectorRow) -> str:
    """Return a row as text, without loss."""
    parts = [row.astype("<f4")] if isinstance(row, np.ndarray) else [row[0].astype("<i4"), row[1].astype("<f4")]
    return base64.b64encode(b"".join(part.tobytes() for part in parts)).decode()


def unpacked(text: str, space: Space) -> VectorRow:
    """Return the row from a text that `packed` returned."""
    content = base64.b64decode(text)
    half = 0 if space == "dense" else len(content) // 2
    weights = np.frombuffer(content[half:], "<f4")
    return weights if space == "dense" else (np.frombuffer(content[:half], "<i4"), weights)


def dense_scale(vector: np.ndarray) -> float:
    """Return a power of two to divide a query [d] by, so that adding 1 to a score costs the score no bits.

    Scores are float32: 0.001 + 1 keeps only half the bits of 0.001.

    >>> bool(np.float32(1 + np.float32(0.001)) - 1 == np.float32(0.001))
    False
    >>> scale = dense_scale(np.float32([0.001]))
    >>> bool((np.float32(1 + np.float32(0.001) / scale) - 1) * scale == np.float32(0.001))
    True
    """
    largest = float(np.abs(vector).max(initial=0))
    return 2.0 ** ((math.frexp(largest)[1] if largest else 0) - DENSE_EXPONENT)
