"""A collection as a retriever of LlamaIndex.

from vocable.integrations.llama_index import LlamaIndexRetriever

retriever = LlamaIndexRetriever("my-index", k=5, hybrid=True, filter="lang=en")
nodes = retriever.retrieve("no duplicates")
"""

from __future__ import annotations

import asyncio
from typing import Any, Unpack

from vocable.errors import require_extra
from vocable.integrations.searcher import Index, Searcher, content, metadata
from vocable.options import SearchOptions

retrievers: Any = require_extra("llama_index.core.retrievers", "llama-index")
schema: Any = require_extra("llama_index.core.schema", "llama-index")


class LlamaIndexRetriever(retrievers.BaseRetriever):
    """A retriever with the options of a `Searcher`; title and further fields are a node's metadata."""

    def __init__(
        self, index: Index, k: int = 10, *, callback_manager: object = None, **options: Unpack[SearchOptions]
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self.searcher = Searcher(index, k, **options)

    def _retrieve(self, query_bundle: Any) -> list[Any]:
        return [
            schema.NodeWithScore(
                node=schema.TextNode(id_=hit.document.id, text=content(hit), metadata=metadata(hit)), score=hit.score
            )
            for hit in self.searcher.hits(query_bundle.query_str)
        ]

    async def _aretrieve(self, query_bundle: object) -> list[object]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
