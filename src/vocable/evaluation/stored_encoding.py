"""A dataset encoded into a folder, so that a kill loses little: `encode_dataset` for long work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sentence_transformers import SparseEncoder

from vocable.data import Document
from vocable.encoder.encode import TextEncoder
from vocable.encoder.precision import DType
from vocable.encoder.stream import encode_stream
from vocable.errors import DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.retrieval import Encoded
from vocable.vectors import read_vectors


def encode_dataset_into(
    folder: Path,
    model: SparseEncoder,
    dataset: Dataset,
    *,
    name: str,
    dtype: DType = "auto",
    advance: Callable[[int], object] = lambda done: None,
) -> Encoded:
    """Encode the judged queries and all documents of `dataset`, going on where an earlier call stopped.

    Args:
        folder: for the vectors, `queries` and `documents`; what is whole there is read.
        model: from `vocable.load`.
        dataset: from `load_dataset`.
        name: of the model, written down with the vectors.
        dtype: as in `vocable.encode`.
        advance: called with the number of texts done after every batch, and first with those of earlier calls.

    Raises:
        DataError: no documents, or no judged queries.
        ArgumentError: the vectors that are there were made with other settings.
        VectorsError: they were made from other texts, or are damaged.
    """
    judged = dataset.judged()
    if not judged.documents:
        raise DataError("there are no documents to search", place=dataset.name)
    folder.mkdir(parents=True, exist_ok=True)
    queries = [Document(query.id, query.text) for query in judged.queries]
    encoder = TextEncoder(model, "query", dtype=dtype)
    encode_stream(encoder, queries, folder / "queries", model=name, source=judged.name, advance=advance)
    encoder = TextEncoder(model, "document", dtype=dtype)
    place = folder / "documents"
    done = encode_stream(encoder, judged.documents, place, model=name, source=judged.name, advance=advance)
    rate = done.texts / done.seconds if done.seconds else 0.0
    return Encoded(judged, read_vectors(folder / "queries").matrix, read_vectors(place).matrix, rate)
