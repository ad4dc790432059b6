"""Milvus: a server, or Milvus Lite in a folder of this machine.

The address is http(s)://HOST:PORT/COLLECTION, or for Milvus Lite the path of a folder, NAME.db, which holds one
collection, "vocable". User and password, or a token as the password alone, stand in the address or in MILVUS_TOKEN.

Milvus has no empty vectors: each gets an entry in a column that nothing else has, one for documents and one for
queries, so that a document without a term is kept and is never a hit. The key of a document is made of its id; `equal`
and `order` are the facts that filters ask for; the settings are a property of the collection.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.errors import ArgumentError, VectorsError, require_extra
from vocable.retrieval.engines.base import (
    UNBOUNDED,
    CommonStore,
    asked,
    beyond_64_bits,
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

PAGE = 1_000  # documents, or queries, of one request
MOST = 16_384  # hits of a query
LONGEST = 65_535  # bytes of a text or of fields
MOST_FACTS = 4_096  # values in the fields of a document


class Milvus(CommonStore):
    """A collection of Milvus."""

    about = About("milvus", exact=True, durable=True, filters=True, spaces=("sparse", "bm25", "dense"))

    def __init__(self, address: str, *, new: bool = False) -> None:
        pymilvus = require_extra("pymilvus", "milvus")
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # which prints tracebacks of what is raised, too
        self._place, self._kinds, self._types = masked(address), (pymilvus.MilvusException,), pymilvus.DataType
        if "://" in address:
            server = server_of(address, {"http": 19530, "https": 443})
            self.name, token = server.name, os.environ.get("MILVUS_TOKEN", "")
            if server.password:
                token = f"{server.user}:{server.password}" if server.user else server.password
            given = {"uri": server.url, "token": token}
        else:
            self.name, given = "vocable", {"uri": address}
            if not address.endswith(".db"):
                raise ArgumentError(f"{address}: the folder of Milvus Lite is called NAME.db")
            require_extra("milvus_lite", "milvus")
            if not new and not Path(address).exists():
                raise VectorsError(f"{address}: there is no such folder")
            if not Path(address).parent.is_dir():
                raise ArgumentError(f"{address}: there is no folder {Path(address).parent}")
        with self._errors():
            self._client = pymilvus.MilvusClient(**given)

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, Any]) -> Self:
        """As `Store.create`."""
        store = cls(address, new=True)
        with store._closed_on_error():
            types, client, store._spaces = store._types, store._client, dict(spaces)
            with store._errors():
                if client.has_collection(store.name):
                    raise ArgumentError(f"{store._place}: there is a collection {store.name!r} already: name another")
                schema, indexes = (
                    client.create_schema(auto_id=False, enable_dynamic_field=False),
                    client.prepare_index_params(),
                )
                schema.add_field("key", types.VARCHAR, is_primary=True, max_length=32)
                for name in ("id", "title", "text"):
                    schema.add_field(name, types.VARCHAR, max_length=LONGEST)
                for name in ("fields", "order"):
                    schema.add_field(name, types.JSON)
                schema.add_field(
                    "equal", types.ARRAY, element_type=types.VARCHAR, max_capacity=MOST_FACTS, max_length=24
                )
                for space, columns in spaces.items():
                    if space == "dense":
                        schema.add_field(space, types.FLOAT_VECTOR, dim=columns)
                    else:
                        schema.add_field(space, types.SPARSE_FLOAT_VECTOR)
                    kind = "FLAT" if space == "dense" else "SPARSE_INVERTED_INDEX"
                    indexes.add_index(space, index_type=kind, metric_type="IP")
                client.create_collection(
                    store.name,
                    schema=schema,
                    index_params=indexes,
                    consistency_level="Strong",
                    properties=store._properties(settings),
                )
            store.settings = settings
            return store

    @classmethod
    def open(cls, address: str) -> Self:
        """As `Store.open`."""
        store = cls(address)
        with store._closed_on_error():
            with store._errors():
                if not store._client.has_collection(store.name):
                    raise VectorsError(f"{store._place}: there is no collection {store.name!r} here")
                properties = store._client.describe_collection(store.name)["properties"]
                store._take(lambda: json.loads(properties["vocable"]), f"the collection {store.name!r}")
                store._client.load_collection(store.name)
            return store

    def configure(self, settings: dict[str, Any]) -> None:
        """As `Store.configure`."""
        with self._errors():
            self._client.alter_collection_properties(self.name, properties=self._properties(settings))
        self.settings = settings

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, csr_array | np.ndarray]) -> None:
        """As `Store.upsert`; each request of 1,000 documents is written as a whole."""
        documents, vectors = checked(self.about, self._spaces, documents, vectors, _refused)
        rows = zip(*(rows_of(vectors[space]) for space in self._spaces), strict=True)
        entries = [
            document._asdict()
            | {"key": key_of(document.id), "fields": dict(document.fields)}
            | facts_of(document.fields)._asdict()
            | {
                space: self._vector(row, space, self._spaces[space] or UNBOUNDED)
                for space, row in zip(self._spaces, vector, strict=True)
            }
            for document, vector in zip(documents, rows, strict=True)
        ]
        with self._errors():
            for some in parts_of(entries, PAGE):
                self._client.upsert(self.name, some)

    def delete(self, ids: Sequence[str]) -> int:
        """As `Store.delete`."""
        there = list(self._found(ids, ["id"]))
        with self._errors():
            for some in parts_of(there, PAGE):
                self._client.delete(self.name, filter=_among(some))
        return len(there)

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """As `Store.documents`."""
        found = self._found(ids, Document._fields)
        read = {i: Document(*(entry[name] for name in Document._fields)) for i, entry in found.items()}
        return [read.get(identifier) for identifier in ids]

    def ids(self) -> Iterator[str]:
        """As `Store.ids`, in no order."""
        with self._errors():
            pages = self._client.query_iterator(self.name, batch_size=PAGE, output_fields=["id"])
        while True:
            with self._errors():
                page = pages.next()
            if not page:
                break
            yield from (entry["id"] for entry in page)
        pages.close()

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> csr_array | np.ndarray:
        """As `Store.vectors`."""
        columns = self._columns(space)
        found = self._found(ids, ["id", space])
        self._missing(ids, found)
        rows = [found[identifier][space] for identifier in ids]
        if space != "dense":
            spare = columns or UNBOUNDED
            pairs = [[(int(column), weight) for column, weight in row.items() if int(column) < spare] for row in rows]
            rows = [([column for column, _ in row], [weight for _, weight in row]) for row in pairs]
        return matrix_of(rows, space, columns)

    def search(
        self, queries: csr_array | np.ndarray, k: int = 10, *, space: Space = "sparse", filter: Filter | None = None
    ) -> Ranking:
        """As `Store.search`."""
        queries = checked_queries(self.about, self._spaces, queries, k, space, MOST)
        condition = "" if filter is None else _condition(filter)
        vectors = [self._vector(row, space, (self._spaces[space] or UNBOUNDED) + 1) for row in rows_of(queries)]
        hits: list[list[tuple[str, float]]] = []
        with self._errors():
            for some in parts_of(vectors, PAGE):
                found = self._client.search(
                    self.name,
                    some,
                    anns_field=space,
                    limit=k,
                    filter=condition,
                    output_fields=["id"],
                    search_params={"metric_type": "IP", "params": {"drop_ratio_search": 0.0}},
                )
                hits += [[(hit["entity"]["id"], hit["distance"]) for hit in one] for one in found]
        return ranking_of(hits, k)

    def optimize(self) -> None:
        """Put what was added into segments of their own, and what was deleted out of them."""
        with self._errors():
            self._client.flush(self.name)

    def close(self) -> None:
        """As `Store.close`."""
        self._client.close()

    def drop(self) -> None:
        """Remove the collection; of Milvus Lite its folder, too."""
        with self._errors():
            self._client.drop_collection(self.name)
            if "://" not in self._place:
                self._client.close()
                shutil.rmtree(self._place)

    def __len__(self) -> int:
        with self._errors():
            return int(self._client.query(self.name, output_fields=["count(*)"])[0]["count(*)"])

    @property
    def nbytes(self) -> int | None:
        """The bytes of the files of Milvus Lite; None of a server, which does not tell."""
        files = () if "://" in self._place else Path(self._place).rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file()) or None

    def _properties(self, settings: dict[str, Any]) -> dict[str, str]:
        return {"vocable": json.dumps({"spaces": self._spaces, "settings": settings})}

    def _vector(self, row: Any, space: Space, spare: int) -> Any:
        """The row in the driver's form; an empty one has an entry in the column `spare`."""
        if space == "dense":
            return row.tolist()
        return dict(zip(row[0].tolist(), row[1].tolist(), strict=True)) or {spare: 1.0}

    def _found(self, ids: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
        """The entries of documents by id."""
        with self._errors():
            entries = [
                entry
                for some in parts_of(list(dict.fromkeys(ids)), PAGE)
                for entry in self._client.query(self.name, filter=_among(some), output_fields=list(columns))
            ]
        return {entry["id"]: entry for entry in entries}


def _refused(document: Document) -> str | None:
    for name, text in (document._asdict() | {"fields": json.dumps(dict(document.fields))}).items():
        if (size := len(text.encode())) > LONGEST:
            return f"its {name} has {size:,} bytes, Milvus stores {LONGEST:,}"
    if (count := len(facts_of(document.fields).equal)) > MOST_FACTS:
        return f"its fields have {count:,} values, Milvus stores {MOST_FACTS:,}"
    return "Milvus rounds whole numbers beyond 64 bits" if beyond_64_bits(document.fields) else None


def _among(ids: Sequence[str]) -> str:
    return f"key in {json.dumps([key_of(identifier) for identifier in ids])}"


def _condition(filter: Filter) -> str:
    """The filter as an expression of Milvus; digests and numbers are all that stands in it."""

    def leaf(comparison: Comparison) -> str:
        if comparison.operator == "=":
            return f'array_contains(equal, "{asked(comparison)}")'
        key = f'order["{asked(comparison)}"]'
        # `not` of a comparison with nothing would be neither true nor false.
        return f"(exists {key} and {key} {comparison.operator} {bound_of(comparison)!r})"

    def joined(word: str) -> Any:
        return lambda parts: f"({f' {word} '.join(parts)})"

    condition: str = translated(filter, leaf, joined("and"), joined("or"), lambda part: f"not {part}")
    return condition


ENGINE = Milvus
