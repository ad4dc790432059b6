"""A reload: the service goes on with its collection until it is told, and no request fails."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import vocable as vo
from tests.engines.lucene_server import serving
from tests.service import process
from tests.service.conftest import Client
from vocable.options import check
from vocable.service import ServiceOptions
from vocable.service.server import WorkerSettings, application

pytest.importorskip("opensearchpy")


def written(folder: Path, name: str) -> Path:
    rows = [{"_id": f"{name}{row}", "text": f"the old fox reads books {row}"} for row in range(3)]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / f"{name}.jsonl"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """A name with two collections, of another length of texts each."""
    with serving("opensearch") as url:
        place = f"opensearch+{url}/docs"
        options: dict[str, Any] = {"no_dense": True, "bm25": False, "replace": True}
        vo.index("vocable-mini", written(tmp_path, "a"), place, max_length=32, **options).close()
        vo.index("vocable-mini", written(tmp_path, "b"), place, max_length=64, keep_old=True, **options).close()
        vo.alias(place, "docs-1")
        yield place


def served(place: str) -> Client:
    options = check(ServiceOptions, {"device": "cpu", "allow_host": ["test"]})
    return Client(application(WorkerSettings(place, None, "127.0.0.1", None, options)))


def found(client: Client) -> set[str]:
    answer = client("POST", "/search", json={"query": "the old fox", "k": 3})
    assert answer.status_code == 200
    return {hit["id"][0] for hit in answer.json()["hits"]}


def test_a_service_changes_its_model_when_it_is_told(place: str) -> None:
    client = served(place)
    assert found(client) == {"a"}
    vo.alias(place, "docs-2")
    assert found(client) == {"a"}
    assert client("POST", "/reload", json={}).json() == {"status": "ok"}
    assert found(client) == {"b"}
    vo.alias(place, "docs-1")
    searches = [("POST", "/search", {"json": {"query": f"fox {number}", "k": 1}}) for number in range(6)]
    answers = client.together([*searches[:3], ("POST", "/reload", {"json": {}}), *searches[3:]])
    assert [answer.status_code for answer in answers] == [200] * 7
    assert found(client) == {"a"}


def test_a_reload_that_fails_leaves_the_service(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from vocable.errors import ModelError
    from vocable.service import server

    def fails(settings: object) -> Any:
        raise ModelError("no model")

    client = served(place)
    monkeypatch.setattr(server, "_opened", fails)
    failed = client("POST", "/reload", json={})
    assert (failed.status_code, failed.json()["error"]) == (424, "no model")
    assert found(client) == {"a"}
    client.service.close()


def workers(parent: int) -> set[int]:
    """The worker processes of a service."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()}


@pytest.mark.slow
def test_a_reload_reaches_all_workers(place: str) -> None:
    with process.serving(place, "--workers", 2, fresh=True) as service, ThreadPoolExecutor(8) as pool:

        def search(number: int) -> str:
            body = {"query": f"the old fox {number}", "k": 3}
            answer = httpx.post(f"{service.url}/search", json=body, timeout=60)
            assert answer.status_code == 200
            return "".join(sorted({hit["id"][0] for hit in answer.json()["hits"]}))

        assert {*pool.map(search, range(32))} == {"a"}
        before, until = workers(service.pid), time.monotonic() + 300
        assert len(before) == 2
        vo.alias(place, "docs-2")
        assert httpx.post(f"{service.url}/reload", json={}, timeout=60).json() == {"status": "ok"}
        while len(workers(service.pid) - before) < 2 or before & workers(service.pid):
            assert {*pool.map(search, range(8))} <= {"a", "b"}  # by one of both, and no request fails
            assert time.monotonic() < until
        assert {*pool.map(search, range(32))} == {"b"}
