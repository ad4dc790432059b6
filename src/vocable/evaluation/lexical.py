"""The lexical baselines on a dataset: a ranking and what it cost, to stand beside a model's."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np

from vocable.errors import DataError
from vocable.evaluation.cost import Cost, activation_rates, active_terms, index_bytes, search_latency
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.retrieval import SHOWN
from vocable.search.bm25 import BM25Index
from vocable.search.ranking import Ranking
from vocable.search.rm3 import RM3


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
        rm3: expand the queries by feedback (`vocable.search.rm3`), which the time of a search then includes.

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
        index_bytes=index_bytes(index),
        documents_per_second=len(index) / seconds,
        search_p50_ms=p50,
        search_p95_ms=p95,
    )
    return LexicalRetrieval(index.search(queries, k), [query.id for query in judged.queries], cost)
