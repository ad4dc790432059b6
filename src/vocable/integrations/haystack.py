"""A collection as a component of Haystack.

from vocable.integrations.haystack import VocableRetriever

pipeline = haystack.Pipeline()
pipeline.add_component("retriever", VocableRetriever("my-index", k=5, hybrid=True))
documents = pipeline.run({"retriever": {"query": "no duplicates", "filter": "lang=en"}})["retriever"]["documents"]
"""

# No `from __future__ import annotations`: a pipeline compares the types of `run`, and takes none by its name.

import asyncio
import os
from typing import Any, Unpack

from vocable.errors import require_extra
from vocable.integrations.searcher import Searcher, SearchOptions, content, metadata
from vocable.retrieval.collection import Collection

haystack: Any = require_extra("haystack", "haystack")


@haystack.component
class VocableRetriever:
    """A collection, or the place of one, and how it is searched; title and further fields are a document's `meta`.

    A pipeline that is written down has the place, and opens it when it is read.
    """

    def __init__(
        self, index: str | os.PathLike[str] | Collection, k: int = 10, **options: Unpack[SearchOptions]
    ) -> None:
        haystack.component.set_output_types(self, documents=list[haystack.Document])
        self.searcher = Searcher(index, k, **options)

    def to_dict(self) -> dict[str, Any]:
        """The place and the options, from which Haystack makes the component again."""
        searcher = self.searcher
        written: dict[str, Any] = haystack.default_to_dict(
            self, index=searcher.collection.place, k=searcher.k, **searcher.options
        )
        return written

    def run(self, query: str, k: int | None = None, filter: str | None = None) -> dict[str, list[Any]]:
        """The hits of a query, by `k` and `filter` if they are given, else those that the component was made with."""
        asked = {} if filter is None else {"filter": filter}
        return {
            "documents": [
                haystack.Document(id=hit.document.id, content=content(hit), meta=metadata(hit), score=hit.score)
                for hit in self.searcher.hits(query, k, **asked)
            ]
        }

    async def run_async(self, query: str, k: int | None = None, filter: str | None = None) -> dict[str, list[Any]]:
        """As `run`."""
        return await asyncio.to_thread(self.run, query, k, filter)
