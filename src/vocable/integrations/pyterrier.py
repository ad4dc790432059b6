"""A collection as a PyTerrier transformer, from queries to hits.

from vocable.integrations.pyterrier import PyTerrierRetriever as Retriever

pyterrier.Experiment([Retriever("my-index"), Retriever("my-index", weights="sparse")], topics, qrels, ["ndcg"])
"""

from __future__ import annotations

from typing import Any, Unpack

from vocable.errors import require_extra
from vocable.integrations.searcher import Index, Searcher
from vocable.options import SearchOptions

pyterrier: Any = require_extra("pyterrier", "pyterrier")


class PyTerrierRetriever(pyterrier.Transformer):
    """A transformer with the options of a `Searcher`.

    It turns a frame of queries (qid, query) into a frame of hits, best first, with the further columns docno, score and
    rank, which starts at 0.
    """

    def __init__(self, index: Index, k: int = 1000, **options: Unpack[SearchOptions]) -> None:
        self.searcher = Searcher(index, k, **options)

    def transform(self, inp: Any) -> Any:
        """Return the hits of a pandas frame of queries."""
        pyterrier.validate.query_frame(inp, extra_columns=["query"])
        ranking = self.searcher.ranking(inp["query"].tolist())
        hits = [(query, *hit, rank) for query in range(len(inp)) for rank, hit in enumerate(ranking.hits(query))]
        rows, docno, score, rank = ([hit[part] for hit in hits] for part in range(4))
        frame = inp.iloc[rows].reset_index(drop=True)
        return frame.assign(docno=docno, score=score, rank=rank)
