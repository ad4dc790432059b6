"""A model as the sparse embeddings of LangChain's Milvus store.

from vocable.integrations.langchain_milvus import LangChainMilvusEmbeddings

store = Milvus(LangChainMilvusEmbeddings("vocable-mini"), connection_args={"uri": "my.db"}, vector_field="sparse")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.encoding.models import Model
from vocable.errors import require_extra
from vocable.integrations.embedder import Embedder, EmbedderOptions

sparse: Any = require_extra("langchain_milvus.utils.sparse", "langchain-milvus")


class LangChainMilvusEmbeddings(sparse.BaseSparseEmbedding):
    """Sparse embeddings, {column: weight}, with the options of an `Embedder`."""

    def __init__(self, model: Model | str | Path = BUILT_IN_MODEL, **options: Unpack[EmbedderOptions]) -> None:
        self._embedder = Embedder(model, **options)

    def embed_documents(self, texts: list[str]) -> list[dict[int, float]]:
        """Return the vectors of documents."""
        return [row.as_dict() for row in self._embedder.documents(texts)]

    def embed_query(self, query: str) -> dict[int, float]:
        """Return the vector of a query."""
        return self._embedder.queries([query])[0].as_dict()
