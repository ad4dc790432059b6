"""Models that give a collection its dense vectors, in addition to the sparse model.

Letters: m documents, d dimensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vocable.encoding.dense_graph import DenseGraph, is_dense_graph
from vocable.encoding.hub import check_files, locate
from vocable.encoding.runtimes import torch_library
from vocable.encoding.vectors import Parts
from vocable.errors import ModelError, require_extra

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


class DenseModel(Protocol):
    """A `DenseGraph` or a `SentenceTransformer`: the methods that a collection calls."""

    def encode_query(self, texts: list[str], /, *, show_progress_bar: bool) -> Any:
        """Return the vectors [m, d] of queries."""

    def encode_document(self, texts: list[str], /, *, show_progress_bar: bool) -> Any:
        """Return the vectors [m, d] of documents."""

    def get_embedding_dimension(self) -> int | None:
        """Return d."""


def load_dense(name: str, device: str | None = None) -> DenseModel:
    """Load a model of dense vectors: a graph, which computes on a CPU, or a model of sentence-transformers.

    Raises `ModelError` if it cannot be loaded, and `MissingExtraError` if it needs PyTorch, which is not installed.
    """
    if is_dense_graph(place := locate(name)):
        check_files(place)
        return DenseGraph(place)
    library = require_extra("sentence_transformers", "train")
    try:
        with torch_library().without_bars():
            model: DenseModel = library.SentenceTransformer(name, device=device)
            return model
    except Exception as error:  # the library passes on any error
        raise ModelError(f"{name}: cannot be loaded as a model of dense vectors: {error}") from error


def dense_fingerprint(model: DenseModel | CrossEncoder) -> Parts:
    """Return the fingerprint of a model of dense vectors or of a cross-encoder."""
    return model.fingerprint() if isinstance(model, DenseGraph) else torch_library().fingerprint(model)


def normalized(vectors: Any) -> np.ndarray:
    """Return dense vectors [m, d] of length 1, whose dot products are cosines."""
    matrix = np.asarray(vectors, dtype=np.float32)
    result: np.ndarray = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return result
