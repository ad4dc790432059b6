"""A collection as a component of Haystack.

from vocable.integrations.haystack import HaystackRetriever

pipeline = haystack.Pipeline()
pipeline.add_component("retriever", HaystackRetriever("my-index", k=5, hybrid=True))
documents = pipeline.run({"retriever": {"query": "no duplicates", "filter": "lang=en"}})["retriever"]["documents"]
"""

# No `from __future__ import annotations`: a pipeline compares the types of `run`, not their names.

import asyncio
from typing import Any, Unpack

from vocable.errors import require_extra
from vocable.integrations.searcher import Index, Searcher, content, metadata
from vocable.options import SearchOptions

haystack: Any = require_extra("haystack", "haystack")


@haystack.component
class HaystackRetriever:
    """A component with the options of a `Searcher`; title and further fields are a document's `meta`.

    A serialized pipeline has the place of the index, and opens it when it is loaded.
    """

    def __init__(self, index: Index, k: int = 10, **options: Unpack[SearchOptions]) -> None:
        haystack.component.set_output_types(self, documents=list[haystack.Document])
        self.searcher = Searcher(index, k, **options)

    def to_dict(self) -> dict[str, object]:
        """Return the place and the options, from which Haystack makes the component again."""
        searcher = self.searcher
        written: dict[str, object] = haystack.default_to_dict(
            self, index=searcher.collection.place, k=searcher.k, **searcher.options
        )
        return written

    def run(self, query: str, k: int | None = None, filter: str | None = None) -> dict[str, list[object]]:
        """Return the hits of a query; `k` and `filter` override the component's own."""
        options = SearchOptions() if filter is None else SearchOptions(filter=filter)
        return {
            "documents": [
                haystack.Document(id=hit.document.id, content=content(hit), meta=metadata(hit), score=hit.score)
                for hit in self.searcher.hits(query, k, **options)
            ]
        }

    async def run_async(self, query: str, k: int | None = None, filter: str | None = None) -> dict[str, list[object]]:
        """Return the hits of a query, found in another thread."""
        return await asyncio.to_thread(self.run, query, k, filter)
