"""What Elasticsearch and OpenSearch share: the index, its documents, filters, and scores of 9 significant bits.

A document's id in the index is made of its own. Its source has id, title, text and fields as they are, the facts that
filters ask for (`equal` and `order`, keywords), the vectors as features that are named by their columns, and once more
with all their bits in `stored`. Title and text can be searched with the engine's own queries, too. The settings are in
the mapping's `_meta`.

Lucene keeps the 9 highest of a weight's 24 significant bits: `stored_precision` is what it computes with.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self
from urllib.parse import quote

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.errors import ArgumentError, VectorsError
from vocable.retrieval.engines.base import (
    CommonStore,
    Server,
    asked,
    bound_of,
    checked,
    checked_queries,
    facts_of,
    key_of,
    matrix_of,
    parts_of,
    rows_of,
    server_of,
    translated,
)
from vocable.retrieval.filters import Comparison, Filter
from vocable.retrieval.protocols import About, Space
from vocable.retrieval.ranking import Ranking, ranking_of
from vocable.tables import masked

PAGE = 500  # documents of one request
MOST = 10_000  # hits of a query: index.max_result_window
MAX_TERMS = 1_024  # clauses of a query: indices.query.bool.max_clause_count is this at least
LONGEST_ID = 32_766  # bytes of a keyword
HEAVIEST = 64  # weight of a term in a linear query
PORTS = {"http": 9200, "https": 9200}
RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def stored_precision(weights: np.ndarray) -> np.ndarray:
    """The weights, float32, as Lucene keeps them: cut to 9 significant bits.

    >>> stored_precision(np.float32([1.0, 0.1])).tolist()
    [1.0, 0.099853515625]
    """
    cut: np.ndarray = ((np.asarray(weights, dtype=np.float32).view(np.int32) >> 15) << 15).view(np.float32)
    return cut


class LuceneStore(CommonStore):
    """An index of a server that searches with Lucene; what an engine's own class says is at the end."""

    about: About
    feature: ClassVar[str]  # the type of a field of weighted terms

    def __init__(self, address: str) -> None:
        server = server_of(address, PORTS)
        self._place, self.name = masked(address), server.name
        self._path = f"/{quote(server.name, safe='')}"
        self._kinds = self._connect(server)

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, Any]) -> Self:
        """As `Store.create`."""
        store = cls(address)
        with store._closed_on_error():
            store._spaces = dict(spaces)
            if store._mapping() is not None:
                raise ArgumentError(f"{store._place}: there is an index {store.name!r} already: name another")
            keyword = {"type": "keyword", "doc_values": False}
            properties = {
                "id": {"type": "keyword"},
                "title": {"type": "text"},
                "text": {"type": "text"},
                "fields": {"type": "object", "enabled": False},
                "stored": {"type": "object", "enabled": False},
                "equal": keyword,
                "order": keyword,
            } | {space: {"type": cls.feature} for space in spaces}
            mappings = {"dynamic": False, "_meta": store._meta(settings), "properties": properties}
            store._send("PUT", "", {"mappings": mappings})
            store.settings = settings
            return store

    @classmethod
    def open(cls, address: str) -> Self:
        """As `Store.open`."""
        store = cls(address)
        with store._closed_on_error():
            mapping = store._mapping()
            if mapping is None:
                raise VectorsError(f"{store._place}: there is no index {store.name!r} here")
            store._take(lambda: mapping["_meta"]["vocable"], f"the index {store.name!r}")
            return store

    def configure(self, settings: dict[str, Any]) -> None:
        """As `Store.configure`."""
        self._send("PUT", "/_mapping", {"_meta": self._meta(settings)})
        self.settings = settings

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, csr_array | np.ndarray]) -> None:
        """As `Store.upsert`; each document is written as a whole."""
        documents, vectors = checked(self.about, self._spaces, documents, vectors, _refused)
        rows = zip(*(rows_of(vectors[space]) for space in self._spaces), strict=True)
        actions = []
        for document, vector in zip(documents, rows, strict=True):
            equal, order = facts_of(document.fields)
            source = document._asdict() | {"fields": dict(document.fields), "equal": equal, "stored": {}}
            source["order"] = [f"{key}{_sortable(number)}" for key, number in order.items()]
            for space, (columns, weights) in zip(self._spaces, vector, strict=True):
                source[space] = _features(columns, weights)
                content = columns.astype("<i4").tobytes() + weights.astype("<f4").tobytes()
                source["stored"][space] = base64.b64encode(content).decode()
            actions.append([{"index": {"_id": key_of(document.id)}}, source])
        self._bulk(actions)

    def delete(self, ids: Sequence[str]) -> int:
        """As `Store.delete`."""
        results = self._bulk([[{"delete": {"_id": key_of(identifier)}}] for identifier in dict.fromkeys(ids)])
        return sum(result["delete"]["result"] == "deleted" for result in results)

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """As `Store.documents`."""
        found = self._found(ids, Document._fields)
        return [Document(**found[identifier]) if identifier in found else None for identifier in ids]

    def ids(self) -> Iterator[str]:
        """As `Store.ids`, in their order."""
        body: dict[str, Any] = {"size": MOST, "sort": [{"id": "asc"}], "_source": ["id"]}
        while hits := self._send("POST", "/_search", body)["hits"]["hits"]:
            yield from (hit["_source"]["id"] for hit in hits)
            body["search_after"] = hits[-1]["sort"]

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> csr_array | np.ndarray:
        """As `Store.vectors`, with all their bits."""
        columns = self._columns(space)
        found = self._found(ids, ["id", f"stored.{space}"])
        self._missing(ids, found)
        contents = [base64.b64decode(found[identifier]["stored"][space]) for identifier in ids]
        halves = [(content[: len(content) // 2], content[len(content) // 2 :]) for content in contents]
        rows = [(np.frombuffer(columns, "<i4"), np.frombuffer(weights, "<f4")) for columns, weights in halves]
        return matrix_of(rows, space, columns)

    def search(
        self, queries: csr_array | np.ndarray, k: int = 10, *, space: Space = "sparse", filter: Filter | None = None
    ) -> Ranking:
        """As `Store.search`; weights of documents are those of `stored_precision`."""
        queries = checked_queries(self.about, self._spaces, queries, k, space, MOST)
        conditions = [] if filter is None else [_condition(filter)]
        hits: list[list[tuple[str, float]]] = []
        for columns, weights in rows_of(queries):
            # A linear query takes no weight above 64; a power of two changes no bit of a score but its exponent.
            scale = 2.0 ** max(0, math.ceil(math.log2(weights.max(initial=1) / HEAVIEST)))
            body = {
                "size": k,
                "query": {
                    "bool": {"must": [self._query(space, _features(columns, weights / scale))], "filter": conditions}
                },
                "sort": [{"_score": "desc"}, {"id": "asc"}],
                "track_scores": True,
                "track_total_hits": False,
                "_source": ["id"],
            }
            found = self._send("POST", "/_search", body)["hits"]["hits"] if len(columns) else []
            hits.append([(hit["_source"]["id"], hit["_score"] * scale) for hit in found])
        return ranking_of(hits, k)

    def optimize(self) -> None:
        """Do nothing: the server merges by itself."""

    def drop(self) -> None:
        """Remove the index."""
        self._send("DELETE", "")

    def __len__(self) -> int:
        return int(self._send("GET", "/_count")["count"])

    @property
    def nbytes(self) -> int:
        """The bytes of the index on disk, without its copies on other nodes."""
        return int(self._send("GET", "/_stats/store")["_all"]["primaries"]["store"]["size_in_bytes"])

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        with self._errors():
            return self._request(method, self._path + path, body)

    def _bulk(self, actions: Sequence[Sequence[dict[str, Any]]]) -> list[Any]:
        """Carry out the actions, wait until a search sees them, and return the result of each."""
        results: list[Any] = []
        for some in parts_of(actions, PAGE):
            results += self._send("POST", "/_bulk", [line for action in some for line in action])["items"]
        for error in (outcome["error"] for result in results for outcome in result.values() if "error" in outcome):
            raise VectorsError(f"{self._place}: {error.get('type')}: {error.get('reason')}")
        self._send("POST", "/_refresh")
        return results

    def _found(self, ids: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
        """What the sources of documents have under these names, by id."""
        found: dict[str, Any] = {}
        for some in parts_of(list(dict.fromkeys(ids)), PAGE):
            body = {"docs": [{"_id": key_of(identifier), "_source": list(names)} for identifier in some]}
            sources = [one["_source"] for one in self._send("POST", "/_mget", body)["docs"] if one.get("found")]
            found |= {source["id"]: source for source in sources}
        return found

    def _mapping(self) -> Any:
        """The mapping of the index; None if there is no index."""
        with self._errors():
            if not self._exists(self._path):
                return None
            [index] = self._request("GET", f"{self._path}/_mapping", None).values()
            return index["mappings"]

    def _meta(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {"vocable": {"spaces": self._spaces, "settings": settings}}

    def _connect(self, server: Server) -> tuple[type[Exception], ...]:
        """Make the driver, and return the kinds of its errors."""
        raise NotImplementedError

    def _exists(self, path: str) -> bool:
        raise NotImplementedError

    def _request(self, method: str, path: str, body: Any) -> Any:
        """What the server answers; a body that is a list travels as lines of JSON."""
        raise NotImplementedError

    def _query(self, space: Space, weights: dict[str, float]) -> dict[str, Any]:
        """The query that adds up the products of these weights and the documents'."""
        raise NotImplementedError


def _features(columns: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    return dict(zip(map(str, columns.tolist()), weights.tolist(), strict=True))


def _refused(document: Document) -> str | None:
    size = len(document.id.encode())
    return f"an id of {size:,} bytes, Lucene stores {LONGEST_ID:,}" if size > LONGEST_ID else None


def _sortable(number: float) -> str:
    """16 hexadecimal digits that are ordered as the numbers are.

    >>> sorted([2.5, -1.0, 0.0, -3.0], key=_sortable)
    [-3.0, -1.0, 0.0, 2.5]
    """
    [bits] = struct.unpack(">Q", struct.pack(">d", number + 0.0))
    return f"{bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63):016x}"


def _condition(filter: Filter) -> dict[str, Any]:
    def leaf(comparison: Comparison) -> dict[str, Any]:
        key = asked(comparison)
        if comparison.operator == "=":
            return {"term": {"equal": key}}
        other = {"gte": key} if "<" in comparison.operator else {"lt": f"{key}g"}  # the other end of this key's numbers
        bound = {RANGES[comparison.operator]: f"{key}{_sortable(bound_of(comparison))}"}
        return {"range": {"order": bound | other}}

    return translated(
        filter,
        leaf,
        lambda parts: {"bool": {"filter": parts}},
        lambda parts: {"bool": {"should": parts, "minimum_should_match": 1}},
        lambda part: {"bool": {"must_not": [part]}},
    )
