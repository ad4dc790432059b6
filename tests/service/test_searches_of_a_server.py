"""A service over a server: the requests of a search, searches side by side, and a server that is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines import cluster
from tests.engines.cluster import Faults
from tests.engines.lucene_server import serving
from tests.service.conftest import Client
from vocable.collection.index import index
from vocable.engines import kept_counts, server
from vocable.service import readiness


@pytest.fixture(scope="module", params=["opensearch", "elasticsearch"])
def remote(
    request: pytest.FixtureRequest, backbones: dict[str, Path], corpus: Path, served: Callable[..., Client]
) -> Iterator[tuple[Client, Faults]]:
    """A service of an index with BM25 on a server, and the requests to that server."""
    pytest.importorskip({"opensearch": "opensearchpy"}.get(request.param, request.param))
    faults = Faults()
    with serving(request.param, faults) as url:
        place = f"{request.param}+{url}/documents"
        index(str(backbones["bert"]), corpus, place, bm25=True, dtype="float32", device="cpu").close()
        yield served(place, timeout=5), faults


def search(query: str, **options: Any) -> tuple[str, str, dict[str, Any]]:
    return "POST", "/search", {"json": {"query": query, **options}}


def asked(faults: Faults) -> list[str]:
    """The kinds of the requests so far."""
    return [path.partition("?")[0].rpartition("/")[2] for _, path, _ in faults.requests]


def test_a_hybrid_search_is_three_requests_and_two_when_its_words_are_known(
    remote: tuple[Client, Faults], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, faults = remote
    monkeypatch.setattr(kept_counts, "RECORD_SECONDS", 1e6)
    for query, requests in (
        ("the lazy dog", ["_msearch", "_msearch", "_mget"]),
        ("the lazy dog", ["_msearch", "_mget"]),
        ("dog", ["_msearch", "_mget"]),
    ):
        faults.plan([])
        [answer] = client.together([search(query)])
        assert answer.json()["hits"]
        assert asked(faults) == requests


def test_searches_of_many_clients_run_side_by_side(
    remote: tuple[Client, Faults], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = remote[0]
    alone = [client.together([search("dog", k=number)])[0].json()["hits"] for number in range(1, 6)]
    meeting, answer = threading.Barrier(4), Faults.next

    def wait(self: Faults, method: str, path: str) -> str:
        if "_msearch" in path:
            meeting.wait(5)  # four searches are on the server at once
        return answer(self, method, path)

    monkeypatch.setattr(cluster.Faults, "next", wait)
    answers = client.together([search("dog", k=number) for number in range(1, 5)])
    assert [one.json()["hits"] for one in answers] == alone[:4]


def test_minimum_match_is_the_servers(remote: tuple[Client, Faults]) -> None:
    client, faults = remote
    [every] = client.together([search("the lazy dog and a fox", weights="sparse", k=50)])
    faults.plan([])
    [most] = client.together([search("the lazy dog and a fox", minimum_match=1.0, k=50)])
    assert "_mget" in asked(faults)
    assert len(faults.requests) <= 3
    assert 0 < len(most.json()["hits"]) < len(every.json()["hits"])


def test_requests_end_when_nobody_waits_for_their_answer(
    remote: tuple[Client, Faults], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, faults = remote
    monkeypatch.setattr(server, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(server, "LONGEST_PAUSE", 0.05)
    monkeypatch.setitem(client.service.limits, "timeout", 1)
    faults.plan(["503"], forever=True)
    answers = client.together([search(f"dog {number}") for number in range(40)])
    assert {one.status_code for one in answers} <= {429, 503, 504}
    assert "a change" not in answers[0].json()["error"]
    faults.plan([])
    refused = client("POST", "/search", json={"query": "dog"})
    assert (refused.status_code, 1 <= int(refused.headers["Retry-After"]) <= readiness.REST_SECONDS) == (503, True)
    time.sleep(int(refused.headers["Retry-After"]))  # the server rests
    assert client("POST", "/search", json={"query": "dog"}).status_code == 200
