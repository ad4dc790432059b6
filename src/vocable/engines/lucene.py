"""The common part of Elasticsearch and OpenSearch: the index, its documents, and filters.

The id in the index is a hash of the document's id. The source has id, title, text and fields, the keys for filters
(`equal` and `order`, keywords), the vectors as features named by their columns, and the vectors with all their bits in
`stored`. The engine's own queries can search title and text. The settings are in the mapping's `_meta`.

Lucene keeps the 9 highest of the 24 significant bits of a weight, and scores with 9 bits.

The server answers from the available shards, and reports their number in `_shards`: this module checks each answer.
"""

from __future__ import annotations

import math
import re
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np

from vocable.core.tables import masked
from vocable.data import Document
from vocable.engines.addresses import Server, servers_of
from vocable.engines.aliases import AliasedStore
from vocable.engines.base import Hits, VectorRow, Vectors, key_of, pages
from vocable.engines.filter_keys import filter_keys
from vocable.engines.filters import Filter
from vocable.engines.health import attempt, others
from vocable.engines.kept_counts import Asked, Counted
from vocable.engines.lucene_answers import (
    FOREIGN,
    FOREIGN_ERRORS,
    changed_mapping,
    complete,
    left_out,
    passes,
    reason_of,
    refusal_of,
    unreached,
)
from vocable.engines.lucene_filters import condition_of, sortable
from vocable.engines.lucene_options import LuceneSearchOptions
from vocable.engines.lucene_searches import ANSWERED, Body, count_body, counted_in, hits_of, indexes_of, search_body
from vocable.engines.lucene_vectors import DENSE_ZERO, dense_scale, features, packed, unpacked
from vocable.engines.patience import SHARD_SECONDS, request, seconds_left
from vocable.engines.protocols import Space
from vocable.engines.row_store import RowQuery
from vocable.engines.server import BusyError
from vocable.errors import ArgumentError, GoneError, UnavailableError, VectorsError

LONGEST_ID = 32_766  # bytes of a keyword field
MAX_QUERY_WEIGHT = 64  # largest weight of a term in a linear query
PORTS = {"http": 9200, "https": 9200}
TERMS_ASKED = 1_000  # terms whose documents are counted in one request
AVOID_SECONDS = 30.0  # during which nodes are avoided among which one hung
FORBIDDEN_NAMES = r'[A-Z\\/*?"<>| ,#:]|^[-_+.]'  # in an invalid name of an index: the server's message is unclear


class LuceneStore(AliasedStore):
    """An index on a server that uses Lucene; a subclass adds the driver and the queries."""

    page = 512
    max_hits = 10_000  # index.max_result_window
    kind = "index"
    signed = True
    search_options = LuceneSearchOptions()
    feature: ClassVar[str]  # type of the field with the weighted terms
    _preferred = "", 0.0  # the nodes to ask, and until when
    _hangs = 0  # second requests so far
    _index = ""  # the index whose record was last read
    state: ClassVar[tuple[str, str]]  # parameters of a request for the mapping: for reading, for writing

    def __init__(self, address: str, *, new: bool = False) -> None:
        servers = servers_of(address, PORTS)
        self.place, self.name = masked(address), servers[0].name
        if re.search(FORBIDDEN_NAMES, self.name):
            allowed = "lower-case letters, digits, -, _ and . (first a letter or digit)"
            raise ArgumentError(f"{self.place}: the name of an index has {allowed}: {self.name.lower()!r}, for example")
        self.driver_errors = self._connect(servers)

    @property
    def _path(self) -> str:
        return f"/{quote(self.name, safe='')}"

    @abstractmethod
    def _connect(self, servers: Sequence[Server]) -> tuple[type[Exception], ...]:
        """Create the driver for the nodes of a cluster, and return the types of its errors."""

    @abstractmethod
    def _request(self, method: str, path: str, body: object, *, missing: object = None) -> Any:
        """Send a request, and return the answer; send a body that is a list as lines of JSON.

        If the index does not exist, return `missing` if it is given.
        """

    @abstractmethod
    def _query_of(self, space: Space, weights: dict[str, float]) -> Mapping[str, object]:
        """Return the query that scores by the dot product with these weights."""

    @abstractmethod
    def _dense_field(self, dimensions: int) -> Mapping[str, object]:
        """Return the mapping of the field with the dense vectors, as the option `dense` demands."""

    def _dense_settings(self) -> dict[str, object]:
        """Return the settings that an index with dense vectors needs."""
        return {}

    @abstractmethod
    def _dense_query(
        self, vector: Sequence[float], k: int, conditions: Sequence[Mapping[str, object]]
    ) -> Mapping[str, object]:
        """Return the query that scores documents by the inner product with a vector, plus `DENSE_ZERO`.

        A negative product may get any score below `DENSE_ZERO`.
        """

    @property
    def partial(self) -> bool:
        return bool(self.search_options.partial)

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
        } | {space: {"type": self.feature} for space in self.spaces if space != "dense"}
        mappings = {"dynamic": False, "_meta": {"vocable": record}, "properties": properties}
        settings = {"shards": "number_of_shards", "replicas": "number_of_replicas", "refresh": "refresh_interval"}
        given = {
            setting: value for name, setting in settings.items() if (value := getattr(self.options, name)) is not None
        }
        if dimensions := self.spaces.get("dense"):
            properties["dense"] = self._dense_field(dimensions)
            given |= self._dense_settings()
        elif self.options.dense != "exact":
            raise ArgumentError(f"dense={self.options.dense}: the collection has no dense vectors")
        self._send("PUT", "", {"mappings": mappings} | ({"settings": {"index": given}} if given else {}))
        [index] = self._ask(self._mappings, self._path).values()
        if changes := ", ".join(changed_mapping(mappings, index["mappings"])):
            self.drop()
            raise VectorsError(
                f"{self.place}: an index template changes {changes}: exempt this index from the template"
            )

    def _read_record(self) -> Mapping[str, Any]:
        mappings = self._ask(self._mappings, self._path)
        if len(mappings) > 1:
            indexes = ", ".join(sorted(mappings))
            raise VectorsError(
                f"{self.place}: {self.name!r} is an alias of {len(mappings)} indexes: name one of {indexes}"
            )
        if not mappings:
            raise GoneError(f"{self.place}: there is no {self.kind} {self.name!r} here: it was deleted")
        [(self._index, index)] = mappings.items()
        return index["mappings"]["_meta"]["vocable"]

    def _opened_as(self) -> str:
        return self._index

    def _mappings(self, path: str) -> dict[str, Any]:
        """Return the mappings of the index or alias with this path, by index; {} if there is neither.

        A read takes the mappings of the node that it asks: a cluster without most of its nodes has no other state.
        """
        return self._request("GET", f"{path}/_mapping?{self.state[request().writing]}", None, missing={})

    def _write_record(self, record: Mapping[str, object]) -> None:
        self._send("PUT", "/_mapping", {"_meta": {"vocable": record}})

    def _refuse(self, document: Document) -> str | None:
        size = len(document.id.encode())
        return f"an id of {size:,} bytes, Lucene stores {LONGEST_ID:,}" if size > LONGEST_ID else None

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        super().upsert(documents, vectors)
        self._refresh()

    def delete(self, ids: Sequence[str]) -> int:
        count = super().delete(ids)
        self._refresh()
        return count

    def _refresh(self) -> None:
        """Let searches see the written documents, unless the server refreshes at an interval."""
        if self.options.refresh is None:
            self.optimize()

    def _write(self, documents: Sequence[Document], rows: Sequence[Sequence[VectorRow]]) -> None:
        actions = dict[str, list[Mapping[str, object]]]()
        for document, vectors in zip(documents, rows, strict=True):
            equal, order = filter_keys(document.fields)
            source = document._asdict() | {"fields": dict(document.fields), "equal": equal, "stored": {}}
            source["order"] = [f"{key}{sortable(number)}" for key, number in order.items()]
            for space, row in zip(self.spaces, vectors, strict=True):
                source[space] = row.tolist() if isinstance(row, np.ndarray) else features(*row)
                source["stored"][space] = packed(row)
            actions[document.id] = [{"index": {"_id": key_of(document.id)}}, source]
        self._bulk(actions)

    def _delete(self, ids: Sequence[str]) -> int:
        results = self._bulk({identifier: [{"delete": {"_id": key_of(identifier)}}] for identifier in ids})
        return results.count("deleted")

    def _documents(self, ids: Sequence[str]) -> dict[str, Document]:
        return {name: Document(**source) for name, source in self._sources(ids, Document._fields).items()}

    def _rows(self, ids: Sequence[str], space: Space) -> dict[str, VectorRow]:
        sources = self._sources(ids, ["id", f"stored.{space}"])
        return {name: unpacked(source["stored"][space], space) for name, source in sources.items()}

    def ids(self) -> Iterator[str]:
        body: dict[str, object] = {"size": self.max_hits, "sort": [{"id": "asc"}], "_source": ["id"]}
        while hits := self._whole("POST", "/_search", body)["hits"]["hits"]:
            yield from (hit["_source"]["id"] for hit in hits)
            body["search_after"] = hits[-1]["sort"]

    def _query(self, queries: Sequence[RowQuery]) -> Iterator[Hits]:
        bodies, names = [self._body(*query) for query in queries], {self.name}
        answers = self._asked([body.asked for body in bodies])
        names.add(self.name)  # another thread may have moved to a replacement
        if not names.issuperset(chain.from_iterable(map(indexes_of, answers))):
            raise self._replaced()
        return map(hits_of, bodies, answers)

    def _body(self, row: VectorRow, k: int, space: Space, filter: Filter | None, needed: int) -> Body:
        """Return the body of a search whose hits share the `needed` number of terms with a query."""
        conditions = [] if filter is None else [condition_of(filter)]
        if isinstance(row, np.ndarray):
            scale = dense_scale(row)
            query = self._dense_query((row / scale).tolist(), k, conditions)
            return Body(search_body(query, k) if row.any() else None, scale, DENSE_ZERO)
        # A linear query takes weights up to 64; division by a power of two changes only a score's exponent.
        scale = 2.0 ** max(0, math.ceil(math.log2(row[1].max(initial=1) / MAX_QUERY_WEIGHT)))
        weighted = self._query_of(space, features(row[0], row[1] / scale))
        if needed > 1:
            terms = [self._query_of(space, {str(column): 1.0}) for column in row[0].tolist()]
            conditions.append({"bool": {"should": terms, "minimum_should_match": needed}})
        query = {"bool": {"must": [weighted], "filter": conditions}}
        return Body(search_body(query, k) if len(row[0]) else None, scale)

    def _count_terms(
        self, columns: Sequence[int], space: Space, filter: Filter | None
    ) -> tuple[Mapping[int, int], int]:
        return self._count_all([Asked(columns, space, filter)])[0]

    def _count_all(self, asked: Sequence[Asked]) -> list[Counted]:
        bodies, parts = list[Mapping[str, object]](), list[int]()
        for columns, space, filter in asked:
            condition = None if filter is None else condition_of(filter)
            of_one: list[Mapping[str, object]] = [
                count_body({str(column): self._query_of(space, {str(column): 1.0}) for column in part}, condition)
                for part in (pages(columns, TERMS_ASKED) if columns else [()])
            ]
            bodies, parts = bodies + of_one, [*parts, len(of_one)]
        answers = iter(self._asked(bodies))
        return [counted_in(islice(answers, count)) for count in parts]

    def _named(self, name: str) -> str | None:
        return next(iter(self._mappings(f"/{quote(name, safe='')}")), None)

    def _names_from(self, start: str) -> list[str]:
        return list(self._mappings(f"/{quote(start, safe='')}*"))

    def _take_name(self, name: str) -> None:
        holder = self._named(name)
        actions: list[object] = [{"add": {"index": self.name, "alias": name}}]
        if holder is not None:
            index = {"index": holder}
            actions[:0] = [{"remove_index": index} if holder == name else {"remove": index | {"alias": name}}]
        self._request("POST", "/_aliases", {"actions": actions})

    def _exists(self) -> bool:
        return bool(self._ask(self._mappings, self._path))

    def optimize(self) -> None:
        """Let searches see the written documents; the server merges segments by itself."""
        len(self)  # raises for a lost shard at once; a refresh would wait a minute for it
        answer = self._send("POST", "/_refresh")
        if answer["_shards"]["failed"]:
            raise UnavailableError(f"{self.place}: {left_out(answer, self.name)}")

    def drop(self) -> None:
        self._send("DELETE", "")

    def __len__(self) -> int:
        return int(self._whole("GET", "/_count")["count"])

    def count(self, filter: Filter) -> int:
        return int(self._whole("POST", "/_count", {"query": condition_of(filter)})["count"])

    @property
    def nbytes(self) -> int:
        """Size of the index on disk, without replicas."""
        len(self)  # raises an error while a shard is missing
        return int(self._send("GET", "/_stats/store")["_all"]["primaries"]["store"]["size_in_bytes"])

    def _send(self, method: str, path: str, body: object = None) -> Any:
        return self._ask(self._request, method, self._path + path, body)

    def _read(self, method: str, path: str, body: object) -> Any:
        """Send a request that any copy of a shard answers; a second request avoids nodes, since one of them hangs."""
        (preference, until), now, number = self._preferred, time.monotonic(), attempt.get()
        if number:
            nodes = f"/_cluster/state/nodes?{self.state[0]}&filter_path=nodes.*.name"
            self._hangs += 1
            asked = others(sorted(self._request("GET", nodes, None)["nodes"]), self._hangs)
            preference, until = f"_prefer_nodes:{','.join(asked)}" if asked else "", now + AVOID_SECONDS
        if preference and now < until:
            if isinstance(body, list):  # of _msearch: each search has a line before it
                body = [line or {"preference": preference} for line in body]
            else:
                path += f"{'&' if '?' in path else '?'}preference={preference}"
        answer = self._request(method, self._path + path, body)
        if number:
            self._preferred = preference, until
        return complete(answer, path, f"{self.place}: ")

    def _whole(self, method: str, path: str, body: object = None) -> Any:
        """Return an answer from all shards; raise `UnavailableError` if a shard stays unavailable."""

        def send() -> Any:
            answer = self._read(method, path, body)
            if lacking := left_out(answer, self.name):
                if self.partial and not request().writing:  # do not wait for the other shards
                    raise UnavailableError(f"{self.place}: {lacking}")
                raise BusyError(lacking)
            return answer

        return self._ask(send)

    def _asked(self, bodies: Sequence[Mapping[str, object] | None]) -> list[Mapping[str, Any]]:
        """Return the answers to searches in one request, empty without a body.

        Only searches with the option `partial` may lack shards.
        """

        def send() -> list[Mapping[str, Any]]:
            limit = {"timeout": f"{1000 * seconds_left():.0f}ms"}
            lines = [line for body in bodies if body is not None for line in ({}, {**body, **limit})]
            answers: list[Mapping[str, Any]] = self._read("POST", f"/_msearch?{ANSWERED}", lines)["responses"]
            for answer in answers:
                if error := answer.get("error"):
                    status = int(answer.get("status", 500))
                    refused = self._refused(status, error)
                    if passes(status) and not refused:
                        raise BusyError(f"{status} {reason_of(error)}")
                    raise refused or VectorsError(f"{self.place}: {status} {reason_of(error)}")
                if not self.partial and (lacking := left_out(answer, self.name)):
                    raise BusyError(lacking)
            return answers

        answered = self._ask(send) if any(bodies) else []
        for answer in answered:  # here, since a second request is another thread's
            if lacking := left_out(answer, self.name):
                self.note_missing(lacking)
        answers = iter(answered)
        return [{} if body is None else next(answers) for body in bodies]

    def _bulk(self, actions: Mapping[str, Sequence[Mapping[str, object]]]) -> list[str]:
        """Carry out actions, given as lines by document id, and return their results.

        If the server is too busy for an action, or its shard is unavailable, that action alone is sent again.

        Raises:
            UnavailableError: actions are left when the patience is over; the error has the ids of their documents.
            VectorsError: the server refuses an action; the message has the document and the reason.
        """
        left = {key_of(identifier): identifier for identifier in actions}
        results = list[str]()

        def send() -> None:
            lines = [line for identifier in left.values() for line in actions[identifier]]
            reason = "no result"
            path = f"{self._path}/_bulk?timeout={SHARD_SECONDS}s"
            for item in complete(self._request("POST", path, lines), path, f"{self.place}: ")["items"]:
                [result] = item.values()
                error = result.get("error") or {}
                if "cluster_block" in error.get("type", "") or (error and not passes(result["status"])):
                    document = f"document {left[result['_id']]!r}" if result["_id"] in left else result["_id"]
                    raise self._refused(result["status"], error) or VectorsError(
                        f"{self.place}: {document}: {reason_of(error)}"
                    )
                if error:
                    reason = reason_of(error)
                elif left.pop(result["_id"], None) is not None:
                    results.append(result["result"])
            if left:
                raise BusyError(f"{len(left)} of {len(actions)} documents of a request: {reason}")

        try:
            self._ask(send)
        except UnavailableError as error:
            error.unwritten = list(left.values())
            raise
        return results

    def _reason(self, error: Exception) -> str:
        if type(error).__name__ in FOREIGN_ERRORS:
            return FOREIGN
        status, content = self._answered(error)
        return f"{status} {reason_of(content)}" if content else unreached(str(error))

    def _refusal(self, error: Exception) -> VectorsError | None:
        return self._refused(*self._answered(error))

    def _refused(self, status: int | None, error: Mapping[str, Any]) -> VectorsError | None:
        return refusal_of(status, error, f"{self.place}: ", self.name)

    @abstractmethod
    def _answered(self, error: Exception) -> tuple[int | None, Mapping[str, Any]]:
        """Return the status and the error in the answer behind a driver's error; None and {} without an answer."""

    def _sources(self, ids: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the named parts of the documents' sources by id."""
        body = {"docs": [{"_id": key_of(identifier), "_source": list(names)} for identifier in ids]}

        def send() -> list[Mapping[str, Any]]:
            path = "/_mget?filter_path=docs._source,docs.found,docs.error"
            entries: list[Mapping[str, Any]] = self._read("POST", path, body)["docs"]
            if errors := [entry["error"] for entry in entries if "error" in entry]:
                kept = f"{len(errors)} of {len(ids)} documents cannot be read, their shards are not available"
                raise self._refused(404, errors[0]) or BusyError(f"{kept} ({errors[0].get('type')})")
            return entries

        sources = [entry["_source"] for entry in self._ask(send) if entry.get("found")]
        return {source["id"]: source for source in sources}
