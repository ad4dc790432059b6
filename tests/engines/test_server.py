"""Indexing to a server that fails as a cluster does: nothing is lost, nothing is there twice, and there is an end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import vocable as vo
from tests.engines.cluster import Faults, Proxy, serving_http
from tests.engines.lucene_server import Engine, serving
from vocable.data import Document
from vocable.encoding.vectors import VectorsMeta, write_vectors
from vocable.engines import patience, server
from vocable.engines.base import Store
from vocable.engines.protocols import engine_of, engines
from vocable.engines.server import seconds_of
from vocable.errors import ArgumentError, UnavailableError, VectorsError

V, N = 50, 40
DRIVERS = {"elasticsearch": "elasticsearch", "opensearch": "opensearchpy", "qdrant": "qdrant_client"}
ANY = ["429", "429 1", "503", "503 1", "cut before", "cut after", "cut inside", "slow"]
LUCENE = ["partly busy", "reordered"]
IDS = [f"d{row}" for row in range(N)]
VECTORS = np.where(np.arange(V) % 7 == np.arange(N)[:, None] % 7, np.float32(1.5), np.float32(0))


@dataclass
class Cluster:
    """A server with faults to plan, and new places on it."""

    engine: str
    url: str
    faults: Faults = field(default_factory=Faults)
    lucene: Engine | None = None
    made: int = 0

    def place(self) -> str:
        self.made += 1
        return f"{self.engine}+{self.url}/documents-{self.made}"


@contextmanager
def cluster(engine: str) -> Iterator[Cluster]:
    """The engine's server, with patience, pauses and requests of tests' length."""
    pytest.importorskip(DRIVERS[engine])
    faults = Faults()
    with ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {
            "WRITE_PATIENCE": 8.0,
            "SEARCH_PATIENCE": 3.0,
            "FIRST_PAUSE": 0.01,
            "LONGEST_PAUSE": 0.05,
        }.items():
            patched.setattr(patience if hasattr(patience, name) else server, name, value)
        patched.setattr(patience, "TIMEOUT", 0.4)
        patched.setattr("vocable.engines.qdrant.TIMEOUT", 0.4)
        if engine == "qdrant":
            from tests.engines.qdrant_server import QdrantEngine

            made = serving_http(QdrantEngine().answer, {"Content-Type": "application/json"}, faults)
            lucene = None
        else:
            lucene = Engine(engine)
            made = serving(engine, faults, lucene)
        yield Cluster(engine, stack.enter_context(made), faults, lucene)


@pytest.fixture(scope="module", params=list(DRIVERS))
def failing(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `corpus.jsonl`, and the vectors of its documents as two shards."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def write_corpus(folder: Path) -> Path:
    lines = [json.dumps({"_id": name, "text": f"text of {name}"}) for name in IDS]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    meta = VectorsMeta("v", "model", "max", "document", 8, V)
    for number, rows in enumerate((slice(0, 25), slice(25, N))):
        write_vectors(folder / f"part-{number}.parquet", IDS[rows], csr_array(VECTORS[rows]), meta)
    return folder


def index(corpus: Path, place: str, *, replace: bool = False, **options: Any) -> Any:
    files = [str(path) for path in sorted(corpus.glob("*.parquet"))]
    given: Any = {name: value for name, value in {"bulk": 16, **options}.items() if value is not None}
    return vo.index(files, str(corpus / "corpus.jsonl"), place, engine_options=given, replace=replace, bm25=False)


def assert_whole(place: str) -> None:
    """Every document is there, once, as it was."""
    engine, address = engine_of(place)
    store: Store = engine.open(address)
    assert store.settings["whole"]
    assert (len(store), sorted(store.ids())) == (N, sorted(IDS))
    assert store.documents(IDS) == [Document(name, f"text of {name}") for name in IDS]
    np.testing.assert_array_equal(csr_array(store.vectors(IDS)).toarray(), VECTORS)
    query = csr_array(np.ones((1, V), np.float32))
    assert sorted(name for name, _ in store.search(query, N).hits(0)) == sorted(IDS)
    store.close()


def some_of(failing: Cluster) -> list[str]:
    return ANY + (LUCENE if failing.engine != "qdrant" else [])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ANY + LUCENE)
def test_a_fault_while_indexing_is_survived(failing: Cluster, corpus: Path, fault: str) -> None:
    if fault not in some_of(failing):
        pytest.skip("requests are whole or absent")
    place = failing.place()
    failing.faults.plan(["", fault])
    index(corpus, place).close()
    assert failing.faults.met == ["", fault]
    assert_whole(place)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(
    faults=st.lists(st.sampled_from(["", *ANY, *LUCENE]).filter(lambda fault: fault not in ("slow", "429 1", "503 1")))
)
def test_any_series_of_faults_is_survived(failing: Cluster, corpus: Path, faults: list[str]) -> None:
    place = failing.place()
    failing.faults.plan(fault for fault in faults if fault in ["", *some_of(failing)])
    index(corpus, place, workers=3).close()
    assert_whole(place)


@pytest.mark.parametrize("fault", ["429", "503", "cut before", "cut after"])
def test_a_server_that_stays_away_ends_the_command_which_then_resumes(
    failing: Cluster, corpus: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "WRITE_PATIENCE", 0.5)
    monkeypatch.setattr(f"vocable.engines.{failing.engine}.ENGINE.about", small_parts(failing.engine))
    place, began = failing.place(), time.monotonic()
    failing.faults.plan(["", "", *[fault] * 1000])
    with pytest.raises(UnavailableError) as found:
        index(corpus, place)
    assert time.monotonic() - began < 5
    message = str(found.value)
    assert failing.url in message
    assert "resumes" in message
    assert "32 documents written" in message
    with pytest.raises(VectorsError):
        vo.open_index(place)
    failing.faults.plan([])
    index(corpus, place).close()
    assert_whole(place)


def small_parts(engine: str) -> Any:
    from dataclasses import replace

    return replace(engines()[engine].about, part=16)


@pytest.mark.slow
def test_the_pause_that_the_server_asks_for_is_kept(failing: Cluster, corpus: Path) -> None:
    failing.faults.plan(["429 1", "503 1"])
    index(corpus, failing.place()).close()
    first, second, third = failing.faults.begun[:3]
    assert second - first >= 1
    assert third - second >= 1


def test_a_pause_beyond_the_patience_ends_at_once(failing: Cluster, corpus: Path) -> None:
    failing.faults.plan(["429 100"])
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="100 s"):
        index(corpus, failing.place())
    assert time.monotonic() - began < 3


def test_a_search_is_repeated_but_not_as_long(failing: Cluster, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = failing.place()
    index(corpus, place).close()
    engine, address = engine_of(place)
    store = engine.open(address)
    query = csr_array(np.ones((1, V), np.float32))
    wanted = store.search(query, 5).hits(0)
    for fault in ("429", "503", "cut before", "cut inside", "slow"):
        failing.faults.plan([fault])
        assert store.search(query, 5).hits(0) == wanted
        assert failing.faults.met == [fault]
    monkeypatch.setattr(patience, "SEARCH_PATIENCE", 0.1)
    failing.faults.plan(["503"], forever=True)
    with pytest.raises(UnavailableError, match="503"):
        store.search(query, 5)
    failing.faults.plan([])
    store.close()


@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
def test_a_document_that_the_server_refuses_is_named_with_its_reason(engine: str, corpus: Path) -> None:
    with cluster(engine) as failing:
        place = failing.place()
        failing.faults.plan(["partly refused"])
        with pytest.raises(VectorsError, match=r"'d1'.*document_parsing_exception"):
            index(corpus, place)
        assert failing.faults.met == ["partly refused"]
        index(corpus, place).close()
        assert_whole(place)


@pytest.mark.parametrize(
    ("engine", "options", "said"),
    [
        ("elasticsearch", {}, {}),
        (
            "elasticsearch",
            {"shards": 3, "replicas": 0, "refresh": "30s"},
            {"settings": {"index": {"number_of_shards": 3, "number_of_replicas": 0, "refresh_interval": "30s"}}},
        ),
        ("opensearch", {"replicas": 2}, {"settings": {"index": {"number_of_replicas": 2}}}),
        (
            "qdrant",
            {"shards": 3, "replicas": 1, "write_consistency": 2},
            {"shard_number": 3, "replication_factor": 2, "write_consistency_factor": 2},
        ),
    ],
)
def test_options_reach_the_server(
    engine: str, options: dict[str, object], said: dict[str, object], corpus: Path
) -> None:
    with cluster(engine) as failing:
        place = failing.place()
        index(corpus, place, workers=2, **options).close()
        assert_whole(place)
        body = next(
            content for method, path, content in failing.faults.requests if path.endswith("1") and method == "PUT"
        )
        sent = json.loads(body)
        names = ("settings", "shard_number", "replication_factor", "write_consistency_factor")
        assert {name: sent[name] for name in names if sent.get(name) is not None} == said
        refreshed = sum(path.endswith("_refresh") for _, path, _ in failing.faults.requests)
        assert refreshed == (0 if engine == "qdrant" else 1 if "refresh" in options else 2)
        with pytest.raises(ArgumentError):
            index(corpus, place, shards=7)


@pytest.mark.parametrize("options", ["shards=0", "replicas=-1", "workers=0", "partitions=2"])
def test_an_option_that_is_wrong_is_refused_before_anything(options: str) -> None:
    with pytest.raises(ArgumentError, match=options.partition("=")[0]):
        engines()["opensearch"].parse_options(options)


@pytest.mark.parametrize("fault", ["cut before", "cut after"])
def test_milvus_is_asked_again_when_its_connection_is_cut(corpus: Path, tmp_path: Path, fault: str) -> None:
    """Milvus Lite behind a proxy; the driver repeats requests."""
    pytest.importorskip("milvus_lite")
    from milvus_lite.server_manager import server_manager_instance

    url = server_manager_instance.start_and_get_uri(str(tmp_path / "lite.db"))
    proxy = Proxy(("127.0.0.1", int(str(url).rpartition(":")[2])), lambda data: b"text of d7" in data)
    proxy.waiting.append(fault)
    place = f"milvus+http://127.0.0.1:{proxy.port}/documents"
    index(corpus, place, bulk=None, shards=2).close()
    assert proxy.met == [fault]
    assert_whole(place)
    proxy.close()
    server_manager_instance.release_server(str(tmp_path / "lite.db"))


@pytest.mark.parametrize("engine", list(DRIVERS))
def test_an_address_without_a_server_is_said_at_once(engine: str) -> None:
    pytest.importorskip(DRIVERS[engine])
    began = time.monotonic()
    with pytest.raises(VectorsError):
        engines()[engine].open("http://127.0.0.1:9/documents")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("engine", list(DRIVERS))
@pytest.mark.parametrize(("status", "said"), [(401, "wrong or missing"), (403, "may not do this")])
def test_a_login_that_the_server_refuses_is_said_at_once(engine: str, status: int, said: str) -> None:
    pytest.importorskip(DRIVERS[engine])
    error = {"type": "security_exception", "reason": "unable to authenticate user [me]"}
    headers = {"Content-Type": "application/json", "X-Elastic-Product": "Elasticsearch"}
    began = time.monotonic()
    with serving_http(lambda *given: (status, {"error": error, "status": status}), headers) as url:
        address = url.replace("//", "//me:hunter2@") + "/documents"
        with pytest.raises(VectorsError, match=rf"{said}.*{status}") as found:
            engines()[engine].open(address)
    assert "hunter2" not in str(found.value)
    assert time.monotonic() - began < 3


def test_a_key_without_encryption_is_said(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("qdrant_client")
    for address, lines in (("https://:hunter2@h/x", 0), ("http://h/x", 0), ("http://:hunter2@h/x", 1)):
        engines()["qdrant"](address, new=True).close()
        assert [record.getMessage().count("without encryption") for record in caplog.records] == [1] * lines
    assert "hunter2" not in caplog.text


def test_the_header_retry_after_is_a_number_or_a_date() -> None:
    assert [seconds_of(header) for header in (None, "", "7", "-7", "x")] == [0, 0, 7, 0, 0]
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    assert 20 < seconds_of(later) <= 30
    assert seconds_of("Thu, 01 Jan 1970 00:00:00 GMT") == 0


def test_pauses_grow_at_random_and_end_within_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses grow, each has a random part, and none begins that would end after the patience."""
    clock: list[float] = [0.0]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    for name, value in {
        "WRITE_PATIENCE": 180.0,
        "SEARCH_PATIENCE": 20.0,
        "FIRST_PAUSE": 0.5,
        "LONGEST_PAUSE": 15.0,
    }.items():
        monkeypatch.setattr(
            patience if hasattr(patience, name) else server, name, value
        )  # as they are without the clusters of these tests
    monkeypatch.setattr(server.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(server.time, "sleep", sleep)

    class Away(server.ServerStore):
        place = "somewhere"

    monkeypatch.setattr(Away, "__abstractmethods__", frozenset())
    store: Any = object.__new__(Away)

    def call() -> Callable[[], None]:
        raise server.BusyError("busy")

    with patience.patiently(), pytest.raises(UnavailableError):
        store._ask(call)
    assert 180 - 0.5 <= sum(pauses) <= 180  # no pause is shorter than half a second
    assert all(0.5 <= pause / min(0.5 * 2**n, 15) <= 1 for n, pause in enumerate(pauses[:-1], 1))
    pauses.clear()
    with pytest.raises(UnavailableError):
        store._ask(call)
    assert sum(pauses) == pytest.approx(20)
