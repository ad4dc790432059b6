"""A Qdrant server: exact search, payloads and filters, over the official client.

The address is http(s)://HOST:PORT/COLLECTION; an API key comes from QDRANT_API_KEY, or stands as the password in the
address. A point's id is made of the document's; its payload has id, text, title, fields, and the facts that filters ask
for (`equal`, `order`). The settings are in the collection's metadata.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.errors import ArgumentError, VectorsError, require_extra
from vocable.retrieval.engines.base import (
    CommonStore,
    asked,
    bound_of,
    checked,
    checked_queries,
    facts_of,
    key_of,
    matrix_of,
    parts_of,
    refused_beyond_64_bits,
    rows_of,
    server_of,
    translated,
)
from vocable.retrieval.filters import Comparison, Filter
from vocable.retrieval.protocols import About, Space
from vocable.retrieval.ranking import Ranking, ranking_of
from vocable.tables import masked

PAGE = 256  # documents, or queries, of one request
ORDER = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
TIMEOUT = 60  # seconds


class Qdrant(CommonStore):
    """A collection of a Qdrant server."""

    about = About("qdrant", exact=True, durable=True, filters=True, spaces=("sparse", "bm25", "dense"))

    def __init__(self, address: str) -> None:
        client = require_extra("qdrant_client", "qdrant")
        self._models = client.models
        server = server_of(address, {"http": 6333, "https": 6333})
        key = server.password or os.environ.get("QDRANT_API_KEY")
        self._place, self.name = masked(address), server.name
        self._kinds = (require_extra("qdrant_client.http.exceptions", "qdrant").ApiException,)
        self._client = client.QdrantClient(url=server.url, api_key=key, timeout=TIMEOUT, check_compatibility=False)

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, Any]) -> Self:
        """As `Store.create`."""
        store = cls(address)
        with store._closed_on_error():
            models, store._spaces = store._models, dict(spaces)
            with store._errors():
                if store._client.collection_exists(store.name):
                    raise ArgumentError(f"{store._place}: there is a collection {store.name!r} already: name another")
                store._client.create_collection(
                    store.name,
                    vectors_config={
                        space: models.VectorParams(size=columns, distance=models.Distance.DOT)
                        for space, columns in spaces.items()
                        if space == "dense"
                    },
                    sparse_vectors_config={space: models.SparseVectorParams() for space in spaces if space != "dense"},
                    metadata=store._metadata(settings),
                )
                store._client.create_payload_index(store.name, "equal", models.PayloadSchemaType.KEYWORD, wait=True)
            store.settings = settings
            return store

    @classmethod
    def open(cls, address: str) -> Self:
        """As `Store.open`."""
        store = cls(address)
        with store._closed_on_error():
            with store._errors():
                if not store._client.collection_exists(store.name):
                    raise VectorsError(f"{store._place}: there is no collection {store.name!r} here")
                metadata = store._client.get_collection(store.name).config.metadata
            store._take(lambda: metadata["vocable"], f"the collection {store.name!r}")
            return store

    def configure(self, settings: dict[str, Any]) -> None:
        """As `Store.configure`."""
        with self._errors():
            self._client.update_collection(self.name, metadata=self._metadata(settings))
        self.settings = settings

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, csr_array | np.ndarray]) -> None:
        """As `Store.upsert`; each request of 256 documents is written as a whole."""
        documents, vectors = checked(self.about, self._spaces, documents, vectors, refused_beyond_64_bits)
        rows = zip(*(rows_of(vectors[space]) for space in self._spaces), strict=True)
        points = [
            self._models.PointStruct(
                id=key_of(document.id),
                vector={space: self._vector(row) for space, row in zip(self._spaces, vector, strict=True)},
                payload=document._asdict() | {"fields": dict(document.fields)} | facts_of(document.fields)._asdict(),
            )
            for document, vector in zip(documents, rows, strict=True)
        ]
        with self._errors():
            for some in parts_of(points, PAGE):
                self._client.upsert(self.name, some, wait=True)

    def delete(self, ids: Sequence[str]) -> int:
        """As `Store.delete`."""
        there = [key_of(identifier) for identifier in self._found(set(ids), payload=["id"])]
        with self._errors():
            if there:
                self._client.delete(self.name, self._models.PointIdsList(points=there), wait=True)
        return len(there)

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """As `Store.documents`."""
        found = self._found(ids, payload=Document._fields)
        return [Document(**found[identifier].payload) if identifier in found else None for identifier in ids]

    def ids(self) -> Iterator[str]:
        """As `Store.ids`, in no order."""
        offset, more = None, True
        while more:
            with self._errors():
                records, offset = self._client.scroll(self.name, limit=PAGE, offset=offset, with_payload=["id"])
            yield from (record.payload["id"] for record in records)
            more = offset is not None

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> csr_array | np.ndarray:
        """As `Store.vectors`."""
        columns = self._columns(space)
        found = self._found(ids, payload=["id"], vectors=[space])
        self._missing(ids, found)
        stored = [found[identifier].vector[space] for identifier in ids]
        rows = stored if space == "dense" else [(one.indices, one.values) for one in stored]
        return matrix_of(rows, space, columns)

    def search(
        self, queries: csr_array | np.ndarray, k: int = 10, *, space: Space = "sparse", filter: Filter | None = None
    ) -> Ranking:
        """As `Store.search`."""
        queries, models = checked_queries(self.about, self._spaces, queries, k, space), self._models
        requests = [
            models.QueryRequest(
                query=self._vector(row),
                using=space,
                limit=k,
                filter=None if filter is None else models.Filter(must=[self._condition(filter)]),
                params=models.SearchParams(exact=True),
                with_payload=["id"],
            )
            for row in rows_of(queries)
        ]
        with self._errors():
            found = [
                one for some in parts_of(requests, PAGE) for one in self._client.query_batch_points(self.name, some)
            ]
        return ranking_of([[(point.payload["id"], point.score) for point in one.points] for one in found], k)

    def optimize(self) -> None:
        """Do nothing: the server optimizes by itself."""

    def close(self) -> None:
        """As `Store.close`."""
        self._client.close()

    def drop(self) -> None:
        """Remove the collection."""
        with self._errors():
            self._client.delete_collection(self.name)

    def __len__(self) -> int:
        with self._errors():
            return int(self._client.count(self.name, exact=True).count)

    @property
    def nbytes(self) -> None:
        """None: the server does not tell."""
        return None

    def _metadata(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {"vocable": {"spaces": self._spaces, "settings": settings}}

    def _vector(self, row: Any) -> Any:
        if isinstance(row, np.ndarray):
            return row.tolist()
        return self._models.SparseVector(indices=row[0].tolist(), values=row[1].tolist())

    def _found(self, ids: Sequence[str] | set[str], payload: Sequence[str], vectors: Any = False) -> dict[str, Any]:
        """The points of documents by id."""
        with self._errors():
            records = [
                record
                for some in parts_of([key_of(identifier) for identifier in ids], PAGE)
                for record in self._client.retrieve(self.name, some, with_payload=list(payload), with_vectors=vectors)
            ]
        return {record.payload["id"]: record for record in records}

    def _condition(self, filter: Filter) -> Any:
        models = self._models

        def leaf(comparison: Comparison) -> Any:
            if comparison.operator == "=":
                return models.FieldCondition(key="equal", match=models.MatchValue(value=asked(comparison)))
            bound = models.Range(**{ORDER[comparison.operator]: bound_of(comparison)})
            return models.FieldCondition(key=f"order.{asked(comparison)}", range=bound)

        return translated(
            filter,
            leaf,
            lambda parts: models.Filter(must=parts),
            lambda parts: models.Filter(should=parts),
            lambda part: models.Filter(must_not=[part]),
        )


ENGINE = Qdrant
