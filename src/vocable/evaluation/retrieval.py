"""A model and a dataset -> a ranking and what it cost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from ir_measures import ScoredDoc
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.encoder.encode import TextEncoder
from vocable.encoder.precision import DType
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import Cost, active_terms, flops, index_bytes, search_latency, spread
from vocable.evaluation.dataset import Dataset
from vocable.search.exact import ExactIndex
from vocable.search.ranking import Ranking

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
        index_bytes=index_bytes(index),
        documents_per_second=rate,
        search_p50_ms=p50,
        search_p95_ms=p95,
    )
