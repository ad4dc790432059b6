"""An index in a folder: writing it at once and by many small commits, opening it, and searching it one by one.

    python benchmarks/folder.py --documents 100000
    python benchmarks/folder.py --documents 100000 --peer ../vocable-0.1/src --peer-place exact:

Vectors and queries are random, as in search.py. Every measurement is a process of its own with one thread, and the
processes of all systems take turns; of a search the best of all turns counts. A peer is the `src` of another version of
vocable: its stores at PEER_PLACE (an engine's name and a colon, or "" for a plain folder) are measured beside.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, load_npz, save_npz

SIZE, TERMS, QUERY_TERMS, QUERIES, K = 30_522, 120, 46, 200, 10
PART = 8_192  # documents of a write
DISTINCT = 128 * PART  # vectors that are drawn; further documents repeat them under other ids
SMALL = 100  # documents of a small write
FILTERS = ("n<3", "kind=a and n>=5")
FACET_HITS = 1_000  # whose fields are counted


class Step(NamedTuple):
    """What one process measures: writing a store at a place in commits of a size, or searching it."""

    step: str
    folder: str  # of the vectors
    place: str
    documents: int
    size: int


def draw(folder: Path, count: int) -> None:
    """Write random queries and documents, in parts."""
    from search import random_vectors  # of this folder; a peer cannot import it

    save_npz(folder / "queries.npz", random_vectors(QUERIES, QUERY_TERMS, "zipf", np.random.default_rng(1)))
    for start in range(0, min(count, DISTINCT), PART):
        rng = np.random.default_rng(100 + start)
        save_npz(
            folder / f"{start}.npz", random_vectors(min(PART, count - start), TERMS, "zipf", rng), compressed=False
        )


def parts(given: Step) -> Iterator[tuple[list[str], csr_array]]:
    """Yield the ids and vectors of documents, in parts of a size; the same documents for every size."""
    for start in range(0, given.documents, PART):
        matrix = csr_array(load_npz(Path(given.folder, f"{start % DISTINCT}.npz")))
        matrix = matrix[: given.documents - start]
        for first in range(0, matrix.shape[0], given.size):
            part = matrix[first : first + given.size]
            yield [f"d{start + first + row:08}" for row in range(part.shape[0])], part


def write(given: Step) -> dict[str, float]:
    """Write documents; the time of reading their vectors is left out."""
    from vocable.data import Document
    from vocable.engines.protocols import engine_of

    engine, address = engine_of(given.place)
    small = given.size == SMALL
    store, seconds = engine.create(address, {"sparse": SIZE}, {"whole": small}), 0.0
    for ids, matrix in parts(given):
        documents = [
            Document(name, f"text of {name}", "", {"n": int(name[-1]), "kind": "abc"[int(name[-2]) % 3]})
            for name in ids
        ]
        started = time.perf_counter()
        store.upsert(documents, {"sparse": matrix})
        seconds += time.perf_counter() - started
    started = time.perf_counter()
    if not small:  # the end of a making
        store.optimize()
        store.configure({"whole": True})
    seconds += time.perf_counter() - started
    store.close()
    blocks = sum(path.stat().st_blocks for path in Path(given.place.rpartition(":")[2]).rglob("*"))
    return {"documents_per_second": given.documents / seconds, "bytes_per_document": 512 * blocks / given.documents}


def search(given: Step) -> dict[str, float]:
    """Open an index, and search it one query at a time, without and with filters and facets."""
    from vocable.collection.facets import facet
    from vocable.engines.filters import parse_filter
    from vocable.engines.protocols import engine_of

    engine, address = engine_of(given.place)
    queries = csr_array(load_npz(Path(given.folder, "queries.npz")))
    started = time.perf_counter()
    store = engine.open(address)
    store.search(queries[[0]], K)
    values = {"first_s": time.perf_counter() - started}
    for row in range(QUERIES):  # reads the postings once; a peer may compile
        store.search(queries[[row]], K)
    times, scores = [], 0.0
    for row in range(QUERIES):
        started = time.perf_counter()
        ranking = store.search(queries[[row]], K)
        times.append(time.perf_counter() - started)
        scores += float(ranking.scores.astype(np.float64).sum())
    values |= {"query_ms": 1000 * statistics.median(times), "scores": scores}
    for name in ("first", "next"):
        times = []
        for text in FILTERS:
            started = time.perf_counter()
            store.search(queries[[0]], K, filter=parse_filter(text))
            times.append(time.perf_counter() - started)
        values[f"filter_{name}_ms"] = 1000 * statistics.mean(times)
    times = []
    for row in range(QUERIES):
        started = time.perf_counter()
        hits = store.search(queries[[row]], FACET_HITS).hits(0)
        documents = store.documents([name for name, _ in hits])
        assert all(facet(documents, field).hits == FACET_HITS for field in ("n", "kind"))
        times.append(time.perf_counter() - started)
    values["two_facets_ms"] = 1000 * statistics.median(times)
    with open("/proc/self/status") as status:
        values["anonymous_mb"] = int(next(line.split()[1] for line in status if line.startswith("RssAnon"))) / 1024
    return values


def measured(source: str, given: Step) -> dict[str, Any]:
    """Carry out a step in a process of its own, with the vocable of a source folder."""
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--step", json.dumps(given)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if output.returncode:
        raise SystemExit(output.stderr)
    values: dict[str, Any] = json.loads(output.stdout.splitlines()[-1])
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--peer", help="src of another version")
    parser.add_argument("--peer-place", action="append", default=[], help="engine and colon of the peer's place")
    parser.add_argument("--no-small", action="store_true", help="leave out the small commits")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--step", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        given = Step(*arguments.step)
        print(json.dumps({"write": write, "search": search}[given.step](given)))
        return
    ours, work = str(Path(__file__).parent.parent / "src"), Path(tempfile.mkdtemp(prefix="vocable-folder-"))
    systems = {"folder": (ours, "", PART)}
    if not arguments.no_small:
        systems["folder, small commits"] = (ours, "", SMALL)
    systems |= {f"peer {engine or 'folder'}": (arguments.peer, engine, PART) for engine in arguments.peer_place}
    try:
        draw(work, arguments.documents)
        rows = dict[str, dict[str, Any]]()
        for turn in range(-1, arguments.repeat):  # turn -1 writes
            for number, (name, (source, engine, size)) in enumerate(systems.items()):
                step = "write" if turn < 0 else "search"
                given = Step(step, str(work), f"{engine}{work / f'index-{number}'}", arguments.documents, size)
                values, best = measured(source, given), rows.setdefault(name, {})
                best |= {key: min(value, best.get(key, value)) for key, value in values.items()}
    finally:
        shutil.rmtree(work)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
