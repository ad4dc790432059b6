"""Encode and search a dataset: rank with a model or a lexical baseline, and measure the cost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.rerank import reranked
from vocable.core.progress import progress
from vocable.core.storage import StrPath
from vocable.data import Document
from vocable.encoding.dense_models import DenseModel, document_vectors, query_vectors
from vocable.encoding.load import load_encoder
from vocable.encoding.models import Model, check_unchanged, model_name
from vocable.encoding.protocol import Role
from vocable.encoding.stream import encode_stream
from vocable.encoding.text_encoder import TextEncoder, warn_of_unknown
from vocable.encoding.vectors import Sources, read_vectors
from vocable.errors import ArgumentError, DataError, VectorsError
from vocable.evaluation.cost import (
    AnswerTimes,
    Cost,
    TimedSystem,
    activation_rates,
    active_terms,
    answer_costs,
    answer_times,
    flops,
    rerank_costs,
)
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import (
    DEFAULT_DEPTH,
    DEFAULT_MEASURES,
    Evaluation,
    Measures,
    Retrieval,
    depth,
    evaluate_run,
    parse_measures,
)
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.dense_index import DenseIndex, rounded
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.ranking import Ranking
from vocable.language.languages import ENGLISH
from vocable.options import DType, LongDocuments, RerankOptions

logger = logging.getLogger(__name__)
TIMED_EXPANSIONS = 20  # largest number of timed answers with an expander, where an answer may take seconds
TIMED_HITS = 10  # results of a timed search: one page
DENSE_PART = 256  # documents whose dense vectors are made between two moves of the progress bar


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


def retrieve(encoded: Encoded, *, k: int = DEFAULT_DEPTH, time_queries: int = 0) -> Retrieval:
    """Search the vectors of a dataset exactly for `k` results per query.

    With an encoder, time `time_queries` answers, from the text of a query to its hits.
    """
    queries, index = encoded.queries, ExactIndex(encoded.documents, encoded.document_ids)

    def search(query: csr_array) -> Ranking:
        return index.search(query, k=TIMED_HITS, threads=1)

    times: AnswerTimes = {}
    if encoded.encoder is not None:
        encoder = encoded.encoder
        times = _answer_costs(lambda text: encoder.encode([text]), search, encoded.dataset, time_queries)
    cost = Cost(
        query_terms=active_terms(queries),
        document_terms=active_terms(encoded.documents),
        flops=flops(queries, encoded.documents),
        index_bytes=index.nbytes,
        documents_per_second=encoded.documents_per_second,
        **times,
    )
    return Retrieval(index.search(queries, encoded.dataset.search_depth(k)), encoded.query_ids, cost, encoded.query_idf)


def retrieve_densely(
    encoded: Encoded, other: DenseModel | None = None, *, k: int = DEFAULT_DEPTH, time_queries: int = 0
) -> Retrieval | None:
    """Search the dense vectors of a dataset as `retrieve` searches the sparse vectors; None without dense vectors.

    A model without dense vectors takes them from the dense model `other`.
    """
    dataset, rate, encoder = encoded.dataset, encoded.documents_per_second, encoded.encoder
    asked: Callable[[str], Any] | None = None if encoder is None else lambda text: encoder.encode_both([text]).dense
    if encoded.dense is not None:
        queries, documents = encoded.dense
    elif other is not None:
        queries, documents, rate = _dense_vectors(other, dataset)
        asked = partial(_dense_query, other)
    else:
        return None
    index, times = DenseIndex(*rounded(documents), encoded.document_ids), AnswerTimes()
    if asked is not None:
        times = _answer_costs(asked, partial(index.search, k=TIMED_HITS), dataset, time_queries)
    cost = Cost(index_bytes=index.nbytes, documents_per_second=rate, **times)
    return Retrieval(index.search(queries, dataset.search_depth(k)), encoded.query_ids, cost)


def _dense_query(model: DenseModel, text: str) -> np.ndarray:
    return query_vectors(model, [text])


def _dense_vectors(model: DenseModel, dataset: Dataset) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the vectors [q, d] and [n, d] of a dataset by a dense model, and the documents encoded per second."""
    texts, parts, start = [document.full for document in dataset.documents], list[np.ndarray](), perf_counter()
    with progress("encode dense", len(texts)) as advance:
        for first in range(0, len(texts), DENSE_PART):
            parts.append(document_vectors(model, texts[first : first + DENSE_PART]))
            advance(len(parts[-1]))
    rate = len(texts) / (perf_counter() - start)
    return query_vectors(model, [query.text for query in dataset.queries]), np.concatenate(parts), rate


def rerank(retrieval: Retrieval, dataset: Dataset, device: str | None, **options: Unpack[RerankOptions]) -> Retrieval:
    """Rerank the first hits of a retrieval; the new cost has the times of reranking instead of the answers' times."""
    ranking, times = rerank_dataset(retrieval.ranking, dataset, device, **options)
    cost = replace(retrieval.cost, answer_p50_ms=None, answer_p95_ms=None, **rerank_costs(times))
    return retrieval._replace(ranking=ranking, cost=cost)


def rerank_dataset(
    ranking: Ranking, dataset: Dataset, device: str | None, **options: Unpack[RerankOptions]
) -> tuple[Ranking, np.ndarray]:
    """Rerank the hits of a dataset's q judged queries; also return the milliseconds of each query [q]."""
    texts = {document.id: document.full for document in dataset.documents}
    queries = [query.text for query in dataset.judged().queries]

    def texts_of(number: int, ids: Sequence[str]) -> list[str]:
        return [texts[identifier] for identifier in ids]

    return reranked(ranking, queries, texts_of, device=device, **options)


def _answer_costs(
    encode: Callable[[str], Any], search: Callable[[Any], Ranking], dataset: Dataset, answers: int
) -> AnswerTimes:
    """Time `answers` answers to the dataset's queries, one at a time; return {} for 0 answers."""
    if not answers:
        return {}
    [(encoding, [searching])] = answer_times(
        [TimedSystem(encode, [search])], [query.text for query in dataset.queries], answers=answers
    )
    return answer_costs(encoding, searching)


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
    matrices, dense, encoders, seconds = list[csr_array](), list[np.ndarray](), list[TextEncoder](), 0.0
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
            if encoder.truncated:
                counts = encoder.truncated, len(documents), encoder.role, encoder.max_length
                logger.warning("%d of %d %s texts were truncated to %d tokens", *counts)
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


QueryWeights: TypeAlias = Callable[[Sequence[str]], csr_array]  # from q texts to the weights of an index's words [q, v]


def unexpanded(documents: Sequence[str], ids: Sequence[str], language: str = ENGLISH) -> tuple[BM25Index, QueryWeights]:
    """Return plain BM25, without an expander."""
    index = BM25Index(documents, ids, language=language)
    return index, index.query_vectors


def retrieve_lexically(
    dataset: Dataset,
    *,
    k: int = DEFAULT_DEPTH,
    time_queries: int = 0,
    make: Callable[[Sequence[str], Sequence[str]], tuple[BM25Index, QueryWeights]] = unexpanded,
    language: str | None = None,
) -> Retrieval:
    """Index the documents of `dataset` with BM25 and search for its judged queries; the terms are stemmed words.

    `make` indexes the documents under their ids, and returns the index and a function from queries to word weights.
    This function counts as the encoding in a timed answer. `language` is the language of plain BM25, English by
    default. `time_queries` answers are timed, but with an expander at most 20.
    """
    judged = dataset.judged()
    if not judged.documents:
        raise DataError("there are no documents to search", source=dataset.name)
    texts, documents = [query.text for query in judged.queries], [document.full for document in judged.documents]
    start = perf_counter()
    ids = [document.id for document in judged.documents]
    index, weigh = make(documents, ids) if language is None else unexpanded(documents, ids, language)
    seconds = perf_counter() - start
    queries, shares = weigh(texts), index.document_frequency / len(index)
    times = _answer_costs(
        lambda text: weigh([text]),
        lambda query: index.search(query, k=TIMED_HITS, threads=1),
        judged,
        time_queries if make is unexpanded else min(time_queries, TIMED_EXPANSIONS),
    )
    cost = Cost(
        query_terms=active_terms(queries),
        document_terms=float(shares.sum()),
        flops=float(np.dot(activation_rates(queries), shares)),
        index_bytes=index.nbytes,
        documents_per_second=len(index) / seconds,
        **times,
    )
    return Retrieval(index.search(queries, judged.search_depth(k)), [query.id for query in judged.queries], cost)


def evaluate_system(
    model: Model,
    dataset: StrPath | Dataset,
    measures: Measures = DEFAULT_MEASURES,
    *,
    name: str | None = None,
    k: int = DEFAULT_DEPTH,
    dtype: DType = "auto",
    further: Callable[[Model, Encoded, Ranking], Mapping[str, float]] | None = None,
) -> Evaluation:
    """Evaluate a model on a dataset; no measure may look deeper than the `k` results of the search.

    `further` computes additional values for the whole dataset that ir_measures does not have; they come last.
    """
    parsed = parse_measures(measures)
    deepest = max(parsed, key=lambda measure: depth(parsed[measure]))
    if depth(parsed[deepest]) > k:
        raise ArgumentError(f"{deepest} looks at more than the k = {k} results of the search")
    collection = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    encoded = encode_dataset(model, collection, dtype=dtype)
    retrieval = retrieve(encoded, k=k)
    evaluation = evaluate_run(name or Path(model_name(model)).name, retrieval, collection, measures)
    if further is None:
        return evaluation
    return replace(evaluation, values={**evaluation.values, **further(model, encoded, retrieval.ranking)})
