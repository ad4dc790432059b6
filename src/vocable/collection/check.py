"""Compare an engine's results with exact search, within its declared precision.

Letters: n documents, q queries, k results.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.core.tables import NONE, Table, Tabular, masked
from vocable.data import Document, read_corpus, read_queries
from vocable.data.bad_lines import tolerant
from vocable.encoding.load import load_encoder
from vocable.encoding.models import Model, is_model
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines.base import Store
from vocable.engines.filters import matches, parse_filter
from vocable.engines.protocols import engine_of
from vocable.errors import ArgumentError
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.ranking import Ranking
from vocable.options import Count, CountOrZero, checked

# Largest relative error of a stored weight; sums of float32 products in another order add `SLACK`.
PRECISIONS = {"float32": 0.0, "float16": 2.0**-11, "9 bits": 2.0**-8}
SLACK = 2e-6
FILTERS = (
    "number<3",
    "not word=even",
    "tags=t1 and number>=2.5",
    "at<'2001-01-03' or word=odd",
    "none!=1",
    "file^=a/b/",
)


@dataclass(frozen=True)
class EngineCheck(Tabular):
    """The outcome of a check; errors are relative to the scores of exact search."""

    place: str
    engine: str
    exact: bool
    precision: str
    documents: int
    queries: int
    k: int
    seconds: float  # time to write all documents
    bytes: int | None  # size that the engine reports
    milliseconds: float  # median of the queries
    p95: float  # milliseconds
    p99: float
    score_error: float  # largest
    allowed_error: float  # bound of the declared precision
    rank_agreement: float  # share of ranks with exact search's document, or a document of the same score
    recall: float  # share of exact search's hits that are found; others with the same score also count
    lost_terms: int  # terms of the vectors that the engine did not store
    wrong_filters: int  # filtered searches with wrong documents

    @property
    def as_declared(self) -> bool:
        """Return whether the engine has its declared precision and, if it is declared exact, all hits in order."""
        kept = self.score_error <= self.allowed_error and not self.lost_terms and not self.wrong_filters
        return kept and (not self.exact or self.recall == self.rank_agreement == 1)

    def to_json(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return asdict(self) | {"as_declared": self.as_declared}

    def table(self) -> Table:
        """Return a table with a row for each figure."""
        exactness = "exact" if self.exact else "approximate"
        rows = [
            ["documents, queries, k", f"{self.documents:,}, {self.queries:,}, {self.k}"],
            ["declared", f"{exactness}, {self.precision}"],
            ["seconds to write", f"{self.seconds:.2f}"],
            ["bytes", NONE if self.bytes is None else f"{self.bytes:,}"],
            ["milliseconds a query, p50", f"{self.milliseconds:.2f}"],
            ["p95", f"{self.p95:.2f}"],
            ["p99", f"{self.p99:.2f}"],
            ["score error", f"{self.score_error:.1e}"],
            ["allowed error", f"{self.allowed_error:.1e}"],
            ["rank agreement", f"{self.rank_agreement:.4f}"],
            [f"recall@{self.k}", f"{self.recall:.4f}"],
            ["lost terms", str(self.lost_terms)],
            ["wrong filters", str(self.wrong_filters)],
            ["as declared", "yes" if self.as_declared else "no"],
        ]
        return Table(f"{self.engine} at {self.place}", ["", "value"], rows)


@checked
@tolerant
def check_engine(
    place: str | os.PathLike[str],
    *,
    model: str | Model = "vocable-mini",
    corpus: str = "pydocs:",
    topics: str = "pydocs:#test",
    documents: Count = 1000,
    queries: Count = 50,
    k: Count = 10,
    device: str | None = None,
    skip_bad: CountOrZero = 0,
) -> EngineCheck:
    """Compare an engine with exact search.

    A sample is written to a new place, searched, and removed: score error, rank agreement, recall, lost terms and
    filters, next to the precision that the engine declares.

    Args:
        place: a new place, such as milvus:check.db or qdrant+http://localhost:6333/check.
        model: model that encodes the sample: a folder or a Hub id; in Python also a model from `vocable.load`.
        corpus: source of the documents.
        topics: source of the queries.
        documents: number of documents, from the beginning.
        queries: number of queries, from the beginning.
        k: hits per query.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        skip_bad: number of malformed lines to skip; one more is an error.

    Raises:
        ArgumentError: an argument is out of range, or the place has something else than an index.
        VectorsError: the engine does not answer.
        MissingExtraError: its driver is not installed.
    """
    engine, address = engine_of(place)
    loaded = load_encoder(model, None if is_model(model) else device)
    sample = [_with_fields(row, document) for row, document in enumerate(islice(read_corpus(corpus), documents))]
    texts = [query.text for query in islice(read_queries(topics), queries)]
    if not sample or not texts:
        raise ArgumentError("a check needs documents and queries: the corpus or the topics have none")
    vectors = TextEncoder(loaded, "document").encode([document.full for document in sample])
    encoded = TextEncoder(loaded, "query").encode(texts)
    [check] = compare_with_exact(engine, address, str(place), sample, vectors, encoded, [k])
    return check


def compare_with_exact(
    engine: type[Store],
    address: str,
    place: str,
    documents: Sequence[Document],
    vectors: csr_array,
    queries: csr_array,
    depths: Sequence[int],
    *,
    filters: bool = True,
) -> list[EngineCheck]:
    """Write documents with vectors [n, v] to an engine, compare searches [q, v] with exact search, and remove them.

    There is one check for each of the `depths`, the numbers of hits.
    """
    about = engine.about
    ids = [document.id for document in documents]
    exact = ExactIndex(vectors, ids)
    started = time.perf_counter()
    wrong = 0
    store = engine.create(address, {"sparse": vectors.shape[1]}, {})
    try:
        store.upsert(documents, {"sparse": vectors})
        if not about.changes:
            store.optimize()  # makes the index
        seconds, size = time.perf_counter() - started, store.nbytes
        searched = [_searched(store, queries, k) for k in depths]
        stored = csr_array(store.vectors(ids))
        if filters and about.filters:
            wrong = _wrong_filters(store, documents, vectors)
    finally:
        store.drop()
        with suppress(Exception):
            store.close()
    allowed = PRECISIONS[about.precision] + SLACK
    kept = int(csr_array(stored).astype(bool).multiply(vectors.astype(bool)).nnz)
    checks = []
    for k, (answers, times) in zip(depths, searched, strict=True):
        error, agreement, recall = _compared(exact.search(queries, k), answers, exact, queries, allowed)
        check = EngineCheck(
            place=masked(place),
            engine=about.engine,
            exact=about.exact,
            precision=about.precision,
            documents=len(documents),
            queries=queries.shape[0],
            k=k,
            seconds=seconds,
            bytes=size,
            milliseconds=1000 * float(np.median(times)),
            p95=1000 * float(np.quantile(times, 0.95)),
            p99=1000 * float(np.quantile(times, 0.99)),
            score_error=error,
            allowed_error=allowed,
            rank_agreement=agreement,
            recall=recall,
            lost_terms=vectors.nnz - kept,
            wrong_filters=wrong,
        )
        checks.append(check)
    return checks


def _searched(store: Any, queries: csr_array, k: int) -> tuple[list[list[tuple[str, float]]], list[float]]:
    """Return the hits of each query, searched alone, and its seconds."""
    store.search(queries[[0]], k)  # not timed: the first call compiles or loads
    answers, times = [], []
    for row in range(queries.shape[0]):
        started = time.perf_counter()
        answers.append(store.search(queries[[row]], k).hits(0))
        times.append(time.perf_counter() - started)
    return answers, times


def _with_fields(row: int, document: Document) -> Document:
    """Return the document with fields to test filters on."""
    fields: Mapping[str, object] = {
        "number": row % 7 + (0.5 if row % 3 else 0),
        "word": "odd" if row % 2 else "even",
        "file": f"a/{'bc'[row % 2]}/{row}.md",
        "tags": [f"t{row % 4}", f"t{row % 5}"],
        "at": f"2001-01-{row % 28 + 1:02d}T12:00:00+01:00",
    }
    return document._replace(fields=fields)


def _wrong_filters(store: Store, documents: Sequence[Document], vectors: csr_array) -> int:
    """Count the filters that find wrong documents in a search for the most frequent term."""
    term = int(np.bincount(vectors.indices, minlength=vectors.shape[1]).argmax())
    query = csr_array((np.ones(1, np.float32), ([0], [term])), shape=(1, vectors.shape[1]))
    having = set(vectors.tocsc().indices[slice(*vectors.tocsc().indptr[term : term + 2])].tolist())
    wrong = 0
    for filter in map(parse_filter, FILTERS):
        wanted = {one.id for row, one in enumerate(documents) if row in having and matches(filter, one.fields)}
        hits = store.search(query, max(1, len(documents)), filter=filter).hits(0)
        wrong += {identifier for identifier, _ in hits} != wanted
    return wrong


def _compared(
    wanted: Ranking,
    answers: Sequence[Sequence[tuple[str, float]]],
    exact: ExactIndex,
    queries: csr_array,
    allowed: float,
) -> tuple[float, float, float]:
    """Return the largest relative error of a score, the rank agreement, and the recall.

    Documents whose exact scores differ by no more than the allowed error count as the same.
    """
    rows = {identifier: row for row, identifier in enumerate(exact.ids or ())}
    error, placed, recalled, total = 0.0, 0, 0, 0
    for query, hits in enumerate(answers):
        best = wanted.hits(query)
        products = exact.get([rows[name] for name, _ in hits]) @ queries[[query]].T
        truth = products.toarray()[:, 0] if hits else np.empty(0)
        scores = np.array([score for _, score in hits])
        error = max(error, float(np.max(np.abs(scores - truth) / truth, initial=0)))
        ideal = np.array([score for _, score in best])
        total += len(best)
        slack = 2 * allowed  # both scores may be off
        shared = min(len(ideal), len(truth))
        placed += int((np.abs(truth[:shared] - ideal[:shared]) <= slack * ideal[:shared]).sum())
        recalled += int((truth[: len(best)] >= ideal[-1] * (1 - slack)).sum()) if len(best) else 0
    return error, placed / max(1, total), recalled / max(1, total)
