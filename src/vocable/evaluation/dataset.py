"""A test collection: documents, queries and judgments, held in memory."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

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


class Identical(NamedTuple):
    """Counts of documents with the same title and text: the groups of them, and the documents in all groups.

    A model gives the documents of a group equal scores.
    """

    groups: int
    documents: int


@dataclass(frozen=True)
class Dataset:
    """A test collection; `unjudged` counts the queries without a judgment that `judged` has removed.

    By the `convention` of BEIR a document with the id of its query is no hit: in ArguAna each query is a document of
    the collection, and would find itself first (Thakur et al. 2021). The convention of trec_eval counts every hit.
    `ties` is the order of hits with equal scores (`vocable.indexes.ranking.in_order`). `identical` counts the
    documents with equal texts, if the documents have been read.
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

        A query whose judgments are all 0 stays, and counts 0, as in trec_eval.

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
        known = {query.id for query in queries}
        judgments = [judgment for judgment in self.judgments if judgment.query_id in known]
        unjudged = self.unjudged + len(self.queries) - len(queries)
        identical = self.identical or (count_identical(self.documents) if self.documents else None)
        return replace(self, queries=queries, judgments=judgments, unjudged=unjudged, identical=identical)


def count_identical(documents: Sequence[Document]) -> Identical:
    """Count the documents that share their title and text with others.

    >>> count_identical([Document("a", "same"), Document("b", "same"), Document("c", "another")])
    Identical(groups=1, documents=2)
    """
    hashes = np.fromiter((hash(one.full) for one in documents), dtype=np.int64, count=len(documents))
    _, counts = np.unique(hashes, return_counts=True)
    return Identical(int((counts > 1).sum()), int(counts[counts > 1].sum()))


def load_dataset(source: StrPath, *, documents: bool = True, convention: Convention | None = None) -> Dataset:
    """Read a test collection, without its unjudged queries: "beir:DIR", "beir:DIR#train", "ir_datasets:NAME".

    With `documents=False` the documents are not read; the evaluation of a run needs none. The default convention is
    BEIR's for BEIR's collections and trec_eval's for all others.
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
    """Read a test collection from the sources of its parts, named after its judgments, by trec_eval's convention.

    Without `queries`, the judged ids become queries with empty texts; the evaluation of a run needs no texts.
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
