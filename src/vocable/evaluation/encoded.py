"""Datasets as vectors: of their judged queries, and of their documents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from vocable.core.progress import progress
from vocable.data import Document
from vocable.encoding.load import load_encoder
from vocable.encoding.models import Model, check_unchanged
from vocable.encoding.protocol import Role
from vocable.encoding.stream import encode_stream
from vocable.encoding.text_encoder import TextEncoder, warn_of_cut, warn_of_unknown
from vocable.encoding.vectors import Sources, read_vectors
from vocable.errors import DataError, VectorsError
from vocable.evaluation.dataset import Dataset
from vocable.options import DType, LongDocuments


class Encoded(NamedTuple):
    """A dataset as vectors: csr_array [q, v] of the judged `queries`, csr_array [n, v] of all `documents`.

    `encoder` encodes queries, and is None if the vectors were stored. `dense` has the vectors [q, d] and [n, d] of a
    model that returns sparse and dense vectors in one pass.
    """

    dataset: Dataset
    queries: csr_array
    documents: csr_array
    documents_per_second: float | None
    encoder: TextEncoder | None = None
    dense: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def query_ids(self) -> list[str]:
        """Return the ids of the queries by row."""
        return [query.id for query in self.dataset.queries]

    @property
    def query_idf(self) -> float | None:
        """Return the power of the IDF in the query weights."""
        return None if self.encoder is None else self.encoder.query_idf

    @property
    def document_ids(self) -> list[str]:
        """Return the ids of the documents by row."""
        return [document.id for document in self.dataset.documents]


def encode_dataset(
    model: Model,
    dataset: Dataset,
    *,
    keep: Path | None = None,
    name: str = "",
    title: str = "encode",
    dtype: DType = "auto",
    max_length: int | None = None,
    long_documents: LongDocuments = "truncate",
    query_idf: float | None = None,
) -> Encoded:
    """Encode the judged queries and all documents of `dataset`; `vocable.search` describes `query_idf`.

    `keep` is a folder for the vectors and the model's `name`: if an interrupted call is repeated, it resumes, and
    finished vectors are read. `title` is the title of the progress bar. `vocable.encode` describes `long_documents`.
    """
    judged = dataset.judged()
    if not judged.documents:
        raise DataError("there are no documents to search", source=dataset.name)
    # Queries first: they are few, and warm up the model before the documents are timed.
    texts: dict[Role, Sequence[Document]]
    texts = {"query": [Document(query.id, query.text) for query in judged.queries], "document": judged.documents}
    matrices = list[csr_array]()
    dense = list[np.ndarray]()
    encoders = list[TextEncoder]()
    seconds = 0.0
    total = sum(map(len, texts.values()))
    with progress(title, total) if keep is None else nullcontext(lambda done, more="": None) as advance:
        for role, documents in texts.items():
            encoder = TextEncoder(
                model,
                role,
                dtype=dtype,
                max_length=max_length,
                long_documents=long_documents if role == "document" else "truncate",
                query_idf=query_idf,
            )
            encoders.append(encoder)
            if keep is None:
                start = perf_counter()
                vectors = encoder.encode_both([document.full for document in documents], advance)
                matrices.append(vectors.sparse)
                dense += [] if vectors.dense is None else [vectors.dense]
                seconds = perf_counter() - start
            else:
                keep.mkdir(parents=True, exist_ok=True)
                folder = keep / ("queries" if role == "query" else "documents")
                shown = f"{title}: {role}"
                count = len(documents)
                seconds = encode_stream(
                    encoder, documents, folder, model=name, source=judged.name, title=shown, total=count, dense=True
                ).seconds
                stored = read_vectors(folder)
                matrices.append(stored.matrix)
                dense += [] if stored.dense is None else [stored.dense]
            warn_of_cut(encoder.truncated, len(documents), f"{role} texts", encoder.max_length)
            if keep is None:
                warn_of_unknown(encoder.unknown, len(documents), f"{role} texts")
    queries, sparse = _with_idf(encoders[0], *matrices)
    rate = len(judged.documents) / seconds if seconds else 0.0
    return Encoded(judged, queries, sparse, rate, encoders[0], (dense[0], dense[1]) if len(dense) == 2 else None)


def _with_idf(encoder: TextEncoder, queries: csr_array, documents: csr_array) -> tuple[csr_array, csr_array]:
    """Multiply query vectors by the IDF as a search of the documents does; return queries and documents."""
    encoder.know_collection(np.bincount(documents.indices, minlength=documents.shape[1]), documents.shape[0])
    return encoder.weighed(queries), documents


def stored_dataset(
    source: Sources,
    dataset: Dataset,
    *,
    dtype: DType = "auto",
    max_length: int | None = None,
    query_idf: float | None = None,
    device: str | None = None,
) -> Encoded:
    """Return the dataset with stored document vectors; the model that is named there encodes the judged queries."""
    judged, stored = dataset.judged(), read_vectors(source)
    rows = {identifier: row for row, identifier in enumerate(stored.ids)}
    missing = next((document.id for document in judged.documents if document.id not in rows), None)
    if missing is not None or not judged.documents:
        raise VectorsError(f"{source}: the document {missing!r} of {dataset.name} has no vector")
    model = load_encoder(stored.meta.model, device, stored.meta.runtime)
    encoder = TextEncoder(model, "query", dtype=dtype, max_length=max_length, query_idf=query_idf)
    check_unchanged(model, stored.meta, str(source), "encode the documents again")
    queries, asked = encoder.encode_both([query.text for query in judged.queries])
    order = [rows[document.id] for document in judged.documents]
    dense = None if asked is None or stored.dense is None else (asked, stored.dense[order])
    return Encoded(judged, *_with_idf(encoder, queries, stored.matrix[order]), None, encoder, dense)
