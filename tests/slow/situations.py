"""Situations of an open index, each tried with real processes: forks, threads, handles, pickles, folders that change.

    python tests/slow/situations.py
    python tests/slow/situations.py --only fork

Every situation runs in a process of its own on a copy of an index, and ends right, or with what went wrong. A process
that does not end is a hang. The exit status is 1 if a situation does not end right.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import logging
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from brute_force import (
    BruteForce,
    answers_of,
    check_answers,
    check_counts,
    make_index,
    open_words,
    random_document,
)
from preloaded import end, start

import vocable as vo
import vocable.engines.folder as folder_engine
from vocable.collection.collection import Collection
from vocable.data import Document
from vocable.engines.folder import FolderStore
from vocable.errors import ArgumentError, InUseError, NoSpaceError, VectorsError, VocableError
from vocable.indexes.words import WeighedWords

N = 60  # documents of the index
LIMIT = 60  # seconds of a situation
CHILD = 30  # seconds of a process that it starts
NOBODY = 65_534
TEXTS = ["The fox reads at night.", "A librarian indexes sparse vectors.", "Owls forget the lazy dog."]
SITUATIONS: dict[str, Callable[[Path], None]] = {}
quick = False


def times(count: int) -> int:
    """Return how often something is repeated that chance may decide."""
    return count // 4 if quick else count


class NotTriedError(Exception):
    """A situation that cannot be made on this machine."""


def situation(name: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Add a function to the table under a name; it is given a folder with a copy of the index."""

    def add(function: Callable[[Path], None]) -> Callable[[Path], None]:
        SITUATIONS[name] = function
        return function

    return add


@cache
def documents(seed: int = 0) -> list[Document]:
    """Return the documents of the index."""
    rng = random.Random(seed)
    return [random_document(f"d{number}", rng, 8, 1) for number in range(N)]


def new(identifier: str) -> Document:
    """Return the document that is added under an id."""
    return random_document(identifier, random.Random(identifier), 8, 1)


def check(index: Collection, *added: str, gone: tuple[str, ...] = (), seed: int = 0) -> None:
    """Compare an index with brute force over its first documents, without `gone`, and what was `added`."""
    stored = [document for document in documents(seed) if document.id not in gone] + [new(name) for name in added]
    view, force, rows = index.current(), BruteForce(stored), np.arange(len(stored))
    assert sorted(view.store.ids()) == sorted(document.id for document in stored), "other documents"
    check_answers(answers_of(view, 7), force.answers(rows, 7))
    check_counts(view, force, rows)


def says_in_one_line(error: VocableError, *words: str, what: str = "") -> None:
    """Check the message of an error."""
    missing = [word for word in words if word not in str(error)]
    assert not missing, f"{what}the message does not say {missing}: {error}"
    assert "\n" not in str(error), f"{what}a message of several lines: {error}"


def refused(kind: type[VocableError], *says: str, by: Callable[[], object]) -> None:
    """Check that a call raises an error that says these words."""
    try:
        by()
    except kind as error:
        says_in_one_line(error, *says)
        return
    raise AssertionError("it was not refused")


def in_fork(function: Callable[[], object], limit: float = CHILD) -> None:
    """Call a function in a fork of this process, as it is; raise `AssertionError` unless it ends well in time."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            function()
            status = 0
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(status)
    os.close(writer)
    until = time.monotonic() + limit
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until:
        time.sleep(0.005)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError(f"the fork hangs after {limit} s")
    said = os.read(reader, 4000).decode()
    os.close(reader)
    assert ended[1] == 0, f"the fork: {said or os.waitstatus_to_exitcode(ended[1])}"


def digest(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder but for the lock."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "lock"}


@contextmanager
def busy(*functions: Callable[[], object]) -> Iterator[None]:
    """Call functions in threads, over and over, during the block."""
    over, errors = threading.Event(), list[BaseException]()

    def repeat(function: Callable[[], object]) -> None:
        try:
            while not over.is_set():
                function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not errors, f"a thread: {errors[0]!r}"


@situation("fork: search, add, and open anew")
def _fork(folder: Path) -> None:
    index = open_words(folder / "index")
    check(index)

    def child() -> None:
        check(index)
        check(open_words(folder / "index"))
        index.add([new("child")])
        check(index, "child")

    in_fork(child)
    check(index, "child")
    index.add([new("parent")])
    in_fork(lambda: check(index, "child", "parent"))


@situation("fork while the parent is changing the index")
def _fork_of_a_writer(folder: Path) -> None:
    index = open_words(folder / "index")
    with index.store.changing():
        child = os.fork()
        if not child:
            try:
                check(index)
                index.add([new("child")])  # waits for the parent
                os._exit(0)
            finally:
                os._exit(1)
        time.sleep(0.3)
        index.writer.add_stream([new("parent")])
    assert os.waitpid(child, 0)[1] == 0, "the fork failed"
    check(index, "parent", "child")


@situation("forks while threads of the parent search and add")
def _forks_beside_threads(folder: Path) -> None:
    index = open_words(folder / "index")
    numbers = iter(range(10**6))

    def add() -> None:
        index.add([new(f"t{next(numbers) % 5}"), random_document("other", random.Random(next(numbers)), 8, 1)])

    def child() -> None:
        answers_of(index.current(), 5)
        assert len(open_words(folder / "index")) == len(index)

    for _ in range(5):
        add()  # from now on, additions replace
    with busy(add, partial(lambda: answers_of(index.current(), 5))):
        for _ in range(times(25)):
            in_fork(child)


@situation("a fork while a thread of the parent weighs words")
def _fork_in_a_search(folder: Path) -> None:
    index, weigh, inside = open_words(folder / "index"), WeighedWords._weigh, threading.Event()

    def slowly(*arguments: Any) -> None:
        inside.set()
        time.sleep(0.05)
        weigh(*arguments)

    cast(Any, WeighedWords)._weigh = slowly
    thread = threading.Thread(target=lambda: answers_of(index.current(), 5))
    thread.start()
    inside.wait()
    in_fork(lambda: check(index))
    thread.join()


@situation("a fork of a process with a loaded model: text queries")
def _fork_with_model(folder: Path) -> None:
    index = vo.index("vocable-mini", TEXTS, folder / "texts")
    first = vo.search(index, ["a fox at night"], 2)[0].hits

    def child() -> None:
        hits = vo.search(index, ["a fox at night"], 2)[0].hits
        assert [(hit.document.id, hit.score) for hit in hits] == [(hit.document.id, hit.score) for hit in first]
        vo.add(index, [Document("child", "Foxes sleep by day.")])
        assert vo.search(folder / "texts", ["foxes by day"], 1)[0].hits[0].document.id == "child"

    in_fork(child)
    with busy(lambda: vo.search(index, ["a fox at night"], 2)):
        for attempt in range(times(60)):  # at many moments of a search: while it tokenizes, runs a graph, or ranks
            time.sleep(0.0037 * (attempt % 7))
            in_fork(lambda: vo.search(index, ["owls that forget"], 2)[0].hits)
    assert len(index) == 4


def search_and_add(index: Collection, name: str) -> None:
    """Search the index that another process has sent, and add a document."""
    opened = index if name.startswith("fork ") else open_words(Path(index.place))
    answers_of(opened.current(), 5)
    assert len(index) >= N
    opened.add([new(name)])


@situation("multiprocessing: fork, spawn and forkserver are given an open index")
def _multiprocessing(folder: Path) -> None:
    index, added = open_words(folder / "index"), list[str]()
    search_and_add(index, "parent")
    added.append("parent")
    for method in ("fork", "forkserver", "spawn"):
        context: Any = multiprocessing.get_context(method)
        names = [f"{method} {number}" for number in range(2)]
        children = [context.Process(target=search_and_add, args=(index, name)) for name in names]
        for child in children:
            child.start()
        for child in children:
            child.join(CHILD)
            assert child.exitcode == 0, f"{method}: {child.exitcode}"
        added += names
    check(index, *added)


@situation("two handles of a process, one of which is closed")
def _two_handles(folder: Path) -> None:
    first, second = open_words(folder / "index"), open_words(folder / "index")
    first.add([new("first")])
    check(second, "first")
    view = second.current()
    second.close()
    check(first, "first")
    check(view, "first")
    refused(VectorsError, "closed", by=lambda: len(second))
    refused(VectorsError, "closed", by=lambda: second.add([new("second")]))
    first.add([new("again")])
    check(first, "first", "again")
    first.close()
    check(open_words(folder / "index"), "first", "again")


@situation("eight threads that add, on one handle and on two")
def _threads(folder: Path) -> None:
    handles = [open_words(folder / "index") for _ in range(2)]
    for part, indexes in enumerate(([handles[0]], handles)):

        def add(thread: int, part: int = part, indexes: list[Collection] = indexes) -> None:
            for number in range(times(40)):
                indexes[thread % len(indexes)].add([new(f"{part} {thread} {number}")])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(8)))
    names = [f"{part} {thread} {number}" for part in range(2) for thread in range(8) for number in range(times(40))]
    for index in handles:
        check(index, *names)


@situation("a pickled index, answers and retriever")
def _pickles(folder: Path) -> None:
    index = vo.index("vocable-mini", TEXTS, folder / "texts")
    again = pickle.loads(pickle.dumps(index))
    assert (again.place, len(again)) == (index.place, len(index))
    answers = vo.search(index, ["a fox"], 2)
    hits = answers[0].hits
    index.close()
    assert answers[0].hits == hits
    copied = pickle.loads(pickle.dumps(answers))
    assert copied[0].hits == hits
    from vocable.integrations.searcher import Searcher

    retriever = pickle.loads(pickle.dumps(Searcher(again, 2)))
    assert [hit.document for hit in retriever.hits("a fox")] == [hit.document for hit in hits]
    refused(ArgumentError, "memory", by=lambda: pickle.dumps(vo.index("vocable-mini", TEXTS)))


@situation("a folder that is moved under a reader and a writer")
def _moved(folder: Path) -> None:
    index, place, moved = open_words(folder / "index"), folder / "index", folder / "moved"
    place.rename(moved)
    check(index)
    index.add([new("followed")])
    check(index, "followed")
    check(open_words(moved), "followed")
    assert not place.exists(), "the folder is there again"
    refused(VectorsError, "there is no index here", by=lambda: open_words(place))


def _swap(folder: Path) -> None:
    (folder / "index").rename(folder / "old")
    (folder / "new").rename(folder / "index")


@situation("a folder that is swapped under a reader")
def _swapped_under_reader(folder: Path) -> None:
    make_index(documents(1), folder / "new")
    index = open_words(folder / "index")
    view = index.current()
    check(index)
    _swap(folder)
    check(index, seed=1)
    check(view)
    refused(VectorsError, str(folder / "index"), "replaced", by=lambda: index.add([new("after")]))
    check(index, seed=1)
    check(open_words(folder / "old"))


@situation("a folder that is swapped under a writer")
def _swapped_under_writer(folder: Path) -> None:
    make_index(documents(1), folder / "new")
    index = open_words(folder / "index")
    old, other = digest(folder / "index"), digest(folder / "new")
    _swap(folder)
    refused(VectorsError, str(folder / "index"), "replaced", by=lambda: index.store.delete(["d1"]))
    assert (digest(folder / "old"), digest(folder / "index")) == (old, other), "a file has changed"
    index = open_words(folder / "index")
    (folder / "old").rename(folder / "new")
    with index.store.changing():
        index.store.delete(["d1"])
        _swap(folder)
    check(open_words(folder / "old"), gone=("d1",), seed=1)
    assert digest(folder / "index") == old, "the other index has changed"


@situation("a folder that another index with other settings takes")
def _swapped_by_another(folder: Path) -> None:
    vo.index("vocable-mini", TEXTS, folder / "new").close()
    index = open_words(folder / "index")
    old, other = digest(folder / "index"), digest(folder / "new")
    _swap(folder)
    for call in (lambda: len(index), lambda: index.add([new("x")]), lambda: index.delete(["d1"])):
        refused(VectorsError, str(folder / "index"), "open it again", by=call)
    assert (digest(folder / "old"), digest(folder / "index")) == (old, other), "a file has changed"


@situation("a folder that is removed, and made again")
def _removed(folder: Path) -> None:
    place, index = folder / "index", open_words(folder / "index")
    view = index.current()
    shutil.rmtree(place)
    check(index)
    check(view)
    refused(VectorsError, str(place), "removed", by=lambda: index.add([new("lost")]))
    assert not place.exists(), "the folder is there again"
    make_index(documents(1), place)
    check(view)
    writer = open_words(place)
    check(index, seed=1)
    writer.add([new("again")])
    check(index, "again", seed=1)
    shutil.rmtree(place)
    again = vo.index("vocable-mini", TEXTS, place)
    assert len(again) == 3
    refused(VectorsError, "open it again", by=lambda: len(index))


def _mount(folder: Path, *options: str) -> None:
    if os.geteuid() or subprocess.run(["mount", *options, folder], capture_output=True, check=False).returncode:
        raise NotTriedError("no permission to mount")


@situation("a read-only bind mount")
def _bind_mount(folder: Path) -> None:
    mounted = folder / "mounted"
    mounted.mkdir()
    _mount(mounted, "--bind", str(folder / "index"))
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", mounted], check=True)
        index = open_words(mounted)
        check(index)
        for call in (lambda: index.add([new("x")]), lambda: index.delete(["d1"])):
            refused(ArgumentError, str(mounted), "cannot be changed", by=call)
        check(index)
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)


def _as_nobody(function: Callable[[], object]) -> None:
    """Call a function in a fork as another user, who may write nothing here."""
    if os.geteuid():
        raise NotTriedError("only root can be another user")

    def child() -> None:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        function()

    in_fork(child)


@situation("a folder 0555 of another user, and no cache folder")
def _another_user(folder: Path) -> None:
    place = folder / "index"
    place.chmod(0o555)

    def child() -> None:
        index = open_words(place)
        check(index)
        refused(ArgumentError, str(place), "cannot be changed", by=lambda: index.add([new("x")]))

    _as_nobody(child)
    for folder_of_caches in ("/proc/none", "/dev/null/x", str(folder)):
        os.environ["XDG_CACHE_HOME"] = folder_of_caches
        _as_nobody(child)
        in_fork(lambda: check(open_words(place)))
    place.chmod(0o755)
    index = open_words(place)
    index.add([new("y")])
    _as_nobody(lambda: check(open_words(place), "y"))


@situation("records of verified files that are damaged, or another user's")
def _records(folder: Path) -> None:
    cache_folder = folder / "cache" / "vocable" / "verified"
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    time.sleep(2.1)  # younger files are not recorded
    check(open_words(folder / "index"))
    [record] = cache_folder.iterdir()
    for content in (b"", b"{", b"[1]", b"{}", b'{"000001.segment": 3}', b"\xff" * 99, b"[" * 10**6):
        record.write_bytes(content)
        check(open_words(folder / "index"))
    segment = next((folder / "index").glob("*.segment"))
    time.sleep(2.1)
    check(open_words(folder / "index"))
    changed = bytearray(segment.read_bytes())
    changed[-100] ^= 1
    segment.write_bytes(changed)
    refused(VectorsError, segment.name, "damaged", by=lambda: open_words(folder / "index"))


def _grow(folder: Path, first: int) -> None:
    """Add a document in each commit and delete every third one, until the end."""
    index = open_words(folder / "index")
    number = first
    while True:
        number += 1
        with index.store.changing():
            index.writer.add_stream([new(f"c{number}")])
            if number % 3 == 0:
                index.store.delete([f"c{number - 2}"])


@situation("copies by cp -r beside a writer")
def _copies(folder: Path) -> None:
    first = open_words(folder / "index").store
    assert isinstance(first, FolderStore)
    number = first.now().number
    (folder / "writer").mkdir()
    writer = start(folder / "writer", partial(_grow, folder, number))
    opened = missing = 0
    try:
        for attempt in range(times(40)):
            copy = folder / f"copy{attempt}"
            subprocess.run(["cp", "-r", folder / "index", copy], check=False, capture_output=True)
            try:
                index = open_words(copy)
            except VectorsError as error:
                says_in_one_line(error, "missing", str(copy))
                missing += 1
                continue
            assert isinstance(index.store, FolderStore)
            last = index.store.now().number
            there = [n for n in range(number + 1, last + 1) if not (n % 3 == 1 and n + 2 <= last)]
            gone = {n - 2 for n in range(number + 1, last + 1) if n % 3 == 0}
            check(index, *(f"c{n}" for n in there if n not in gone))
            index.close()
            shutil.rmtree(copy)
            opened += 1
    finally:
        os.kill(writer, signal.SIGKILL)
        ended = end(writer, folder / "writer")
    assert ended.status == -signal.SIGKILL, ended.err
    print(f"{opened} copies open, {missing} name a missing file")
    assert opened, "no copy could be opened"


@situation("a second writer waits, and names the first")
def _second_writer(folder: Path) -> None:
    index, told = open_words(folder / "index"), io.StringIO()
    logging.getLogger("vocable").addHandler(logging.StreamHandler(told))
    child = os.fork()
    if not child:
        with index.store.alone():
            (folder / "held").touch()
            time.sleep(2.0)
        os._exit(0)
    while not (folder / "held").exists():
        time.sleep(0.01)
    folder_engine.PATIENCE = 0.2
    began = time.monotonic()
    refused(InUseError, str(folder / "index"), f"process {child}", by=lambda: index.add([new("x")]))
    folder_engine.PATIENCE = 60.0
    check(index)  # readers do not wait
    assert time.monotonic() - began < 1.5, "a reader has waited"
    index.add([new("x")])
    os.waitpid(child, 0)
    assert f"in use by process {child}" in told.getvalue(), f"nothing was logged: {told.getvalue()!r}"
    check(index, "x")


class Failing:
    """Calls of the system, the n-th of which fails; writes into files are called in pieces of 4,096 bytes."""

    def __init__(self, number: int, code: int) -> None:
        self.left, self.code = number, code

    def step(self) -> None:
        """Fail if this is the n-th call."""
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Let a call of the block fail."""
        names = ("open", "fsync", "replace", "unlink")
        originals = {name: getattr(os, name) for name in (*names, "fdopen")}

        def patched(name: str) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                if name != "open" or arguments[1] & os.O_CREAT:
                    self.step()
                return originals[name](*arguments, **named)

            return call

        def fdopen(descriptor: int, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            if mode != "wb":
                return originals["fdopen"](descriptor, mode, *arguments, **named)
            return io.BufferedWriter(_FailingFile(descriptor, self))

        for name in names:
            setattr(os, name, patched(name))
        cast(Any, os).fdopen = fdopen
        try:
            yield
        finally:
            for name, function in originals.items():
                setattr(os, name, function)


class _FailingFile(io.FileIO):
    def __init__(self, descriptor: int, failing: Failing) -> None:
        super().__init__(descriptor, "w")
        self._failing = failing

    def write(self, content: Any, /) -> int:
        part = bytes(content)[:4096]
        try:
            self._failing.step()
        except OSError:
            super().write(part[: len(part) // 2])
            raise
        return super().write(part)


@situation("a full disk and a broken one at each step of a commit")
def _each_step(folder: Path) -> None:
    tried = 0
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        for number in range(1, 200):
            place = folder / f"step{number}"
            shutil.copytree(folder / "index", place)
            index = open_words(place)
            index.store.delete(["d1", "d2"])
            failing, error = Failing(number, code), None
            with failing.failing():
                try:
                    index.writer.add_stream([new("x"), *documents()[5:9]])
                except VocableError as raised:
                    error = raised
            tried += 1
            if error is not None:
                full = code != errno.EIO
                assert isinstance(error, NoSpaceError) == full, f"step {number}: {type(error).__name__}: {error}"
                assert str(place) in str(error), f"step {number}: {error}"
            for handle in (index, open_words(place)):
                added = ["x"] if handle.documents(["x"])[0] else []
                check(handle, *added, gone=("d1", "d2"))
                assert error is not None or added, f"step {number}: it ended well, and the document is missing"
            index.add([new("x"), new("y")])
            check(open_words(place), "x", "y", gone=("d1", "d2"))
            commit = json.loads((place / "commit.json").read_text())
            named = {file for record in commit["segments"] for file in (record["name"], record["gone"]) if file}
            assert set(os.listdir(place)) == named | {"commit.json", "lock"}, f"step {number}: files are left"
            shutil.rmtree(place)
            if failing.left > 0:
                break
    print(f"{tried} steps")


@situation("a small disk: adds until it is full")
def _small_disk(folder: Path) -> None:
    small = folder / "small"
    small.mkdir()
    _mount(small, "-t", "tmpfs", "-o", "size=600k", "tmpfs")
    try:
        shutil.copytree(folder / "index", small / "index")
        index, full = open_words(small / "index"), 0
        for free in range(0, 80_000, 4096):
            filler = small / "filler"
            space = os.statvfs(small)
            filler.write_bytes(bytes(max(0, space.f_bavail * space.f_frsize - free)))
            before = [*index.store.ids()]
            try:
                index.add([new(f"e{free}"), new("e")])
            except NoSpaceError as error:
                full += 1
                says_in_one_line(error, str(small / "index"))
                assert [*open_words(small / "index").store.ids()] == before, "the commit is another one"
                answers_of(index.current(), 5)
            filler.unlink()
            index.add([new(f"e{free}"), new("e")])
        check(index, "e", *(f"e{free}" for free in range(0, 80_000, 4096)))
        assert full > 2, f"the disk was full {full} times"
        print(f"{full} times full")
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@situation("a limit of the size of files")
def _file_limit(folder: Path) -> None:
    def child() -> None:
        index = open_words(folder / "index")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        refused(NoSpaceError, str(folder / "index"), "limit of a file", by=lambda: index.add([new("x")]))
        check(index)

    in_fork(child)
    check(open_words(folder / "index"))


@situation("links, pipes, folders and devices instead of a file, and beside the files")
def _links(folder: Path) -> None:
    index = open_words(folder / "index")
    index.delete(["d1"])
    index.close()
    (folder / "target").write_bytes(b"precious")
    kinds: dict[str, Callable[[Path], object]] = {
        "a link": lambda path: path.symlink_to(folder / "target"),
        "a dangling link": lambda path: path.symlink_to(folder / "nowhere"),
        "a pipe": os.mkfifo,
        "a folder": os.mkdir,
        "a socket": lambda path: os.mknod(path, 0o140_666),
    }
    names = [path.name for path in (folder / "index").iterdir()]
    for name in names:
        for kind, make in kinds.items():
            place = folder / "copy"
            shutil.copytree(folder / "index", place)
            (place / name).unlink()
            make(place / name)

            def change(place: Path = place) -> None:
                opened = open_words(place)
                check(opened, gone=("d1",))
                opened.add([new("x")])

            try:
                change()
            except VocableError as error:
                says_in_one_line(error, str(place), what=f"{name}: {kind}: ")
            else:
                raise AssertionError(f"{name}: {kind}: it was not refused")
            shutil.rmtree(place)
    for name in ("000099.segment", ".commit.json.00000000", "000001.gone-99", "notes"):
        for make in (kinds["a link"], kinds["a pipe"]):  # left where a writer writes, or removes what is left
            shutil.copytree(folder / "index", place := folder / "copy")
            make(place / name)
            opened = open_words(place)
            opened.add([new("x")])
            check(open_words(place), "x", gone=("d1",))
            assert (name == "notes") == os.path.lexists(place / name), f"{name} is there, or is gone"
            shutil.rmtree(place)
    assert (folder / "target").read_bytes() == b"precious", "the target of a link has changed"


@situation("a commit that is cut short, empty, of a newer format, or damaged")
def _commits(folder: Path) -> None:
    commit = folder / "index" / "commit.json"
    content = commit.read_bytes()
    newer = json.loads(content) | {"format": 99}
    damaged = [content[:size] for size in range(0, len(content), 50)]
    damaged += [content.replace(b'"number": ', b'"number": 1', 1), json.dumps(newer).encode(), b"[]", b"[" * 10**5]
    index = open_words(folder / "index")
    for number, text in enumerate(damaged):
        commit.write_bytes(text)
        refused(VectorsError, str(folder / "index"), by=lambda: open_words(folder / "index"))
        refused(VectorsError, str(folder / "index"), by=lambda: len(index))
        assert commit.read_bytes() == text, f"{number}: the commit was written"
    commit.write_bytes(content)
    check(open_words(folder / "index"))
    check(index)


def prepare(folder: Path) -> None:
    """Make the index that every situation has a copy of."""
    make_index(documents(), folder / "index")


def run_all(folder: Path, only: str) -> list[tuple[str, str, str]]:
    """Return the name, outcome and message of each situation."""
    from preloaded import run

    folder.chmod(0o755)
    (folder / "first").mkdir()
    making = run(folder / "first", partial(prepare, folder / "first"))
    if making.status:
        raise RuntimeError(making.err)
    outcomes = []
    for number, (name, function) in enumerate(SITUATIONS.items()):
        if only not in name:
            continue
        place = folder / str(number)
        place.mkdir()
        shutil.copytree(folder / "first" / "index", place / "index")
        ran = end(start(place, partial(function, place)), place, LIMIT)
        last = (ran.err.strip().splitlines() or [""])[-1]
        if ran.status == 0:
            outcomes.append((name, "right", ran.out.strip()))
        elif "NotTriedError" in last:
            outcomes.append((name, "not tried", last.partition(": ")[2]))
        else:
            outcomes.append(
                (name, "HANG" if ran.status is None else "WRONG", f"{last or ran.status}\n{ran.err[-1500:]}")
            )
        shutil.rmtree(place, ignore_errors=True)
    return outcomes


def benchmark() -> int:
    """Try all situations, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="situations whose name has this")
    parser.add_argument("--quick", action="store_true", help="a fourth of the repetitions")
    parser.add_argument("-v", "--verbose", action="store_true", help="print tracebacks")
    options = parser.parse_args()
    global quick
    quick = options.quick
    with tempfile.TemporaryDirectory(prefix="vocable-situations-", ignore_cleanup_errors=True) as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        outcomes = run_all(Path(name), options.only)
    for situation_name, outcome, message in outcomes:
        said = message if options.verbose else message.partition("\n")[0][:300]
        print(f"{outcome:>9}  {situation_name}" + (f": {said}" if said else ""))
    return int(any(outcome in ("WRONG", "HANG") for _, outcome, _ in outcomes))


if __name__ == "__main__":
    import situations  # so that processes of multiprocessing find the functions

    sys.exit(situations.benchmark())
