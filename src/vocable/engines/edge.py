"""The embedded store: Qdrant Edge, with a write-ahead log, documents, their fields and vectors in one folder.

Only one process at a time can open it. Completed writes are in the log, and survive if the process is killed.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, Self
from weakref import WeakValueDictionary, finalize

import numpy as np
import qdrant_edge as qdrant

from vocable.data import Document
from vocable.engines.base import FolderStore, Hits, Row, RowStore, Vectors, key_of, rows_of
from vocable.engines.edge_shard import SHARD, OpenShard
from vocable.engines.filter_keys import (
    EXACT,
    beyond_64_bits,
    bound_of,
    comparison_key,
    filter_keys,
    translate,
)
from vocable.engines.filters import Comparison, Filter
from vocable.engines.protocols import About, Space
from vocable.errors import ArgumentError, VectorsError

PAGE = 512  # documents in one write to the log, and in one read
LOGS = 5  # files of the write-ahead log, 32 MiB each: two being written, the file where both began, and full files
RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}

_open: WeakValueDictionary[Path, EdgeStore] = WeakValueDictionary()  # by folder: the same folder cannot be locked twice
_opening = RLock()


def _real(folder: Path) -> Path:
    """Resolve the links in a path; unlike `Path.resolve`, raise nothing for a loop of links."""
    return Path(os.path.realpath(folder))


class EdgeStore(RowStore, FolderStore):
    """Documents and their vectors in a folder, searched exactly in float32."""

    about = About("edge", exact=True, durable=True, filters=True, in_folder=True, spaces=("sparse", "bm25", "dense"))
    page = PAGE
    ties_by_id = False

    def __init__(self, folder: Path, shard: OpenShard, spaces: dict[Space, int], settings: dict[str, object]) -> None:
        FolderStore.__init__(self, folder, spaces, settings)
        self._shard = shard
        self._finalizer = finalize(self, shard.close)  # even without `close`, and when Python exits
        _open[_real(folder)] = self

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        folder = Path(address)
        if folder.exists():
            raise ArgumentError(f"{folder} already exists")
        dense = {name: size for name, size in spaces.items() if name == "dense"}
        flat = qdrant.HnswIndexConfig(m=0, ef_construct=100, full_scan_threshold=10_000)  # a graph would miss hits
        config = qdrant.EdgeConfig(
            vectors={
                name: qdrant.EdgeVectorParams(size, qdrant.Distance.Dot, hnsw_config=flat)
                for name, size in dense.items()
            }
            or None,
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
        """Open a store; if this process has already opened the folder, return the same store."""
        folder = Path(address)
        with _opening:
            opened = _open.get(_real(folder))
            if isinstance(opened, cls):
                return opened
            record = cls.read(folder)
            if not (folder / SHARD).is_dir():
                raise VectorsError(f"{folder}: the index is damaged: it has no {SHARD}")
            return cls(folder, OpenShard.open(folder, len(record.spaces)), record.spaces, record.settings)

    def _refuse(self, document: Document) -> str | None:
        return "Qdrant rounds whole numbers beyond 64 bits" if beyond_64_bits(document.fields) else None

    def _write(self, documents: Sequence[Document], rows: Sequence[Sequence[Row]]) -> None:
        points = [
            qdrant.Point(
                key_of(document.id),
                {space: _vector(row) for space, row in zip(self.spaces, vectors, strict=True) if _has_terms(row)},
                document._asdict() | {"fields": json.dumps(dict(document.fields))} | _payload(document.fields),
            )
            for document, vectors in zip(documents, rows, strict=True)
        ]
        with self._shard.writing(sum(len(document.text) for document in documents)) as shard:
            shard.update(qdrant.UpdateOperation.upsert_points(points))

    def _delete(self, ids: Sequence[str]) -> int:
        keys = [key_of(identifier) for identifier in self._points(ids, ["id"])]
        with self._shard.writing() as shard:
            shard.update(qdrant.UpdateOperation.delete_points(list(keys)))
        return len(keys)

    def _documents(self, ids: Sequence[str]) -> dict[str, Document]:
        # Fields are stored as text: the log may read the last bit of a number wrong.
        points = self._points(ids, list(Document._fields))
        return {
            name: Document(**point.payload | {"fields": json.loads(point.payload["fields"])})
            for name, point in points.items()
        }

    def _rows(self, ids: Sequence[str], space: Space) -> dict[str, Row]:
        vectors = {name: point.vector.get(space) for name, point in self._points(ids, ["id"], [space]).items()}
        if space == "dense":
            return vectors
        return {name: (vector.indices, vector.values) if vector else ((), ()) for name, vector in vectors.items()}

    def ids(self) -> Iterator[str]:
        offset, more = None, True
        while more:
            with self._shard.reading() as shard:
                records, offset = shard.scroll(qdrant.ScrollRequest(offset=offset, limit=PAGE, with_payload=["id"]))
            yield from ((record.payload or {})["id"] for record in records)
            more = offset is not None

    def _query(self, rows: Sequence[Row], k: int, space: Space, filter: Filter | None) -> Iterator[Hits]:
        passing = None if filter is None else qdrant.Filter(must=[_condition(filter)])
        requests = [
            qdrant.QueryRequest(
                k, query=qdrant.Query.Nearest(_vector(row), using=space), with_payload=["id"], filter=passing
            )
            for row in rows
            if _has_terms(row)
        ]
        with self._shard.reading() as shard:
            answers = iter(shard.query_batch(qdrant.QueryBatchRequest(requests)) if requests else ())
        for row in rows:
            yield [((hit.payload or {})["id"], hit.score) for hit in next(answers)] if _has_terms(row) else []

    def replace_vectors(self, ids: Sequence[str], space: Space, vectors: Vectors) -> None:
        """Replace the vectors of documents in one space; the rest of the documents is not written again."""
        self.vectors(ids, space)  # raises for an unknown id
        rows = list(zip(map(key_of, ids), rows_of(vectors), strict=True))
        with self._shard.writing() as shard:
            if emptied := [key for key, row in rows if not _has_terms(row)]:
                shard.update(qdrant.UpdateOperation.delete_vectors(list(emptied), [space]))
            if points := [qdrant.PointVectors(key, {space: _vector(row)}) for key, row in rows if _has_terms(row)]:
                shard.update(qdrant.UpdateOperation.update_vectors(points))

    def optimize(self) -> None:
        """Merge and vacuum segments as the engine's thresholds demand."""
        with self._shard.writing() as shard:
            shard.optimize()
            segments, logs = (len(list((self.folder / SHARD / name).iterdir())) for name in ("segments", "wal"))
            if segments > shard.info().segments_count or logs > LOGS:
                shard.flush()  # removes replaced segments and old parts of the log: both take memory, too

    def close(self) -> None:
        _open.pop(_real(self.folder), None)
        self._finalizer()

    def __len__(self) -> int:
        return self._shard.count()

    def count(self, filter: Filter) -> int:
        return self._shard.count(qdrant.Filter(must=[_condition(filter)]))

    def _points(self, ids: Sequence[str], payload: list[str], vectors: bool | list[str] = False) -> dict[str, Any]:
        """Return the points of documents by id."""
        with self._shard.reading() as shard:
            keys = [key_of(identifier) for identifier in ids]
            records = shard.retrieve(list(keys), with_payload=payload, with_vector=vectors)
        return {(record.payload or {})["id"]: record for record in records}


ENGINE = EdgeStore


def _payload(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the keys for filters, with whole numbers as integers: the log reads integers back exactly."""
    keys = filter_keys(fields)
    order = {
        name: int(value) if abs(value) < EXACT and value.is_integer() else value for name, value in keys.order.items()
    }
    return {"equal": keys.equal, "order": order}


def _has_terms(row: Row) -> bool:
    return isinstance(row, np.ndarray) or len(row[0]) > 0


def _vector(row: Row) -> Any:
    return row.tolist() if isinstance(row, np.ndarray) else qdrant.SparseVector(row[0].tolist(), row[1].tolist())


def _condition(filter: Filter) -> Any:
    def leaf(comparison: Comparison) -> Any:
        if comparison.keyed:
            return qdrant.FieldCondition("equal", match=qdrant.MatchValue(comparison_key(comparison)))
        bound = qdrant.RangeFloat(**{RANGES[comparison.operator]: bound_of(comparison)})
        return qdrant.FieldCondition(f"order.{comparison_key(comparison)}", range=bound)

    return translate(
        filter,
        leaf,
        lambda parts: qdrant.Filter(must=parts),
        lambda parts: qdrant.Filter(should=parts),
        lambda part: qdrant.Filter(must_not=[part]),
    )
