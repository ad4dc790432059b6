"""Exact search and its peers, in the same run: ours, SciPy's sparse product, and Qdrant Edge (in process, exact).

    pip install --no-deps qdrant-edge-py==0.9.0                  # left out if it is not installed
    python benchmarks/search.py                                  # 100,000 random vectors of about 120 terms
    python benchmarks/search.py --distribution uniform           # every term equally likely
    python benchmarks/search.py --vectors V.parquet --queries Q.parquet

Each time is the median over the queries, one at a time, of the milliseconds from a query vector to its k best rows. All
answers are compared with the answers of a brute-force product before anything is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.encoding.idf import idf
from vocable.encoding.pruning import prune
from vocable.encoding.vectors import read_vectors
from vocable.indexes.exact_index import ExactIndex

SIZE = 30_522  # terms of the output vocabulary
BLOCK = 50_000  # documents that are mixed at once
HAS_EDGE = find_spec("qdrant_edge") is not None
NEAR, HEAVY = 3, 8  # neighbours of a document that it is mixed with, and the terms that they are searched by
Answer = tuple[np.ndarray, np.ndarray]  # rows and scores, best first
Search = Callable[[csr_array], Answer]


def random_vectors(count: int, terms: int, distribution: str, rng: np.random.Generator) -> csr_array:
    """`count` vectors of about `terms` distinct terms, csr_array [count, SIZE], weights as a SPLADE model's.

    "zipf": term r has a probability in proportion to 1 / (r + 100), so that the commonest term is in every fifth
    document of 120 terms, as in a model trained with FLOPS regularization.
    """
    share = 1 / (np.arange(SIZE) + 100) if distribution == "zipf" else np.ones(SIZE)
    table = np.searchsorted(np.cumsum(share / share.sum()), (np.arange(1 << 22) + 0.5) / (1 << 22))
    lengths = np.maximum(rng.poisson(terms * 1.03, count), 1)
    rows = np.repeat(np.arange(count), lengths)
    keys = np.sort(rows * SIZE + table[rng.integers(0, len(table), len(rows))])
    keys = keys[np.diff(keys, prepend=-1) > 0]  # a term counts once a vector
    weights = np.log1p(rng.exponential(1.0, len(keys))).astype(np.float32) + np.float32(0.01)
    indptr = np.searchsorted(keys, np.arange(count + 1) * SIZE).astype(np.int32)
    return csr_array((weights, (keys % SIZE).astype(np.int32), indptr), shape=(count, SIZE))


def mixtures(vectors: csr_array, count: int) -> Iterator[csr_array]:
    """Yield parts of `count` vectors: these [n, v] as far as they go, the rest mixed of two near neighbours each.

    A mixture has the terms that both have, each with the weight of either, and half of the other terms.
    """
    random, (n, _) = np.random.default_rng(0), vectors.shape
    for start in range(0, min(count, n), BLOCK):
        yield vectors[start : min(start + BLOCK, count)]
    near = neighbours(vectors) if count > n else np.empty((n, 0))
    for start in range(n, count, BLOCK):
        size = min(BLOCK, count - start)
        rows, coins = random.integers(0, n, size), random.integers(0, 2**32, size, np.uint32)
        others = near[rows, random.integers(0, NEAR, size)]
        yield csr_array(_half(vectors[rows], coins, 0) + _half(vectors[others], coins, 1))


def neighbours(vectors: csr_array) -> np.ndarray:
    """Return the rows of near neighbours of each vector [n, v], int32 [n, NEAR].

    They are the best hits of its heaviest terms by weight times IDF; a vector without hits is its own neighbour.
    """
    index, (n, _) = ExactIndex(vectors), vectors.shape
    rarity, near = idf(index.document_frequency, n), np.empty((n, NEAR), np.int32)
    for start in range(0, n, BLOCK):
        queries = vectors[start : start + BLOCK]
        queries.data *= rarity[queries.indices]
        own = np.arange(start, start + queries.shape[0])[:, None]
        rows = index.search(prune(queries, HEAVY), NEAR + 1).rows
        rows = np.where(rows < 0, own, rows)
        others = np.argsort(rows == own, axis=1, kind="stable")[:, :NEAR]  # itself last
        near[start : start + BLOCK] = np.take_along_axis(rows, others, axis=1)
    return near


def _half(side: csr_array, coins: np.ndarray, wanted: int) -> csr_array:
    """Keep the terms [n, v] whose coin falls on a side; the coin of a row and term is the same for both sides."""
    tossed = (np.repeat(coins, np.diff(side.indptr)) ^ side.indices.astype(np.uint32) * np.uint32(0x9E3779B1)) >> 7
    side.data[(tossed * np.uint32(0x85EBCA6B) >> np.uint32(31)) != wanted] = 0
    side.eliminate_zeros()
    return side


def some(vectors: csr_array, count: int, frequency: np.ndarray, n: int, power: float) -> csr_array:
    """Return `count` of the query `vectors`, weighted by a power of the IDF of `frequency` in n documents."""
    chosen = csr_array(vectors[np.random.default_rng(0).permutation(vectors.shape[0])[:count]])
    chosen.data *= idf(frequency, n)[chosen.indices] ** np.float32(power)
    return chosen


def ours(index: ExactIndex, k: int) -> Search:
    def search(query: csr_array) -> Answer:
        ranking = index.search(query, k, threads=1)
        return ranking.rows[0], ranking.scores[0]

    return search


def scipy_inverted(documents: csr_array, k: int) -> Search:
    """SciPy at its best: the sparse query times the transposed matrix, which is an inverted index."""
    postings = documents.T.tocsr()

    def search(query: csr_array) -> Answer:
        product = query @ postings
        return best_of(product.indices, product.data, k)

    return search


def scipy_rows(documents: csr_array, k: int) -> Search:
    """SciPy row by row: the documents times the query as a dense column."""

    def search(query: csr_array) -> Answer:
        scores = documents @ query.toarray()[0]
        return best_of(np.arange(len(scores)), scores, k)

    return search


def best_of(rows: np.ndarray, scores: np.ndarray, k: int) -> Answer:
    top = np.argpartition(scores, -k)[-k:] if k < len(scores) else np.arange(len(scores))
    top = top[np.argsort(-scores[top], kind="stable")]
    return rows[top], scores[top]


def qdrant(documents: csr_array, k: int, folder: Path) -> Search:
    """Qdrant Edge with one search thread and its segments optimized into immutable ones."""
    edge: Any = import_module("qdrant_edge")
    config = edge.EdgeConfig(
        sparse_vectors={"terms": edge.EdgeSparseVectorParams()},
        optimizers=edge.EdgeOptimizersConfig(default_segment_number=1),
        max_search_threads=1,
    )
    shard = edge.EdgeShard.create(str(folder), config)
    for start in range(0, documents.shape[0], 1000):
        points = [
            edge.Point(row, {"terms": sparse_vector(edge, documents, row)}, {})
            for row in range(start, min(start + 1000, documents.shape[0]))
        ]
        shard.update(edge.UpdateOperation.upsert_points(points))
    shard.optimize()

    def search(query: csr_array) -> Answer:
        request = edge.QueryRequest(k, query=edge.Query.Nearest(sparse_vector(edge, query, 0), using="terms"))
        points = shard.query(request)
        return np.array([point.id for point in points], dtype=np.int64), np.array([point.score for point in points])

    return search


def sparse_vector(edge: Any, matrix: csr_array, row: int) -> Any:
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return edge.SparseVector(matrix.indices[part].tolist(), matrix.data[part].tolist())


def check(name: str, answer: Answer, scores: np.ndarray) -> None:
    """Compare the k best with the brute-force `scores` [n]: ours bit for bit, others to 1e-5.

    Others may sum in another order. Documents with equal scores may stand for one another.
    """
    rows, answered = answer
    expected = -np.sort(-scores)[: len(rows)]
    tolerance = 0 if name.startswith("vocable") else 1e-5
    same = np.allclose(answered, expected, rtol=tolerance, atol=0)
    if (
        not same
        or not np.allclose(scores[rows], answered, rtol=tolerance, atol=0)
        or len(set(rows.tolist())) != len(rows)
    ):
        raise SystemExit(f"{name}: its answers are not those of a brute-force product")


def measure(searches: dict[str, Search], queries: csr_array, documents: csr_array) -> dict[str, float]:
    """The median milliseconds of each search, the queries taken in turn so that all meet the same machine."""
    times: dict[str, list[float]] = {name: [] for name in searches}
    rows = [queries[[row]] for row in range(queries.shape[0])]
    postings = documents.T.tocsr()
    for row in rows:
        scores = (row @ postings).toarray()[0]
        for name, search in searches.items():
            check(name, search(row), scores)  # and warm the caches
            start = time.perf_counter()
            search(row)
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def batched(index: ExactIndex, queries: csr_array, k: int, threads: int | None) -> float:
    """Milliseconds a query when all queries are given at once: the best of five."""
    times: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        index.search(queries, k, threads=threads)
        times.append((time.perf_counter() - start) * 1e3 / queries.shape[0])
    return min(times)


def machine() -> dict[str, str | int]:
    info = Path("/proc/cpuinfo")
    models = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    libraries = {name: version(name) for name in ("numpy", "scipy", *["qdrant-edge-py"] * HAS_EDGE)}
    return {"cpu": models[0] if models else platform.processor(), "cores": os.cpu_count() or 1, **libraries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, help="document vectors (Parquet); random ones unless given")
    parser.add_argument("--queries", type=Path, help="query vectors (Parquet)")
    parser.add_argument("--documents", type=int, default=100_000, help="number of random documents")
    parser.add_argument("--distribution", choices=["zipf", "uniform"], default="zipf", help="of the random terms")
    parser.add_argument("--limit", type=int, default=200, help="number of queries")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    if (options.vectors is None) != (options.queries is None):
        parser.error("--vectors and --queries go together")
    if options.vectors is None:
        rng = np.random.default_rng(0)
        documents = random_vectors(options.documents, 120, options.distribution, rng)
        queries = random_vectors(options.limit, 40, options.distribution, rng)
    else:
        documents, queries = (read_vectors(path).matrix for path in (options.vectors, options.queries))
        queries = queries[: options.limit]
    index = ExactIndex(documents)
    with tempfile.TemporaryDirectory() as folder:
        searches = {
            "vocable, one thread": ours(index, options.k),
            "SciPy, query @ documents.T": scipy_inverted(documents, options.k),
            "SciPy, documents @ query": scipy_rows(documents, options.k),
        }
        if HAS_EDGE:
            searches["Qdrant Edge, one thread"] = qdrant(documents, options.k, Path(folder))
        times = measure(searches, queries, documents)
    times["vocable, batch, one thread"] = batched(index, queries, options.k, 1)
    times["vocable, batch, all threads"] = batched(index, queries, options.k, None)
    report(documents, queries, index, times, options)


def report(
    documents: csr_array, queries: csr_array, index: ExactIndex, times: dict[str, float], options: argparse.Namespace
) -> None:
    traversed = float(index.document_frequency[queries.indices].sum() / queries.shape[0])
    scale = {
        "documents": documents.shape[0],
        "terms a document": round(documents.nnz / documents.shape[0], 1),
        "queries": queries.shape[0],
        "terms a query": round(queries.nnz / queries.shape[0], 1),
        "postings a query": round(traversed),
        "k": options.k,
    }
    ours = times["vocable, one thread"]
    if options.json:
        ratios = {name: value / ours for name, value in times.items()}
        print(json.dumps({"machine": machine(), "data": scale, "milliseconds": times, "ratio": ratios}, indent=1))
        return
    print("   ".join(f"{name}: {value}" for name, value in machine().items()))
    print("   ".join(f"{name}: {value:,}" for name, value in scale.items()))
    print("all answers are those of a brute-force product (ours to the last bit)\n")
    print(f"{'':32}{'ms a query':>12}{'/ ours':>9}")
    for name, value in times.items():
        print(f"{name:32}{value:12.3f}{value / ours:9.1f}")


if __name__ == "__main__":
    main()
