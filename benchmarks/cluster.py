"""Write vectors of shards into a cluster while a node is killed: check documents, frequencies and scores; time it.

    python benchmarks/cluster.py opensearch+http://localhost:9200,localhost:9201,localhost:9202/bench \
        --kill "cluster kill 2" --back "cluster restart 2"
    python benchmarks/cluster.py opensearch+http://localhost:9200/bench --documents 1000000 \
        --options shards=3,replicas=0,refresh=30s

The vectors are random, with about 120 terms. They are in four files, as from `vocable encode --shards 4`. Rates are
measured on `--rated` documents with 1, 2 and 4 requests at a time (`workers`). Then all documents are written with 4,
while `--kill` is carried out after `--after` seconds and `--back` ten seconds later. Ids, document frequencies and
scores are compared with exact values of the same vectors. A single client, and then eight clients at a time, search
with query vectors, and count the documents of their terms.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch
from machine import machine
from scipy.sparse import csr_array
from search import SIZE, random_vectors

import vocable as vo
from vocable.encoding.vectors import VectorsMeta, write_vectors
from vocable.engines.patience import patiently
from vocable.engines.protocols import engine_of
from vocable.indexes.exact_index import ExactIndex

FILES = 4
CLIENTS = (1, 8)
STATS_SECONDS = 12  # after which OpenSearch measures the size of shards anew


def write(folder: Path, vectors: csr_array) -> list[str]:
    """Write the vectors [n, v] as shards, and a corpus with their ids, which are returned."""
    folder.mkdir()
    ids = [f"d{number:07}" for number in range(vectors.shape[0])]
    meta = VectorsMeta("v", "model", "max", "document", 8, SIZE)
    bounds = np.linspace(0, len(ids), FILES + 1).astype(int)
    for number, (start, end) in enumerate(pairwise(bounds)):
        write_vectors(folder / f"part-{number}.parquet", ids[start:end], csr_array(vectors[start:end]), meta)
    lines = (json.dumps({"_id": name, "text": f"text of {name}"}) for name in ids)
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    return ids


def index(folder: Path, place: str, options: str | None = None) -> float:
    """Index the files of a folder, and return the seconds."""
    began = time.perf_counter()
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    vo.index(files, str(folder / "corpus.jsonl"), place, engine_options=options).close()
    return time.perf_counter() - began


def opened(place: str) -> Any:
    """Open the store at a place."""
    engine, address = engine_of(place)
    return engine.open(address)


def go_and_return(after: float, commands: Sequence[str]) -> None:
    """Carry out commands with ten seconds between them."""
    time.sleep(after)
    for command in commands:
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
        time.sleep(10)


def compare(place: str, ids: list[str], vectors: csr_array, queries: csr_array) -> str:
    """Return whether ids, frequencies and scores agree with the vectors."""
    store = opened(place)
    once = sorted(store.ids()) == ids and len(store) == len(ids)
    columns = np.unique(queries.indices)
    counts, documents = store.count_terms(columns)
    right = documents == len(ids) and (counts == np.bincount(vectors.indices, minlength=SIZE)[columns]).all()
    cut = csr_array(((vectors.data.view(np.int32) >> 15 << 15).view(np.float32), vectors.indices, vectors.indptr))
    cut.resize(vectors.shape)
    wanted, scores = ExactIndex(cut).search(queries, 10).scores, store.search(queries, 10).scores
    error = float((np.abs(wanted - scores) / wanted).max())
    store.close()
    return f"every document once: {once}; frequencies right: {right}; largest relative error of a score: {error:.0e}"


def latencies(place: str, queries: csr_array, clients: int) -> dict[str, np.ndarray]:
    """Return the milliseconds of each search and of each count of its terms, with `clients` clients at a time."""
    store = opened(place)

    def search(number: int) -> None:
        store.search(queries[[number]], 10)

    def count(number: int) -> None:
        store._count_terms(queries[[number]].indices.tolist(), "sparse", None)  # without the counts that are kept

    def timed(call: Callable[[int], None], number: int) -> float:
        began = time.perf_counter()
        call(number)
        return 1000 * (time.perf_counter() - began)

    milliseconds = {}
    for call in (search, count):
        call(0)
        with ThreadPoolExecutor(clients) as pool:
            times = pool.map(partial(timed, call), range(queries.shape[0]))
            milliseconds[call.__name__] = np.array(list(times))
    store.close()
    return milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--rated", type=int, default=20_000)
    parser.add_argument("--options", default="shards=3,replicas=1", help="engine options of the index")
    parser.add_argument("--kill", help="command that kills a node")
    parser.add_argument("--back", help="command that starts it again")
    parser.add_argument("--after", type=float, default=10.0, help="seconds of writing before the kill")
    given = parser.parse_args()
    print(machine(torch.device("cpu")))
    rng = np.random.default_rng(0)
    vectors = random_vectors(given.documents, 120, "zipf", rng)
    queries = random_vectors(200, 40, "zipf", rng)
    with tempfile.TemporaryDirectory() as name:
        few, everything = Path(name) / "few", Path(name) / "all"
        write(few, csr_array(vectors[: given.rated]))
        for workers in (1, 2, 4):
            place = f"{given.place}-{workers}"
            seconds = index(few, place, f"{given.options},workers={workers}")
            print(f"{workers} at a time: {given.rated / seconds:,.0f} documents/s", flush=True)
            time.sleep(STATS_SECONDS)
            store = opened(place)
            size = store.nbytes
            store.drop()
            store.close()
        seconds = index(few, f"{name}/folder")
        folder = opened(f"{name}/folder")
        print(
            f"a folder: {given.rated / seconds:,.0f} documents/s; bytes a document {folder.nbytes / given.rated:,.0f}"
        )
        folder.close()
        print(f"the cluster, without copies: {size / given.rated:,.0f} bytes a document", flush=True)
        ids = write(everything, vectors)
        commands = [command for command in (given.kill, given.back) if command]
        going = Thread(target=go_and_return, args=(given.after, commands))
        going.start()
        seconds = index(everything, given.place, f"{given.options},workers=4")
        print(f"{given.documents:,} documents: {given.documents / seconds:,.0f} documents/s", flush=True)
        going.join()
        with patiently():  # the node that is back still takes its shards
            print(compare(given.place, ids, vectors, queries), flush=True)
        for clients in CLIENTS:
            for what, milliseconds in latencies(given.place, queries, clients).items():
                p50, p95 = np.quantile(milliseconds, (0.5, 0.95))
                print(f"{clients} clients, {what}: p50 {p50:.0f} ms, p95 {p95:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
