"""The recipe of a tuning, scaled to the scores and weights of the model.

The temperature and the regularizers were chosen for the built-in model, and suit scores of its size. They are scaled by
the scores and vectors of the initial model.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import ModelError
from vocable.tuning.settings import (
    DOCUMENT_COST,
    DOCUMENT_LENGTH,
    LEARNING_RATE,
    MICRO_BATCH,
    QUERY_COST,
    QUERY_LENGTH,
    QUESTIONS_PER_STEP,
    START_SHARE,
    TEMPERATURE,
)

EXAMPLES_FILE = "examples.jsonl"  # file in the folder of a tuning
SAVE_EVERY, LOG_EVERY = 20, 2


@dataclass(frozen=True)
class Scale:
    """The size of a model's scores and vectors on its documents."""

    score_spread: float  # standard deviation of a query's scores over documents, mean over queries
    query_flops: float  # sum over terms of the squared mean weight
    document_flops: float


def measure_scale(queries: csr_array, documents: csr_array) -> Scale:
    """Return the scale of the vectors of queries [q, v] and documents [n, v].

    >>> scale = measure_scale(csr_array(np.array([[1.0, 0.0]])), csr_array(np.array([[2.0, 0.0], [4.0, 2.0]])))
    >>> scale.score_spread, scale.query_flops, scale.document_flops  # scores 2 and 4, mean weights 3 and 1
    (1.0, 1.0, 10.0)
    """
    scores = (queries @ documents.T).toarray()
    return Scale(float(scores.std(axis=1).mean()), _flops(queries), _flops(documents))


def _flops(vectors: csr_array) -> float:
    return float(np.square(np.asarray(vectors.mean(axis=0))).sum())


def recipe(
    model: str,
    scale: Scale,
    steps: int,
    seed: int,
    dtype: str,
) -> dict[str, Any]:
    """Return the keys of a recipe of contrastive in-batch training.

    Raises `ModelError` if the model gives no scores or vectors for the scale.
    """
    if not min(astuple(scale)) > 0:
        raise ModelError(f"{model}: it gives these texts no terms, or the same terms to all: see vocable inspect")
    temperature = _rounded(TEMPERATURE * scale.score_spread)
    training: dict[str, Any] = {
        "steps": steps,
        "batch_size": QUESTIONS_PER_STEP,
        "micro_batch": MICRO_BATCH,
        "query_length": QUERY_LENGTH,
        "document_length": DOCUMENT_LENGTH,
        "learning_rate": LEARNING_RATE,
        "losses": [{"name": "info_nce", "temperature": temperature}],
        "regularizers": {
            "query": _rounded(QUERY_COST / scale.query_flops),
            "document": _rounded(DOCUMENT_COST / scale.document_flops),
        },
        "save_every": SAVE_EVERY,
        "log_every": LOG_EVERY,
    }
    return {
        "about": "Made by vocable tune.",
        "model": model,
        "seed": seed,
        "data": {"examples": [EXAMPLES_FILE], "held_out": 0},
        "training": training,
        "saved": {"start_share": START_SHARE, "dtype": dtype},
    }


def _rounded(value: float) -> float:
    """Round a value to three digits, for a readable recipe."""
    return float(f"{value:.3g}")
