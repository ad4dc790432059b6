"""A server that answers the requests to Qdrant that vocable makes, by the driver's local mode."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Lock
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel
from qdrant_client import QdrantClient, models
from qdrant_client.http.models import PointsList, QueryRequestBatch


class QdrantEngine:
    """The collections of a server."""

    def __init__(self) -> None:
        self.local: Any = QdrantClient(":memory:")
        self.local.create_payload_index = lambda *given, **named: {"operation_id": 0, "status": "completed"}
        self._lock = Lock()

    def answer(self, method: str, path: str, content: bytes, fault: str = "") -> tuple[int, Any]:
        """The status and the body."""
        target = path.partition("?")[0].strip("/").split("/")
        name, action = unquote(target[1]) if len(target) > 1 else "", "/".join(target[2:])
        try:
            with self._lock:
                found = self._carry_out(method, target[0], name, action, content)
        except ValueError as error:
            missing = "not found" in str(error)
            status = 404 if missing else 409 if "already exists" in str(error) else 400
            return status, {"status": {"error": str(error)}, "time": 0}
        return 200, {"result": plain(found), "status": "ok", "time": 0}

    def _carry_out(self, method: str, kind: str, name: str, action: str, content: bytes) -> Any:
        local, body = self.local, json.loads(content) if content else {}
        if name == "aliases":
            changes = models.ChangeAliasesOperation.model_validate(body)
            return local.update_collection_aliases(changes.actions)
        if not name:
            return local.get_collections() if kind == "collections" else local.get_aliases()
        answers: dict[tuple[str, str], Callable[[], Any]] = {
            ("GET", "exists"): lambda: {"exists": local.collection_exists(name)},
            ("PUT", ""): lambda: local.create_collection(name, **given(models.CreateCollection, body)),
            ("PATCH", ""): lambda: local.update_collection(name, metadata=body["metadata"]),
            ("GET", ""): lambda: local.get_collection(name),
            ("DELETE", ""): lambda: local.delete_collection(name),
            ("PUT", "index"): lambda: {"operation_id": 0, "status": "completed"},
            ("PUT", "points"): lambda: local.upsert(name, PointsList.model_validate(body).points),
            ("POST", "points"): lambda: local.retrieve(name, **retrieved(body)),
            ("POST", "points/delete"): lambda: local.delete(name, models.PointIdsList.model_validate(body)),
            ("POST", "points/scroll"): lambda: scrolled(*local.scroll(name, **given(models.ScrollRequest, body))),
            ("POST", "points/query/batch"): lambda: local.query_batch_points(
                name, QueryRequestBatch.model_validate(body).searches
            ),
            ("POST", "facet"): lambda: local.facet(
                name,
                body["key"],
                facet_filter=models.Filter.model_validate(body.get("filter") or {}),
                limit=body["limit"],
                exact=body["exact"],
            ),
            ("POST", "points/count"): lambda: local.count(name, **given(models.CountRequest, body)),
        }
        return answers[method, action]()


def given(kind: type[BaseModel], body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a body that are given, by the names of the local mode's arguments."""
    record = kind.model_validate(body)
    names = {"vectors": "vectors_config", "sparse_vectors": "sparse_vectors_config"}
    kept = {name: getattr(record, name) for name in record.model_fields_set if getattr(record, name) is not None}
    if kind is models.CountRequest:
        names = {"filter": "count_filter"}
    elif kind is not models.CreateCollection:
        names = {"filter": "scroll_filter", "with_vector": "with_vectors"}
    return {names.get(name, name): value for name, value in kept.items()}


def retrieved(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "ids": body["ids"],
        "with_payload": body.get("with_payload", True),
        "with_vectors": body.get("with_vector", False),
    }


def scrolled(records: Any, offset: Any) -> dict[str, Any]:
    return {"points": records, "next_page_offset": offset}


def plain(value: Any) -> Any:
    """The value as JSON."""
    if isinstance(value, BaseModel):
        return json.loads(value.model_dump_json())
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value
