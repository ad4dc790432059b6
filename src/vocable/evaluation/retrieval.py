"""A dataset encoded and searched: rankings of a model and of the lexical baselines, and what they cost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.data import Document
from vocable.encoder.asymmetric import Role
from vocable.encoder.load import load
from vocable.encoder.provenance import describe, model_name
from vocable.encoder.stream import encode_stream
from vocable.encoder.terms import input_terms
from vocable.encoder.text_encoder import TextEncoder, warn_of_unknown
from vocable.errors import ArgumentError, DataError, VectorsError
from vocable.evaluation.cost import (
    Cost,
    TimedSystem,
    activation_rates,
    active_terms,
    answer_costs,
    answer_times,
    flops,
)
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import (
    DEFAULT_MEASURES,
    DEPTH,
    Evaluation,
    Measures,
    Retrieval,
    depth,
    evaluate_run,
    parse_measures,
)
from vocable.options import DType, LongDocuments
from vocable.progress import progress
from vocable.retrieval.bm25 import BM25Index
from vocable.retrieval.exact_index import ExactIndex
from vocable.retrieval.ranking import Ranking
from vocable.storage import StrPath
from vocable.vectors import Sources, read_vectors
from vocable.wackiness.score import area, curve
from vocable.wackiness.score import wackiness as wackiness_of

logger = logging.getLogger(__name__)
EXPANDED = 20  # answers timed at most where something is expanded, which may take seconds
W_AUC, WACKY = "W-AUC", 100  # and the documents that it looks at
SHOWN = 10  # results of a search whose time is measured: what somebody who waits for it looks at


class Encoded(NamedTuple):
    """A dataset as vectors: `queries` csr_array [q, v] of the judged queries, `documents` csr_array [n, v].

    `encoder` is what made the queries, where it is at hand.
    """

    dataset: Dataset
    queries: csr_array
    documents: csr_array
    documents_per_second: float | None
    encoder: TextEncoder | None = None

    @property
    def query_ids(self) -> list[str]:
        """Return the ids of the queries by row."""
        return [query.id for query in self.dataset.queries]

    @property
    def query_idf(self) -> float | None:
        """Return the power of the IDF that the weights of the queries were multiplied by."""
        return None if self.encoder is None else self.encoder.query_idf

    @property
    def document_ids(self) -> list[str]:
        """Return the ids of the documents by row."""
        return [document.id for document in self.dataset.documents]


def retrieve(encoded: Encoded, *, k: int = DEPTH, time_queries: int = 0) -> Retrieval:
    """Search the vectors of a dataset exactly; `k` results of a query.

    So many answers are timed, from the text of a query to its hits, where the encoder is at hand.
    """
    queries, index = encoded.queries, ExactIndex(encoded.documents, encoded.document_ids)

    def search(query: csr_array) -> Ranking:
        return index.search(query, k=SHOWN, threads=1)

    times = {}
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
    return Retrieval(index.search(queries, encoded.dataset.deep(k)), encoded.query_ids, cost, encoded.query_idf)


def _answer_costs(
    encode: Callable[[str], csr_array], search: Callable[[csr_array], Ranking], dataset: Dataset, answers: int
) -> dict[str, Any]:
    """Return the times of `answers` to the dataset's queries, one at a time; of 0 none."""
    if not answers:
        return {}
    [(encoding, [searching])] = answer_times(
        [TimedSystem(encode, [search])], [query.text for query in dataset.queries], answers=answers
    )
    return answer_costs(encoding, searching)


def encode_dataset(
    model: SparseEncoder,
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
    """Encode the judged queries and all documents of `dataset`; `query_idf` is that of `vocable.search`.

    `keep` is a folder for the vectors, stored with the model's `name`: what is whole there is read, and a killed call
    goes on when it is repeated. `title` is that of the progress bar; `long_documents` is of documents,
    as in `vocable.encode`.
    """
    judged = dataset.judged()
    if not judged.documents:
        raise DataError("there are no documents to search", source=dataset.name)
    # The queries first: they are few, and warm the model up before the documents are timed.
    texts: dict[Role, Sequence[Document]]
    texts = {"query": [Document(query.id, query.text) for query in judged.queries], "document": judged.documents}
    matrices, encoders, seconds = [], [], 0.0
    with progress(title, total=sum(map(len, texts.values()))) as advance:
        for role, documents in texts.items():
            reading: LongDocuments = long_documents if role == "document" else "truncate"
            encoder = TextEncoder(
                model, role, dtype=dtype, max_length=max_length, long_documents=reading, query_idf=query_idf
            )
            encoders.append(encoder)
            if keep is None:
                start = perf_counter()
                matrices.append(encoder.encode([document.full for document in documents], advance))
                seconds = perf_counter() - start
            else:
                keep.mkdir(parents=True, exist_ok=True)
                folder = keep / ("queries" if role == "query" else "documents")
                seconds = encode_stream(encoder, documents, folder, model=name, source=judged.name).seconds
                matrices.append(read_vectors(folder).matrix)
            if encoder.truncated:
                counts = encoder.truncated, len(documents), encoder.role, encoder.max_length
                logger.warning("%d of %d %s texts were cut at %d tokens", *counts)
            if keep is None:
                warn_of_unknown(encoder.unknown, len(documents), f"{role} texts")
    queries, vectors = _with_idf(encoders[0], *matrices)
    rate = len(judged.documents) / seconds if seconds else 0.0
    return Encoded(judged, queries, vectors, rate, encoders[0])


def _with_idf(encoder: TextEncoder, queries: csr_array, documents: csr_array) -> tuple[csr_array, csr_array]:
    """The vectors of queries and documents, the queries weighed as a search of the documents weighs them."""
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
    """The dataset with stored document vectors; the model that they name encodes the judged queries."""
    judged, stored = dataset.judged(), read_vectors(source)
    rows = {identifier: row for row, identifier in enumerate(stored.ids)}
    missing = next((document.id for document in judged.documents if document.id not in rows), None)
    if missing is not None or not judged.documents:
        raise VectorsError(f"{source}: the document {missing!r} of {dataset.name} has no vector")
    limits: dict[str, Any] = {"dtype": dtype, "max_length": max_length, "query_idf": query_idf}
    encoder = TextEncoder(load(stored.meta.model, device=device), "query", **limits)
    if describe(encoder, stored.meta.model).vocabulary != stored.meta.vocabulary:
        raise VectorsError(f"{source}: the vocabulary of {stored.meta.model} is another one by now")
    queries = encoder.encode([query.text for query in judged.queries])
    documents = stored.matrix[[rows[document.id] for document in judged.documents]]
    return Encoded(judged, *_with_idf(encoder, queries, documents), None, encoder)


Weigh: TypeAlias = Callable[[Sequence[str]], csr_array]  # of q texts the weights of an index's words [q, v]


def unexpanded(documents: Sequence[str], ids: Sequence[str]) -> tuple[BM25Index, Weigh]:
    """BM25 as it is."""
    index = BM25Index(documents, ids)
    return index, index.query_vectors


def retrieve_lexically(
    dataset: Dataset,
    *,
    k: int = DEPTH,
    time_queries: int = 0,
    make: Callable[[Sequence[str], Sequence[str]], tuple[BM25Index, Weigh]] = unexpanded,
) -> Retrieval:
    """Index the documents of `dataset` with BM25 and search for its judged queries; the terms are stemmed words.

    `make` indexes the documents under their ids and says how the words of queries are weighed, which is the encoding
    of an answer's time. `time_queries` answers are timed, at most twenty where something is expanded.
    """
    judged = dataset.judged()
    if not judged.documents:
        raise DataError("there are no documents to search", source=dataset.name)
    texts, documents = [query.text for query in judged.queries], [document.full for document in judged.documents]
    start = perf_counter()
    index, weigh = make(documents, [document.id for document in judged.documents])
    seconds = perf_counter() - start
    queries, shares = weigh(texts), index.document_frequency / len(index)
    times = _answer_costs(
        lambda text: weigh([text]),
        lambda query: index.search(query, k=SHOWN, threads=1),
        judged,
        time_queries if make is unexpanded else min(time_queries, EXPANDED),
    )
    cost = Cost(
        query_terms=active_terms(queries),
        document_terms=float(shares.sum()),
        flops=float(np.dot(activation_rates(queries), shares)),
        index_bytes=index.nbytes,
        documents_per_second=len(index) / seconds,
        **times,
    )
    return Retrieval(index.search(queries, judged.deep(k)), [query.id for query in judged.queries], cost)


def evaluate_system(
    model: SparseEncoder,
    dataset: StrPath | Dataset,
    measures: Measures = DEFAULT_MEASURES,
    *,
    name: str | None = None,
    k: int = DEPTH,
    dtype: DType = "auto",
    wackiness: bool = False,
) -> Evaluation:
    """Evaluate a model on a dataset; no measure may look deeper than the `k` results of the search.

    With `wackiness` the values end with W-AUC, the wackiness of the queries' expansions (`w_auc`), if there are any.
    """
    parsed = parse_measures(measures)
    deepest = max(parsed, key=lambda measure: depth(parsed[measure]))
    if depth(parsed[deepest]) > k:
        raise ArgumentError(f"{deepest} looks at more than the k = {k} results of the search")
    collection = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    encoded = encode_dataset(model, collection, dtype=dtype)
    found = retrieve(encoded, k=k)
    evaluation = evaluate_run(name or Path(model_name(model)).name, found, collection, measures)
    wacky = w_auc(model, encoded, found.ranking.rows[:, :WACKY]) if wackiness else None
    return evaluation if wacky is None else replace(evaluation, values={**evaluation.values, W_AUC: wacky})


def w_auc(model: SparseEncoder, encoded: Encoded, rows: np.ndarray) -> float | None:
    """The wackiness of the terms that a model adds to the q queries of a dataset, by the documents that each retrieves.

    It is W-AUC of Polyakov et al. 2026, section 3.3, with the choices of `vocable.measure_wackiness`; `rows` [q, k] are of the
    documents, -1 where there is no k-th. None where nothing is added.
    """
    own = input_terms(model, [query.text for query in encoded.dataset.queries])
    counts = input_terms(model, [document.full for document in encoded.dataset.documents])
    found = area(curve(wackiness_of(encoded.queries, own, rows, counts).scores))
    return None if np.isnan(found) else found
