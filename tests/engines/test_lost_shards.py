"""A server that has lost a part of a collection: what is not there is said, by reads, searches and writes."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import vocable as vo
from tests.engines.cluster import forwarding
from tests.engines.lucene_server import Engine
from tests.engines.test_server import IDS, VECTORS, Cluster, N, V, assert_whole, cluster, index
from tests.engines.test_server import corpus as corpus
from vocable.data import Document
from vocable.engines import patience, server
from vocable.engines.base import key_of
from vocable.engines.lucene_answers import FOREIGN
from vocable.engines.protocols import engine_of, engines
from vocable.errors import ArgumentError, GoneError, NoSpaceError, UnavailableError, VectorsError
from vocable.service.schemas import ViewRequest
from vocable.service.view import view

ONE = csr_array(VECTORS[:1])
QUERY = csr_array(np.ones((1, V), np.float32))


@pytest.fixture(scope="module", params=["elasticsearch", "opensearch"])
def shared(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster(request.param) as made:
        yield made


@pytest.fixture
def failing(shared: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster, whose shards are all there before and after a test."""
    monkeypatch.setattr(patience, "SEARCH_PATIENCE", 0.2)
    monkeypatch.setattr(patience, "WRITE_PATIENCE", 0.4)
    yield shared
    lucene_of(shared).lost, lucene_of(shared).blocked = set(), ""


def lucene_of(failing: Cluster) -> Engine:
    assert failing.lucene is not None
    return failing.lucene


def lost_ids(failing: Cluster) -> list[str]:
    return [name for name in IDS if lucene_of(failing).is_lost(key_of(name))]


def opened(place: str, *, partial: bool = False) -> Any:
    engine, address = engine_of(place)
    store = engine.open(address)
    store.search_options = engine.about.search_options(partial=partial)
    return store


@pytest.mark.slow
def test_nothing_takes_a_part_for_the_whole(failing: Cluster, corpus: Path) -> None:
    place = failing.place()
    index(corpus, place, bulk=64).close()
    lucene_of(failing).lost = {1}
    store = opened(place)
    calls = {
        "search": lambda: store.search(QUERY, 5),
        "count": lambda: len(store),
        "ids": lambda: list(store.ids()),
        "size": lambda: store.nbytes,
        "frequencies": lambda: store.count_terms(np.arange(V)),
    }
    for name, call in calls.items():
        with pytest.raises(UnavailableError) as found:
            call()
        assert "1 of 3 shards of documents-" in str(found.value), name
    for call in (store.documents, store.vectors):
        with pytest.raises(UnavailableError, match=f"{len(lost_ids(failing))} of {N} "):
            call(IDS)
    kept = [name for name in IDS if name not in lost_ids(failing)]
    assert [one.id for one in store.documents(kept)] == kept
    with pytest.raises(UnavailableError):
        vo.add(vo.open_index(place), corpus / "corpus.jsonl")
    store.close()


def test_a_partial_search_answers_and_says_what_is_missing(failing: Cluster, corpus: Path) -> None:
    place = failing.place()
    index(corpus, place).close()
    store = opened(place, partial=True)
    assert store.search(QUERY, N).missing is None
    lucene_of(failing).lost = {0, 2}
    found = store.search(QUERY, N)
    assert found.missing is not None
    assert found.missing.startswith("2 of 3 shards of documents-")
    assert {name for name, _ in found.hits(0)} == set(IDS) - set(lost_ids(failing))
    for call in (lambda: len(store), lambda: list(store.ids())):
        with pytest.raises(UnavailableError, match="2 of 3 shards"):
            call()
    lucene_of(failing).lost = set()
    assert store.search(QUERY, N).missing is None
    store.close()
    with vo.open_index(place, engine_options="partial=true") as collection:
        for verb in ("evaluate", "mine"):
            with pytest.raises(ArgumentError, match=verb):
                collection.check_whole(verb)
    with pytest.raises(ArgumentError, match=r"'workers': .*partial"):
        vo.open_index(place, engine_options={"workers": 2})


@pytest.mark.slow
def test_a_partial_search_has_the_line_in_its_answer(
    failing: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, documents = failing.place(), tmp_path / "documents.jsonl"
    lines = [f'{{"_id": "{name}", "text": "copy a file, part {row}"}}' for row, name in enumerate(IDS)]
    documents.write_text("\n".join(lines))
    vo.index("vocable-mini", documents, place).close()
    whole = vo.search(place, ["copy a file"], N)
    assert "missing" not in whole[0].to_json()
    lucene_of(failing).lost = {1}
    with caplog.at_level(logging.WARNING, "vocable"):
        [answer] = vo.search(place, ["copy a file"], N, engine_options="partial=true")
    assert answer.to_json()["missing"] == answer.missing
    assert answer.missing.startswith("1 of 3 shards")
    assert "1 of 3 shards" in caplog.text
    assert {hit.document.id for hit in answer.hits} == set(IDS) - set(lost_ids(failing))
    with pytest.raises(UnavailableError, match="1 of 3 shards"):
        vo.search(place, ["copy a file"], N)
    with vo.open_index(place, engine_options={"partial": True}) as collection:
        seen = view(collection, ViewRequest(query="copy a file"), collection.models.queries().encode(["copy a file"]))
        assert seen.missing == answer.missing
        assert collection.count() is None


def test_a_write_names_what_is_not_written_and_is_repeated_without_doubles(failing: Cluster, corpus: Path) -> None:
    place = failing.place()
    index(corpus, place, bulk=64).close()
    store, documents = opened(place), [Document(name, f"text of {name}") for name in IDS]
    store.delete(IDS)
    lucene_of(failing).lost = {2}
    missing = lost_ids(failing)
    with pytest.raises(UnavailableError) as found:
        store.upsert(documents, {"sparse": csr_array(VECTORS)})
    assert sorted(found.value.unwritten) == sorted(missing)
    assert f"{len(missing)} documents not written: " in str(found.value)
    assert repr(missing[0]) in str(found.value)
    with pytest.raises(UnavailableError) as found:
        store.delete([missing[0], "none"])
    assert missing[0] in found.value.unwritten
    lucene_of(failing).lost = set()
    store.upsert(documents, {"sparse": csr_array(VECTORS)})
    store.close()
    assert_whole(place)


def test_the_reason_of_waiting_is_said_while_it_lasts(
    failing: Cluster, corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "QUIET_SECONDS", 0.1)
    place = failing.place()
    index(corpus, place).close()
    lucene_of(failing).lost = {1}
    store = opened(place)
    with caplog.at_level(logging.WARNING, "vocable"), pytest.raises(UnavailableError):
        store.upsert([Document(name, "new") for name in IDS], {"sparse": csr_array(VECTORS)})
    [line] = [record.getMessage() for record in caplog.records if record.name.endswith("engines.server")]
    assert "primary shard is not active" in line
    store.close()


@pytest.mark.parametrize(
    ("blocked", "error"),
    [
        ("index [x] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark]", NoSpaceError),
        ("index [x] blocked by: [FORBIDDEN/8/index write (api)];", VectorsError),
    ],
)
def test_an_index_that_cannot_be_written_ends_at_once(
    failing: Cluster, corpus: Path, blocked: str, error: type[Exception]
) -> None:
    place = failing.place()
    index(corpus, place).close()
    lucene_of(failing).blocked = blocked
    store = opened(place)
    failing.faults.plan([])
    with pytest.raises(error):
        store.upsert([Document("d1", "new")], {"sparse": csr_array(VECTORS[:1])})
    assert sum("_bulk" in path for _, path, _ in failing.faults.requests) == 1
    store.close()


def test_a_server_without_the_module_is_said(failing: Cluster, corpus: Path) -> None:
    lucene_of(failing).blocked = "no module"
    with pytest.raises(VectorsError):
        index(corpus, failing.place())


def test_a_server_without_dense_vectors_holds_sparse_ones(failing: Cluster, corpus: Path) -> None:
    lucene_of(failing).blocked = "no dense module"
    engine, address = engine_of(failing.place())
    with pytest.raises(VectorsError):
        engine.create(address, {"sparse": V, "dense": 3}, {})
    store = engine.create(address, {"sparse": V}, {})
    assert len(store) == 0
    store.close()


def test_a_graph_of_dense_vectors_that_are_not_there_is_refused(failing: Cluster) -> None:
    engine, address = engine_of(failing.place())
    with pytest.raises(ArgumentError):
        engine.create(address, {"sparse": V}, {"engine_options": {"dense": "hnsw"}})


def test_a_name_that_an_index_cannot_have_is_refused(failing: Cluster) -> None:
    for name in ("Documents", "_documents", "a,b", "a%20b"):
        with pytest.raises(ArgumentError):
            engines()[failing.engine].open(f"{failing.url}/{name}")


def test_an_alias_of_several_indexes_is_said(failing: Cluster, corpus: Path) -> None:
    first, second = failing.place(), failing.place()
    for place in (first, second):
        index(corpus, place).close()
    names = [place.rpartition("/")[2] for place in (first, second)]
    lucene = lucene_of(failing)
    lucene.aliases["alone"] = names[0]
    assert_whole(f"{failing.engine}+{failing.url}/alone")
    lucene.several["both"] = names
    with pytest.raises(VectorsError, match=", ".join(sorted(names))):
        engines()[failing.engine].open(f"{failing.url}/both")


def test_the_next_address_is_tried_when_one_is_gone(failing: Cluster, corpus: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        gone = f"127.0.0.1:{listening.getsockname()[1]}"
    host = failing.url.removeprefix("http://")
    for hosts in (f"{gone},{host}", f"{host},{gone}"):
        place = f"{failing.engine}+http://{hosts}/{failing.place().rpartition('/')[2]}"
        index(corpus, place, workers=2).close()
        assert_whole(place)
    with pytest.raises(VectorsError):
        engines()[failing.engine].open(f"http://{gone},{gone}/documents")


def test_frequencies_are_the_servers_and_are_kept_for_some_seconds(
    failing: Cluster, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, clock = failing.place(), [100.0]
    index(corpus, place).close()
    monkeypatch.setattr("vocable.engines.kept_counts.time.monotonic", lambda: clock[0])
    store = opened(place)
    failing.faults.plan([])
    columns, wanted = np.array([0, 1, 8, 20, 49]), (VECTORS > 0).sum(axis=0)
    for asked, requests in ((columns, 1), (columns[:3], 1), (np.array([1, 2, 3]), 2)):
        counts, documents = store.count_terms(asked)
        assert (counts.tolist(), documents) == (wanted[asked].tolist(), N)
        assert sum("_msearch" in path for _, path, _ in failing.faults.requests) == requests
    store.delete(IDS[:10])
    clock[0] += 100
    counts, documents = store.count_terms(columns)
    assert (counts.tolist(), documents) == ((VECTORS[10:] > 0).sum(axis=0)[columns].tolist(), N - 10)
    store.close()


@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
@pytest.mark.parametrize(
    ("status", "kind", "body", "said"),
    [
        (200, "application/json", b"{}", FOREIGN),
        (200, "application/json", b'{"took": 1, "hi', FOREIGN),
        (200, "text/html", b"<html>login</html>", FOREIGN),
        (302, "text/html", b"", f"{FOREIGN} (it redirects, 302)"),
        (413, "text/html", b"<html>too large</html>", "a lower bulk makes it smaller"),
        (404, "application/json", b'{"error": {"type": "index_not_found_exception"}, "status": 404}', "it was deleted"),
    ],
)
def test_what_a_proxy_answers_is_said_in_our_words(
    engine: str, status: int, kind: str, body: bytes, said: str, corpus: Path
) -> None:
    with cluster(engine) as failing:
        index(corpus, place := failing.place()).close()
        store = opened(place)
        failing.faults.answer = status, {"Content-Type": kind, "Location": "http://login/"}, body
        for call in (lambda: store.search(QUERY, 3), lambda: store.upsert([Document("d1", "x")], {"sparse": ONE})):
            with pytest.raises(VectorsError) as found:
                call()
            assert str(found.value).endswith(said)
            assert "html" not in str(found.value)
        failing.faults.answer = None
        store.close()


@pytest.mark.parametrize(
    "template", [{"_source": {"excludes": ["stored"]}}, {"_routing": {"required": True}}, {"dynamic": "strict"}]
)
def test_a_template_that_changes_an_index_is_named_and_nothing_is_left(
    failing: Cluster, corpus: Path, template: dict[str, Any]
) -> None:
    place, engine = failing.place(), lucene_of(failing)
    engine.template = template
    with pytest.raises(VectorsError) as found:
        index(corpus, place)
    assert f"an index template changes {next(iter(template))}: " in str(found.value)
    engine.template = {}
    index(corpus, place).close()
    assert_whole(place)


@pytest.mark.skipif("VOCABLE_OPENSEARCH" not in os.environ, reason="no server")
def test_a_template_of_a_real_server_is_named(corpus: Path) -> None:
    url, name = os.environ["VOCABLE_OPENSEARCH"], f"tpl{secrets.token_hex(4)}"
    ask = forwarding(url)
    template = {"index_patterns": [f"{name}*"], "template": {"mappings": {"_source": {"excludes": ["stored"]}}}}
    place = f"opensearch+{url}/{name}"
    assert ask("PUT", f"/_index_template/{name}", json.dumps(template).encode(), "")[0] == 200
    try:
        with pytest.raises(VectorsError) as found:
            index(corpus, place)
        assert "an index template changes _source: " in str(found.value)
    finally:
        ask("DELETE", f"/_index_template/{name}", b"", "")
    index(corpus, place).close()
    assert_whole(place)
    store = opened(place)
    ask("DELETE", f"/{name}", b"", "")
    with pytest.raises(GoneError):
        store.search(QUERY, 3)
    store.close()
