"""Milvus: a server, or Milvus Lite in a local folder.

The address is http(s)://HOST:PORT/COLLECTION. For Milvus Lite it is the path of a folder, NAME.db, with the single
collection "vocable". The address or MILVUS_TOKEN has user and password, or a token as the password alone.

Milvus has no empty vectors: each empty vector gets an entry in a spare column, and documents and queries have different
spare columns. So a document without terms is stored, and no search finds it. The key of a document is a hash of its id;
`equal` and `order` are the keys for filters; the settings are a property of the collection.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from vocable.core.tables import masked
from vocable.data import Document
from vocable.engines.addresses import server_of
from vocable.engines.aliases import AliasedStore
from vocable.engines.base import UNBOUNDED, Hits, VectorRow, key_of
from vocable.engines.filter_keys import beyond_64_bits, bound_of, comparison_key, filter_keys, translate
from vocable.engines.filters import Comparison, Filter
from vocable.engines.patience import patience, patiently
from vocable.engines.protocols import About, Space
from vocable.engines.row_store import RowQuery
from vocable.errors import ArgumentError, GoneError, VectorsError, require_extra
from vocable.options import Count, CountOrZero

NO_COLLECTION = 100  # code of an error
LONGEST_TEXT = 65_535  # bytes of a text, or of a document's fields as JSON
MOST_ASKED = 500  # up to this number, terms are counted one by one; a query has fewer, a recount has more
MOST_VALUES = 4_096  # values in the fields of a document, and terms of a vector


@dataclass(frozen=True)
class MilvusOptions:
    """Options of Milvus; the server decides if an option is not set.

    `shards` is the number of shards that share the writes. `replicas` is the number of further copies in memory, for
    searches. `bulk` is the number of documents in a request.
    """

    shards: Count | None = None
    replicas: CountOrZero | None = None
    bulk: Count | None = None


class Milvus(AliasedStore):
    """A collection of Milvus; it writes each request of 1,000 documents completely or not at all."""

    about = About(
        "milvus",
        exact=True,
        max_nonzeros=MOST_VALUES,
        durable=True,
        filters=True,
        spaces=("sparse", "bm25", "dense"),
        options=MilvusOptions,
        of_run=("bulk",),
    )
    max_hits = 16_384
    ties_by_id = False
    joint = "_"  # the only sign besides letters and digits in a name

    def __init__(self, address: str, *, new: bool = False) -> None:
        pymilvus = require_extra("pymilvus", "milvus")
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it would print a traceback of each error
        self.place, self.driver_errors, self._types = masked(address), (pymilvus.MilvusException,), pymilvus.DataType
        if "://" in address:
            server = server_of(address, {"http": 19530, "https": 443})
            self.name, token = server.name, os.environ.get("MILVUS_TOKEN", "")
            if server.password:
                token = f"{server.user}:{server.password}" if server.user else server.password
            login = {"uri": server.url, "token": token}
        else:
            self.name, login = "vocable", {"uri": address}
            if not address.endswith(".db"):
                raise ArgumentError(f"{address}: the folder of Milvus Lite must be named NAME.db")
            require_extra("milvus_lite", "milvus")
            if not new and not Path(address).exists():
                raise VectorsError(f"{address}: there is no such folder")
            if not Path(address).parent.is_dir():
                raise ArgumentError(f"{address}: there is no folder {Path(address).parent}")
        self._counted: dict[Space, tuple[object, Counter[int]]] = {}  # counts of all terms, with version and condition
        self._client = super()._ask(lambda: pymilvus.MilvusClient(**login))

    def _ask(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Call the driver, which itself repeats requests until its timeout."""
        if getattr(call, "__self__", None) is self._client:
            named["timeout"] = patience()
        return super()._ask(call, *given, **named)

    def _refusal(self, error: Exception) -> VectorsError | None:
        if getattr(error, "code", None) != NO_COLLECTION:
            return None
        return GoneError(f"{self.place}: there is no {self.kind} {self.name!r} here: it was deleted")

    def _wait(self, error: Exception) -> float | None:
        spent = any(words in str(error) for words in ("Retry timeout", "Retry run out"))
        return math.inf if spent else None

    def _make(self, record: Mapping[str, Any]) -> None:
        types, client = self._types, self._client
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        indexes = client.prepare_index_params()
        schema.add_field("key", types.VARCHAR, is_primary=True, max_length=32)
        for name in ("id", "title", "text"):
            schema.add_field(name, types.VARCHAR, max_length=LONGEST_TEXT)
        for name in ("fields", "order"):
            schema.add_field(name, types.JSON)
        schema.add_field("equal", types.ARRAY, element_type=types.VARCHAR, max_capacity=MOST_VALUES, max_length=24)
        for space, columns in self.spaces.items():
            if space == "dense":
                schema.add_field(space, types.FLOAT_VECTOR, dim=columns)
            else:
                schema.add_field(space, types.SPARSE_FLOAT_VECTOR)
                schema.add_field(f"{space}_terms", types.ARRAY, element_type=types.INT64, max_capacity=MOST_VALUES)
            kind = "FLAT" if space == "dense" else "SPARSE_INVERTED_INDEX"
            indexes.add_index(space, index_type=kind, metric_type="IP")
        self._ask(
            client.create_collection,
            self.name,
            schema=schema,
            index_params=indexes,
            consistency_level="Strong",
            properties={"vocable": json.dumps(record)},
            **({} if self.options.shards is None else {"num_shards": self.options.shards}),
        )
        for space in self.spaces:
            if space != "dense":
                self._index_terms(f"{space}_terms")
        if self.options.replicas:  # the collection is already loaded for searches, without further copies
            self._ask(client.release_collection, self.name)
            self._load(record)

    def _index_terms(self, name: str) -> None:
        """Index the terms' columns for counting documents; Milvus Lite has no such index, and scans the columns."""
        indexes = self._client.prepare_index_params()
        indexes.add_index(name, index_type="INVERTED")
        try:
            self._ask(self._client.create_index, self.name, indexes)
        except VectorsError as error:
            if "does not support scalar index" not in str(error):
                raise

    def _exists(self) -> bool:
        return bool(self._ask(self._client.has_collection, self.name))

    def _named(self, name: str) -> str | None:
        if not self._client.has_collection(name):
            return None
        return str(self._client.describe_collection(name)["collection_name"])

    def _names_from(self, start: str) -> list[str]:
        return [str(name) for name in self._client.list_collections() if name.startswith(start)]

    def _take_name(self, name: str) -> None:
        """Point the alias at this collection; if a collection itself has the name, remove that collection first."""
        holder = self._named(name)
        if holder == name:
            self._client.drop_collection(name)
        change = self._client.create_alias if holder in (None, name) else self._client.alter_alias
        change(self.name, name)

    @classmethod
    def numbered(cls, address: str, number: int) -> str:
        if "://" not in address:
            raise ArgumentError("replace is for servers, not for Milvus Lite: index to another folder")
        return super().numbered(address, number)

    def _read_record(self) -> Mapping[str, Any]:
        record = self._described()
        with patiently():  # loading a collection into memory takes longer than a search
            self._load(record)
        return record

    def version(self) -> object:
        return self._described().get("version")

    def _described(self) -> Mapping[str, Any]:
        """Return the record of the collection, even if it is not loaded for searches."""
        described = self._ask(self._client.describe_collection, self.name)
        return json.loads(described["properties"]["vocable"])

    def _load(self, record: Mapping[str, Any]) -> None:
        replicas = record["settings"].get("engine_options", {}).get("replicas")
        self._ask(self._client.load_collection, self.name, **({"replica_number": replicas + 1} if replicas else {}))

    def _write_record(self, record: Mapping[str, object]) -> None:
        self._ask(self._client.alter_collection_properties, self.name, properties={"vocable": json.dumps(record)})

    def _refuse(self, document: Document) -> str | None:
        for name, text in (document._asdict() | {"fields": json.dumps(dict(document.fields))}).items():
            if (size := len(text.encode())) > LONGEST_TEXT:
                return f"its {name} has {size:,} bytes, Milvus stores {LONGEST_TEXT:,}"
        if (count := len(filter_keys(document.fields).equal)) > MOST_VALUES:
            return f"its fields have {count:,} values, Milvus stores {MOST_VALUES:,}"
        return "Milvus rounds whole numbers beyond 64 bits" if beyond_64_bits(document.fields) else None

    def _write(self, documents: Sequence[Document], rows: Sequence[Sequence[VectorRow]]) -> None:
        entries = [
            document._asdict()
            | {"key": key_of(document.id), "fields": dict(document.fields)}
            | filter_keys(document.fields)._asdict()
            | {space: self._vector(row, space, 0) for space, row in zip(self.spaces, vectors, strict=True)}
            | {
                f"{space}_terms": row[0].tolist()
                for space, row in zip(self.spaces, vectors, strict=True)
                if space != "dense"
            }
            for document, vectors in zip(documents, rows, strict=True)
        ]
        self._ask(self._client.upsert, self.name, entries)

    def _delete(self, ids: Sequence[str]) -> int:
        existing = list(self._entries(ids, ["id"]))
        if existing:
            self._ask(self._client.delete, self.name, filter=_among(existing))
        return len(existing)

    def _documents(self, ids: Sequence[str]) -> dict[str, Document]:
        entries = self._entries(ids, Document._fields).items()
        return {i: Document(*(entry[name] for name in Document._fields)) for i, entry in entries}

    def _rows(self, ids: Sequence[str], space: Space) -> dict[str, VectorRow]:
        vectors = {name: entry[space] for name, entry in self._entries(ids, ["id", space]).items()}
        if space == "dense":
            return vectors
        spare, rows = self.spaces[space] or UNBOUNDED, {}
        for name, weights in vectors.items():
            kept = {int(column): weight for column, weight in weights.items() if int(column) < spare}
            rows[name] = list(kept), list(kept.values())
        return rows

    def ids(self) -> Iterator[str]:
        return (entry["id"] for entry in self._scan("id"))

    def _scan(self, column: str, passing: str = "") -> Iterator[Mapping[str, Any]]:
        """Iterate over the entries of all documents that pass a condition, with one of their columns."""
        options = {"batch_size": self.page, "filter": passing, "output_fields": [column]}
        iterator = self._ask(self._client.query_iterator, self.name, **options)
        while entries := self._ask(iterator.next):
            yield from entries
        iterator.close()

    def _query(self, queries: Sequence[RowQuery]) -> Iterator[Hits]:
        # A request has one space, k and filter.
        for (space, k, filter), alike in groupby(queries, key=lambda query: (query.space, query.k, query.filter)):
            answers = self._ask(
                self._client.search,
                self.name,
                [self._vector(query.row, space, 1) for query in alike],
                anns_field=space,
                limit=k,
                filter="" if filter is None else _condition(filter),
                output_fields=["id"],
                search_params={"metric_type": "IP", "params": {"drop_ratio_search": 0.0}},
            )
            yield from ([(hit["entity"]["id"], hit["distance"]) for hit in hits] for hits in answers)

    def _count_terms(
        self, columns: Sequence[int], space: Space, filter: Filter | None
    ) -> tuple[Mapping[int, int], int]:
        """Count documents by an array of their terms' columns: Milvus cannot filter by a sparse vector."""
        passing = "" if filter is None else _condition(filter)
        if "://" not in self.place or len(columns) > MOST_ASKED:
            return self._all_counts(space, passing), self._count_where(passing)
        within = f" and {passing}" if passing else ""
        conditions = {column: f"array_contains({space}_terms, {column}){within}" for column in columns}
        counts = {column: self._count_where(condition) for column, condition in conditions.items()}
        return counts, self._count_where(passing)

    def _all_counts(self, space: Space, passing: str) -> Mapping[int, int]:
        """Count all terms of the documents that pass a condition by reading all arrays, once for each version.

        Milvus Lite would otherwise scan the arrays once for each term. On a server, only a recount has enough terms for
        this.
        """
        version, cached = self.version(), self._counted.get(space)
        if cached is None or version is None or cached[0] != (version, passing):
            counts = Counter[int]()
            for entry in self._scan(f"{space}_terms", passing):
                counts.update(map(int, entry[f"{space}_terms"]))
            cached = self._counted[space] = (version, passing), counts
        return cached[1]

    def optimize(self) -> None:
        """Put added documents into new segments, and remove deleted documents from the segments."""
        self._ask(self._client.flush, self.name)

    def close(self) -> None:
        self._client.close()

    def drop(self) -> None:
        """Remove the collection, and the folder of Milvus Lite."""
        self._ask(self._client.drop_collection, self.name)
        if "://" not in self.place:
            self._client.close()
            shutil.rmtree(self.place)

    def __len__(self) -> int:
        return self._count_where("")

    def count(self, filter: Filter) -> int:
        return self._count_where(_condition(filter))

    def _count_where(self, condition: str) -> int:
        [entry] = self._ask(self._client.query, self.name, filter=condition, output_fields=["count(*)"])
        return int(entry["count(*)"])

    @property
    def nbytes(self) -> int | None:
        """Size of the files of Milvus Lite; a server does not report it."""
        files = () if "://" in self.place else Path(self.place).rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file()) or None

    def _vector(self, row: VectorRow, space: Space, spare: int) -> Any:
        """Return the row in the driver's form; an empty row gets an entry in a spare column."""
        if space == "dense":
            return row.tolist()
        return dict(zip(row[0].tolist(), row[1].tolist(), strict=True)) or {
            (self.spaces[space] or UNBOUNDED) + spare: 1.0
        }

    def _entries(self, ids: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
        """Return the entries of documents by id."""
        entries = self._ask(self._client.query, self.name, filter=_among(ids), output_fields=list(columns))
        return {entry["id"]: entry for entry in entries}


ENGINE = Milvus


def _among(ids: Sequence[str]) -> str:
    return f"key in {json.dumps([key_of(identifier) for identifier in ids])}"


def _condition(filter: Filter) -> str:
    """Return the filter as a Milvus expression that contains only digests and numbers."""

    def leaf(comparison: Comparison) -> str:
        if comparison.keyed:
            return f'array_contains(equal, "{comparison_key(comparison)}")'
        key = f'order["{comparison_key(comparison)}"]'
        # Without `exists`, negating a comparison with a missing value would be neither true nor false.
        return f"(exists {key} and {key} {comparison.operator} {bound_of(comparison)!r})"

    def joined(word: str) -> Callable[[list[str]], str]:
        return lambda parts: f"({f' {word} '.join(parts)})"

    return translate(filter, leaf, joined("and"), joined("or"), lambda part: f"not {part}")
