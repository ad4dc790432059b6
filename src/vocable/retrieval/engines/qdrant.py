"""A Qdrant server: exact search, payloads and filters, over the official client.

The address is http(s)://HOST:PORT/COLLECTION; an API key is the variable QDRANT_API_KEY, or the password in the
address. A point's id is derived from the document's id; its payload has id, text, title, fields, and the keys for
filters (`equal`, `order`). The settings are in the collection's metadata.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vocable.data import Document
from vocable.errors import require_extra
from vocable.retrieval.engines.base import Hits, Row, key_of
from vocable.retrieval.engines.filter_keys import beyond_64_bits, bound_of, comparison_key, filter_keys, translate
from vocable.retrieval.engines.server import ServerStore, server_of
from vocable.retrieval.filters import Comparison, Filter
from vocable.retrieval.protocols import About, Space
from vocable.tables import masked

RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
TIMEOUT = 60  # seconds


class Qdrant(ServerStore):
    """A collection of a Qdrant server; a request of 256 documents is written as a whole."""

    about = About("qdrant", exact=True, durable=True, filters=True, spaces=("sparse", "bm25", "dense"))
    ties_by_id = False
    page = 256

    def __init__(self, address: str, *, new: bool = False) -> None:
        client = require_extra("qdrant_client", "qdrant")
        self._models = client.models
        server = server_of(address, {"http": 6333, "https": 6333})
        key = server.password or os.environ.get("QDRANT_API_KEY")
        self.place, self.name = masked(address), server.name
        self.driver_errors = (require_extra("qdrant_client.http.exceptions", "qdrant").ApiException,)
        self._client = client.QdrantClient(url=server.url, api_key=key, timeout=TIMEOUT, check_compatibility=False)

    def _make(self, record: Mapping[str, object]) -> None:
        models = self._models
        self._client.create_collection(
            self.name,
            vectors_config={
                space: models.VectorParams(size=columns, distance=models.Distance.DOT)
                for space, columns in self.spaces.items()
                if space == "dense"
            },
            sparse_vectors_config={space: models.SparseVectorParams() for space in self.spaces if space != "dense"},
            metadata={"vocable": record},
        )
        self._client.create_payload_index(self.name, "equal", models.PayloadSchemaType.KEYWORD, wait=True)

    def _exists(self) -> bool:
        return bool(self._client.collection_exists(self.name))

    def _read_record(self) -> Mapping[str, object]:
        record: Mapping[str, object] = self._client.get_collection(self.name).config.metadata["vocable"]
        return record

    def _write_record(self, record: Mapping[str, object]) -> None:
        self._client.update_collection(self.name, metadata={"vocable": record})

    def _refuse(self, document: Document) -> str | None:
        return "Qdrant rounds whole numbers beyond 64 bits" if beyond_64_bits(document.fields) else None

    def _write(self, documents: Sequence[Document], rows: Sequence[Sequence[Row]]) -> None:
        points = [
            self._models.PointStruct(
                id=key_of(document.id),
                vector={space: self._vector(row) for space, row in zip(self.spaces, some, strict=True)},
                payload=document._asdict() | {"fields": dict(document.fields)} | filter_keys(document.fields)._asdict(),
            )
            for document, some in zip(documents, rows, strict=True)
        ]
        self._client.upsert(self.name, points, wait=True)

    def _delete(self, ids: Sequence[str]) -> int:
        keys = [key_of(identifier) for identifier in self._found(ids, ["id"])]
        if keys:
            self._client.delete(self.name, self._models.PointIdsList(points=keys), wait=True)
        return len(keys)

    def _documents(self, ids: Sequence[str]) -> dict[str, Document]:
        found = self._found(ids, Document._fields)
        return {name: Document(**point.payload) for name, point in found.items()}

    def _rows(self, ids: Sequence[str], space: Space) -> dict[str, Row]:
        stored = {name: point.vector[space] for name, point in self._found(ids, ["id"], [space]).items()}
        return stored if space == "dense" else {name: (one.indices, one.values) for name, one in stored.items()}

    def ids(self) -> Iterator[str]:
        offset, more = None, True
        while more:
            with self._errors():
                records, offset = self._client.scroll(self.name, limit=self.page, offset=offset, with_payload=["id"])
            yield from (record.payload["id"] for record in records)
            more = offset is not None

    def _query(self, rows: Sequence[Row], k: int, space: Space, filter: Filter | None) -> Iterator[Hits]:
        models = self._models
        requests = [
            models.QueryRequest(
                query=self._vector(row),
                using=space,
                limit=k,
                filter=None if filter is None else models.Filter(must=[self._condition(filter)]),
                params=models.SearchParams(exact=True),
                with_payload=["id"],
            )
            for row in rows
        ]
        for found in self._client.query_batch_points(self.name, requests):
            yield [(point.payload["id"], point.score) for point in found.points]

    def optimize(self) -> None:
        """Do nothing: the server optimizes by itself."""

    def close(self) -> None:
        self._client.close()

    def drop(self) -> None:
        with self._errors():
            self._client.delete_collection(self.name)

    def __len__(self) -> int:
        with self._errors():
            return int(self._client.count(self.name, exact=True).count)

    @property
    def nbytes(self) -> None:
        return None

    def _vector(self, row: Row) -> Any:
        if isinstance(row, np.ndarray):
            return row.tolist()
        return self._models.SparseVector(indices=row[0].tolist(), values=row[1].tolist())

    def _found(self, ids: Sequence[str], payload: Sequence[str], vectors: Any = False) -> dict[str, Any]:
        """Return the points of documents by id."""
        keys = [key_of(identifier) for identifier in ids]
        records = self._client.retrieve(self.name, keys, with_payload=list(payload), with_vectors=vectors)
        return {record.payload["id"]: record for record in records}

    def _condition(self, filter: Filter) -> Any:
        models = self._models

        def leaf(comparison: Comparison) -> Any:
            if comparison.operator == "=":
                return models.FieldCondition(key="equal", match=models.MatchValue(value=comparison_key(comparison)))
            bound = models.Range(**{RANGES[comparison.operator]: bound_of(comparison)})
            return models.FieldCondition(key=f"order.{comparison_key(comparison)}", range=bound)

        return translate(
            filter,
            leaf,
            lambda parts: models.Filter(must=parts),
            lambda parts: models.Filter(should=parts),
            lambda part: models.Filter(must_not=[part]),
        )


ENGINE = Qdrant
