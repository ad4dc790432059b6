"""Race two real processes on one store: every pair of add, delete, search, optimize and serve, at random moments.

    python tests/slow/races.py --trials 500

Both processes work on a copy of one index. The second starts at a random moment of the first; in a third of the trials
one of the two is killed (SIGKILL). Most are forks of a process that has imported everything, every twelfth trial starts
Python anew. Both processes succeed: a writer waits for the other. Then a third process opens the store and finds

    lost    an acknowledged document or deletion that is not there, or a document that was there before
    wrong   other vectors than those of the text, a search that differs from NumPy's, or other counts of BM25
    failed  a process that ended in any other way

The exit status is 1 if anything is found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement, islice
from pathlib import Path
from typing import Any, NamedTuple

from preloaded import preload

preload()

import numpy as np  # noqa: E402
from preloaded import Ran, end, run, start  # noqa: E402
from random_model import write_toy_model  # noqa: E402

import vocable as vo  # noqa: E402
from tests.engines.recount import recount  # noqa: E402
from vocable.data import Document  # noqa: E402
from vocable.engines.folder import FolderStore  # noqa: E402
from vocable.errors import VocableError  # noqa: E402

OPERATIONS = ("add", "delete", "search", "optimize", "serve")
FIRST, MORE = 60, 90  # documents of the index, and of each process that adds some
PART = 32  # documents that are written at once, so that an add has several parts
DELAY, LIFE = 0.6, 1.2  # seconds within which the second process starts, and a kill comes
COLD = 12  # one trial in as many starts Python anew
LIMIT = 120.0  # seconds of a trial
WORDS = [f"{start}{end}" for start in "bdgklmnprt" for end in ("ale", "ine", "ora", "ust", "eck")]
VARIABLES = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


class Trial(NamedTuple):
    """Two operations on a copy of the index, and what is drawn at random."""

    names: tuple[str, str]
    delay: float
    killed: int | None  # which of the two
    life: float
    cold: bool


class DamageError(Exception):
    """A fault that a trial has found; its text begins with its kind."""


def rows(name: str, count: int) -> list[dict[str, str]]:
    """Return random documents, the same for the same name."""
    rng = random.Random(name)
    return [{"_id": f"{name}{i}", "text": " ".join(rng.choices(WORDS, k=rng.randint(3, 9)))} for i in range(count)]


def write(path: Path, documents: list[dict[str, str]]) -> Path:
    """Write documents as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in documents))
    return path


def make(folder: Path) -> None:
    """Make a toy model, the corpora, their vectors and an index with BM25."""
    corpora = {name: rows(name, FIRST if name == "base" else MORE) for name in ("base", "one", "two")}
    for name, documents in corpora.items():
        write(folder / f"{name}.jsonl", documents)
    texts = [row["text"] for documents in corpora.values() for row in documents]
    write_toy_model(folder / "model", texts)
    model = vo.load(str(folder / "model"), device="cpu")
    vectors: Any = vo.encode(model, texts, role="document", dtype="float32")
    np.save(folder / "vectors.npy", vectors.toarray())
    vo.index(model, folder / "base.jsonl", folder / "index", bm25=True, dtype="float32").close()


def optimize(place: Path) -> None:
    """Open the store, let the engine tidy up, and close it."""
    store = FolderStore.open(str(place))
    store.optimize()
    store.close()


def serve(place: Path, folder: Path, name: str) -> None:
    """Serve the index, add a document over HTTP, note that it was acknowledged, and stop."""
    streams = folder / f"{name}-service"
    streams.mkdir()
    child = start(streams, ["serve", place, "--port", "0", "--device", "cpu"])
    said, until = streams / ".err", time.monotonic() + LIMIT / 2
    while not (found := re.search(r" at (http://\S+)\n", said.read_text())):
        if os.waitpid(child, os.WNOHANG)[0] or time.monotonic() > until:
            raise VocableError(said.read_text().strip().removeprefix("vocable: "))
        time.sleep(0.02)
    try:
        body = json.dumps({"documents": [{"id": f"http-{name}", "text": "bale dine"}]}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{found[1]}/documents", body, headers, method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
        (folder / f"{name}.acknowledged").touch()
    finally:
        ended = end_by(child, streams, signal.SIGTERM)
    if ended.status != 0:
        raise RuntimeError(f"the service ended with {ended.status}: {ended.err[-300:]}")


def end_by(child: int, streams: Path, number: int) -> Ran:
    """Send a signal to a process, and wait for its end."""
    os.kill(child, number)
    return end(child, streams, 30)


def operation(name: str, number: str, place: Path, folder: Path) -> Any:
    """Return the command of an operation, or the call that stands for it."""
    if name == "add":
        return ["add", place, folder.parent / f"{number}.jsonl", "--device", "cpu"]
    if name == "delete":
        first = 0 if number == "one" else FIRST // 2
        return ["delete", place, *(f"base{i}" for i in range(first, first + FIRST // 2))]
    if name == "search":
        return ["search", place, "bale dine", "--json", "--device", "cpu"]
    return partial(optimize, place) if name == "optimize" else partial(serve, place, folder, number)


def small_parts() -> None:
    """Write small parts, so that a change has several writes, in a process group of its own; called in a fork."""
    os.setpgrp()
    FolderStore.about = replace(FolderStore.about, part=PART)


def started(command: Any, folder: Path, cold: bool) -> int:
    """Start an operation as a fork, or as a new Python, with its streams in a folder; returns its process."""
    folder.mkdir()
    if callable(command) or not cold:
        return start(folder, command, before=small_parts)
    for name in (".in", ".out", ".err"):
        (folder / name).touch()
    call = [sys.executable, "-m", "vocable", *map(str, command)]
    with (folder / ".out").open("wb") as out, (folder / ".err").open("wb") as err:
        return subprocess.Popen(call, stdout=out, stderr=err, env=VARIABLES, process_group=0).pid


def race(trial: Trial, folder: Path) -> list[Ran]:
    """Run the two operations, and return how they ended."""
    place = folder / "index"
    shutil.copytree(folder.parent / "index", place)
    numbers, children = ("one", "two"), list[int]()
    for number, name in zip(numbers, trial.names, strict=True):
        children.append(started(operation(name, number, place, folder), folder / number, trial.cold))
        if number == "one":
            time.sleep(trial.delay * (6 if trial.cold else 1))
    if trial.killed is not None:
        time.sleep(trial.life * (6 if trial.cold else 1))
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(children[trial.killed], signal.SIGKILL)  # a service has a process of its own
    return [end(child, folder / number, LIMIT) for child, number in zip(children, numbers, strict=True)]


def expected_ids(trial: Trial, folder: Path, ended: list[Ran]) -> tuple[set[str], set[str]]:
    """Return the ids that must be there, and those that may be.

    Raises:
        DamageError: an operation did not end well.
    """
    must, may = {row["_id"] for row in rows("base", FIRST)}, set[str]()
    for position, (number, name, ran) in enumerate(zip(("one", "two"), trial.names, ended, strict=True)):
        killed = position == trial.killed and ran.status == -signal.SIGKILL
        if ran.status != 0 and not killed:
            raise DamageError(f"failed: {name}: status {ran.status}: {ran.err.strip()[-300:]}")
        ids = {
            "add": {row["_id"] for row in rows(number, MORE)},
            "delete": {f"base{i}" for i in range(*((0, FIRST // 2) if number == "one" else (FIRST // 2, FIRST)))},
            "serve": {f"http-{number}"},
        }.get(name, set())
        acknowledged = (folder / f"{number}.acknowledged").exists() if name == "serve" else ran.status == 0
        if name == "delete":
            must -= ids if acknowledged or killed else set()
            may |= ids if killed else set()
        elif acknowledged:
            must |= ids
        elif killed:
            may |= ids
    return must, may


def check(folder: Path, must: set[str], may: set[str]) -> None:
    """Open the index, and compare what it has with what it must have; called in a fork."""
    index: Any = vo.open_index(folder / "index")
    ids = sorted(index.store.ids())
    if missing := must - set(ids):
        raise DamageError(f"lost: {len(missing)} documents, as {min(missing)}")
    if extra := set(ids) - must - may:
        raise DamageError(f"lost: {len(extra)} deletions, as {min(extra)}")
    texts = {row["_id"]: row["text"] for name in ("base", "one", "two") for row in rows(name, MORE)}
    names = [row["_id"] for name in ("base", "one", "two") for row in rows(name, FIRST if name == "base" else MORE)]
    known = [identifier for identifier in ids if identifier in texts]
    vectors = dict(zip(names, np.load(folder.parent / "vectors.npy"), strict=True))
    if index.documents(known) != [Document(identifier, texts[identifier]) for identifier in known]:
        raise DamageError("wrong: other documents")
    if len(index) != len(ids) or recount(index).wrong:
        raise DamageError(f"wrong: {len(ids)} documents, {len(index)} are counted, or frequencies are wrong")
    if not known:
        return
    expected = np.array([vectors[identifier] for identifier in known])
    if not np.allclose(index.vectors(known).toarray(), expected, atol=1e-5):
        raise DamageError("wrong: other vectors")
    query = index.vectors(known[:1])
    found = dict(index.searcher.search_space(query, len(ids) + 1).hits(0))
    if not np.allclose([found.get(name, 0) for name in known], expected @ query.toarray()[0], atol=1e-4):
        raise DamageError("wrong: another ranking")


def found_in(trial: Trial, folder: Path) -> str:
    """Carry out a trial; returns the fault that it found, "" if there is none."""
    folder.mkdir()
    ended = race(trial, folder)
    try:
        must, may = expected_ids(trial, folder, ended)
    except DamageError as fault:
        return str(fault)
    (folder / "check").mkdir()
    ran = run(folder / "check", partial(check, folder, must, may))
    if ran.status == 0:
        return ""
    last = (ran.err.strip().splitlines() or [f"status {ran.status}"])[-1]
    return last.removeprefix("__main__.").removeprefix("DamageError: ")


def trials(rng: random.Random, count: int) -> list[Trial]:
    """Draw trials that go through all ordered pairs."""
    pairs = [*combinations_with_replacement(OPERATIONS, 2)]
    pairs = [
        pair if rng.random() < 0.5 else (pair[1], pair[0]) for _ in range(count // len(pairs) + 1) for pair in pairs
    ]
    rng.shuffle(pairs)
    return [
        Trial(
            pair,
            rng.random() * DELAY,
            rng.choice([None, None, 0, 1]) if rng.random() < 0.67 else None,
            rng.random() * LIFE,
            number % COLD == COLD - 1,
        )
        for number, pair in enumerate(islice(pairs, count))
    ]


def main() -> int:
    """Run the trials, and print the faults."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began, faults, counts = time.monotonic(), list[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="vocable-races-") as name:
        folder = Path(name)
        (folder / "made").mkdir()
        made = run(folder / "made", partial(make, folder))
        if made.status:
            raise RuntimeError(made.err)
        for number, trial in enumerate(trials(random.Random(options.seed), options.trials)):
            if time.monotonic() - began > options.seconds:
                break
            fault = found_in(trial, folder / str(number))
            counts["trials"] += 1
            counts["killed"] += trial.killed is not None
            counts["cold"] += trial.cold
            if fault:
                faults.append(f"{' and '.join(trial.names)}, {trial}: {fault}")
                print(faults[-1], file=sys.stderr, flush=True)
            shutil.rmtree(folder / str(number))
    print(json.dumps({**counts, "faults": len(faults), "seconds": round(time.monotonic() - began)}))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
