"""Search an index by several processes while another one adds, replaces, deletes and merges.

    python tests/slow/living.py --seconds 300 --readers 4 --documents 20000

The writer logs what each of its commits has. A reader searches a view of one commit and notes the commit's number with
its answers (sparse, BM25, dense, with filters), the texts of the hits and the frequencies of terms. At the end all of
it is compared with brute force over the documents of that commit. From time to time the writer is stopped (SIGSTOP)
while it holds its lock, until every reader has begun and ended a search meanwhile. It finds

    wrong   an answer that is not brute force over one commit, bit by bit
    stale   an answer of an older commit than the writer had acknowledged before the search began
    waits   a reader without an answer for as long as the writer is stopped
    files   a file of the folder that neither the commit, nor the one before, nor the next one names; a file that a
            reader still maps although neither its commit nor the one before names it

The exit status is 1 if anything is found.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import mmap
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from brute_force import FILTERS, QUERIES, SPACES, BruteForce, WordVectors, make_index, open_words, random_document
from preloaded import end, run, start

from vocable.collection.collection import Collection
from vocable.data import Document
from vocable.engines.filters import parse_filter
from vocable.engines.folder import FolderStore
from vocable.engines.segmented import SegmentedStore

K = 10
BATCHES = (1, 1, 5, 30, 200, 500)  # documents of a change
PAUSE = 4.0  # seconds before the end without a stop
EVERY, PATIENCE = 4.0, 30.0  # seconds between two stops of the writer, and of a stop, at most
KINDS = ("wrong", "stale", "waits", "files")
SEGMENT = re.compile(r"\d{6,}\.segment")
PARSED = {text: None if text is None else parse_filter(text) for text in FILTERS}
Change = dict[str, int]  # version of each changed document, 0 where it is deleted


def version_of(identifier: str, version: int) -> Document:
    """Return a version of a document, the same in every process."""
    return random_document(identifier, random.Random(f"{identifier} {version}"), 8, 1)


def names_of(count: int) -> list[str]:
    """Return the ids of all documents that may be there, twice as many as the index is made with."""
    return [f"d{number}" for number in range(2 * count)]


def make(folder: Path, count: int) -> None:
    """Make the index of the first versions."""
    make_index([version_of(name, 1) for name in names_of(count)[:count]], folder / "index")


class Shared:
    """A number of a commit that all processes see: the last one whose call has returned."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._numbers = np.frombuffer(mmap.mmap(file.fileno(), 0), np.int64)

    def set(self, number: int) -> None:
        """Store the number."""
        self._numbers[0] = number

    def get(self) -> int:
        """Return the number."""
        return int(self._numbers[0])


def write(folder: Path, count: int, seed: int) -> None:
    """Change the index until this process is told to end, and log every commit."""
    rng, index = random.Random(seed), open_words(folder / "index")
    store, shared = index.store, Shared(folder / "acknowledged")
    assert isinstance(store, FolderStore)
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    names, versions = names_of(count), dict.fromkeys(names_of(count)[:count], 1)
    latest = dict(versions)
    with (folder / "commits").open("w", buffering=1) as log:

        def note(change: Change, kind: str, seconds: float) -> None:
            commit = store._commit_read
            files = [name for record in commit.segments for name in (record.name, record.gone) if name]
            log.write(json.dumps([commit.number, change, files, kind, seconds]) + "\n")
            shared.set(commit.number)

        note({}, "opened", 0.0)
        while not ending:
            chosen = dict.fromkeys(rng.choices(names, k=rng.choice(BATCHES)))
            before, began = store.now().number, time.monotonic()
            kind = rng.choices(["add", "delete", "merge all"], [60, 38, 2])[0]
            if kind == "add":
                change = {name: latest.get(name, 0) + 1 for name in chosen}
                index.writer.add_stream([version_of(name, version) for name, version in change.items()])
            elif kind == "delete":
                change = {name: 0 for name in chosen if name in versions}
                index.delete([*change, "nowhere"])
            else:
                change = {}
                store.optimize()
            seconds, number = time.monotonic() - began, store.now().number
            assert number - before in ((1,) if change else (0, 1)), f"{number - before} commits of {kind}"
            for name, version in change.items():
                if version:
                    versions[name] = latest[name] = version
                else:
                    del versions[name]
            if number > before:
                note(change, kind, seconds)
    index.close()


def read(folder: Path, seed: int, seconds: float) -> None:
    """Search the index for so many seconds, and note all answers with the commit that gave them."""
    rng, index, shared = random.Random(seed), open_words(folder / "index"), Shared(folder / "acknowledged")
    sparse, dense = WordVectors().encode_both(QUERIES)
    assert dense is not None
    until = time.monotonic() + seconds
    with (folder / f"answers-{seed}").open("w", buffering=1) as log:
        while time.monotonic() < until:
            query, space, text = rng.randrange(len(QUERIES)), rng.choice(SPACES), rng.choice(FILTERS)
            acknowledged, began, worked = shared.get(), time.monotonic(), time.thread_time()
            view = index.current()
            if space == "bm25":
                vectors: Any = view.store.lexicon.query_vectors([QUERIES[query]])
            else:
                vectors = (sparse if space == "sparse" else dense)[[query]]
            hits = view.searcher.search_space(vectors, K, space=space, filter=PARSED[text]).hits(0)
            took, worked, store = time.monotonic() - began, time.thread_time() - worked, view.store
            assert isinstance(store, SegmentedStore)
            documents = view.documents([identifier for identifier, _ in hits])
            counts, total = store.count_terms(sparse[[query]].indices)
            passing = PARSED[text]
            counted = None if passing is None else store.count(passing)
            row = [store.now().number, acknowledged, query, space, text, hits, digest_of(documents), counts.tolist()]
            log.write(json.dumps([*row, total, counted, began, took, worked, mapped(index)]) + "\n")


def digest_of(documents: Sequence[Document | None]) -> int:
    """Return a checksum of documents."""
    return crc32(repr([None if document is None else tuple(document) for document in documents]).encode())


def mapped(index: Collection) -> list[str]:
    """Return the names of the segments that this process maps, those that are removed included."""
    lines = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else ""
    return sorted({name[0] for line in lines.splitlines() if (name := SEGMENT.search(line))})


class Watch:
    """The files of the folder with the commits before and after, as the parent sees them; its stops of the writer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "index"
        self.seen = list[tuple[int, list[str], int]]()
        self.stops, self.waits = list[tuple[float, float]](), list[str]()

    def _number(self) -> int:
        return int(json.loads((self.folder / "commit.json").read_bytes())["number"])

    def look(self) -> None:
        """Note the files of the folder."""
        before, names = self._number(), os.listdir(self.folder)
        self.seen.append((before, names, self._number()))

    def _locked(self) -> bool:
        """Return whether the writer holds its lock."""
        with (self.folder / "lock").open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def stop(self, writer: int, logs: list[Path]) -> None:
        """Stop the writer while it holds its lock, until each reader has begun and ended a search."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self._locked():
                os.kill(writer, signal.SIGSTOP)
                if self._locked():
                    break
                os.kill(writer, signal.SIGCONT)
            time.sleep(0.001)
        before, until, began = [_lines(log) for log in logs], time.monotonic() + PATIENCE, time.monotonic()
        while time.monotonic() < until:
            waiting = [log for log, count in zip(logs, before, strict=True) if _lines(log) < count + 2]
            if not waiting:
                break
            time.sleep(0.02)
        self.waits += [f"{log.name} has no answer after {PATIENCE} s" for log in waiting]
        self.stops.append((began, time.monotonic()))
        os.kill(writer, signal.SIGCONT)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


class Commits:
    """The documents and files of all commits of a log; the answers over each by brute force."""

    def __init__(self, log: Path, count: int) -> None:
        versions = dict.fromkeys(names_of(count)[:count], 1)
        self.files, self.changes = dict[int, set[str]](), dict[int, Change]()
        self.seconds = defaultdict[str, list[float]](list)
        self.merges = 0
        for number, change, files, kind, seconds in map(json.loads, log.read_text().splitlines()):
            self.files[number], self.changes[number] = set(files), change
            self.seconds[kind].append(seconds)
        pairs = [*versions.items()]
        pairs += [(name, version) for change in self.changes.values() for name, version in change.items() if version]
        self.row_of = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
        self.force = BruteForce([version_of(*pair) for pair in self.row_of])
        self._first = versions

    def rows(self) -> Iterator[tuple[int, np.ndarray]]:
        """Iterate over the numbers of commits and the rows of their documents."""
        rows = {name: self.row_of[name, version] for name, version in self._first.items()}
        for number, change in self.changes.items():
            for name, version in change.items():
                if version:
                    rows[name] = self.row_of[name, version]
                else:
                    del rows[name]
            yield number, np.array([*rows.values()])


def compare(folder: Path, commits: Commits, watch: Watch) -> tuple[Counter[str], list[str]]:
    """Compare all answers with brute force; return figures, and messages of what is wrong."""
    figures, messages = Counter[str](), list[str]()
    answers = defaultdict[int, list[Any]](list)
    last = max(commits.changes)
    for path in sorted(folder.glob("answers-*")):
        for row in map(json.loads, path.read_text().splitlines()):
            answers[row[0]].append(row)

    def find(kind: str, message: str) -> None:
        figures[kind] += 1
        messages.append(f"{kind}: {message}")

    force = commits.force
    documents, queries = force.documents, WordVectors().encode(QUERIES)
    for number, rows in commits.rows():
        if not answers[number]:
            continue
        figures["commits searched"] += 1
        expected, frequencies = force.answers(rows, K), force.frequencies(rows)
        stored = {documents[row].id: documents[row] for row in rows.tolist()}
        named = commits.files[number] | commits.files.get(number - 1, set())
        for row in answers[number]:
            _, acknowledged, query, space, text, hits, digest, counts, total, counted, began, took, worked, maps = row
            what = f"commit {number}: {space}, {text}, {QUERIES[query][:20]!r}"
            wanted = expected[space, text][query]
            figures["searches"] += 1
            if [tuple(hit) for hit in hits] != wanted:
                find("wrong", f"{what}: {hits[:2]} for {wanted[:2]}")
            if digest != digest_of([stored[identifier] for identifier, _ in wanted]):
                find("wrong", f"{what}: other documents")
            if total != len(rows) or counts != frequencies[queries[[query]].indices].tolist():
                find("wrong", f"{what}: other frequencies")
            if counted not in (None, int(np.count_nonzero(force._passing[text][rows]))):
                find("wrong", f"{what}: {counted} documents are counted")
            if number < acknowledged:
                find("stale", f"{what}: commit {acknowledged} was acknowledged before")
            if unnamed := set(maps) - named:
                find("files", f"{what}: {sorted(unnamed)} are still mapped")
            longest = {"segments of a reader": len(maps), "longest search, ms": round(1000 * took)}
            longest["most time of a processor, ms"] = round(1000 * worked)
            for name, value in longest.items():
                figures[name] = max(figures[name], value)
            stopped = any(start <= began and began + took <= stop for start, stop in watch.stops)
            figures["searches while the writer was stopped"] += stopped
    for wait in watch.waits:
        find("waits", wait)
    if unknown := {number for number in answers if answers[number]} - commits.changes.keys():
        find("wrong", f"answers of commits that are not logged: {sorted(unknown)[:5]}, the last is {last}")
    for before, names, after in watch.seen:
        numbers = range(before - 1, after + 2)
        named = set().union(*(commits.files.get(number, set()) for number in numbers))
        left = {name for name in names if name[0].isdigit()} - named
        if left and after < last:
            find("files", f"{sorted(left)} at commit {before}")
    return figures, messages


def live(folder: Path, seconds: float, readers: int, count: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Run the processes, and compare all that they say: figures, and messages of what is wrong."""
    (folder / "made").mkdir()
    making = run(folder / "made", partial(make, folder, count))
    if making.status:
        raise RuntimeError(making.err)
    for name in ("writer", *map(str, range(readers))):
        (folder / name).mkdir()
    writer = start(folder / "writer", partial(write, folder, count, seed))
    while not (folder / "commits").exists() or not (folder / "commits").stat().st_size:
        if os.waitpid(writer, os.WNOHANG)[0]:
            raise RuntimeError((folder / "writer" / ".err").read_text())
        time.sleep(0.01)
    children = [start(folder / str(n), partial(read, folder, n, seconds)) for n in range(readers)]
    watch, began = Watch(folder), time.monotonic()
    next_stop = began + EVERY / 2
    while time.monotonic() < began + seconds:
        watch.look()
        if next_stop < time.monotonic() < began + seconds - PAUSE:
            watch.stop(writer, [folder / f"answers-{n}" for n in range(readers)])
            next_stop = time.monotonic() + EVERY
        time.sleep(0.02)
    ended = [end(child, folder / str(n)) for n, child in enumerate(children)]
    with suppress(ProcessLookupError):
        os.kill(writer, signal.SIGTERM)
    ended.append(end(writer, folder / "writer"))
    if failed := [ran for ran in ended if ran.status]:
        raise RuntimeError(failed[0].err)
    commits = Commits(folder / "commits", count)
    figures, messages = compare(folder, commits, watch)
    longest = {kind: round(1000 * max(spent)) for kind, spent in commits.seconds.items()}
    row = {
        "readers": readers,
        "seconds": seconds,
        "documents": count,
        "commits": len(commits.changes) - 1,
        "longest change, ms": max(longest.values()),
        "stops": len(watch.stops),
        "listings": len(watch.seen),
        **{name: figures[name] for name in FIGURES},
        **{kind: figures[kind] for kind in KINDS},
    }
    return row, messages


FIGURES = (
    "commits searched",
    "searches",
    "searches while the writer was stopped",
    "longest search, ms",
    "most time of a processor, ms",
    "segments of a reader",
)


def benchmark() -> int:
    """Run the processes, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vocable-living-"))
    os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
    try:
        row, messages = live(folder, options.seconds, options.readers, options.documents, options.seed)
    finally:
        shutil.rmtree(folder)
    for name, value in row.items():
        print(f"{name:<40}{value:>10}")
    print(*messages[:20], sep="\n")
    if options.json:
        options.json.write_text(json.dumps(row, indent=1))
    return int(any(row[kind] for kind in KINDS))


if __name__ == "__main__":
    sys.exit(benchmark())
