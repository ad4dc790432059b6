"""How many requests the service answers, how fast, and with how much memory, compared with sentence-transformers.

    python benchmarks/load.py                                  # 200 clients, 60 s for each side
    python benchmarks/load.py --clients 20 --seconds 5

Each client sends a query to POST /embed_sparse, waits for the answer, and sends the next. The queries are the first
words of each document, in a different order for each client. The sides, each a separate process:

    vocable                 the service as it comes; queries come again, so that the cache has most of them
    vocable, no cache       --cache-size 0: each query is encoded, in batches of what waits
    sentence-transformers   FastAPI and uvicorn, too; a function that calls SparseEncoder.encode_query, which the
                            framework runs in its threads; the model as it was loaded, float32
    search                  the service as it comes, POST /search, k = 10
    past its limits         the same with --max-requests 32: what is refused has the status 429

The exit status is 1 if an answer had another status than 200 and, past the limits, 429, or a process has gone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import torch
from machine import machine, print_machine, ratio
from served import Served

import vocable
from vocable.torch_models.sparse_encoder import load_sparse_encoder

PEER = """
import sys
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SparseEncoder

model = SparseEncoder(sys.argv[1], device="cpu")
app = FastAPI()

class Request(BaseModel):
    inputs: str

@app.post("/embed_sparse")
def embed_sparse(request: Request) -> list[list[dict[str, float]]]:
    vector = model.encode_query(request.inputs, convert_to_sparse_tensor=True, show_progress_bar=False).coalesce()
    pairs = zip(vector.indices()[0].tolist(), vector.values().tolist())
    return [[{"index": index, "value": value} for index, value in pairs]]

config = uvicorn.Config(app, port=0, access_log=False, log_level="warning")
listening = config.bind_socket()
listening.listen(2048)
print(f"peer at http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
uvicorn.Server(config).run(sockets=[listening])
"""


class Side(NamedTuple):
    """What is measured: a service, the path, and what a request says of a query."""

    name: str
    start: Callable[[], Served]
    path: str
    body: Callable[[str], dict[str, Any]]


class Loaded(NamedTuple):
    """What came of it: milliseconds of each answered request, answers by status, memory in MiB."""

    name: str
    seconds: float
    times: list[float]
    statuses: Counter[int]
    memory: float

    def row(self) -> dict[str, Any]:
        """The figures of one side; times of what was answered with 200."""
        p50, p95, p99 = np.percentile(self.times, [50, 95, 99]) if self.times else [np.nan] * 3
        other = {str(status): count for status, count in self.statuses.items() if status != 200}
        row = {"side": self.name, "requests/s": round(self.statuses[200] / self.seconds, 1)}
        return (
            row
            | {"p50 ms": round(p50, 1), "p95 ms": round(p95, 1), "p99 ms": round(p99, 1)}
            | {
                "memory MiB": round(self.memory),
                "other answers": other,
            }
        )


async def client(url: str, path: str, bodies: Sequence[bytes], until: float, number: int, into: Loaded) -> None:
    """Send requests one after the other over one connection until the time is over."""
    host = urlsplit(url)
    order = random.Random(number).sample(range(len(bodies)), len(bodies))
    reader, writer = await asyncio.open_connection(host.hostname, host.port)
    sent = 0
    while time.perf_counter() < until:
        body = bodies[order[sent % len(bodies)]]
        head = f"POST {path} HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Type: application/json\r\n"
        began = time.perf_counter()
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        status = int(answer.split(b" ", 2)[1])
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        into.statuses[status] += 1
        if status == 200:
            into.times.append(1000 * (time.perf_counter() - began))
        else:
            await asyncio.sleep(0.1)  # a client that comes again; Retry-After says 1 s
        sent += 1
    writer.close()


async def load(side: Side, served: Served, queries: Sequence[str], clients: int, seconds: float) -> Loaded:
    """Have clients send queries for so long."""
    bodies = [json.dumps(side.body(query)).encode() for query in queries]
    warm = Loaded(side.name, 1, [], Counter(), 0)
    await client(served.url, side.path, bodies, time.perf_counter() + 1, 0, warm)
    into, memory = Loaded(side.name, seconds, [], Counter(), 0), 0.0
    until = time.perf_counter() + seconds
    tasks = [asyncio.create_task(client(served.url, side.path, bodies, until, i, into)) for i in range(clients)]
    while time.perf_counter() < until:
        await asyncio.sleep(min(0.5, seconds / 4))
        memory = max(memory, served.memory)
    await asyncio.gather(*tasks)
    return into._replace(memory=memory)


def sides(folder: Path, model: str) -> list[Side]:
    """All that is measured."""
    index = f"{folder}/index"

    def embed(query: str) -> dict[str, Any]:
        return {"inputs": query, "prompt_name": "query"}

    def search(query: str) -> dict[str, Any]:
        return {"query": query}

    def peer() -> Served:
        return Served([sys.executable, "-c", PEER, str(folder / "model")])

    load_sparse_encoder(model, device="cpu").save_pretrained(str(folder / "model"))
    return [
        Side("vocable", lambda: Served.vocable(index), "/embed_sparse", embed),
        Side("vocable, no cache", lambda: Served.vocable(index, "--cache-size", 0), "/embed_sparse", embed),
        Side("sentence-transformers", peer, "/embed_sparse", lambda query: {"inputs": query}),
        Side("search", lambda: Served.vocable(index), "/search", search),
        Side("past its limits", lambda: Served.vocable(index, "--max-requests", 32), "/search", search),
    ]


def benchmark() -> int:
    """Load each side in turn, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    results: list[Loaded] = []
    described = machine(torch.device("cpu"), "fastapi", "uvicorn")
    with tempfile.TemporaryDirectory(prefix="vocable-load-") as name:
        folder = Path(name)
        documents = list(islice(vocable.read_corpus("pydocs:"), options.documents))
        rows = [json.dumps({"_id": entry.id, "title": entry.title, "text": entry.text}) for entry in documents]
        (folder / "corpus.jsonl").write_text("\n".join(rows))
        vocable.index(options.model, folder / "corpus.jsonl", folder / "index", device="cpu")
        queries = list(dict.fromkeys(" ".join(entry.full.split()[:8]) for entry in documents))
        for side in sides(folder, options.model):
            with side.start() as served:
                results.append(asyncio.run(load(side, served, queries, options.clients, options.seconds)))
    table = [result.row() for result in results]
    wrong = [
        result
        for result in results
        if set(result.statuses) - ({200, 429} if result.name == "past its limits" else {200})
    ]
    if options.json:
        print(json.dumps({"machine": described, "sides": table}, indent=1))
        return int(bool(wrong))
    cached, fresh, peer = (row["requests/s"] for row in table[:3])
    print_machine(described)
    print("  ".join(table[0]))
    print(*("  ".join(f"{value!s:>{len(name)}}" for name, value in row.items()) for row in table), sep="\n")
    without = ratio(fresh, peer) or 0
    print(f"ratio to sentence-transformers: {ratio(cached, peer) or 0:.1f}; without the cache {without:.1f}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(benchmark())
