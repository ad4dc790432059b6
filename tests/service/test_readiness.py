"""A service over a server: ready while the place answers, quick to refuse while it does not, and counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vocable as vo
from tests.engines.cluster import Faults
from tests.engines.lucene_server import Engine, serving
from tests.service.conftest import Client
from vocable.engines import patience, server
from vocable.options import check
from vocable.service import ServiceOptions, readiness
from vocable.service.server import WorkerSettings, application

pytest.importorskip("opensearchpy")


class Place:
    """A service of an index on a server whose faults are planned."""

    def __init__(self, url: str, faults: Faults, engine: Engine) -> None:
        self.url, self.faults, self.engine = url, faults, engine
        self.index = f"opensearch+{url}/docs"

    def serve(self, **options: Any) -> Client:
        options = {"device": "cpu", "allow_host": ["test"], **options}
        settings = WorkerSettings(self.index, None, "127.0.0.1", None, check(ServiceOptions, options))
        return Client(application(settings))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An index of a small model, searched with little patience."""
    corpus = tmp_path_factory.mktemp("served") / "corpus.jsonl"
    rows = [{"_id": f"d{row}", "text": f"the old fox reads books {row}"} for row in range(4)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    faults, engine = Faults(), Engine("opensearch")
    with pytest.MonkeyPatch.context() as patched, serving("opensearch", faults, engine) as url:
        for name, value in {"SEARCH_PATIENCE": 0.5, "FIRST_PAUSE": 0.01, "LONGEST_PAUSE": 0.05}.items():
            patched.setattr(patience if hasattr(patience, name) else server, name, value)
        patched.setattr(readiness, "FRESH_SECONDS", 0.0)
        made = Place(url, faults, engine)
        vo.index("vocable-mini", corpus, made.index, dense=None, no_dense=True, bm25=False).close()
        yield made


@pytest.fixture
def client(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    made = place.serve()
    place.faults.plan([])
    yield made
    place.faults.plan([])
    place.engine.lost = set()
    made.service.close()


def metric(client: Client, name: str) -> float:
    lines = client("GET", "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def search(client: Client, **options: Any) -> Any:
    return client("POST", "/search", json={"query": "the old fox", "k": 2, **options})


def test_readiness_asks_the_place(place: Place, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client("GET", "/ready").json() == {"status": "ok"}
    assert metric(client, "vocable_index_ready") == 1
    place.faults.plan(["503"], forever=True)
    failed = search(client)
    assert failed.status_code == 503
    assert client("GET", "/ready").status_code == 503
    assert metric(client, "vocable_index_ready") == 0
    monkeypatch.setattr(readiness, "REST_SECONDS", 0.0)
    for health in client.service.readiness._healths:
        health._until = 0.0  # the rest is over
    place.faults.plan([])
    assert client("GET", "/ready").json() == {"status": "ok"}  # without a search of anybody else
    assert metric(client, "vocable_index_ready") == 1
    assert search(client).status_code == 200


def test_requests_fail_at_once_while_the_server_rests(place: Place, client: Client) -> None:
    place.faults.plan(["503"], forever=True)
    first = search(client)
    asked = len(place.faults.requests)
    second = search(client)
    assert (first.status_code, second.status_code) == (503, 503)
    assert first.json() == second.json()
    assert 1 <= int(second.headers["retry-after"]) <= readiness.REST_SECONDS
    assert len(place.faults.requests) == asked


def test_a_server_that_hangs_is_tried_for_a_part_of_the_patience(
    place: Place, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert search(client).status_code == 200
    monkeypatch.setattr(patience, "SEARCH_PATIENCE", 0.9)
    monkeypatch.setattr(patience, "LEAST_SECONDS", (0.1, 0.1))
    place.faults.plan(["slow"], forever=True)
    first = search(client)
    assert (first.status_code, search(client).json()) == (503, first.json())
    assert "tried 1 time" in first.json()["error"]
    assert len(place.faults.begun) == 1


def test_an_index_that_was_deleted_is_said(place: Place, client: Client) -> None:
    kept = {part: dict(getattr(place.engine, part)) for part in ("mappings", "written", "seen")}
    try:
        place.engine.mappings.clear()
        for _ in range(2):
            gone = search(client)
            assert gone.status_code == 503
            assert gone.json()["error"] == f"{place.url}/docs: there is no index 'docs' here: it was deleted"
        assert client("GET", "/ready").status_code == 503
    finally:
        for part, value in kept.items():
            getattr(place.engine, part).update(value)
    assert client("GET", "/ready").status_code == 200


def test_a_partial_answer_is_ready_and_says_what_is_missing(place: Place) -> None:
    place.faults.plan([])
    client = place.serve(engine_options="partial=true")
    try:
        place.engine.lost = {1}
        assert search(client).status_code == 200
        ready = client("GET", "/ready")
        assert (ready.status_code, ready.json()["missing"]) == (200, "1 of 3 shards of docs is not available")
        place.engine.lost = set()
        assert client("GET", "/ready").json() == {"status": "ok"}
    finally:
        place.engine.lost = set()
        client.service.close()


def test_requests_to_the_server_are_counted_by_kind_and_outcome(place: Place, client: Client) -> None:
    def count(kind: str, outcome: str) -> float:
        return metric(client, f'vocable_server_requests_total{{kind="{kind}",outcome="{outcome}"}}')

    before = {one: count(*one) for one in (("search", "answered"), ("search", "failed"))}
    place.faults.plan([])
    assert search(client).status_code == 200
    sent = sum("_search" in path or "_msearch" in path for _, path, _ in place.faults.requests)
    assert sent >= 1
    assert count("search", "answered") > before["search", "answered"]
    place.faults.plan(["503"], forever=True)
    search(client, query="books")
    assert count("search", "failed") + count("count", "failed") > before["search", "failed"]
    assert metric(client, "vocable_server_requests_in_progress") == 0
    assert metric(client, 'vocable_server_request_seconds_count{kind="search"}') >= 1


def test_the_server_is_told_the_id_of_a_request(place: Place, client: Client) -> None:
    del place.faults.headers[:]
    answer = client("POST", "/search", json={"query": "books", "k": 1}, headers={"X-Request-Id": "trace-7"})
    assert answer.headers["x-request-id"] == "trace-7"
    told = {headers.get("X-Opaque-Id") for headers in place.faults.headers}
    assert told == {"trace-7"}
    del place.faults.headers[:]
    assert "x-request-id" not in search(client, query="reads").headers
    [made] = {headers["X-Opaque-Id"] for headers in place.faults.headers}
    assert len(made) == 16


def test_a_folder_is_always_ready(exact: Path, served: Callable[..., Client]) -> None:
    assert served(exact)("GET", "/ready").json() == {"status": "ok"}
