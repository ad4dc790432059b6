"""A collection as a retriever of LangChain.

from vocable.integrations.langchain import VocableRetriever

retriever = VocableRetriever("my-index", k=5, hybrid=True)
documents = retriever.invoke("no duplicates", filter="lang=en")
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Unpack

from vocable.errors import require_extra
from vocable.integrations.searcher import Searcher, SearchOptions, content, metadata
from vocable.retrieval.collection import Collection

documents: Any = require_extra("langchain_core.documents", "langchain")
retrievers: Any = require_extra("langchain_core.retrievers", "langchain")


class VocableRetriever(retrievers.BaseRetriever):
    """A collection, or the place of one; `k` and the options of the searcher can be given with each query, too.

    The score is in a document's metadata, with its title and further fields.
    """

    searcher: Searcher

    def __init__(
        self,
        index: str | os.PathLike[str] | Collection,
        k: int = 10,
        *,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **options: Unpack[SearchOptions],
    ) -> None:
        """`tags` and `metadata` are of the retriever, for LangChain's traces."""
        super().__init__(searcher=Searcher(index, k, **options), tags=tags, metadata=metadata)

    def _get_relevant_documents(self, query: str, *, run_manager: Any, **asked: Any) -> list[Any]:
        return [
            documents.Document(
                id=hit.document.id, page_content=content(hit), metadata={**metadata(hit), "score": hit.score}
            )
            for hit in self.searcher.hits(query, **asked)
        ]

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any, **asked: Any) -> list[Any]:
        return await asyncio.to_thread(self._get_relevant_documents, query, run_manager=run_manager, **asked)
