"""The common part of Elasticsearch and OpenSearch: the index, its documents, filters, and scores of 9 significant bits.

A document's id in the index is derived from its own id. Its source has id, title, text and fields, the keys for filters
(`equal` and `order`, keywords), the vectors as features named by their columns, and the vectors with all their bits in
`stored`. The engine's own queries can search title and text. The settings are in the mapping's `_meta`.

Lucene keeps the 9 highest of a weight's 24 significant bits, and scores with these.
"""

from __future__ import annotations

import base64
import math
import struct
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np

from vocable.data import Document
from vocable.errors import VectorsError
from vocable.retrieval.engines.base import Hits, Row, Vectors, key_of
from vocable.retrieval.engines.filter_keys import bound_of, comparison_key, filter_keys, translate
from vocable.retrieval.engines.server import Server, ServerStore, server_of
from vocable.retrieval.filters import Comparison, Filter
from vocable.retrieval.protocols import About, Space
from vocable.tables import masked

LONGEST_ID = 32_766  # bytes of a keyword
MAX_QUERY_WEIGHT = 64  # weight of a term in a linear query
PORTS = {"http": 9200, "https": 9200}
RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def about(engine: str) -> About:
    """Return the properties of an engine of this family."""
    return About(
        engine,
        exact=True,
        precision="9 bits",
        max_terms=1_024,  # clauses of a query: indices.query.bool.max_clause_count is at least this
        durable=True,
        filters=True,
        spaces=("sparse", "bm25"),
    )


class LuceneStore(ServerStore):
    """An index of a server that searches with Lucene; a subclass brings the driver and the query."""

    page = 500
    max_hits = 10_000  # index.max_result_window
    kind = "index"
    feature: ClassVar[str]  # type of a field of weighted terms

    def __init__(self, address: str, *, new: bool = False) -> None:
        server = server_of(address, PORTS)
        self.place, self.name = masked(address), server.name
        self._path = f"/{quote(server.name, safe='')}"
        self.driver_errors = self._connect(server)

    @abstractmethod
    def _connect(self, server: Server) -> tuple[type[Exception], ...]:
        """Make the driver, and return the types of its errors."""

    @abstractmethod
    def _request(self, method: str, path: str, body: object) -> Any:
        """Send a request, and return the answer; a body that is a list is sent as lines of JSON."""

    @abstractmethod
    def _query_of(self, space: Space, weights: dict[str, float]) -> Mapping[str, object]:
        """Return the query that scores by the dot product with these weights."""

    def _make(self, record: Mapping[str, object]) -> None:
        keyword = {"type": "keyword", "doc_values": False}
        properties = {
            "id": {"type": "keyword"},
            "title": {"type": "text"},
            "text": {"type": "text"},
            "fields": {"type": "object", "enabled": False},
            "stored": {"type": "object", "enabled": False},
            "equal": keyword,
            "order": keyword,
        } | {space: {"type": self.feature} for space in self.spaces}
        mappings = {"dynamic": False, "_meta": {"vocable": record}, "properties": properties}
        self._send("PUT", "", {"mappings": mappings})

    def _read_record(self) -> Mapping[str, Any]:
        [index] = self._send("GET", "/_mapping").values()
        record: Mapping[str, Any] = index["mappings"]["_meta"]["vocable"]
        return record

    def _write_record(self, record: Mapping[str, object]) -> None:
        self._send("PUT", "/_mapping", {"_meta": {"vocable": record}})

    def _refuse(self, document: Document) -> str | None:
        size = len(document.id.encode())
        return f"an id of {size:,} bytes, Lucene stores {LONGEST_ID:,}" if size > LONGEST_ID else None

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        super().upsert(documents, vectors)
        self._send("POST", "/_refresh")  # searches see the documents from now on

    def delete(self, ids: Sequence[str]) -> int:
        count = super().delete(ids)
        self._send("POST", "/_refresh")
        return count

    def _write(self, documents: Sequence[Document], rows: Sequence[Sequence[Row]]) -> None:
        lines: list[dict[str, Any]] = []
        for document, some in zip(documents, rows, strict=True):
            equal, order = filter_keys(document.fields)
            source = document._asdict() | {"fields": dict(document.fields), "equal": equal, "stored": {}}
            source["order"] = [f"{key}{_sortable(number)}" for key, number in order.items()]
            for space, (columns, weights) in zip(self.spaces, some, strict=True):
                source[space] = _features(columns, weights)
                content = columns.astype("<i4").tobytes() + weights.astype("<f4").tobytes()
                source["stored"][space] = base64.b64encode(content).decode()
            lines += [{"index": {"_id": key_of(document.id)}}, source]
        self._bulk(lines)

    def _delete(self, ids: Sequence[str]) -> int:
        results = self._bulk([{"delete": {"_id": key_of(identifier)}} for identifier in ids])
        return sum(result["delete"]["result"] == "deleted" for result in results)

    def _documents(self, ids: Sequence[str]) -> dict[str, Document]:
        return {name: Document(**source) for name, source in self._found(ids, Document._fields).items()}

    def _rows(self, ids: Sequence[str], space: Space) -> dict[str, Row]:
        found = {}
        for name, source in self._found(ids, ["id", f"stored.{space}"]).items():
            content = base64.b64decode(source["stored"][space])
            half = len(content) // 2
            found[name] = np.frombuffer(content[:half], "<i4"), np.frombuffer(content[half:], "<f4")
        return found

    def ids(self) -> Iterator[str]:
        body: dict[str, object] = {"size": self.max_hits, "sort": [{"id": "asc"}], "_source": ["id"]}
        while hits := self._send("POST", "/_search", body)["hits"]["hits"]:
            yield from (hit["_source"]["id"] for hit in hits)
            body["search_after"] = hits[-1]["sort"]

    def _query(self, rows: Sequence[Row], k: int, space: Space, filter: Filter | None) -> Iterator[Hits]:
        conditions = [] if filter is None else [_condition(filter)]
        for columns, weights in rows:
            # A linear query takes no weight above 64; a power of two changes only the exponent of a score.
            scale = 2.0 ** max(0, math.ceil(math.log2(weights.max(initial=1) / MAX_QUERY_WEIGHT)))
            query = {"must": [self._query_of(space, _features(columns, weights / scale))], "filter": conditions}
            body = {
                "size": k,
                "query": {"bool": query},
                "sort": [{"_score": "desc"}, {"id": "asc"}],
                "track_scores": True,
                "track_total_hits": False,
                "_source": ["id"],
            }
            found = self._send("POST", "/_search", body)["hits"]["hits"] if len(columns) else []
            yield [(hit["_source"]["id"], hit["_score"] * scale) for hit in found]

    def optimize(self) -> None:
        """Do nothing: the server merges by itself."""

    def drop(self) -> None:
        self._send("DELETE", "")

    def __len__(self) -> int:
        return int(self._send("GET", "/_count")["count"])

    @property
    def nbytes(self) -> int:
        """Size of the index on disk, without its copies on other nodes."""
        return int(self._send("GET", "/_stats/store")["_all"]["primaries"]["store"]["size_in_bytes"])

    def _send(self, method: str, path: str, body: object = None) -> Any:
        with self._errors():
            return self._request(method, self._path + path, body)

    def _bulk(self, lines: Sequence[Mapping[str, object]]) -> list[Any]:
        """Carry out actions, and return their results."""
        results: list[Any] = self._send("POST", "/_bulk", lines)["items"]
        for error in (outcome["error"] for result in results for outcome in result.values() if "error" in outcome):
            raise VectorsError(f"{self.place}: {error.get('type')}: {error.get('reason')}")
        return results

    def _found(self, ids: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the named parts of the documents' sources, by id."""
        body = {"docs": [{"_id": key_of(identifier), "_source": list(names)} for identifier in ids]}
        sources = [one["_source"] for one in self._send("POST", "/_mget", body)["docs"] if one.get("found")]
        return {source["id"]: source for source in sources}


def _features(columns: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    return dict(zip(map(str, columns.tolist()), weights.tolist(), strict=True))


def _sortable(number: float) -> str:
    """Return 16 hexadecimal digits that sort as the numbers do.

    >>> sorted([2.5, -1.0, 0.0, -3.0], key=_sortable)
    [-3.0, -1.0, 0.0, 2.5]
    """
    [bits] = struct.unpack(">Q", struct.pack(">d", number + 0.0))
    return f"{bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63):016x}"


def _condition(filter: Filter) -> Mapping[str, object]:
    def leaf(comparison: Comparison) -> Mapping[str, object]:
        key = comparison_key(comparison)
        if comparison.operator == "=":
            return {"term": {"equal": key}}
        other = {"gte": key} if "<" in comparison.operator else {"lt": f"{key}g"}  # the other end of this key's numbers
        bound = {RANGES[comparison.operator]: f"{key}{_sortable(bound_of(comparison))}"}
        return {"range": {"order": bound | other}}

    return translate(
        filter,
        leaf,
        lambda parts: {"bool": {"filter": parts}},
        lambda parts: {"bool": {"should": parts, "minimum_should_match": 1}},
        lambda part: {"bool": {"must_not": [part]}},
    )
