"""A collection as a LangChain retriever.

from vocable.integrations.langchain import LangChainRetriever

retriever = LangChainRetriever("my-index", k=5)
documents = retriever.invoke("no duplicates", filter="lang=en")
"""

from __future__ import annotations

import asyncio
from typing import Any, Unpack

from vocable.errors import require_extra
from vocable.integrations.searcher import Index, Searcher, content, metadata
from vocable.options import SearchOptions

documents: Any = require_extra("langchain_core.documents", "langchain")
retrievers: Any = require_extra("langchain_core.retrievers", "langchain")


class LangChainRetriever(retrievers.BaseRetriever):
    """A retriever with `k` and the options of a `Searcher`; each query can override both.

    A document's metadata has its id, by which an `EnsembleRetriever` can merge, score, title and further fields.
    """

    searcher: Searcher

    def __init__(
        self,
        index: Index,
        k: int = 10,
        *,
        tags: list[str] | None = None,
        metadata: dict[str, object] | None = None,
        **options: Unpack[SearchOptions],
    ) -> None:
        """`tags` and `metadata` describe the retriever in LangChain's traces."""
        super().__init__(searcher=Searcher(index, k, **options), tags=tags, metadata=metadata)

    def _get_relevant_documents(self, query: str, *, run_manager: Any, **options: Any) -> list[Any]:
        hits = self.searcher.hits(query, **options)
        own = [{"id": hit.document.id, "score": hit.score} for hit in hits]
        return [
            documents.Document(id=values["id"], page_content=content(hit), metadata={**metadata(hit), **values})
            for hit, values in zip(hits, own, strict=True)
        ]

    async def _aget_relevant_documents(self, query: str, *, run_manager: object, **options: object) -> list[object]:
        return await asyncio.to_thread(self._get_relevant_documents, query, run_manager=run_manager, **options)
