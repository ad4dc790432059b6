"""A test collection: documents, queries and judgments, held in memory."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from vocable.core.storage import StrPath
from vocable.core.tables import counted
from vocable.data import Document, Qrel, Query, read_corpus, read_judgments, read_queries
from vocable.data.read import read_collection
from vocable.errors import DataError
from vocable.indexes.ranking import Ties
from vocable.options import check_fields

Convention: TypeAlias = Literal["trec_eval", "beir"]
logger = logging.getLogger(__name__)
BEIR_SOURCE = re.compile(r"(ir_datasets:)?beir[:/]")


@dataclass(frozen=True)
class Identical:
    """Counts of documents that share their title and text: the number of such groups, and of documents in all groups.

    A model gives all documents of a group the same score.
    """

    groups: int
    documents: int


@dataclass(frozen=True)
class Dataset:
    """A test collection; `unjudged` counts the queries without a judgment that `judged` has removed.

    By BEIR's `convention`, a document with the id of the query is no hit: in ArguAna each query is also a document, and
    would find itself first (Thakur et al. 2021). The convention of trec_eval counts every hit. `ties` is the order of
    hits with equal scores (`vocable.indexes.ranking.in_order`). `identical` counts the documents with equal texts, if
    the documents were read.
    """

    name: str
    documents: Sequence[Document]
    queries: Sequence[Query]
    judgments: Sequence[Qrel]
    unjudged: int = 0
    convention: Convention = "trec_eval"
    ties: Ties = "search"
    identical: Identical | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def search_depth(self, k: int) -> int:
        """Return the number of results to request so that k remain after dropping the query's own id."""
        if self.convention == "trec_eval":
            return k
        query_ids = {query.id for query in self.queries}
        return k + (not self.documents or any(document.id in query_ids for document in self.documents))

    def judged(self) -> Dataset:
        """Return the dataset without queries that have no judgment, and without judgments of unknown queries.

        A query whose judgments are all 0 stays and counts as 0, as in trec_eval.

        >>> qrels = [Qrel("q1", "d1", 1), Qrel("q3", "d1", 1)]
        >>> dataset = Dataset("toy", [], [Query("q1", "lists"), Query("q2", "sets")], qrels).judged()
        >>> [query.id for query in dataset.queries], len(dataset.judgments), dataset.unjudged
        (['q1'], 1, 1)
        """
        with_judgment = {judgment.query_id for judgment in self.judgments}
        queries = [query for query in self.queries if query.id in with_judgment]
        if not queries:
            raise DataError(f"none of the {len(self.queries)} queries has a judgment", source=self.name)
        if unknown := with_judgment - {query.id for query in self.queries}:
            count = counted(len(unknown), "judged query", "judged queries")
            logger.warning("%s: ignored %s missing from the queries, such as %r", self.name, count, min(unknown))
        kept = {query.id for query in queries}
        judgments = [judgment for judgment in self.judgments if judgment.query_id in kept]
        unjudged = self.unjudged + len(self.queries) - len(queries)
        identical = self.identical or (count_identical(self.documents) if self.documents else None)
        return replace(self, queries=queries, judgments=judgments, unjudged=unjudged, identical=identical)


def count_identical(documents: Sequence[Document]) -> Identical:
    """Count the documents that share their title and text with other documents.

    >>> count_identical([Document("a", "same"), Document("b", "same"), Document("c", "another")])
    Identical(groups=1, documents=2)
    """
    hashes = np.fromiter((hash(document.full) for document in documents), dtype=np.int64, count=len(documents))
    _, counts = np.unique(hashes, return_counts=True)
    return Identical(int((counts > 1).sum()), int(counts[counts > 1].sum()))


def load_dataset(source: StrPath, *, documents: bool = True, convention: Convention | None = None) -> Dataset:
    """Read a test collection without its unjudged queries: "beir:DIR", "beir:DIR#train" or "ir_datasets:NAME".

    With `documents=False`, the documents are not read: the evaluation of a run needs no documents. The default
    convention is BEIR's for BEIR collections, and trec_eval's for other collections.
    """
    name = os.fspath(source)
    if Path(name).exists():
        instead = f"write beir:{name}" if Path(name).is_dir() else "use beir:DIR, ir_datasets:NAME or pydocs:#test"
        raise DataError(f"a dataset consists of documents, queries and judgments: {instead}", source=name)
    corpus = list(read_corpus(name)) if documents else []
    queries, judgments = list(read_queries(name)), list(read_judgments(name))
    convention = convention or ("beir" if BEIR_SOURCE.match(name) else "trec_eval")
    return Dataset(name, corpus, queries, judgments, convention=convention).judged()


def load_files(judgments: StrPath, queries: StrPath | None = None, corpus: StrPath | None = None) -> Dataset:
    """Read a test collection from separate sources, with trec_eval's convention and the name of the judgments.

    Without `queries`, the judged ids become queries with empty texts: the evaluation of a run needs no texts.
    """
    judged = list(read_judgments(judgments))
    if not judged:
        raise DataError("no judgment", source=os.fspath(judgments))
    if queries is None:
        all_queries = [Query(query, "") for query in dict.fromkeys(judgment.query_id for judgment in judged)]
    else:
        all_queries = list(read_queries(queries))
    documents = [] if corpus is None else list(read_collection(corpus))
    return Dataset(os.fspath(judgments), documents, all_queries, judged).judged()
