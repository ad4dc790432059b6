"""A test collection: documents, queries and judgments, held in memory."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from vocable.data import Document, Qrel, Query, read_corpus, read_judgments, read_queries
from vocable.data.read import read_collection
from vocable.errors import ArgumentError, DataError
from vocable.retrieval.ranking import Ties
from vocable.storage import StrPath
from vocable.tables import counted

Convention: TypeAlias = Literal["trec_eval", "beir"]
logger = logging.getLogger(__name__)
BEIR = re.compile(r"(ir_datasets:)?beir[:/]")  # how the sources of its collections begin


class Identical(NamedTuple):
    """Counts of documents with the same title and text: the groups of them, and the documents in all groups.

    A model gives the documents of a group equal scores.
    """

    groups: int
    documents: int


@dataclass(frozen=True)
class Dataset:
    """A test collection; `unjudged` counts the queries that `judged` has left out, as they have no judgment.

    By the `convention` of BEIR a document with the id of its query is no hit: in ArguAna each query is a document of
    the collection, and would find itself first (Thakur et al. 2021). That of trec_eval counts whatever a run has.
    `ties` is the order of hits with equal scores (`vocable.retrieval.ranking.in_order`), `identical` counts the documents
    that share their text, where there are documents.
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
        for name, allowed in (("convention", get_args(Convention)), ("ties", get_args(Ties))):
            if (value := getattr(self, name)) not in allowed:
                raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")

    def deep(self, k: int) -> int:
        """Return the number of results to ask for, so that `k` are left when the query's own id is dropped."""
        if self.convention == "trec_eval":
            return k
        asked = {query.id for query in self.queries}
        return k + (not self.documents or any(document.id in asked for document in self.documents))

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
            which = f"{counted(len(unknown), 'query', 'queries')} with judgments, as {min(unknown)!r}"
            logger.warning("%s: %s: not among the queries, left out", self.name, which)
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
    """Read the judged part of a test collection: "beir:DIR", "beir:DIR#train", "ir_datasets:NAME", "pydocs:#test".

    Without `documents` they are left unread, which is enough to evaluate a run. The convention is BEIR's for its
    collections, trec_eval's for all others, unless it is given.
    """
    name = os.fspath(source)
    if Path(name).exists():
        instead = f"write beir:{name}" if Path(name).is_dir() else "give beir:DIR, ir_datasets:NAME or pydocs:#test"
        raise DataError(f"a dataset is documents, queries and judgments together: {instead}", source=name)
    corpus = list(read_corpus(name)) if documents else []
    queries, judgments = list(read_queries(name)), list(read_judgments(name))
    own = convention or ("beir" if BEIR.match(name) else "trec_eval")
    return Dataset(name, corpus, queries, judgments, convention=own).judged()


def load_files(judgments: StrPath, queries: StrPath | None = None, corpus: StrPath | None = None) -> Dataset:
    """Read a test collection from the sources of its parts; it has the name of its judgments.

    Without `queries` those are asked that are judged, by their ids and without a text, which is enough to evaluate a
    run. The convention is trec_eval's.
    """
    judged = list(read_judgments(judgments))
    if not judged:
        raise DataError("no judgment", source=os.fspath(judgments))
    if queries is None:
        asked = [Query(query, "") for query in dict.fromkeys(judgment.query_id for judgment in judged)]
    else:
        asked = list(read_queries(queries))
    documents = [] if corpus is None else list(read_collection(corpus))
    return Dataset(os.fspath(judgments), documents, asked, judged).judged()
