"""Faults of a real OpenSearch of three nodes.

VOCABLE_OPENSEARCH_CLUSTER is a command that takes these words: `start --nodes 3 --port PORT`, which returns when all
nodes are there, also with `--set SETTING=VALUE`, `stop`, and `kill N`, `pause N`, `resume N`, `stop N` and `restart N`;
node N answers on port PORT + N - 1. Without it, tests are skipped.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread, Timer
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from scipy.sparse import csr_array

import vocable as vo
from tests.engines.test_lost_shards import opened
from tests.engines.test_server import IDS, VECTORS, N, V, assert_whole, index
from tests.engines.test_server import corpus as corpus
from vocable.data import Document
from vocable.encoding.vectors import VectorsMeta, write_vectors
from vocable.engines import patience
from vocable.errors import NoSpaceError, UnavailableError, VectorsError

COMMAND = shlex.split(os.environ.get("VOCABLE_OPENSEARCH_CLUSTER", ""))
PORT = 9470
HOSTS = ",".join(f"localhost:{PORT + node}" for node in range(3))
QUERY = csr_array(np.ones((1, V), np.float32))
M = 3_000  # documents that are written while nodes go
MANY_IDS = [f"d{row:04}" for row in range(M)]
MANY = np.where(np.arange(V) % 7 == np.arange(M)[:, None] % 7, np.float32(1.5), np.float32(0))
ASKED = csr_array(np.float32(np.arange(V) + 1)[None])

pytest.importorskip("opensearchpy")
pytestmark = pytest.mark.skipif(not COMMAND, reason="no command that starts nodes")


def nodes(*words: object) -> None:
    subprocess.run([*COMMAND, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module", autouse=True)
def three_nodes() -> Iterator[None]:
    nodes("start", "--nodes", 3, "--port", PORT)
    yield
    nodes("stop")


@pytest.mark.parametrize("gone", [[1], [2, 3]])
def test_a_lost_shard_is_said_until_it_is_back(gone: list[int], corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SEARCH_PATIENCE", 6.0)
    monkeypatch.setattr(patience, "WRITE_PATIENCE", 12.0)
    place = f"opensearch+http://{HOSTS}/lost-{len(gone)}"
    index(corpus, place, shards=3, replicas=0, bulk=64).close()
    for node in gone:
        nodes("kill", node)
    store, lacking = opened(place), f"{len(gone)} of 3 shards of lost-{len(gone)}"
    for call in (lambda: store.search(QUERY, N), lambda: len(store), lambda: list(store.ids())):
        began = time.monotonic()
        with pytest.raises(UnavailableError, match=lacking):
            call()
        assert time.monotonic() - began < 15
    with pytest.raises(UnavailableError) as found:
        store.upsert([Document(name, "new") for name in IDS], {"sparse": csr_array(VECTORS)})
    unwritten = set(found.value.unwritten)
    assert 0 < len(unwritten) < N
    part = opened(place, partial=True).search(QUERY, N)
    assert part.missing.startswith(lacking)
    assert {name for name, _ in part.hits(0)} == set(IDS) - unwritten
    for node in gone:
        nodes("restart", node)
    monkeypatch.undo()
    with patience.patiently():
        assert len(store) == N
    texts = {one.id for one in store.documents(IDS) if one is not None and one.text == "new"}
    assert texts >= set(IDS) - unwritten
    store.upsert([Document(name, f"text of {name}") for name in IDS], {"sparse": csr_array(VECTORS)})
    store.close()
    assert_whole(place)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    meta = VectorsMeta("v", "model", "max", "document", 8, V)
    write_vectors(folder / "all.parquet", MANY_IDS, csr_array(MANY), meta)
    for file in ("corpus", "again"):
        lines = [json.dumps({"_id": name, "text": f"{file} of {name}"}) for name in MANY_IDS]
        (folder / f"{file}.jsonl").write_text("\n".join(lines))
    return folder


def index_many(many: Path, place: str, *, file: str = "corpus", replace: bool = False, **options: object) -> None:
    given: Any = {"shards": 3, "bulk": 4, "workers": 2, **options}
    vo.index(
        str(many / "all.parquet"), str(many / f"{file}.jsonl"), place, engine_options=given, replace=replace
    ).close()


def assert_all_once(place: str, file: str = "corpus") -> None:
    store = opened(place)
    assert store.settings["whole"]
    assert (len(store), sorted(store.ids())) == (M, MANY_IDS)
    assert [one.text for one in store.documents(MANY_IDS)] == [f"{file} of {name}" for name in MANY_IDS]
    np.testing.assert_array_equal(csr_array(store.vectors(MANY_IDS)).toarray(), MANY)
    counts, documents = store.count_terms(np.arange(V))
    assert (counts.tolist(), documents) == ((MANY > 0).sum(axis=0).tolist(), M)
    store.close()


def asked(method: str, path: str, body: object) -> Any:
    """Send a request to the third node."""
    request = Request(f"http://localhost:{PORT + 2}{path}", json.dumps(body).encode(), method=method)
    request.add_header("Content-Type", "application/json")
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def wait_for_green() -> None:
    asked("GET", "/_cluster/health?wait_for_nodes=3&wait_for_no_relocating_shards=true&timeout=30s", {})


def same_hits_while(place: str, change: Callable[[], None]) -> int:
    """Search until a change is carried out, and once more; return the number of searches."""
    store, thread, searches = opened(place), Thread(target=change), 0
    wanted = store.search(ASKED, 50).hits(0)
    thread.start()
    while alive := thread.is_alive() or searches == 0:
        assert store.search(ASKED, 50).hits(0) == wanted
        searches += 1
    assert not alive
    assert store.search(ASKED, 50).hits(0) == wanted
    store.close()
    return searches


@pytest.mark.parametrize(
    ("fault", "node", "replicas"), [("kill", 1, 1), ("kill", 2, 1), ("kill", 2, 0), ("pause", 2, 1)]
)
def test_a_node_that_goes_while_documents_are_written_loses_none(
    many: Path, fault: str, node: int, replicas: int
) -> None:
    place, times = f"opensearch+http://{HOSTS}/{fault}-{node}-{replicas}", list[float]()

    def go_and_return() -> None:
        nodes(fault, node)
        times.append(time.monotonic())
        time.sleep(4)
        nodes("restart" if fault == "kill" else "resume", node)

    going = Timer(0.5, go_and_return)
    going.start()
    index_many(many, place, replicas=replicas)
    ended = time.monotonic()
    going.join()
    assert times[0] < ended
    wait_for_green()
    assert_all_once(place)


def test_searches_answer_whole_while_a_node_with_copies_is_killed_and_comes_back(many: Path) -> None:
    place = f"opensearch+http://{HOSTS}/searched"
    index_many(many, place, replicas=1, bulk=512)
    wait_for_green()
    for node in (1, 2):
        assert same_hits_while(place, lambda node=node: (nodes("kill", node), nodes("restart", node))) > 1
        wait_for_green()


def test_searches_answer_whole_while_shards_move(many: Path) -> None:
    place, setting = f"opensearch+http://{HOSTS}/moved", "cluster.routing.allocation.exclude._name"
    index_many(many, place, replicas=0, bulk=512)

    def move() -> None:
        asked("PUT", "/_cluster/settings", {"transient": {setting: "node2"}})
        while any(shard["node"] != "node1" and "node2" in shard["node"] for shard in asked("GET", shards, {})):
            time.sleep(0.1)

    shards = "/_cat/shards/moved?format=json"
    assert "node2" in {shard["node"] for shard in asked("GET", shards, {})}
    assert same_hits_while(place, move) > 0
    asked("PUT", "/_cluster/settings", {"transient": {setting: None}})
    wait_for_green()
    assert_all_once(place)


def test_a_paused_node_ends_a_search_within_its_patience(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"opensearch+http://{HOSTS}/paused"
    index_many(many, place, replicas=0, bulk=512)
    store = opened(place)
    monkeypatch.setattr(patience, "SEARCH_PATIENCE", 6.0)
    nodes("pause", 2)
    try:
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            store.search(QUERY, 5)
        assert time.monotonic() - began < 15
    finally:
        nodes("resume", 2)
    monkeypatch.undo()
    wait_for_green()
    assert len(store.search(QUERY, 5).hits(0)) == 5
    store.close()


@pytest.mark.parametrize(
    ("block", "error", "said"),
    [
        ("read_only_allow_delete", NoSpaceError, "the disk of a node is full"),
        ("read_only", VectorsError, "is blocked"),
        ("write", VectorsError, "is blocked"),
    ],
)
def test_an_index_that_is_read_only_ends_a_write_at_once(
    corpus: Path, block: str, error: type[Exception], said: str
) -> None:
    name = f"only-{block.replace('_', '-')}"
    place = f"opensearch+http://{HOSTS}/{name}"
    index(corpus, place).close()
    asked("PUT", f"/{name}/_settings", {f"index.blocks.{block}": True})
    store, began = opened(place), time.monotonic()
    with pytest.raises(error, match=said):
        store.upsert([Document("d1", "new")], {"sparse": csr_array(VECTORS[:1])})
    assert time.monotonic() - began < 10
    asked("PUT", f"/{name}/_settings", {f"index.blocks.{block}": None})
    store.close()
    assert_whole(place)


def test_a_rolling_restart_while_an_index_is_replaced(many: Path) -> None:
    place = f"opensearch+http://{HOSTS}/rolled"
    index_many(many, place, replicas=1, bulk=512)

    def roll() -> None:
        for node in (1, 2):
            nodes("stop", node)
            nodes("restart", node)
            wait_for_green()

    rolling = Timer(0.5, roll)
    rolling.start()
    index_many(many, place, file="again", replace=True, replicas=1)
    rolling.join()
    assert_all_once(place, "again")
    assert set(asked("GET", "/rolled*/_mapping", {})) == {"rolled-1"}


def test_a_write_queue_of_one_loses_no_document(many: Path) -> None:
    nodes("stop")
    nodes("start", "--nodes", 3, "--port", PORT, "--set", "thread_pool.write.queue_size=1")
    place = f"opensearch+http://{HOSTS}/queued"
    index_many(many, place, replicas=0, bulk=16, workers=16)
    rejected = sum(int(pool["rejected"]) for pool in asked("GET", "/_cat/thread_pool/write?format=json", {}))
    assert rejected > 0
    assert_all_once(place)
