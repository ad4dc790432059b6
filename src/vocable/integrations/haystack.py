"""A collection as a Haystack retriever, and a model as Haystack's sparse embedders.

from vocable.integrations.haystack import HaystackRetriever

pipeline = haystack.Pipeline()
pipeline.add_component("retriever", HaystackRetriever("my-index", k=5))
documents = pipeline.run({"retriever": {"query": "no duplicates", "filter": "lang=en"}})["retriever"]["documents"]

HaystackDocumentEmbedder("vocable-mini").run(documents)["documents"]          # with their `sparse_embedding`
HaystackTextEmbedder("vocable-mini").run("no duplicates")["sparse_embedding"]
"""

# No `from __future__ import annotations`: a pipeline compares the types of `run`, not their names.

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.encoding.models import Model, model_name
from vocable.errors import require_extra
from vocable.integrations.embedder import Embedder, EmbedderOptions, SparseRow
from vocable.integrations.searcher import Index, Searcher, content, metadata
from vocable.options import SearchOptions, check

haystack: Any = require_extra("haystack", "haystack")
dataclasses: Any = require_extra("haystack.dataclasses", "haystack")


@haystack.component
class HaystackRetriever:
    """A component with the options of a `Searcher`; a document's `meta` has its title and further fields.

    A serialized pipeline stores the place of the index; loading the pipeline opens the index.
    """

    def __init__(self, index: Index, k: int = 10, **options: Unpack[SearchOptions]) -> None:
        haystack.component.set_output_types(self, documents=list[haystack.Document])
        self.searcher = Searcher(index, k, **options)

    def to_dict(self) -> dict[str, object]:
        """Return the place and the options: Haystack recreates the component with them."""
        searcher = self.searcher
        return haystack.default_to_dict(self, index=searcher.collection.place, k=searcher.k, **searcher.options)

    def run(self, query: str, k: int | None = None, filter: str | None = None) -> dict[str, list[object]]:
        """Return the hits of a query; `k` and `filter` override the component's options."""
        options = SearchOptions() if filter is None else SearchOptions(filter=filter)
        return {
            "documents": [
                haystack.Document(id=hit.document.id, content=content(hit), meta=metadata(hit), score=hit.score)
                for hit in self.searcher.hits(query, k, **options)
            ]
        }

    async def run_async(self, query: str, k: int | None = None, filter: str | None = None) -> dict[str, list[object]]:
        """Search in another thread, and return the hits of a query."""
        return await asyncio.to_thread(self.run, query, k, filter)


class _EmbedderComponent:
    """A model with the options of an `Embedder`; a serialized pipeline stores the model's name.

    `warm_up` or the first run loads the model.
    """

    def __init__(self, model: Model | str | Path = BUILT_IN_MODEL, **options: Unpack[EmbedderOptions]) -> None:
        self.model, self.options = model, check(EmbedderOptions, options)

    @cached_property
    def embedder(self) -> Embedder:
        """The loaded model."""
        return Embedder(self.model, **self.options)

    def warm_up(self) -> None:
        """Load the model."""
        self.embedder  # noqa: B018

    def to_dict(self) -> dict[str, object]:
        """Return the model's name and the options: Haystack recreates the component with them."""
        return haystack.default_to_dict(self, model=model_name(self.model), **self.options)


@haystack.component
class HaystackTextEmbedder(_EmbedderComponent):
    """A component that embeds a query."""

    @haystack.component.output_types(sparse_embedding=dataclasses.SparseEmbedding)  # type: ignore[untyped-decorator]
    def run(self, text: str) -> dict[str, Any]:
        """Return the vector of a query."""
        return {"sparse_embedding": _sparse_embedding(self.embedder.queries([text])[0])}


@haystack.component
class HaystackDocumentEmbedder(_EmbedderComponent):
    """A component that embeds documents: a line for each of `meta_fields_to_embed`, then the content."""

    def __init__(
        self,
        model: Model | str | Path = BUILT_IN_MODEL,
        meta_fields_to_embed: Sequence[str] = (),
        **options: Unpack[EmbedderOptions],
    ) -> None:
        _EmbedderComponent.__init__(self, model, **options)  # no super(), since the decorator replaces the class
        self.meta_fields_to_embed = list(meta_fields_to_embed)

    def to_dict(self) -> dict[str, object]:
        """Return the model's name and all options: Haystack recreates the component with them."""
        fields: Any = {"meta_fields_to_embed": self.meta_fields_to_embed}
        return haystack.default_to_dict(self, model=model_name(self.model), **fields, **self.options)

    @haystack.component.output_types(documents=list[haystack.Document])  # type: ignore[untyped-decorator]
    def run(self, documents: list[haystack.Document]) -> dict[str, Any]:
        """Return copies of documents with their vectors as `sparse_embedding`."""
        rows = self.embedder.documents([self._text(document) for document in documents])
        pairs = zip(documents, rows, strict=True)
        return {"documents": [replace(each, sparse_embedding=_sparse_embedding(row)) for each, row in pairs]}

    def _text(self, document: Any) -> str:
        meta = [str(value) for name in self.meta_fields_to_embed if (value := document.meta.get(name)) is not None]
        return "\n".join([*meta, document.content or ""])


def _sparse_embedding(row: SparseRow) -> Any:
    return dataclasses.SparseEmbedding(**row.as_lists())
