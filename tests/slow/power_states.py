"""Open every state of a folder that a loss of power may leave, by construction, while an index is made and changed.

    python tests/slow/power_states.py

A scenario (documents with their words first, then vectors, add, replace, delete, merge) runs once, and every write,
fsync, rename and unlink in the folder is recorded. After each of these steps the power may fail. What may then be on
the disk, by the strictest reading of POSIX:

    a file      has what was forced to disk; of what was written since: nothing, a part in any order, half a write,
                zeros, or all of it
    a name      of the folder is as it was when the folder was last forced to disk, or as any later change made it,
                whatever became of the other names
    the folder  itself may be missing until its parent was forced to disk

Each such state is rebuilt and opened. It must be the last commit whose call had returned, or a later one that had
begun: whole, as a reader of the undisturbed folder saw it. Then a writer adds a document, after which the folder has
the files of the commit alone. The same is done for a writer that finds the folder of another writer, which was killed
after any of its steps, when the power fails under the second one.

The exit status is 1 if a state is neither before nor after.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, cast
from zlib import crc32

import numpy as np
from brute_force import (
    QUERIES,
    BruteForce,
    WordVectors,
    answers_of,
    check_answers,
    make_index,
    open_words,
    random_document,
)
from scipy.sparse import csr_array

import vocable.engines.folder as folder_engine
from vocable.collection.collection import Collection
from vocable.core.open_folder import OpenFolder
from vocable.data import Document
from vocable.encoding.stream import StreamProgress
from vocable.engines.folder import FolderStore
from vocable.errors import VectorsError
from vocable.language.coverage import Coverage

PART = 8  # documents of a commit while the index is made
STATES = 300  # of one step, at most; more are drawn at random
Names = dict[str, int]  # files by name, numbered as they were made
Event = tuple[Any, ...]


class Disk(NamedTuple):
    """What is on the disk for certain, and what was done since: values of names, and writes into files."""

    named: bool  # the folder has its name
    exists: bool  # the name is on the disk
    names: Names
    contents: dict[int, bytes]
    later_names: dict[str, list[int | None]]
    later_writes: dict[int, list[tuple[int, bytes]]]
    durable: int  # number of the last commit whose call had returned, -1 without one
    begun: int  # number of the last commit whose writing had begun

    def after(self, event: Event) -> Disk:
        """Return the disk after one more step."""
        kind, *values = event
        names = {name: [*later] for name, later in self.later_names.items()}
        writes = {file: [*later] for file, later in self.later_writes.items()}
        if kind == "folder":
            return self._replace(named=True)
        if kind == "folder sync":
            return self._replace(exists=self.named, durable=max(self.durable, 0) if self.named else -1)
        if kind == "begun":
            return self._replace(begun=values[0])
        if kind == "durable":
            return self._replace(durable=values[0]) if self.exists else self
        if kind == "sync":
            last = {name: later[-1] for name, later in names.items()}
            whole = {name: file for name, file in (self.names | last).items() if file is not None}
            return self._replace(names=whole, later_names={})
        if kind == "write":
            file, place, content = values
            writes.setdefault(file, []).append((place, content))
        elif kind == "fsync":
            [file] = values
            contents = self.contents | {file: written(self.contents.get(file, b""), writes.pop(file, []))}
            return self._replace(contents=contents, later_writes=writes)
        elif kind == "name":
            name, file = values
            names.setdefault(name, []).append(file)
        return self._replace(later_names=names, later_writes=writes)

    def now(self) -> dict[str, bytes]:
        """Return the files as all processes see them while the power is on."""
        last = self.names | {name: later[-1] for name, later in self.later_names.items()}
        return {
            name: written(self.contents.get(file, b""), self.later_writes.get(file, []))
            for name, file in last.items()
            if file is not None
        }

    def versions(self, file: int) -> list[bytes]:
        """Return all contents that a file may have."""
        old, writes = self.contents.get(file, b""), self.later_writes.get(file, [])
        if not writes:
            return [old]
        contents = [written(old, writes[:count]) for count in range(len(writes) + 1)]
        contents += [written(old, writes[:lost] + writes[lost + 1 :]) for lost in range(len(writes))]
        for place, content in (writes[0], writes[-1]):
            contents.append(written(old, [(place, content[: len(content) // 2])]))
            contents.append(written(old, [*writes[:-1], (place, content[: len(content) // 2])]))
        contents.append(bytes(len(contents[len(writes)])))
        return list(dict.fromkeys(contents))

    def states(self, rng: random.Random, most: int) -> Iterator[dict[str, bytes] | None]:
        """Iterate over what may be on the disk after a loss of power; None without the folder."""
        if not self.exists:
            yield None
        if not self.named:
            return
        choices: dict[str, list[bytes | None]] = {}
        for name in sorted({*self.names, *self.later_names}):
            files = list(dict.fromkeys([self.names.get(name), *self.later_names.get(name, [])]))
            contents = [[None] if file is None else self.versions(file) for file in files]
            choices[name] = list(dict.fromkeys(content for variants in contents for content in variants))
        if (count := prod(map(len, choices.values()))) <= most:
            chosen = product(*choices.values())
        else:
            chosen = cast(Any, (tuple(map(rng.choice, choices.values())) for _ in range(most)))
        for state in islice(chosen, count):
            yield {name: content for name, content in zip(choices, state, strict=True) if content is not None}


NOTHING = Disk(False, False, {}, {}, {}, {}, -1, -1)


def written(content: bytes, writes: list[tuple[int, bytes]]) -> bytes:
    """Return a content after writes; what no write has filled is zeros."""
    changed = bytearray(content)
    for place, part in writes:
        changed.extend(bytes(max(0, place - len(changed))))
        changed[place : place + len(part)] = part
    return bytes(changed)


class Recorder:
    """The steps in a folder while `recording`; nothing is really forced to disk."""

    def __init__(self, folder: Path, disk: Disk = NOTHING) -> None:
        self.folder, self.events = folder, list[Event]()
        self._files: dict[int, int] = {}  # by inode
        self._names: dict[str, int | None] = {**disk.names}
        for name, later in disk.later_names.items():
            self._names[name] = later[-1]
        for name, file in self._names.items():
            if file is not None:
                self._files[os.stat(folder / name).st_ino] = file
        self._next = 1 + max([0, *disk.contents, *disk.later_writes, *disk.names.values(), *self._files.values()])

    def _name(self, name: str, file: int | None) -> None:
        self._names[name] = file
        self.events.append(("name", name, file))

    def _inside(self, descriptor: int) -> str | None:
        """Return the name of an open file of the folder."""
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        return path.name if self._is_folder(path.parent) else None

    def _is_folder(self, path: Path) -> bool:
        """Return whether a path is the folder, or was it before it got its name."""
        begun = path.parent == self.folder.parent and path.name.startswith(f".{self.folder.name}.")
        return path == self.folder or begun

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the steps of the block."""
        patched: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "fdopen": self._fdopen,
            "fsync": self._fsync,
            "replace": self._replace,
            "unlink": self._unlink,
        }
        originals = {name: getattr(os, name) for name in patched}
        self._system, write = originals, folder_engine._write_commit

        def write_commit(directory: OpenFolder, commit: Any) -> None:
            self.events.append(("begun", commit.number))
            write(directory, commit)
            self.events.append(("durable", commit.number))

        for name, function in patched.items():
            setattr(os, name, function)
        folder_engine._write_commit = write_commit
        try:
            yield
        finally:
            for name, function in originals.items():
                setattr(os, name, function)
            folder_engine._write_commit = write

    def _open(self, path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        descriptor = int(self._system["open"](path, flags, *arguments, **named))
        name = self._inside(descriptor) if flags & os.O_CREAT else None
        if name is not None and self._names.get(name) is None:
            self._files[os.fstat(descriptor).st_ino] = self._next
            self._name(name, self._next)
            self._next += 1
        return descriptor

    def _fdopen(self, descriptor: int, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        name = self._inside(descriptor) if mode == "wb" else None
        if name is None:
            return self._system["fdopen"](descriptor, mode, *arguments, **named)
        return io.BufferedWriter(_Recorded(descriptor, self, self._files[os.fstat(descriptor).st_ino]))

    def _fsync(self, descriptor: int) -> None:
        status, path = os.fstat(descriptor), Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if not stat.S_ISDIR(status.st_mode):
            if self._is_folder(path.parent):
                self.events.append(("fsync", self._files[status.st_ino]))
        elif self._is_folder(path):
            self.events.append(("sync",))
        elif path == self.folder.parent:
            self.events.append(("folder sync",))

    def _replace(self, source: Any, target: Any, **named: Any) -> None:
        self._system["replace"](source, target, **named)
        if "src_dir_fd" in named:
            file = self._names[source]
            self._name(target, file)
            self._name(source, None)
        elif Path(target) == self.folder:
            self.events.append(("folder",))

    def _unlink(self, path: Any, **named: Any) -> None:
        self._system["unlink"](path, **named)
        if "dir_fd" in named:
            self._name(path, None)


class _Recorded(io.FileIO):
    def __init__(self, descriptor: int, recorder: Recorder, file: int) -> None:
        super().__init__(descriptor, "w")
        self._recorder, self._file = recorder, file

    def write(self, content: Any, /) -> int:
        place, part = self.tell(), bytes(content)
        count = super().write(part)
        self._recorder.events.append(("write", self._file, place, part[:count]))
        return count


def prepared(settings: dict[str, Any], place: Path, spaces: dict[str, int]) -> Collection:
    """Return a new index whose documents `CollectionWriter.fill` is to write, encoded by word vectors."""
    new = {"progress": asdict(StreamProgress()), "stored": False, "whole": False, "fields": []}
    collection = Collection(str(place), FolderStore.create(str(place), spaces, settings | new))
    collection.models.documents = WordVectors()  # type: ignore[assignment]
    writer: Any = collection.writer
    writer._covered = lambda done, documents: Coverage(*done.coverage)  # a model has tokens, a sum of words has none
    return collection


def change_index(collection: Collection, rng: random.Random) -> list[Document]:
    """Make an index, and add, replace, delete and merge; returns the documents at the end."""
    documents = [random_document(f"d{number}", rng, 8, 1) for number in range(3 * PART)]
    parts = [documents[start : start + PART] for start in range(0, len(documents), PART)]
    collection.writer.fill((part, None) for part in parts)
    stored = {document.id: document for document in documents}
    for identifiers in (["e1"], ["e2", "e3"], ["e1", "d3"], ["d5", "d6", "e4"]):
        new = [random_document(identifier, rng, 8, 1) for identifier in identifiers]
        collection.add(new)
        stored |= {document.id: document for document in new}
    for identifiers in (["d1", "e2"], [f"d{number}" for number in range(7, 20)]):
        collection.delete(identifiers)
        stored = {key: document for key, document in stored.items() if key not in identifiers}
    new = [random_document("e5", rng, 8, 1)]
    collection.add(new)
    collection.store.optimize()
    return [*stored.values(), *new]


def content_of(place: Path, *, unopened: bool = False) -> tuple[int, int]:
    """Return the number of the commit in a folder, and a checksum of all that its reader sees.

    The number is -1 where there is no index, if this may be.
    """
    try:
        store = FolderStore.open(str(place))
    except VectorsError as error:
        if unopened and "there is no index here" in str(error):
            return -1, 0
        raise
    snapshot, digest = store.now(), 0
    ids = sorted(store.ids())
    queries = WordVectors().encode(QUERIES)
    values: list[Any] = [ids, store.documents(ids), csr_array(store.vectors(ids)).toarray().tobytes(), len(store)]
    rankings = [store.search(queries, 9)]
    rankings.append(store.search(store.query_vectors(QUERIES), 9, space="bm25"))
    values += [ranking.hits(query) for ranking in rankings for query in range(len(QUERIES))]
    terms = np.arange(store.spaces["sparse"])
    values += [store.count_terms(terms)[0].tobytes(), snapshot.mean_length, store.encoded_share]
    values.append(json.dumps({name: value for name, value in store.settings.items() if name != "progress"}))
    digest = crc32(repr(values).encode())
    store.close()
    return snapshot.number, digest


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder that has these files alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


class Trial:
    """The states of recorded steps, each opened once; `faults` are those that are neither before nor after."""

    def __init__(self, folder: Path, rng: random.Random, most: int) -> None:
        self.place, self._rng, self._most = folder / "state", rng, most
        self.expected: dict[tuple[int, int], bool] = {}  # number and content of each commit
        self.figures, self.faults = Counter[str](), list[str]()
        self._tried = set[Any]()

    def expect(self, disk: Disk) -> None:
        """Note what a reader sees of a commit while the power is on."""
        write_files(self.place, disk.now())
        self.expected[content_of(self.place)] = True

    def open_all(self, disk: Disk, step: str) -> None:
        """Open all states that a loss of power may leave now."""
        self.figures["steps"] += 1
        for state in disk.states(self._rng, self._most):
            self.figures["states"] += 1
            files = None if state is None else tuple((name, hash(content)) for name, content in state.items())
            key = files, disk.durable, disk.begun
            if key in self._tried:
                continue
            self._tried.add(key)
            self.figures["distinct states"] += 1
            try:
                self._open(disk, state)
            except Exception as error:
                self.faults.append(f"after {step}: {type(error).__name__}: {error}")

    def _open(self, disk: Disk, state: dict[str, bytes] | None) -> None:
        if state is None:
            if disk.durable >= 0:
                raise AssertionError(f"commit {disk.durable} is lost: there is no folder")
            return
        write_files(self.place, state)
        number, digest = content_of(self.place, unopened=disk.durable < 0)
        if number == -1:
            self.figures["no index yet"] += 1
            return
        if not disk.durable <= number <= disk.begun:
            raise AssertionError(f"commit {number}, not of {disk.durable} to {disk.begun}")
        self.figures["before" if number == disk.durable else "after"] += 1
        if (number, digest) not in self.expected:
            raise AssertionError(f"commit {number} is not what it was")
        self._write()

    def _write(self) -> None:
        """Add a document as the next writer does; no file is left that the commit does not name."""
        store = FolderStore.open(str(self.place))
        document, count = Document("next", "bad dem"), len(store)
        encoded = WordVectors().encode_both([document.full])
        assert encoded.dense is not None
        store.upsert([document], {"sparse": encoded.sparse, "dense": encoded.dense})
        named = {"commit.json", "lock"}
        for record in store._commit_read.segments:
            named |= {name for name in (record.name, record.gone) if name}
        store.close()
        again = FolderStore.open(str(self.place))
        if len(again) != count + 1 or again.documents(["next"]) != [document]:
            raise AssertionError("the next writer's document is missing")
        if left := set(os.listdir(self.place)) - named:
            hidden = {name for name in left if not folder_engine.OURS.fullmatch(name)}
            raise AssertionError(f"the next writer leaves {sorted(left)}" + " (foreign)" * bool(hidden))
        again.close()


def disks_of(events: list[Event], disk: Disk) -> list[tuple[str, Disk]]:
    """Return the disk after each step, with the name of the step."""
    disks = [("the begin", disk)]
    for event in events:
        disk = disk.after(event)
        disks.append((" ".join(str(value) for value in event[:3] if not isinstance(value, bytes)), disk))
    return disks


def try_all(folder: Path, seed: int, most: int, kills: int) -> Trial:
    """Record the scenario, and open all states; then those under a second writer after each of so many kills."""
    rng, place = random.Random(seed), folder / "disk" / "index"
    place.parent.mkdir()
    make_index([random_document("d0", rng, 8, 1)], folder / "made")
    made = open_words(folder / "made")
    settings, spaces = dict(made.store.settings), dict(cast(FolderStore, made.store).spaces)
    FolderStore.about = replace(FolderStore.about, part=PART)
    recorder = Recorder(place)
    with recorder.recording():
        documents = change_index(prepared(settings, place, spaces), random.Random(seed))
    check_answers(answers_of(open_words(place), 9), BruteForce(documents).answers(_all(documents), 9))

    trial, disks = Trial(folder, rng, most), disks_of(recorder.events, NOTHING)
    for step, disk in disks:
        if step.startswith("durable"):
            trial.expect(disk)
    for step, disk in disks:
        trial.open_all(disk, step)
    trial.figures["commits"] = len(trial.expected)

    # A writer is killed after a step that changes names, and another one works when the power fails.
    places = [
        number for number, (step, disk) in enumerate(disks) if step.startswith(("name", "sync")) and _is_whole(disk)
    ]
    for number in rng.sample(places, min(kills, len(places))):
        step, disk = disks[number]
        second = folder / "disk" / "second"
        write_files(second, disk.now())
        other = Recorder(second, disk)
        with other.recording():
            index = open_words(second)
            index.add([random_document("f1", rng, 8, 1), random_document("d2", rng, 8, 1)])
            index.delete(["d4", "f1"])
            index.close()
        trial.figures["kills"] += 1
        trial.expect(disk)
        later = disks_of(other.events, disk)
        for name, after in later:
            if name.startswith("durable"):
                trial.expect(after)
        for name, after in later:
            trial.open_all(after, f"a kill after {step}, then {name}")
    return trial


def _is_whole(disk: Disk) -> bool:
    """Return whether the index is made, so that it can change."""
    commit = disk.now().get("commit.json")
    return commit is not None and bool(json.loads(commit)["settings"]["whole"])


def _all(documents: list[Document]) -> Any:
    import numpy as np

    return np.arange(len(documents))


def benchmark() -> int:
    """Open all states, and print their number."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--states", type=int, default=STATES, help="states of one step, at most")
    parser.add_argument("--kills", type=int, default=40, help="steps after which a second writer takes over")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    began = time.monotonic()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="vocable-power-", dir=memory) as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        trial = try_all(Path(name), options.seed, options.states, options.kills)
    row = {**trial.figures, "faults": len(trial.faults), "seconds": round(time.monotonic() - began)}
    for name, value in row.items():
        print(f"{name:<20}{value:>10,}")
    print(*[fault[:300] for fault in trial.faults[:20]], sep="\n")
    if options.json:
        options.json.write_text(json.dumps(row, indent=1))
    return int(bool(trial.faults))


if __name__ == "__main__":
    sys.exit(benchmark())
