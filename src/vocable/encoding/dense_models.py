"""Models of sentence-transformers that give a collection its dense vectors, in addition to the sparse model.

Letters: m documents, d dimensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vocable.encoding.runtimes import torch_library
from vocable.encoding.vectors import Parts
from vocable.errors import ModelError, require_extra

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer


def load_dense(name: str, device: str | None = None) -> SentenceTransformer:
    """Load a model of dense vectors; raise `ModelError` if it cannot be loaded."""
    library = require_extra("sentence_transformers", "train")
    try:
        with torch_library().without_bars():
            return library.SentenceTransformer(name, device=device)
    except Exception as error:  # the library passes on any error
        raise ModelError(f"{name}: cannot be loaded as a model of dense vectors: {error}") from error


def dense_fingerprint(model: SentenceTransformer | CrossEncoder) -> Parts:
    """Return the fingerprint of a model of dense vectors or of a cross-encoder."""
    return torch_library().fingerprint(model)


def normalized(vectors: Any) -> np.ndarray:
    """Return dense vectors [m, d] of length 1, whose dot products are cosines."""
    matrix = np.asarray(vectors, dtype=np.float32)
    result: np.ndarray = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return result
