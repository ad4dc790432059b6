"""The embedded store: Qdrant Edge, a write-ahead log, documents, their fields and vectors in one folder.

One process at a time has it open. What `upsert` and `delete` returned from is in the log, and there after a kill.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, Self
from weakref import WeakValueDictionary, finalize

import numpy as np
import qdrant_edge as qdrant
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.errors import ArgumentError, VectorsError
from vocable.retrieval.engines.base import (
    EXACT,
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
    translated,
)
from vocable.retrieval.engines.edge_shard import SHARD, OpenShard
from vocable.retrieval.filters import Comparison, Filter
from vocable.retrieval.protocols import About, Space
from vocable.retrieval.ranking import Ranking, ranking_of
from vocable.storage import read_record, write_record

SETTINGS = "store.json"
PAGE = 512  # documents in one write of the log, and points that are read at once
LOGS = 5  # files of the write-ahead log, each of 32 MiB: two that are written, one in which both begin, and full ones
FORMAT = 1
ORDER = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}

_open: WeakValueDictionary[Path, EdgeStore] = WeakValueDictionary()  # by folder: a second lock would be refused
_opening = RLock()


class StoreRecord(NamedTuple):
    """The file beside a shard: its spaces with their numbers of columns, and what `configure` was given."""

    spaces: dict[Space, int]
    settings: dict[str, Any]
    format: int = 0


class EdgeStore(CommonStore):
    """Documents and their vectors in a folder; found exactly, in float32."""

    about = About("edge", exact=True, durable=True, filters=True, in_folder=True, spaces=("sparse", "bm25", "dense"))

    def __init__(self, folder: Path, shard: OpenShard, spaces: dict[Space, int], settings: dict[str, Any]) -> None:
        self.folder, self._place, self.settings = folder, str(folder), settings
        self._shard, self._spaces = shard, spaces
        self._finalizer = finalize(self, shard.close)  # also where nobody calls `close`, and when Python ends
        _open[folder.resolve()] = self

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, Any]) -> Self:
        """As `Store.create`, in a folder that is not there yet."""
        folder = Path(address)
        if folder.exists():
            raise ArgumentError(f"{folder} is there already")
        dense = {name: size for name, size in spaces.items() if name == "dense"}
        config = qdrant.EdgeConfig(
            vectors={name: qdrant.EdgeVectorParams(size, qdrant.Distance.Dot) for name, size in dense.items()} or None,
            sparse_vectors={name: qdrant.EdgeSparseVectorParams() for name in spaces if name not in dense},
        )
        folder.mkdir(parents=True)
        try:
            shard = OpenShard.create(folder, config, len(spaces))
        except BaseException:
            shutil.rmtree(folder)
            raise
        store = cls(folder, shard, dict(spaces), settings)
        store.configure(settings)
        return store

    @classmethod
    def open(cls, address: str) -> Self:
        """As `Store.open`; a folder that this process has open already is the same store."""
        folder = Path(address)
        with _opening:
            known = _open.get(folder.resolve())
            if isinstance(known, cls):
                return known
            if not (folder / SHARD).is_dir():
                raise VectorsError(f"{folder}: there is no index here (make one with vocable index)")
            stored = read_record(folder / SETTINGS, StoreRecord)
            if stored.format != FORMAT:
                raise VectorsError(f"{folder}: stored in format {stored.format}; this version reads format {FORMAT}")
            return cls(folder, OpenShard.open(folder, len(stored.spaces)), stored.spaces, stored.settings)

    def configure(self, settings: dict[str, Any]) -> None:
        """As `Store.configure`."""
        write_record(self.folder / SETTINGS, StoreRecord(self._spaces, settings, FORMAT))
        self.settings = settings

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, csr_array | np.ndarray]) -> None:
        """As `Store.upsert`."""
        documents, vectors = checked(self.about, self._spaces, documents, vectors, refused_beyond_64_bits)
        rows = zip(*(map(_vector, rows_of(vectors[space])) for space in self._spaces), strict=True)
        points = [
            qdrant.Point(
                key_of(document.id),
                {space: vector for space, vector in zip(self._spaces, row, strict=True) if vector is not None},
                document._asdict() | {"fields": json.dumps(dict(document.fields))} | _facts(document.fields),
            )
            for document, row in zip(documents, rows, strict=True)
        ]
        with self._shard.writing(sum(len(document.text) for document in documents)) as shard:
            for some in parts_of(points, PAGE):
                shard.update(qdrant.UpdateOperation.upsert_points(list(some)))

    def delete(self, ids: Sequence[str]) -> int:
        """As `Store.delete`."""
        there = [key_of(identifier) for identifier in self._found(list(set(ids)), ["id"])]
        with self._shard.writing() as shard:
            shard.update(qdrant.UpdateOperation.delete_points(list(there)))
        return len(there)

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """As `Store.documents`."""
        found = self._found(ids, list(Document._fields))
        return [_document(found[identifier].payload) if identifier in found else None for identifier in ids]

    def ids(self) -> Iterator[str]:
        """As `Store.ids`, in no order."""
        offset, more = None, True
        while more:
            with self._shard.reading() as shard:
                records, offset = shard.scroll(qdrant.ScrollRequest(offset=offset, limit=PAGE, with_payload=["id"]))
            yield from ((record.payload or {})["id"] for record in records)
            more = offset is not None

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> csr_array | np.ndarray:
        """As `Store.vectors`."""
        columns = self._columns(space)
        found = self._found(ids, ["id"], [space])
        self._missing(ids, found)
        stored = [found[identifier].vector.get(space) for identifier in ids]
        rows = stored if space == "dense" else [(one.indices, one.values) if one else ((), ()) for one in stored]
        return matrix_of(rows, space, columns)

    def search(
        self, queries: csr_array | np.ndarray, k: int = 10, *, space: Space = "sparse", filter: Filter | None = None
    ) -> Ranking:
        """As `Store.search`."""
        vectors = list(map(_vector, rows_of(checked_queries(self.about, self._spaces, queries, k, space))))
        passing = None if filter is None else qdrant.Filter(must=[_condition(filter)])
        requests = [
            qdrant.QueryRequest(k, query=qdrant.Query.Nearest(vector, using=space), with_payload=["id"], filter=passing)
            for vector in vectors
            if vector is not None
        ]
        with self._shard.reading() as shard:
            found = iter(shard.query_batch(qdrant.QueryBatchRequest(requests)) if requests else ())
        answers = [[] if vector is None else next(found) for vector in vectors]
        return ranking_of([[((hit.payload or {})["id"], hit.score) for hit in hits] for hits in answers], k)

    def replace_vectors(self, ids: Sequence[str], space: Space, vectors: csr_array | np.ndarray) -> None:
        """As `Store.replace_vectors`, without writing the rest of the documents."""
        self._columns(space)
        self._missing(ids, self._found(ids, ["id"]))
        rows = list(zip(map(key_of, ids), map(_vector, rows_of(vectors)), strict=True))
        with self._shard.writing() as shard:
            if emptied := [key for key, vector in rows if vector is None]:
                shard.update(qdrant.UpdateOperation.delete_vectors(list(emptied), [space]))
            if points := [qdrant.PointVectors(key, {space: vector}) for key, vector in rows if vector is not None]:
                shard.update(qdrant.UpdateOperation.update_vectors(points))

    def optimize(self) -> None:
        """As `Store.optimize`: merge and vacuum segments where the engine's thresholds say so."""
        with self._shard.writing() as shard:
            shard.optimize()
            segments, logs = (len(list((self.folder / SHARD / name).iterdir())) for name in ("segments", "wal"))
            if segments > shard.info().segments_count or logs > LOGS:
                shard.flush()  # removes replaced segments, and what of the log is in segments: both take memory, too

    def close(self) -> None:
        """As `Store.close`."""
        _open.pop(self.folder.resolve(), None)
        self._finalizer()

    def drop(self) -> None:
        """As `Store.drop`."""
        self.close()
        shutil.rmtree(self.folder)

    def __len__(self) -> int:
        return self._shard.count()

    def __repr__(self) -> str:
        return f"EdgeStore({str(self.folder)!r}, {len(self):,} documents)"

    @property
    def nbytes(self) -> int:
        """As `Store.nbytes`: what its files take on disk."""
        return sum(path.stat().st_blocks * 512 for path in self.folder.rglob("*") if path.is_file())

    def _found(self, ids: Sequence[str], payload: list[str], vectors: bool | list[str] = False) -> dict[str, Any]:
        """The points of documents by id."""
        keys = parts_of([key_of(identifier) for identifier in ids], PAGE)
        with self._shard.reading() as shard:
            parts = [shard.retrieve(list(some), with_payload=payload, with_vector=vectors) for some in keys]
        return {(record.payload or {})["id"]: record for records in parts for record in records}


ENGINE = EdgeStore


def _document(payload: dict[str, Any]) -> Document:
    """The document of a point; its fields are a text, as of numbers the log may read back the last bit wrong."""
    return Document(**payload | {"fields": json.loads(payload["fields"])})


def _facts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that filters ask for, whole numbers as such, which the log reads back to the last bit."""
    facts = facts_of(fields)
    order = {
        name: int(value) if abs(value) < EXACT and value.is_integer() else value for name, value in facts.order.items()
    }
    return {"equal": facts.equal, "order": order}


def _vector(row: Any) -> Any:
    """One row as the library's vector, None for one without terms."""
    if isinstance(row, np.ndarray):
        return row.tolist()
    return qdrant.SparseVector(row[0].tolist(), row[1].tolist()) if len(row[0]) else None


def _condition(filter: Filter) -> Any:
    def leaf(comparison: Comparison) -> Any:
        if comparison.operator == "=":
            return qdrant.FieldCondition("equal", match=qdrant.MatchValue(asked(comparison)))
        bound = qdrant.RangeFloat(**{ORDER[comparison.operator]: bound_of(comparison)})
        return qdrant.FieldCondition(f"order.{asked(comparison)}", range=bound)

    return translated(
        filter,
        leaf,
        lambda parts: qdrant.Filter(must=parts),
        lambda parts: qdrant.Filter(should=parts),
        lambda part: qdrant.Filter(must_not=[part]),
    )
