"""A model as the sparse embeddings of LangChain's Qdrant store.

from vocable.integrations.langchain_qdrant import LangChainQdrantEmbeddings

sparse = LangChainQdrantEmbeddings("vocable-mini")
store = QdrantVectorStore(client, "name", retrieval_mode=RetrievalMode.SPARSE, sparse_embedding=sparse)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.encoding.models import Model
from vocable.errors import require_extra
from vocable.integrations.embedder import Embedder, EmbedderOptions

langchain_qdrant: Any = require_extra("langchain_qdrant", "langchain-qdrant")


class LangChainQdrantEmbeddings(langchain_qdrant.SparseEmbeddings):
    """Sparse embeddings with the options of an `Embedder`."""

    def __init__(self, model: Model | str | Path = BUILT_IN_MODEL, **options: Unpack[EmbedderOptions]) -> None:
        self._embedder = Embedder(model, **options)

    def embed_documents(self, texts: list[str]) -> list[Any]:
        """Return the vectors of documents."""
        return [langchain_qdrant.SparseVector(**row.as_lists()) for row in self._embedder.documents(texts)]

    def embed_query(self, text: str) -> Any:
        """Return the vector of a query."""
        return langchain_qdrant.SparseVector(**self._embedder.queries([text])[0].as_lists())
