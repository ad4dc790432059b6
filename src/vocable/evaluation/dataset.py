"""A test collection: documents, queries and judgments, held in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from vocable.data import BadLines, Document, Qrel, Query, read_corpus, read_judgments, read_queries
from vocable.errors import ArgumentError, DataError
from vocable.storage import StrPath

Convention: TypeAlias = Literal["trec_eval", "beir"]
BEIR = re.compile(r"(ir_datasets:)?beir[:/]")  # how the sources of its collections begin


@dataclass(frozen=True)
class Dataset:
    """What a system is evaluated on; `unjudged` counts the queries that were left out because none is judged.

    By the `convention` of BEIR a document with the id of its query is no hit: in ArguAna each query is a document of
    the collection, and would find itself first (Thakur et al. 2021). That of trec_eval counts whatever a run has.
    """

    name: str
    documents: Sequence[Document]
    queries: Sequence[Query]
    judgments: Sequence[Qrel]
    unjudged: int = 0
    convention: Convention = "trec_eval"

    def __post_init__(self) -> None:
        if self.convention not in get_args(Convention):
            raise ArgumentError(f"convention must be one of {', '.join(get_args(Convention))}, not {self.convention!r}")

    def deep(self, k: int) -> int:
        """How many results a search has to give for `k` of them to be left by the convention."""
        if self.convention == "trec_eval":
            return k
        asked = {query.id for query in self.queries}
        return k + (not self.documents or any(document.id in asked for document in self.documents))

    def judged(self) -> Dataset:
        """The same without the queries that have no judgment and without judgments of queries that are not there.

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
        known = {query.id for query in queries}
        judgments = [judgment for judgment in self.judgments if judgment.query_id in known]
        unjudged = self.unjudged + len(self.queries) - len(queries)
        return replace(self, queries=queries, judgments=judgments, unjudged=unjudged)


def load_dataset(
    source: StrPath, *, documents: bool = True, bad: BadLines | None = None, convention: Convention | None = None
) -> Dataset:
    """Read the judged part of a test collection: "beir:DIR", "beir:DIR#train", "ir_datasets:NAME", "pydocs:#test".

    Without `documents` they are left unread, which is enough to evaluate a run; `bad` is as in `read_corpus`. The
    convention is BEIR's for its collections, trec_eval's for all others, unless it is given.
    """
    name = os.fspath(source)
    if Path(name).exists():
        instead = f"write beir:{name}" if Path(name).is_dir() else "give beir:DIR, ir_datasets:NAME or pydocs:#test"
        raise DataError(f"a dataset is documents, queries and judgments together: {instead}", source=name)
    corpus = list(read_corpus(name, bad=bad)) if documents else []
    queries, judgments = list(read_queries(name, bad=bad)), list(read_judgments(name, bad=bad))
    own = convention or ("beir" if BEIR.match(name) else "trec_eval")
    return Dataset(name, corpus, queries, judgments, convention=own).judged()
