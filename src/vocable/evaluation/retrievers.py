"""Retrievers over a dataset in memory: vectors, words, runs. Each kind of vectors is an index with the cost of its use.

Letters: q queries, v output vocabulary, n documents, k results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.plan import EncodedQueries, SearchPlan
from vocable.collection.rerank import reranked
from vocable.core.progress import progress
from vocable.data import Document
from vocable.encoding.dense_models import DenseModel, count_cut, document_vectors, query_vectors
from vocable.encoding.pruning import prune
from vocable.encoding.text_encoder import warn_of_cut
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import (
    AnswerTimes,
    Cost,
    TimedSystem,
    activation_rates,
    active_terms,
    answer_costs,
    answer_times,
    flops,
    flops_of_rates,
)
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import Encoded
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.dense_index import DenseIndex, rounded
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.ranking import Ranking
from vocable.language.languages import ENGLISH

TIMED_EXPANSIONS = 20  # largest number of timed answers with an expander, where an answer may take seconds
TIMED_HITS = 10  # results of a timed search: one page
DENSE_PART = 256  # documents whose dense vectors are made between two moves of the progress bar

QueryWeights: TypeAlias = Callable[[Sequence[str]], csr_array]  # from q texts to the weights of an index's words [q, v]


@dataclass(frozen=True)
class SpaceIndex:
    """An index of one kind of vectors: the search of the judged queries by a plan, and its cost."""

    search: Callable[[EncodedQueries, SearchPlan], Ranking]
    cost: Cost


@dataclass(frozen=True, eq=False)
class DatasetRetriever:
    """The documents of a dataset, and an index of each of their kinds of vectors."""

    name: str
    dataset: Dataset
    indexes: Mapping[Space, SpaceIndex]
    device: str | None = None  # of a cross encoder

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The kinds of vectors."""
        return tuple(self.indexes)

    def rank(self, queries: EncodedQueries, plan: SearchPlan) -> Ranking:
        """Return the candidates [q, kept] of a plan, best first."""

        def search(spaces: Sequence[Space]) -> dict[Space, Ranking]:
            return {space: self.indexes[space].search(queries, plan) for space in spaces}

        def texts_of(_: int, ids: Sequence[str]) -> list[str]:
            return self.texts(ids)

        def rerank(ranking: Ranking) -> Ranking:
            return reranked(ranking, queries.texts, texts_of, device=self.device, **plan.reranking)

        return plan.carry_out(plan.rankings(queries, search, self._read), rerank, self._read)

    def texts(self, ids: Sequence[str]) -> list[str]:
        """Return the texts of documents, with their titles; `ArgumentError` for an unknown id."""
        return [document.full for document in self._read(ids)]

    def _read(self, ids: Sequence[str]) -> list[Document]:
        if unknown := next((identifier for identifier in ids if identifier not in self._documents), None):
            raise ArgumentError(f"{self.dataset.name} has no document {unknown!r}")
        return [self._documents[identifier] for identifier in ids]

    @cached_property
    def _documents(self) -> dict[str, Document]:
        return {document.id: document for document in self.dataset.documents}


def judged_queries(dataset: Dataset, vectors: csr_array | None = None) -> EncodedQueries:
    """Return the judged queries of a dataset, with their sparse vectors [q, v] if these are known."""
    texts = [query.text for query in dataset.judged().queries]
    return EncodedQueries.of(texts, csr_array((len(texts), 0)) if vectors is None else vectors)


def sparse_index(encoded: Encoded, *, time_queries: int = 0) -> SpaceIndex:
    """Index the sparse vectors of a dataset exactly; with an encoder, time answers, from a query's text to its hits."""
    queries, index = encoded.queries, ExactIndex(encoded.documents, encoded.document_ids)

    def search(asked: EncodedQueries, plan: SearchPlan) -> Ranking:
        return index.search(prune(asked.vectors.sparse, **plan.pruning), plan.depths.depth, **plan.matching)

    times: AnswerTimes = {}
    if (encoder := encoded.encoder) is not None:
        timed = partial(index.search, k=TIMED_HITS, threads=1)
        times = _answer_costs(lambda text: encoder.encode([text]), timed, encoded.dataset, time_queries)
    cost = Cost(
        query_terms=active_terms(queries),
        document_terms=active_terms(encoded.documents),
        flops=flops(queries, encoded.documents),
        index_bytes=index.nbytes,
        documents_per_second=encoded.documents_per_second,
        **times,
    )
    return SpaceIndex(search, cost)


def dense_index(encoded: Encoded, other: DenseModel | None = None, *, time_queries: int = 0) -> SpaceIndex | None:
    """Index the dense vectors of a dataset; None without dense vectors.

    A model without dense vectors takes them from the dense model `other`.
    """
    dataset, rate, encoder = encoded.dataset, encoded.documents_per_second, encoded.encoder
    encode: Callable[[str], Any] | None = None if encoder is None else lambda text: encoder.encode_both([text]).dense
    if encoded.dense is not None:
        queries, documents = encoded.dense
    elif other is not None:
        queries, documents, rate = _dense_vectors(other, dataset)
        encode = partial(_dense_query, other)
    else:
        return None
    index = DenseIndex(*rounded(documents), encoded.document_ids)
    times = AnswerTimes()
    if encode is not None:
        times = _answer_costs(encode, partial(index.search, k=TIMED_HITS), dataset, time_queries)
    cost = Cost(index_bytes=index.nbytes, documents_per_second=rate, **times)
    return SpaceIndex(lambda _, plan: index.search(queries, plan.depths.depth), cost)


def unexpanded(documents: Sequence[str], ids: Sequence[str], language: str = ENGLISH) -> tuple[BM25Index, QueryWeights]:
    """Return plain BM25, without an expander."""
    index = BM25Index(documents, ids, language=language)
    return index, index.query_vectors


def lexical_index(
    dataset: Dataset,
    *,
    time_queries: int = 0,
    make: Callable[[Sequence[str], Sequence[str]], tuple[BM25Index, QueryWeights]] = unexpanded,
    language: str = ENGLISH,
) -> SpaceIndex:
    """Index the words of a dataset with BM25; its terms are stemmed words.

    `make` indexes the documents under their ids, and returns the index and a function from queries to word weights.
    This function counts as the encoding in a timed answer. `language` is the language of plain BM25.
    `time_queries` answers are timed, but with an expander at most 20.
    """
    judged = dataset.judged()
    if not judged.documents:
        raise DataError("there are no documents to search", source=dataset.name)
    # Index the documents; only plain BM25 knows languages.
    texts, documents = [query.text for query in judged.queries], [document.full for document in judged.documents]
    ids, start = [document.id for document in judged.documents], perf_counter()
    index, weigh = unexpanded(documents, ids, language) if make is unexpanded else make(documents, ids)
    seconds = perf_counter() - start
    # Weights of query words [q, v], and of each word the share of documents that have it [v].
    queries, shares = weigh(texts), index.document_frequency / len(index)
    timed = time_queries if make is unexpanded else min(time_queries, TIMED_EXPANSIONS)
    search = partial(index.search, k=TIMED_HITS, threads=1)
    cost = Cost(
        query_terms=active_terms(queries),
        document_terms=float(shares.sum()),
        flops=flops_of_rates(activation_rates(queries), shares),
        index_bytes=index.nbytes,
        documents_per_second=len(index) / seconds,
        **_answer_costs(lambda text: weigh([text]), search, judged, timed),
    )
    return SpaceIndex(lambda _, plan: index.search(queries, plan.depths.depth), cost)


def run_index(ranking: Ranking) -> SpaceIndex:
    """Return a ranking [q, k] of the judged queries as an index."""
    return SpaceIndex(lambda _, plan: ranking.first(plan.depths.depth), Cost())


def _dense_query(model: DenseModel, text: str) -> np.ndarray:
    return query_vectors(model, [text])


def _dense_vectors(model: DenseModel, dataset: Dataset) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the vectors [q, d] and [n, d] of a dataset by a dense model, and the documents encoded per second."""
    texts = [document.full for document in dataset.documents]
    queries = [query.text for query in dataset.queries]
    length = model.get_max_seq_length()
    warn_of_cut(count_cut(model, texts, "document"), len(texts), "documents", length)
    warn_of_cut(count_cut(model, queries, "query"), len(queries), "queries", length)
    parts = list[np.ndarray]()
    start = perf_counter()
    with progress("encode dense", len(texts)) as advance:
        for first in range(0, len(texts), DENSE_PART):
            parts.append(document_vectors(model, texts[first : first + DENSE_PART]))
            advance(len(parts[-1]))
    rate = len(texts) / (perf_counter() - start)
    return query_vectors(model, queries), np.concatenate(parts), rate


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
