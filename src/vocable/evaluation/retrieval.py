"""A model and a dataset -> a ranking and what it cost.

The lexical baselines on a dataset: a ranking and what it cost, to stand beside a model's.

A dataset encoded into a folder, so that a kill loses little: `encode_dataset` for long work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from ir_measures import ScoredDoc
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.data import Document
from vocable.encoder.encode import DType, TextEncoder
from vocable.encoder.stream import encode_stream
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import Cost, activation_rates, active_terms, flops, search_latency, spread
from vocable.evaluation.dataset import Dataset
from vocable.search.bm25 import RM3, BM25Index
from vocable.search.exact import ExactIndex
from vocable.search.ranking import Ranking
from vocable.vectors import read_vectors

logger = logging.getLogger(__name__)
SHOWN = 10  # results of a search whose time is measured: what somebody who waits for it looks at


class Retrieval(NamedTuple):
    """`ranking` [q, k] of the judged queries `query_ids`, the vectors it came from, and its cost.

    `queries` are csr_array [q, v], `documents` csr_array [n, v].
    """

    ranking: Ranking
    query_ids: list[str]
    queries: csr_array
    documents: csr_array
    cost: Cost

    def to_run(self) -> list[ScoredDoc]:
        """The hits as ir_measures records."""
        return self.ranking.to_run(self.query_ids)


class Encoded(NamedTuple):
    """A dataset as vectors: `queries` csr_array [q, v] of the judged queries, `documents` csr_array [n, v]."""

    dataset: Dataset
    queries: csr_array
    documents: csr_array
    documents_per_second: float

    @property
    def query_ids(self) -> list[str]:
        """The ids of the queries by row."""
        return [query.id for query in self.dataset.queries]

    @property
    def document_ids(self) -> list[str]:
        """The ids of the documents by row."""
        return [document.id for document in self.dataset.documents]


def retrieve(
    model: SparseEncoder,
    dataset: Dataset,
    *,
    k: int = 1000,
    query_top_k: int | None = None,
    document_top_k: int | None = None,
    dtype: DType = "auto",
    advance: Callable[[int], object] = lambda done: None,
) -> Retrieval:
    """Encode the judged queries and all documents of `dataset` with `model`, and search exactly.

    Args:
        model: from `vocable.load`.
        dataset: from `load_dataset`.
        k: results of a query.
        query_top_k: keep only so many terms of a query.
        document_top_k: keep only so many terms of a document.
        dtype: as in `vocable.encode`.
        advance: called with the number of documents done after every batch.

    Raises:
        DataError: no documents, or no judged queries.
        ArgumentError: an argument out of its range.
    """
    if k < 1:
        raise ArgumentError(f"k must be at least 1, not {k}")
    encoded = encode_dataset(
        model, dataset, query_top_k=query_top_k, document_top_k=document_top_k, dtype=dtype, advance=advance
    )
    index = ExactIndex(encoded.documents, encoded.document_ids)
    cost = _cost(encoded.queries, encoded.documents, index, rate=encoded.documents_per_second)
    ranking = index.search(encoded.queries, k)
    return Retrieval(ranking, encoded.query_ids, encoded.queries, encoded.documents, cost)


def encode_dataset(
    model: SparseEncoder,
    dataset: Dataset,
    *,
    query_top_k: int | None = None,
    document_top_k: int | None = None,
    dtype: DType = "auto",
    advance: Callable[[int], object] = lambda done: None,
) -> Encoded:
    """Encode the judged queries and all documents of `dataset`; arguments and errors are those of `retrieve`."""
    judged = dataset.judged()
    if not judged.documents:
        raise DataError("there are no documents to search", place=dataset.name)
    # The queries first: they are few, and warm the model up before the documents are timed.
    encoder = TextEncoder(model, "query", top_k=query_top_k, dtype=dtype)
    queries, _ = _encode(encoder, [query.text for query in judged.queries], lambda done: None)
    encoder = TextEncoder(model, "document", top_k=document_top_k, dtype=dtype)
    documents, seconds = _encode(encoder, [document.full for document in judged.documents], advance)
    return Encoded(judged, queries, documents, len(judged.documents) / seconds)


def _encode(encoder: TextEncoder, texts: Sequence[str], advance: Callable[[int], object]) -> tuple[csr_array, float]:
    """The vectors [b, v] of b texts and the seconds it took."""
    start = perf_counter()
    vectors = encoder.encode(texts, advance)
    seconds = perf_counter() - start
    if encoder.truncated:
        message = "%d of %d %s texts were cut at %d tokens"
        logger.warning(message, encoder.truncated, len(texts), encoder.role, encoder.max_length)
    return vectors, seconds


def _cost(queries: csr_array, documents: csr_array, index: ExactIndex, rate: float) -> Cost:
    singles = [queries[[row]] for row in spread(queries.shape[0])]
    p50, p95 = search_latency(lambda query: index.search(query, k=SHOWN, threads=1), singles)
    return Cost(
        query_terms=active_terms(queries),
        document_terms=active_terms(documents),
        flops=flops(queries, documents),
        index_bytes=index.nbytes,
        documents_per_second=rate,
        search_p50_ms=p50,
        search_p95_ms=p95,
    )


class LexicalRetrieval(NamedTuple):
    """A `ranking` [q, k] of the judged queries `query_ids`, and its cost, with stemmed words as terms."""

    ranking: Ranking
    query_ids: list[str]
    cost: Cost


def retrieve_lexically(dataset: Dataset, *, k: int = 1000, rm3: bool = False) -> LexicalRetrieval:
    """Index the documents of `dataset` with BM25 and search for its judged queries.

    Args:
        dataset: from `load_dataset`.
        k: results of a query.
        rm3: expand the queries by feedback (`vocable.search.bm25`), which the time of a search then includes.

    Raises:
        DataError: no documents, or no judged queries.
    """
    judged = dataset.judged()
    if not judged.documents:
        raise DataError("there are no documents to search", place=dataset.name)
    texts, documents = [query.text for query in judged.queries], [document.full for document in judged.documents]
    start = perf_counter()
    index = BM25Index(documents, [document.id for document in judged.documents])
    weigh = RM3(index, documents).expand if rm3 else index.query_vectors
    seconds = perf_counter() - start
    queries, shares = weigh(texts), index.document_frequency / len(index)
    p50, p95 = search_latency(lambda text: index.search(weigh([text]), k=SHOWN, threads=1), texts)
    cost = Cost(
        query_terms=active_terms(queries),
        document_terms=float(shares.sum()),
        flops=float(np.dot(activation_rates(queries), shares)),
        index_bytes=index.nbytes,
        documents_per_second=len(index) / seconds,
        search_p50_ms=p50,
        search_p95_ms=p95,
    )
    return LexicalRetrieval(index.search(queries, k), [query.id for query in judged.queries], cost)


def encode_dataset_into(
    folder: Path,
    model: SparseEncoder,
    dataset: Dataset,
    *,
    name: str,
    dtype: DType = "auto",
) -> Encoded:
    """Encode the judged queries and all documents of `dataset`, going on where an earlier call stopped.

    Args:
        folder: for the vectors, `queries` and `documents`; what is whole there is read.
        model: from `vocable.load`.
        dataset: from `load_dataset`.
        name: of the model, written down with the vectors.
        dtype: as in `vocable.encode`.

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
    encode_stream(encoder, queries, folder / "queries", model=name, source=judged.name)
    encoder = TextEncoder(model, "document", dtype=dtype)
    place = folder / "documents"
    done = encode_stream(encoder, judged.documents, place, model=name, source=judged.name, total=len(judged.documents))
    rate = done.texts / done.seconds if done.seconds else 0.0
    return Encoded(judged, read_vectors(folder / "queries").matrix, read_vectors(place).matrix, rate)
