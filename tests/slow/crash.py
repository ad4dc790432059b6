"""Kill the process of an index at random moments while it adds, replaces, deletes and merges, and check what it keeps.

    python tests/slow/crash.py --kills 250

A process (a fork, `preloaded.py`) adds, replaces and deletes random batches of documents in an index in a folder. It
writes to a log what it begins, and that it is done when the call has returned. It is killed by SIGKILL: while it opens
the index, at a random moment of its work, or within a merge of segments, between its begin and its commit. The next
process opens the same folder and compares the documents with the log, then goes on. It finds

    lost    a document, or a deletion, that the log says was done
    half    a document of the operation that was cut short that is neither the old nor the new one, or whose vectors are
            not those of its text; a commit that has a part of an operation of one commit
    wrong   a search (sparse, BM25, dense, fused, with a filter) that is not brute force over the documents that are
            there; frequencies that are not those of a count; a file that the commit does not name after a change

Vectors are made of a text's words directly, so that no time goes into encoding. The exit status is 1 if anything is
found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from brute_force import (
    FILTERS,
    QUERIES,
    SPACES,
    BruteForce,
    DamageError,
    WordVectors,
    answers_of,
    check_answers,
    check_counts,
    make_index,
    open_words,
    random_document,
)
from preloaded import Ran, end, run, start

import vocable as vo
from vocable.collection.collection import Collection
from vocable.data import Document
from vocable.engines import segmented
from vocable.engines.folder import FolderStore
from vocable.indexes.fusion import aligned, weighted
from vocable.indexes.ranking import ranking_of

IDS = [f"d{number}" for number in range(297)] + ["a/b c", "Ålesund", "日本"]
FIRST = 60  # documents that the index is made with
ROUNDS = 25  # kills of one folder
WORK, OPENING = 0.4, 0.2  # seconds within which a kill comes, of work and of opening
MOMENTS = {"opening": 0.2, "work": 0.4, "merge": 0.4}  # share of the kills
MERGES = 6  # merges within which the one comes that is killed
COMPARED = len(QUERIES) * len(FILTERS) * (len(SPACES) + 1)  # searches of one comparison
BEGUN = ("begun in parts", "begun")  # in a log: whether an operation is one commit
KINDS = ("lost", "half", "wrong")  # of damage
Versions = dict[str, list[Document | None]]  # what an operation makes of each id, in turn; None where it deletes


def make(folder: Path) -> None:
    """Make the index."""
    rng = random.Random(0)
    documents = [random_document(identifier, rng, 8, 1) for identifier in IDS[:FIRST]]
    make_index(documents, folder / "index")
    (folder / "log").write_text(_line("found", [[document.id, document] for document in documents]))


def _line(kind: str, value: Any) -> str:
    return json.dumps([kind, value]) + "\n"


class Log(NamedTuple):
    """What a log says: the documents, what the last operation may make of them, in one commit or several."""

    documents: dict[str, Document]
    begun: Versions
    in_one: bool
    done: int  # number of operations


def replayed(log: Path) -> Log:
    """Read a log, whose last line may be cut short."""
    content = log.read_bytes()
    os.truncate(log, content.rfind(b"\n") + 1)
    documents: dict[str, Document] = {}
    begun: Versions = {}
    in_one, done = True, 0
    for kind, value in map(json.loads, content[: content.rfind(b"\n") + 1].splitlines()):
        pairs = [(identifier, Document(*content) if content else None) for identifier, content in value]
        if kind in BEGUN:
            begun, in_one = {}, kind == BEGUN[True]
            for identifier, document in pairs:
                begun.setdefault(identifier, []).append(document)
            continue
        for identifier, document in (
            [(key, versions[-1]) for key, versions in begun.items()] if kind == "done" else pairs
        ):
            _apply(documents, identifier, document)
        begun, done = {}, done + (kind == "done")
    return Log(documents, begun, in_one, done)


def _apply(documents: dict[str, Document], identifier: str, document: Document | None) -> None:
    if document is None:
        documents.pop(identifier, None)
    else:
        documents[identifier] = document


def stored_documents(view: Collection, log: Log) -> list[Document]:
    """Return the documents of an index; raise `DamageError` if the log has others."""
    logged, begun = log.documents, log.begun
    ids = sorted(view.store.ids())
    stored = {document.id: document for document in view.documents(ids) if document is not None}
    if not len(stored) == len(ids) == len(view):
        raise DamageError(f"half: {len(ids)} ids, {len(stored)} documents, counted {len(view)}")
    for identifier in {*logged, *stored, *begun}:
        document, before = stored.get(identifier), logged.get(identifier)
        if document not in [before, *begun.get(identifier, [])]:
            kind = "half" if identifier in begun and document else "lost"
            after = begun.get(identifier, "in no operation")
            raise DamageError(f"{kind}: {identifier!r} is {document}, was {before}, {after}")
    # One commit has all changes, or none.
    last = {identifier: versions[-1] for identifier, versions in begun.items()}
    changed = {key for key, document in last.items() if document != logged.get(key)}
    new = {key for key in changed if stored.get(key) == last[key]}
    if new and new != changed and log.in_one:
        raise DamageError(f"half: {len(new)} of {len(changed)} changes of a commit")
    return [stored[identifier] for identifier in ids]


def check(collection: Collection, log: Log) -> list[Document]:
    """Return the documents of an index after all its answers are compared."""
    view = collection.current()
    documents = stored_documents(view, log)
    ids, k = [document.id for document in documents], max(1, len(documents))
    force, rows = BruteForce(documents), np.arange(len(documents))
    vectors = view.vectors(ids)
    if (vectors != force.sparse).nnz:
        raise DamageError("half: sparse vectors are not those of the texts")
    check_counts(view, force, rows)
    for depth in (3, k):
        check_answers(answers_of(view, depth), force.answers(rows, depth))
    expected, (sparse, dense) = force.answers(rows, k), WordVectors().encode_both(QUERIES)
    for text in FILTERS:
        rankings = [ranking_of(expected[space, text], k) for space in SPACES]
        fused = weighted(aligned(rankings), [1, 1, 1], depth=k)
        ranking = view.search(QUERIES, k, vectors=sparse, dense=dense, filter=text)
        for query in range(len(QUERIES)):
            hits, others = dict(ranking.hits(query)), dict(fused.hits(query))
            if hits.keys() != others.keys() or not np.allclose([hits[key] for key in others], [*others.values()]):
                raise DamageError(f"wrong: fused, filter {text}: other hits")
    return documents


def check_files(folder: Path) -> None:
    """Raise `DamageError` for a damaged file, and for a file that the commit does not name."""
    vo.check(folder)
    commit = json.loads((folder / "commit.json").read_text())
    named = {"commit.json", "lock"}
    for segment in commit["segments"]:
        named |= {name for name in (segment["name"], segment["gone"]) if name}
    if (named ^ set(os.listdir(folder))) - {"lock"}:
        raise DamageError(f"wrong: files {sorted(named ^ set(os.listdir(folder)))}")


def operations(documents: dict[str, Document], rng: random.Random) -> Iterator[list[tuple[str, Document | None]]]:
    """Iterate over random operations: what they make of each id; `documents` follows."""
    while True:
        ids = rng.choices(IDS, k=rng.choice([1, 3, 10, 60]))
        if rng.random() < 0.35:
            pairs: list[tuple[str, Document | None]] = [(identifier, None) for identifier in dict.fromkeys(ids)]
        else:
            length = rng.choice([3, 8, 8, 20])
            fresh = {identifier: random_document(identifier, rng, length) for identifier in ids}
            same = [documents[identifier] for identifier in rng.choices(IDS, k=2) if identifier in documents]
            pairs = [*fresh.items(), *((document.id, document) for document in same if document.id not in fresh)]
        yield pairs
        for identifier, document in pairs:
            _apply(documents, identifier, document)


def tell_of_merges(descriptor: int) -> None:
    """Write m to a pipe when a merge begins, and c when its commit is there."""
    module: Any = segmented
    merged, save, merging = module.merged, FolderStore._save, False

    def told(*arguments: Any) -> Any:
        nonlocal merging
        merging = True
        os.write(descriptor, b"m")
        return merged(*arguments)

    def saved(*arguments: Any) -> Any:
        nonlocal merging
        snapshot = save(*arguments)
        if merging:
            os.write(descriptor, b"c")
        merging = False
        return snapshot

    module.merged = told
    cast(Any, FolderStore)._save = saved


def work(folder: Path, seed: int, pipe: int | None) -> None:
    """Compare the index with the log, say so, and then change it until the end; without a pipe, change it once."""
    rng, parent, log = random.Random(seed), os.getppid(), replayed(folder / "log")
    FolderStore.about = replace(FolderStore.about, part=rng.choice([7, 512]))  # so that there are several
    collection = open_words(folder / "index")
    documents = {document.id: document for document in check(collection, log)}
    descriptor = os.open(folder / "log", os.O_WRONLY | os.O_APPEND)

    def write(kind: str, pairs: Sequence[Any] = ()) -> None:
        os.write(descriptor, _line(kind, pairs).encode())

    write("found", [[identifier, documents.get(identifier)] for identifier in log.begun])
    print("compared", flush=True)
    if pipe is not None:
        tell_of_merges(pipe)
    for pairs in operations(documents, rng):
        if os.getppid() != parent:  # which was to kill this one
            return
        write(BEGUN[FolderStore.about.part == 512], pairs)
        if pairs[0][1] is None:
            collection.delete([identifier for identifier, _ in pairs])
        else:
            collection.writer.add_stream([document for _, document in pairs if document])
        write("done")
        if pipe is None:
            for identifier, document in pairs:
                _apply(documents, identifier, document)
            collection.writer.add_stream([random_document("last", rng, 8, 1)])  # a commit of its own
            documents["last"] = collection.documents(["last"])[0] or Document("last", "")
            check(collection, Log(documents, {}, True, 0))
            check_files(folder / "index")
            return


def damage_of(ran: Ran) -> DamageError:
    """Return the damage that a process has found which ended by itself."""
    last = (ran.err.strip().splitlines() or [f"status {ran.status}"])[-1]
    return DamageError(last.partition("DamageError: ")[2] or last)


class Killer:
    """Kills of the processes of one folder; `seconds` is the mean time from the begin of a merge to its commit."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.seconds, self._last = folder, rng, 0.01, b""

    def kill(self, moment: str) -> str:
        """Start a process and kill it; returns the moment that it really was at."""
        (pipe, told), self._last = os.pipe(), b""
        child = start(self.folder, partial(work, self.folder, self.rng.getrandbits(32), told))
        os.close(told)
        try:
            if moment == "opening":
                time.sleep(self.rng.random() * OPENING)
            else:
                self._wait_for_comparison()
                if moment == "merge":
                    self._wait_for_merge(pipe)
                else:
                    time.sleep(self.rng.random() * WORK)
            os.kill(child, signal.SIGKILL)
            ran = end(child, self.folder)
            if ran.status != -signal.SIGKILL:
                raise damage_of(ran)
            last = b"".join(iter(lambda: os.read(pipe, 65_536), b""))[-1:] or self._last
        finally:
            os.close(pipe)
        if not ran.out:
            return "opening"
        return "merge" if last == b"m" else "work"

    def _wait_for_comparison(self) -> None:
        began = time.monotonic()
        while not (self.folder / ".out").stat().st_size and time.monotonic() - began < 20:
            if (self.folder / ".err").stat().st_size:
                break
            time.sleep(0.002)

    def _wait_for_merge(self, pipe: int) -> None:
        """Wait for one of the first merges, and then for a random part of a merge's time."""
        for number in range(last := self.rng.randint(1, MERGES)):
            began, told = time.monotonic(), b""
            while told != b"m":
                if not select.select([pipe], [], [], 10)[0] or not (told := os.read(pipe, 1)):
                    return
                began = time.monotonic()
            if number < last - 1:
                while told == b"m":
                    told = os.read(pipe, 1)
                self.seconds += 0.1 * (time.monotonic() - began - self.seconds)
        self._last = b"m"
        time.sleep(self.rng.random() * self.seconds)


def rounds(folder: Path, kills: int, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """Kill so many times, in a new folder after `ROUNDS` or damage; return figures and messages of damage."""
    figures, messages, killed, seconds = Counter[str](), list[str](), 0, 0.01
    while killed < kills:
        place = folder / str(killed)
        place.mkdir()
        making = run(place, partial(make, place))
        if making.status:
            raise RuntimeError(making.err)
        killer = Killer(place, rng)
        killer.seconds = seconds
        try:
            for _ in range(min(ROUNDS, kills - killed)):
                killed += 1
                moment = killer.kill(rng.choices([*MOMENTS], [*MOMENTS.values()])[0])
                figures[moment] += 1
                figures["compared"] += moment != "opening"
            last = run(place, partial(work, place, 0, None))
            if last.status:
                raise damage_of(last)
            figures["compared"] += 2
        except DamageError as damage:
            messages.append(f"after {killed} kills: {damage}")
            kind = str(damage).partition(":")[0]
            figures[kind if kind in KINDS else "wrong"] += 1
        figures["acknowledged"] += replayed(place / "log").done
        seconds = killer.seconds
        shutil.rmtree(place)
    return figures, messages


def benchmark() -> int:
    """Kill, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vocable-crash-") as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        figures, messages = rounds(Path(name), options.kills, random.Random(options.seed))
    row = {
        "kills": options.kills,
        "while opening": figures["opening"],
        "in a merge": figures["merge"],
        "acknowledged": figures["acknowledged"],
        **{kind: figures[kind] for kind in KINDS},
        "comparisons": figures["compared"],
        "searches": figures["compared"] * COMPARED,
        "seconds": round(time.monotonic() - began),
    }
    print("  ".join(row))
    print("  ".join(f"{value:>{len(name)}}" for name, value in row.items()))
    print(*messages, sep="\n")
    if options.json:
        options.json.write_text(json.dumps(row, indent=1))
    return int(any(row[kind] for kind in KINDS))


if __name__ == "__main__":
    sys.exit(benchmark())
