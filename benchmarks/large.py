"""Exact search of more postings than memory should hold: made in shards, searched, and compared with brute force.

    python benchmarks/large.py /scratch/large --documents 5400000 --terms 400    # 13 GB of disk, 2^31 postings passed
    python benchmarks/large.py /scratch/large --documents 8800000 --vectors vectors --topics queries --keep -k 10

Vectors are random, as in search.py, or mixed of those that `vocable encode` wrote, with ids in another order than the
rows. Each part is written as a file of vectors, read as `vocable index` does, and removed; the time of the first is
printed as drawing. Of a step, the peak of the resident set, mapped files included, and of its anonymous part are
printed. Brute force makes the same vectors again, and multiplies them part by part. An index that was kept is searched.
"""

from __future__ import annotations

import argparse
import heapq
import json
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from scipy.sparse import csr_array
from search import SIZE, machine, mixtures, random_vectors, some

from vocable.encoding.vectors import StoredVectors, VectorsMeta, read_file, read_vectors, write_vectors
from vocable.indexes.exact_shards import SHARD_POSTINGS, Exact, load_exact, save_exact
from vocable.indexes.ranking import Ranking

PART = 32_768  # documents of a file of vectors
META = VectorsMeta("random", "random", "max", "document", 0, SIZE)
SELF = Path("/proc/self")
T = TypeVar("T")


def documents(count: int, terms: int, mixed: csr_array | None) -> Iterator[tuple[list[str], csr_array]]:
    """Yield ids and vectors of parts; the same ones at each call."""
    sizes = [min(PART, count - start) for start in range(0, count, PART)]
    drawn = (random_vectors(size, terms, "zipf", np.random.default_rng(number)) for number, size in enumerate(sizes))
    start = 0
    for matrix in drawn if mixed is None else mixtures(mixed, count):
        rows = range(start, start := start + matrix.shape[0])
        yield [str(row * 7919 % count) if count % 7919 else str(row) for row in rows], matrix


def stored(parts: Iterator[tuple[list[str], csr_array]], folder: Path, took: list[float]) -> Iterator[StoredVectors]:
    """Yield the parts as they are read from files; `took` gets the seconds of drawing and writing each."""
    start = time.perf_counter()
    for ids, matrix in parts:
        write_vectors(folder / "part.parquet", ids, matrix, META)
        del matrix
        took.append(time.perf_counter() - start)
        yield read_file(folder / "part.parquet")
        start = time.perf_counter()
        (folder / "part.parquet").unlink()


def brute_force(
    queries: csr_array, parts: Iterator[tuple[list[str], csr_array]], k: int
) -> list[list[tuple[str, float]]]:
    """Return the k best documents of each query, ties by id: one product after the other."""
    dense, best = queries.toarray(), [list[tuple[float, str]]() for _ in range(queries.shape[0])]
    for ids, matrix in parts:
        for query, kept in zip(dense, best, strict=True):
            scores = matrix @ query
            bound = np.partition(scores, -k)[-k] if len(scores) > k else 0
            candidates = [(-float(scores[row]), ids[row]) for row in np.flatnonzero((scores >= bound) & (scores > 0))]
            kept[:] = heapq.nsmallest(k, [*kept, *candidates])
    return [[(name, -score) for score, name in kept] for kept in best]


def memory(run: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """Return the result, and the seconds and peaks in GiB: of the resident set, and of its anonymous part."""
    (SELF / "clear_refs").write_text("5")
    done, peak = threading.Event(), [0]

    def look() -> None:
        while not done.wait(0.1):
            peak[0] = max(peak[0], _status("RssAnon"))

    watch = threading.Thread(target=look)
    watch.start()
    start = time.perf_counter()
    try:
        result = run()
    finally:
        done.set()
        watch.join()
    seconds = time.perf_counter() - start
    return result, {"seconds": seconds, "resident GiB": _status("VmHWM") / 2**20, "anonymous GiB": peak[0] / 2**20}


def _status(field: str) -> int:
    lines = (SELF / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def single(index: Exact, queries: csr_array, k: int) -> list[float]:
    """Return the milliseconds of each query alone on one thread, after it has been answered once."""
    times = []
    for row in range(queries.shape[0]):
        index.search(queries[[row]], k, threads=1)
        start = time.perf_counter()
        index.search(queries[[row]], k, threads=1)
        times.append(1e3 * (time.perf_counter() - start))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the index, removed at the end")
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--terms", type=int, default=400, help="of a random document")
    parser.add_argument("--vectors", nargs="+", help="of documents, to be mixed")
    parser.add_argument("--topics", nargs="+", help="vectors of queries, in place of random ones of 40 terms")
    parser.add_argument("--query-idf", type=float, default=0.75, help="power of the IDF that weighs --topics")
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--checked", type=int, default=10, help="queries that are compared with brute force")
    parser.add_argument("--postings", type=int, default=SHARD_POSTINGS, help="of a shard, at most")
    parser.add_argument("--limit", type=float, help="GiB of anonymous memory, beyond which asking is an error")
    parser.add_argument("--keep", action="store_true", help="the index, for another call")
    parser.add_argument("-k", type=int, default=100)
    options = parser.parse_args()
    if options.limit:
        resource.setrlimit(resource.RLIMIT_DATA, (int(options.limit * 2**30),) * 2)
    place, count, terms = options.folder / "index", options.documents, options.terms
    mixed = read_vectors(options.vectors).matrix if options.vectors else None
    print(json.dumps({"machine": machine(), "shard": options.postings}), flush=True)
    try:
        if not place.exists():
            make(documents(count, terms, mixed), place, options.postings)
        index, opened = memory(lambda: load_exact(place))
        postings = int(index.document_frequency.sum())
        about = {"documents": len(index), "postings": postings, "of 2^31": postings / 2**31, "index": repr(index)}
        print(json.dumps(about | {"opened": opened}), flush=True)
        queries = asked(index, options.topics, options.query_idf, options.queries)
        ranking = searched(index, queries, options.k)
        if options.checked:
            parts = documents(count, terms, mixed)
            report(ranking, brute_force(queries[: options.checked], parts, options.k))
    finally:
        if not options.keep:
            shutil.rmtree(options.folder)


def make(parts: Iterator[tuple[list[str], csr_array]], place: Path, postings: int) -> None:
    """Write the index, and print its size, time and memory."""
    place.parent.mkdir(parents=True)
    took = list[float]()
    used = memory(lambda: save_exact(stored(parts, place.parent, took), place, postings=postings))[1]
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    print(json.dumps({"made": used, "drawing": sum(took), "GB on disk": size / 1e9}), flush=True)


def asked(index: Exact, topics: list[str] | None, power: float, count: int) -> csr_array:
    """Return `count` queries, random ones or some of `topics`, weighted by the collection's IDF."""
    if topics is None:
        return random_vectors(count, 40, "zipf", np.random.default_rng(2**32))
    return some(read_vectors(topics).matrix, count, index.document_frequency, len(index), power)


def searched(index: Exact, queries: csr_array, k: int) -> Ranking:
    """Search at once and one at a time, and print time and memory."""
    ranking, together = memory(lambda: index.search(queries, k))
    times, alone = memory(lambda: single(index, queries, k))
    figures = dict(zip(("p50", "p95", "p99"), np.quantile(times, (0.5, 0.95, 0.99)).tolist(), strict=True))
    about = {
        "terms of a query": queries.nnz / queries.shape[0],
        "postings read": float(index.document_frequency[queries.indices].sum() / queries.shape[0]),
    }
    print(json.dumps({"all queries": together, "one at a time, ms": figures} | about | alone), flush=True)
    return ranking


def report(ranking: Ranking, expected: list[list[tuple[str, float]]]) -> None:
    """Compare rankings with brute force, ids and the bits of scores."""
    for query, hits in enumerate(expected):
        if ranking.hits(query) != hits:
            raise SystemExit(f"query {query}: {ranking.hits(query)[:3]} is not brute force: {hits[:3]}")
    print(json.dumps({"equal to brute force, queries": len(expected)}))


if __name__ == "__main__":
    main()
