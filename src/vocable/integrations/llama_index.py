"""A collection as a LlamaIndex retriever, and a model as a LlamaIndex sparse embedding.

from vocable.integrations.llama_index import LlamaIndexEmbedding, LlamaIndexRetriever

retriever = LlamaIndexRetriever("my-index", k=5, filter="lang=en")
nodes = retriever.retrieve("no duplicates")

sparse = LlamaIndexEmbedding("vocable-mini")
functions = {"sparse_doc_fn": sparse.documents, "sparse_query_fn": sparse.queries}
store = QdrantVectorStore("name", client=client, enable_hybrid=True, **functions)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.encoding.models import Model, model_name
from vocable.errors import require_extra
from vocable.integrations.embedder import Embedder, EmbedderOptions, SparseRow
from vocable.integrations.searcher import Index, Searcher, content, metadata
from vocable.options import SearchOptions

base_sparse: Any = require_extra("llama_index.core.base.embeddings.base_sparse", "llama-index")
pydantic: Any = require_extra("llama_index.core.bridge.pydantic", "llama-index")
retrievers: Any = require_extra("llama_index.core.retrievers", "llama-index")
schema: Any = require_extra("llama_index.core.schema", "llama-index")

EncodedBatch: TypeAlias = tuple[list[list[int]], list[list[float]]]  # columns and weights of each text


class LlamaIndexRetriever(retrievers.BaseRetriever):
    """A retriever with the options of a `Searcher`; a node's metadata has title and further fields."""

    def __init__(
        self, index: Index, k: int = 10, *, callback_manager: object = None, **options: Unpack[SearchOptions]
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self.searcher = Searcher(index, k, **options)

    def _retrieve(self, query_bundle: Any) -> list[Any]:
        unread = ["snippet", "highlights"]  # these repeat a part of the text, so no model needs to read them
        keys = {"excluded_llm_metadata_keys": unread, "excluded_embed_metadata_keys": unread}
        return [
            schema.NodeWithScore(
                node=schema.TextNode(id_=hit.document.id, text=content(hit), metadata=metadata(hit), **keys),
                score=hit.score,
            )
            for hit in self.searcher.hits(query_bundle.query_str)
        ]

    async def _aretrieve(self, query_bundle: object) -> list[object]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class LlamaIndexEmbedding(base_sparse.BaseSparseEmbedding):
    """A sparse embedding, {column: weight}, with the options of an `Embedder`.

    `documents` and `queries` serve as `sparse_doc_fn` and `sparse_query_fn` of the Qdrant store.
    """

    _embedder: Embedder = pydantic.PrivateAttr()

    def __init__(self, model: Model | str | Path = BUILT_IN_MODEL, **options: Unpack[EmbedderOptions]) -> None:
        super().__init__(model_name=model_name(model))
        self._embedder = Embedder(model, **options)

    def documents(self, texts: list[str]) -> EncodedBatch:
        """Return the vectors of documents."""
        return _batch(self._embedder.documents(texts))

    def queries(self, texts: list[str]) -> EncodedBatch:
        """Return the vectors of queries."""
        return _batch(self._embedder.queries(texts))

    def _get_query_embedding(self, query: str) -> dict[int, float]:
        return self._embedder.queries([query])[0].as_dict()

    async def _aget_query_embedding(self, query: str) -> dict[int, float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> dict[int, float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> dict[int, float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    def _get_text_embeddings(self, texts: list[str]) -> list[dict[int, float]]:
        return [row.as_dict() for row in self._embedder.documents(texts)]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[dict[int, float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


def _batch(rows: Sequence[SparseRow]) -> EncodedBatch:
    return [row.indices.tolist() for row in rows], [row.values.tolist() for row in rows]
