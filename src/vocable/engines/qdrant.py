"""A Qdrant server: exact search, payloads and filters, with the official client.

The address is http(s)://HOST:PORT/COLLECTION; an API key is the variable QDRANT_API_KEY, or the password in the
address. A point's id is a hash of the document's id. Its payload has id, text, title, fields (as JSON, since the server
does not keep the order of keys), and the keys for filters (`equal`, `order`). The settings are in the collection's
metadata.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vocable.core.tables import masked
from vocable.core.threads import in_threads
from vocable.data import Document
from vocable.engines.addresses import server_of
from vocable.engines.aliases import AliasedStore
from vocable.engines.base import UNBOUNDED, Hits, VectorRow, key_of
from vocable.engines.filter_keys import beyond_64_bits, bound_of, comparison_key, filter_keys, translate
from vocable.engines.filters import Comparison, Filter
from vocable.engines.patience import TIMEOUT, seconds_left
from vocable.engines.protocols import About, Space
from vocable.engines.row_store import RowQuery
from vocable.engines.server import BUSY_STATUSES, BusyError, seconds_of
from vocable.errors import GoneError, VectorsError, require_extra
from vocable.options import Count, CountOrZero

logger = logging.getLogger(__name__)

SEPARATE_COUNTS = 100  # up to this number, each term is counted by a request; otherwise one request counts all terms
COUNTED_TOGETHER = 16  # requests for counts at a time
RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
PASSING_STATUSES = (500, *BUSY_STATUSES)  # a cluster answers 500 while a node is away


@dataclass(frozen=True)
class QdrantOptions:
    """Options of Qdrant; the server decides if an option is not set.

    `shards` is the number of shards of the collection, `replicas` the number of further copies of each shard.
    `write_consistency` is the number of copies that acknowledge a write. `bulk` is the number of documents in a
    request, `workers` the number of parallel requests.
    """

    shards: Count | None = None
    replicas: CountOrZero | None = None
    write_consistency: Count | None = None
    bulk: Count | None = None
    workers: Count = 1


class Qdrant(AliasedStore):
    """A collection on a Qdrant server; it writes each request of 256 documents completely or not at all."""

    about = About(
        "qdrant",
        exact=True,
        durable=True,
        filters=True,
        matching=("minimum_match",),
        side_by_side=True,
        spaces=("sparse", "bm25", "dense"),
        part=2048,
        options=QdrantOptions,
        of_run=("bulk", "workers"),
    )
    ties_by_id = False
    page = 256

    def __init__(self, address: str, *, new: bool = False) -> None:
        client, errors = (
            require_extra("qdrant_client", "qdrant"),
            require_extra("qdrant_client.http.exceptions", "qdrant"),
        )
        self._models = client.models
        server = server_of(address, {"http": 6333, "https": 6333})
        key = server.password or os.environ.get("QDRANT_API_KEY")
        self.place, self.name = masked(address), server.name
        exhausted = require_extra("qdrant_client.common.client_exceptions", "qdrant").QdrantException
        self.driver_errors = (errors.ApiException, exhausted)
        if key and server.url.startswith("http:"):
            logger.warning(
                "%s: the API key is sent without encryption: use https outside of a safe network", self.place
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Api key is used with an insecure connection")  # said above
            # Certificates, which take long to be read, are of use to https alone.
            certificates = server.url.startswith("https:")
            self._client = client.QdrantClient(
                url=server.url, api_key=key, timeout=TIMEOUT, check_compatibility=False, verify=certificates
            )
        self._client.http.client.add_middleware(_limited)

    def _wait(self, error: Exception) -> float | None:
        failure: Any = error
        if hasattr(error, "status_code"):
            return seconds_of(failure.headers.get("retry-after")) if failure.status_code in PASSING_STATUSES else None
        if isinstance(source := getattr(error, "source", None), Exception):  # no answer, or no valid answer
            return 0.0 if self.reached and not isinstance(source, ValueError) else None
        return float(getattr(failure, "retry_after_s", 0))  # the driver's error for the status 429

    def _reason(self, error: Exception) -> str:
        content = getattr(error, "content", None)
        if isinstance(content, bytes):
            try:
                reason = json.loads(content)["status"]["error"]
            except (ValueError, KeyError, TypeError):
                reason = content.decode(errors="replace")
            return f"{getattr(error, 'status_code', '')} {reason}"
        return str(getattr(error, "source", None) or error)

    def _refusal(self, error: Exception) -> VectorsError | None:
        status = getattr(error, "status_code", None)
        if status == 404:
            return GoneError(f"{self.place}: there is no {self.kind} {self.name!r} here: it was deleted")
        if status not in (401, 403):
            return None
        return VectorsError(
            f"{self.place}: the API key is wrong or missing, or may not do this (the server answers {status})"
        )

    def _written(self, call: Any, *given: Any) -> None:
        """Write, and wait until the server has carried the write out, also if it answers earlier."""

        def write() -> None:
            result = call(self.name, *given, wait=True)
            if result.status != self._models.UpdateStatus.COMPLETED:
                raise BusyError(f"the server has not carried out a write yet: {result.status.value}")

        self._ask(write)

    def _make(self, record: Mapping[str, object]) -> None:
        models = self._models
        self._ask(
            self._client.create_collection,
            self.name,
            vectors_config={
                space: models.VectorParams(size=columns, distance=models.Distance.DOT)
                for space, columns in self.spaces.items()
                if space == "dense"
            },
            sparse_vectors_config={space: models.SparseVectorParams() for space in self.spaces if space != "dense"},
            shard_number=self.options.shards,
            replication_factor=None if self.options.replicas is None else self.options.replicas + 1,
            write_consistency_factor=self.options.write_consistency,
            metadata={"vocable": record},
        )
        whole_numbers = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=False)
        indexes: dict[str, Any] = {_terms(space): whole_numbers for space in self.spaces if space != "dense"}
        for key, kind in {"equal": models.PayloadSchemaType.KEYWORD, **indexes}.items():
            self._ask(self._client.create_payload_index, self.name, key, kind, wait=True)

    def _exists(self) -> bool:
        return bool(self._ask(self._client.collection_exists, self.name))

    def _named(self, name: str) -> str | None:
        return self._aliased(name) or (name if self._client.collection_exists(name) else None)

    def _aliased(self, name: str) -> str | None:
        """Return the collection with the alias `name`, or None."""
        aliases = self._client.get_aliases().aliases
        return next((alias.collection_name for alias in aliases if alias.alias_name == name), None)

    def _holder(self) -> str:
        return self._ask(self._aliased, self.alias) or self.alias

    def _names_from(self, start: str) -> list[str]:
        return [one.name for one in self._client.get_collections().collections if one.name.startswith(start)]

    def _take_name(self, name: str) -> None:
        """Point the alias at this collection; if a collection itself has the name, remove that collection first."""
        models, holder = self._models, self._named(name)
        added = models.CreateAlias(collection_name=self.name, alias_name=name)
        changes: list[Any] = [models.CreateAliasOperation(create_alias=added)]
        if holder == name:
            self._client.delete_collection(name)
        elif holder is not None:
            changes[:0] = [models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))]
        self._client.update_collection_aliases(changes)

    def _read_record(self) -> Mapping[str, object]:
        return self._ask(self._client.get_collection, self.name).config.metadata["vocable"]

    def _write_record(self, record: Mapping[str, object]) -> None:
        self._ask(self._client.update_collection, self.name, metadata={"vocable": record})

    def _refuse(self, document: Document) -> str | None:
        return "Qdrant rounds whole numbers beyond 64 bits" if beyond_64_bits(document.fields) else None

    def _write(self, documents: Sequence[Document], rows: Sequence[Sequence[VectorRow]]) -> None:
        points = [
            self._models.PointStruct(
                id=key_of(document.id),
                vector={space: self._vector(row) for space, row in zip(self.spaces, vectors, strict=True)},
                payload=document._asdict()
                | {"fields": json.dumps(dict(document.fields))}
                | filter_keys(document.fields)._asdict()
                | {
                    _terms(space): row[0].tolist()
                    for space, row in zip(self.spaces, vectors, strict=True)
                    if space != "dense"
                },
            )
            for document, vectors in zip(documents, rows, strict=True)
        ]
        self._written(self._client.upsert, points)

    def _delete(self, ids: Sequence[str]) -> int:
        keys = [key_of(identifier) for identifier in self._points(ids, ["id"])]
        if keys:
            self._written(self._client.delete, self._models.PointIdsList(points=keys))
        return len(keys)

    def _documents(self, ids: Sequence[str]) -> dict[str, Document]:
        points = self._points(ids, Document._fields)
        return {
            name: Document(**point.payload | {"fields": json.loads(point.payload["fields"])})
            for name, point in points.items()
        }

    def _rows(self, ids: Sequence[str], space: Space) -> dict[str, VectorRow]:
        vectors = {name: point.vector[space] for name, point in self._points(ids, ["id"], [space]).items()}
        if space == "dense":
            return vectors
        return {name: (vector.indices, vector.values) for name, vector in vectors.items()}

    def ids(self) -> Iterator[str]:
        offset, more = None, True
        while more:
            records, offset = self._ask(
                self._client.scroll, self.name, limit=self.page, offset=offset, with_payload=["id"]
            )
            yield from (record.payload["id"] for record in records)
            more = offset is not None

    def _query(self, queries: Sequence[RowQuery]) -> Iterator[Hits]:
        models = self._models
        requests = [
            models.QueryRequest(
                query=self._vector(query.row),
                using=query.space,
                limit=query.k,
                filter=self._passing(query),
                params=models.SearchParams(exact=True),
                with_payload=["id"],
            )
            for query in queries
        ]
        for answer in self._ask(self._client.query_batch_points, self.name, requests):
            yield [(point.payload["id"], point.score) for point in answer.points]

    def _passing(self, query: RowQuery) -> Any:
        """Return the filter of a query, which may ask for a number of its terms."""
        models, enough, key = self._models, None, _terms(query.space)
        if query.needed:
            has = [models.FieldCondition(key=key, match=models.MatchValue(value=int(term))) for term in query.row[0]]
            enough = models.MinShould(conditions=has, min_count=query.needed)
        passing = None if query.filter is None else [self._condition(query.filter)]
        return models.Filter(must=passing, min_should=enough) if passing or enough else None

    def _count_terms(
        self, columns: Sequence[int], space: Space, filter: Filter | None
    ) -> tuple[Mapping[int, int], int]:
        """Count documents by an index of the terms' columns: Qdrant cannot filter by a sparse vector."""
        models = self._models
        passing = [] if filter is None else [self._condition(filter)]
        documents = len(self) if filter is None else self.count(filter)
        if len(columns) > SEPARATE_COUNTS:
            options = {"facet_filter": models.Filter(must=passing), "limit": UNBOUNDED, "exact": True}
            facets = self._ask(self._client.facet, self.name, _terms(space), **options).hits
            return {int(facet.value): int(facet.count) for facet in facets}, documents
        has = [models.FieldCondition(key=_terms(space), match=models.MatchValue(value=column)) for column in columns]
        counts = self._ask(self._counts, [models.Filter(must=[condition, *passing]) for condition in has])
        return dict(zip(columns, counts, strict=True)), documents

    def _counts(self, filters: Sequence[Any]) -> list[int]:
        """Count the documents that pass each filter; Qdrant has no request for several counts."""

        def count(filter: Any) -> int:
            return int(self._client.count(self.name, count_filter=filter, exact=True).count)

        return in_threads(COUNTED_TOGETHER, count, filters)

    def optimize(self) -> None:
        """Do nothing: the server optimizes by itself."""

    def close(self) -> None:
        self._client.close()

    def drop(self) -> None:
        self._ask(self._client.delete_collection, self.name)

    def __len__(self) -> int:
        return int(self._ask(self._client.count, self.name, exact=True).count)

    def count(self, filter: Filter) -> int:
        passing = self._models.Filter(must=[self._condition(filter)])
        return int(self._ask(self._client.count, self.name, count_filter=passing, exact=True).count)

    @property
    def nbytes(self) -> None:
        return None

    def _vector(self, row: VectorRow) -> Any:
        if isinstance(row, np.ndarray):
            return row.tolist()
        return self._models.SparseVector(indices=row[0].tolist(), values=row[1].tolist())

    def _points(self, ids: Sequence[str], payload: Sequence[str], vectors: Any = False) -> dict[str, Any]:
        """Return the points of documents by id."""
        keys = [key_of(identifier) for identifier in ids]
        records = self._ask(self._client.retrieve, self.name, keys, with_payload=list(payload), with_vectors=vectors)
        return {record.payload["id"]: record for record in records}

    def _condition(self, filter: Filter) -> Any:
        models = self._models

        def leaf(comparison: Comparison) -> Any:
            if comparison.keyed:
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


def _limited(request: Any, send: Any) -> Any:
    """Send a request of the driver, which waits for at most the rest of the patience."""
    request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), seconds_left())
    return send(request)


def _terms(space: Space) -> str:
    """Return the payload key for the columns of a document's terms."""
    return f"{space}_terms"


ENGINE = Qdrant
