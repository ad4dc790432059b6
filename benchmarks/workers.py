"""`vocable serve` with several worker processes on one folder, beside a process that adds and deletes documents.

    python benchmarks/workers.py my-index --workers 1 4 --seconds 30

Clients search all the time. Beside them, a writer of its own adds a document with a new word, and once its commit has
returned, asks every worker often enough for that word: an answer without the document is stale. The exit status is 1 if
an answer was stale or an error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import numpy as np
from served import Served

import vocable as vo
from vocable.data import Document

ASKED = 8  # questions after each commit


def asked(url: str, **request: object) -> list[str]:
    """Return the ids of the hits of one request."""
    body = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/search", body, headers), timeout=60) as answer:
        return [hit["id"] for hit in json.load(answer)["hits"]]


def measured(index: str, workers: int, clients: int, seconds: float) -> dict[str, object]:
    """Search with clients beside a writer, and count answers, commits and stale answers."""
    texts = ["add documents to an index", "the head without logits", "which engine is exact", "train a retriever"]
    ended, times, stale, commits = Event(), list[float](), 0, 0
    with (
        Served.vocable(index, "--workers", workers) as service,
        vo.open_index(index) as writer,
        ThreadPoolExecutor(clients) as pool,
    ):
        url = service.url
        asked(url, query=texts[0])

        def search(client: int) -> None:
            number = client
            while not ended.is_set():
                started = time.perf_counter()
                asked(url, query=f"{texts[number % len(texts)]} {number}")
                times.append(time.perf_counter() - started)
                number += clients

        running = [pool.submit(search, client) for client in range(clients)]
        until, started = time.monotonic() + seconds, time.perf_counter()
        while time.monotonic() < until:
            word = f"zq{commits}x{workers}"
            writer.add([Document(word, f"a document about {word}")])
            commits += 1
            stale += sum(asked(url, query=word, weights="bm25=1") != [word] for _ in range(ASKED))
            writer.delete([word])
        elapsed = time.perf_counter() - started
        ended.set()
        for future in running:
            future.result()
    p50, p95 = (1000 * float(np.quantile(times, share)) for share in (0.5, 0.95))
    rate = len(times) / elapsed
    return {
        "workers": workers,
        "answers_per_second": rate,
        "p50_ms": p50,
        "p95_ms": p95,
        "commits": 2 * commits,
        "stale": stale,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", help="an index with BM25, of which a copy is served")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    stale = 0
    with TemporaryDirectory() as folder:
        for workers in arguments.workers:
            copy = Path(folder, str(workers))
            subprocess.run(["cp", "-r", arguments.index, str(copy)], check=True)
            result = measured(str(copy), workers, arguments.clients, arguments.seconds)
            stale += int(str(result["stale"]))
            print(json.dumps(result), flush=True)
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main())
