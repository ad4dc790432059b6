"""A model with the interface of FastEmbed's `SparseTextEmbedding`, known by name to FastEmbed and qdrant-client.

from vocable.integrations.fastembed import SparseTextEmbedding, register

vectors = SparseTextEmbedding("vocable-mini").embed(texts)      # without FastEmbed

register("vocable-mini", query_idf=0)                           # with FastEmbed
client.query_points("name", models.Document(text="no duplicates", model="vocable-mini"), using="sparse")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Unpack

from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.encoding.models import Model
from vocable.errors import ArgumentError, require_extra
from vocable.integrations.embedder import Embedder, EmbedderOptions, SparseRow
from vocable.options import checked


class SparseTextEmbedding:
    """A model with the methods of FastEmbed's class and the options of an `Embedder`."""

    registered: ClassVar[dict[str, tuple[Any, EmbedderOptions]]] = {}  # FastEmbed's descriptions, options; by name

    def __init__(
        self,
        model_name: Model | str | Path = BUILT_IN_MODEL,
        cache_dir: None = None,
        threads: None = None,
        *,
        providers: None = None,
        device_ids: None = None,
        cuda: object = None,
        lazy_load: bool = False,
        **options: Unpack[EmbedderOptions],
    ) -> None:
        """`cuda` and `lazy_load` have no effect: FastEmbed passes them for every model, and `device` is the device.

        Raises `ArgumentError` for a setting that only FastEmbed's models have.
        """
        theirs = {"cache_dir": cache_dir, "threads": threads, "providers": providers, "device_ids": device_ids}
        if wrong := next((name for name, value in theirs.items() if value is not None), None):
            raise ArgumentError(f"{wrong} is for FastEmbed's own models: a model of vocable takes `device`")
        _, defaults = self.registered.get(str(model_name), (None, EmbedderOptions()))
        merged: EmbedderOptions = {**defaults, **options}
        self._embedder = Embedder(model_name, **merged)

    def embed(
        self, documents: str | Iterable[str], batch_size: int = 256, parallel: int | None = None
    ) -> Iterator[SparseRow]:
        """Yield the vectors of documents, reading `batch_size` documents at a time; `parallel` has no effect."""
        texts = iter([documents] if isinstance(documents, str) else documents)
        while batch := list(islice(texts, batch_size)):
            yield from self._embedder.documents(batch)

    def passage_embed(self, texts: str | Iterable[str], batch_size: int = 256) -> Iterator[SparseRow]:
        """Yield the vectors of documents."""
        yield from self.embed(texts, batch_size)

    def query_embed(self, query: str | Iterable[str], batch_size: int = 256) -> Iterator[SparseRow]:
        """Yield the vectors of queries."""
        texts = iter([query] if isinstance(query, str) else query)
        while batch := list(islice(texts, batch_size)):
            yield from self._embedder.queries(batch)

    @classmethod
    def _list_supported_models(cls) -> list[Any]:
        return [description for description, _ in cls.registered.values()]


@checked
def register(name: str, **options: Unpack[EmbedderOptions]) -> None:
    """Register a model by its name for FastEmbed and qdrant-client's `models.Document`, with `Embedder` options.

    A `query_idf` of 0 leaves the IDF to the store: Qdrant's helpers then set `Modifier.IDF` in a new collection.

    Raises:
        MissingExtraError: FastEmbed is not installed.
    """
    fastembed = require_extra("fastembed", "fastembed")
    about = require_extra("fastembed.common.model_description", "fastembed")
    description = about.SparseModelDescription(
        model=name,
        sources=about.ModelSource(hf=name),
        model_file="",
        description="a model of vocable",
        license="",
        size_in_GB=0.0,
        requires_idf=options["query_idf"] == 0,
    )
    SparseTextEmbedding.registered[name] = description, options
    if SparseTextEmbedding not in (classes := fastembed.SparseTextEmbedding.EMBEDDINGS_REGISTRY):
        classes.append(SparseTextEmbedding)
