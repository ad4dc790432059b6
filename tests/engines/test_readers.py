"""Readers beside a writer, in one process and in several: each sees one commit whole, and what it was opened as."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.engines.reference import SETTINGS, SPACES, LiveDocuments, fill, make_documents, make_queries, make_vectors
from vocable.core import locks
from vocable.engines import folder as module
from vocable.engines.filters import parse_filter
from vocable.engines.folder import FolderStore
from vocable.engines.segmented import SegmentedStore
from vocable.errors import InUseError, VectorsError

FILTERS = [None, parse_filter("lang=de")]
IDS = [f"d{number:02}" for number in range(30)]
ALL = csr_array(np.ones((1, 30), np.float32))


def make_folder(folder: Path, live: LiveDocuments, seed: int = 0, **more: object) -> Path:
    """Make an index of some documents."""
    store = FolderStore.create(str(folder), SPACES, {"model": "m", **SETTINGS, **more})
    fill(store, live, IDS, seed)
    store.delete(["d07"])
    live.delete(["d07"])
    store.close()
    return folder


@pytest.fixture
def folder(tmp_path: Path, live: LiveDocuments) -> Path:
    return make_folder(tmp_path / "index", live)


# ---- in one process


def test_a_reader_follows_every_commit_and_a_view_none(folder: Path, live: LiveDocuments) -> None:
    writer, reader = (FolderStore.open(str(folder)) for _ in range(2))
    first, before = reader.pinned(), LiveDocuments()
    before.rows = dict(live.rows)
    versions = {reader.version()}
    for number in range(6):
        fill(writer, live, [f"n{number}-{row}" for row in range(number + 1)], number)
        live.check(reader, make_queries(number), FILTERS)
        assert writer.delete([f"n{number}-0", "d01"]) == live.delete([f"n{number}-0", "d01"])
        live.check_content(reader)
        versions.add(reader.version())
    assert len(versions) == 7
    assert reader.version() == reader.version() == writer.version()
    writer.optimize()
    live.check(reader, make_queries(9), FILTERS)
    before.check(first, make_queries(9), FILTERS)
    for store in (writer, reader):
        store.close()


def test_a_reader_opens_new_segments_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = (FolderStore.open(str(folder)) for _ in range(2))
    names, read = list[str](), module.read_arrays

    def reading(descriptor: int, kind: str, place: Any, **options: bool) -> Any:
        names.append(Path(place).name)
        return read(descriptor, kind, place, **options)

    monkeypatch.setattr(module, "read_arrays", reading)
    writer.upsert(make_documents(["new"], 1), make_vectors(1, 1))
    [written] = names
    names.clear()
    for _ in range(3):
        assert len(reader) == 30
    assert names == [written]
    names.clear()
    writer.delete(["new", "d03"])
    names.clear()
    assert len(reader) == 28
    assert [name.partition("-")[0] for name in names] == ["000001.gone"]


def test_a_commit_that_a_merge_overtakes_while_it_is_opened_is_read_again(
    folder: Path, live: LiveDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = (FolderStore.open(str(folder)) for _ in range(2))
    fill(writer, live, ["n1", "n2"], 1)
    read, calls = module.read_commit, 0

    def overtaken(directory: Any) -> Any:
        nonlocal calls
        commit, calls = read(directory), calls + 1
        if calls == 1:
            with monkeypatch.context() as patched:
                patched.setattr(module, "read_commit", read)
                writer.optimize()
        return commit

    with monkeypatch.context() as patched:
        patched.setattr(module, "read_commit", overtaken)
        assert len(reader) == 31
    assert calls > 1
    live.check(reader, make_queries(1), FILTERS)
    for store in (writer, reader):
        store.close()


def test_a_moved_folder_is_followed_by_readers_and_writers(folder: Path, live: LiveDocuments) -> None:
    writer, reader = (FolderStore.open(str(folder)) for _ in range(2))
    folder.rename(folder.with_name("moved"))
    fill(writer, live, ["new"], 1)
    live.check(reader, make_queries(1), FILTERS)
    live.check(writer, make_queries(1), FILTERS)
    assert not folder.exists()
    live.check(FolderStore.open(str(folder.with_name("moved"))), make_queries(1))
    for store in (writer, reader):
        store.close()


def test_a_writer_refuses_a_folder_that_was_replaced_and_a_reader_takes_it(folder: Path, live: LiveDocuments) -> None:
    """`mv index old; mv new index`, as an index is exchanged that is in use."""
    writer, reader = (FolderStore.open(str(folder)) for _ in range(2))
    view, other = reader.pinned(), LiveDocuments()
    make_folder(folder.with_name("new"), other, seed=7, source="elsewhere", fields=["a"])
    folder.rename(folder.with_name("old"))
    folder.with_name("new").rename(folder)
    for change in (lambda: writer.delete(["d01"]), lambda: writer.configure({}), writer.optimize):
        with pytest.raises(VectorsError, match="index was replaced since it was opened: open it again"):
            change()
    other.check(reader, make_queries(1), FILTERS)
    live.check(view, make_queries(1), FILTERS)
    for path, documents in ((folder, other), (folder.with_name("old"), live)):
        store = FolderStore.open(str(path))
        documents.check(store, make_queries(1))
        store.close()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "other"}, "model"),
        ({"language": "german"}, "language"),
        ({"dense": "x"}, "dense"),
        ({"limits": 7}, "limits"),
    ],
)
def test_a_reader_refuses_an_index_of_another_model_in_its_place(
    folder: Path, live: LiveDocuments, changed: dict[str, object], said: str
) -> None:
    reader = FolderStore.open(str(folder))
    view = reader.pinned()
    make_folder(folder.with_name("new"), LiveDocuments(), seed=7, **changed)
    folder.rename(folder.with_name("old"))
    folder.with_name("new").rename(folder)
    for _ in range(2):
        with pytest.raises(
            VectorsError, match=rf"index: another index took its place \({said} differ\): open it again"
        ):
            reader.search(ALL)
    live.check(view, make_queries(1))
    shutil.rmtree(folder)
    folder.with_name("old").rename(folder)
    live.check(reader, make_queries(1))


def test_a_removed_folder_stays_readable_and_is_not_changed(folder: Path, live: LiveDocuments) -> None:
    store = FolderStore.open(str(folder))
    shutil.rmtree(folder)
    live.check(store, make_queries(1), FILTERS)
    with pytest.raises(VectorsError, match="index was removed since it was opened"):
        store.delete(["d01"])
    assert not folder.exists()
    other = LiveDocuments()
    make_folder(folder, other, seed=3)
    other.check(store, make_queries(1), FILTERS)


def test_a_copy_is_an_index_of_its_own(folder: Path, live: LiveDocuments) -> None:
    store, other = FolderStore.open(str(folder)), LiveDocuments()
    shutil.copytree(folder, folder.with_name("copy"))
    other.rows = dict(live.rows)
    copy = FolderStore.open(str(folder.with_name("copy")))
    fill(copy, other, ["copied"], 1)
    fill(store, live, ["original"], 2)
    live.check(store, make_queries(1))
    other.check(copy, make_queries(1))
    assert store.version() != copy.version()


def test_answers_and_views_outlive_a_closed_store(folder: Path, live: LiveDocuments) -> None:
    store = FolderStore.open(str(folder))
    view, ranking = store.pinned(), store.search(ALL, 5)
    expected = ranking.hits(0)
    store.close()
    shutil.rmtree(folder)
    assert ranking.hits(0) == pickle.loads(pickle.dumps(ranking)).hits(0) == expected
    live.check(view, make_queries(1))


def test_threads_read_whole_commits_while_one_writes(folder: Path) -> None:
    """Every commit gives all documents one year, and adds a document."""
    store, reader, stop, errors = FolderStore.open(str(folder)), FolderStore.open(str(folder)), Event(), list[str]()

    def write(number: int) -> None:
        documents = [document._replace(fields={"year": number}) for document in make_documents(IDS, 0)]
        with store.changing():
            store.upsert(documents, make_vectors(30, 0))
            store.upsert(make_documents([f"n{number}"], number), make_vectors(1, number))

    def read(opened: SegmentedStore) -> None:
        try:
            while not stop.is_set():
                view = opened.pinned()
                years = {document.fields["year"] for document in view.documents(IDS) if document and document.fields}
                hits = {name for name, _ in view.search(ALL, 99).hits(0)}
                if len(years) > 1 or len(view) != len([*view.ids()]) or not hits <= {*view.ids()}:
                    errors.append(f"{years} {len(view)}")
        except BaseException as error:
            errors.append(repr(error))

    write(0)
    threads = [Thread(target=read, args=(opened,)) for opened in (store, reader, reader)]
    for thread in threads:
        thread.start()
    for number in range(1, 25):
        write(number)
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(reader) == 55


# ---- writers


def test_a_writer_waits_for_another_writer(
    folder: Path, live: LiveDocuments, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "QUIET_SECONDS", 0.1)
    first, second, began = FolderStore.open(str(folder)), FolderStore.open(str(folder)), Event()

    def slow() -> None:
        with first.changing():
            fill(first, live, ["slow"], 1)
            began.set()
            time.sleep(0.6)

    thread = Thread(target=slow)
    thread.start()
    assert began.wait(30)
    with caplog.at_level(logging.WARNING):
        fill(second, live, ["patient"], 2)
    thread.join()
    assert [f"index is in use by process {os.getpid()} since" in message for message in caplog.messages] == [True]
    live.check(first, make_queries(1))
    live.check(second, make_queries(1))


def test_a_writer_whose_patience_ends_names_the_other_and_changes_nothing(
    folder: Path, live: LiveDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    first, second = FolderStore.open(str(folder)), FolderStore.open(str(folder))
    with first.alone():
        with pytest.raises(
            InUseError, match=rf"index is in use by process {os.getpid()} since .*: wait until it is done"
        ):
            second.delete(["d01"])
        live.check(second, make_queries(1))  # readers do not wait
    assert second.delete(["d01"]) == 1


def test_two_writers_take_turns(folder: Path, live: LiveDocuments) -> None:
    first, second = FolderStore.open(str(folder)), FolderStore.open(str(folder))
    for number in range(10):
        for name, store in (("a", first), ("b", second)):
            fill(store, live, [f"{name}{number}", f"both{number}"], number)
    live.check(first, make_queries(1), FILTERS)
    live.check(second, make_queries(1), FILTERS)


# ---- other processes


def run_child(call: Callable[[], object]) -> None:
    """Call a function in a forked child, which must end without an error."""
    child = os.fork()
    if not child:
        status = 1
        try:
            call()
            status = 0
        except BaseException as error:
            print(f"child: {error!r}", file=sys.__stderr__)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_children_search_open_anew_and_write(folder: Path, live: LiveDocuments) -> None:
    store = FolderStore.open(str(folder))
    live.check(store, make_queries(1))

    def work() -> None:
        live.check(store, make_queries(2))
        again = FolderStore.open(str(folder))
        live.check(again, make_queries(3))
        fill(store, live, ["child"], 4)
        live.check(again, make_queries(3))

    run_child(work)
    fill(store, live, ["child"], 4)
    live.check(store, make_queries(3))
    fill(store, live, ["parent"], 5)
    live.check(store, make_queries(3))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_is_forked_during_a_change_reads_at_once_and_waits_to_write(
    folder: Path, live: LiveDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread holds all locks of the store at the fork."""
    store, began, go_on = FolderStore.open(str(folder)), Event(), Event()

    def change() -> None:
        with store.changing(), store._look_lock:
            began.set()
            go_on.wait(60)

    thread = Thread(target=change)
    thread.start()
    assert began.wait(30)
    monkeypatch.setattr(module, "PATIENCE", 0.1)

    def work() -> None:
        live.check(store, make_queries(2))
        live.check(FolderStore.open(str(folder)), make_queries(2))
        with pytest.raises(InUseError, match=f"in use by process {os.getppid()} "):
            store.delete(["d01"])

    run_child(work)
    go_on.set()
    thread.join()
    run_child(lambda: store.delete(["d01"]))
    live.delete(["d01"])
    live.check(store, make_queries(3))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_writer_that_is_killed_leaves_the_commit_before_and_its_lock(folder: Path, live: LiveDocuments) -> None:
    store = FolderStore.open(str(folder))

    def killed() -> None:
        with store.changing():
            store.upsert(make_documents(["lost"], 1), make_vectors(1, 1))
            os.kill(os.getpid(), 9)

    child = os.fork()
    if not child:
        killed()
    assert os.waitpid(child, 0)[1] == 9
    assert (folder / "lock").read_text().startswith(f"process {child}")
    live.check(store, make_queries(1))
    fill(store, live, ["new"], 2)
    live.check(store, make_queries(1))
    assert (folder / "lock").read_text() == ""


READER = """
import json, sys
import numpy as np
from scipy.sparse import csr_array
from vocable.engines.folder import FolderStore
store, query, states = FolderStore.open(sys.argv[1]), csr_array(np.ones((1, 30), np.float32)), []
print("open", flush=True)
while True:
    view = store.pinned()
    hits = view.search(query, 99).hits(0)
    years = {document.fields["year"] for document in view.documents([name for name, _ in hits])}
    states.append([view.now().number, sorted(years), len(view), len(hits)])
    if len(view) == 1:
        break
print(json.dumps(states))
"""


def test_another_process_reads_whole_commits_of_a_folder_that_is_moved(tmp_path: Path) -> None:
    """Each commit replaces all documents by one more, of another year; halfway the folder is moved."""
    store = FolderStore.create(str(tmp_path / "index"), {"sparse": 30}, {})

    def put(count: int) -> None:
        documents = [document._replace(fields={"year": count}) for document in make_documents(IDS[:count], count)]
        with store.changing():
            store.delete(IDS)
            store.upsert(documents, {"sparse": csr_array(np.ones((count, 30), np.float32))})

    put(2)
    command = [sys.executable, "-c", READER, str(tmp_path / "index")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        for count in range(3, 31):
            put(count)
            if count == 15:
                (tmp_path / "index").rename(tmp_path / "moved")
            time.sleep(0.02)
        put(1)
        states = json.loads(process.stdout.read())
    numbers = [number for number, _, _, _ in states]
    assert numbers == sorted(numbers)
    assert len({*numbers}) > 5
    for number, years, documents, hits in states[:-1]:
        assert (years, documents, hits) == ([number + 1], number + 1, number + 1)
    assert states[-1] == [30, [1], 1, 1]
