"""Faults of a real OpenSearch of three nodes.

VOCABLE_OPENSEARCH_CLUSTER is a command that takes these words: `start --nodes 3 --port PORT`, which returns when all
nodes are there, `kill N`, `restart N` and `stop`; node N answers on port PORT + N - 1. Without it, tests are skipped.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.retrieval.test_cluster import IDS, VECTORS, N, V, assert_whole, index, write_corpus
from vocable.data import Document
from vocable.errors import UnavailableError
from vocable.retrieval.engines import server
from vocable.retrieval.protocols import engine_of

COMMAND = shlex.split(os.environ.get("VOCABLE_OPENSEARCH_CLUSTER", ""))
PORT = 9470
HOSTS = ",".join(f"localhost:{PORT + node}" for node in range(3))
QUERY = csr_array(np.ones((1, V), np.float32))

pytest.importorskip("opensearchpy")
pytestmark = pytest.mark.skipif(not COMMAND, reason="no command that starts nodes")


def nodes(*words: object) -> None:
    subprocess.run([*COMMAND, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module", autouse=True)
def three_nodes() -> Iterator[None]:
    nodes("start", "--nodes", 3, "--port", PORT)
    yield
    nodes("stop")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def opened(place: str, *, partial: bool = False) -> Any:
    engine, address = engine_of(place)
    store = engine.open(address)
    store.opening = engine.about.opening(partial=partial)
    return store


@pytest.mark.parametrize("gone", [[1], [2, 3]])
def test_a_lost_shard_is_said_until_it_is_back(gone: list[int], corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SEARCH_PATIENCE", 6.0)
    monkeypatch.setattr(server, "WRITE_PATIENCE", 12.0)
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
    with server.patiently():
        assert len(store) == N
    texts = {one.id for one in store.documents(IDS) if one is not None and one.text == "new"}
    assert texts >= set(IDS) - unwritten
    store.upsert([Document(name, f"text of {name}") for name in IDS], {"sparse": csr_array(VECTORS)})
    store.close()
    assert_whole(place)


def test_the_addressed_node_is_killed_while_documents_are_written(corpus: Path) -> None:
    place = f"opensearch+http://{HOSTS}/written"
    killing = Timer(0.3, nodes, ("kill", 1))
    killing.start()
    index(corpus, place, shards=3, replicas=1, bulk=1, workers=2).close()
    killing.join()
    assert_whole(place)
    nodes("restart", 1)
