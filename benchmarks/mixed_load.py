"""How fast a search is answered beside costly requests: explanations of 50 clients, and a query of misspelled words.

    python benchmarks/mixed_load.py                            # 50 clients, 60 s
    python benchmarks/mixed_load.py --clients 10 --seconds 5

Each client sends a request, waits for the answer, and sends the next: one a search, one a query of 11,000 words that no
document has, the others searches with explanations. The exit status is 1 if a search was not answered with 200.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from itertools import islice, product
from os import getloadavg
from pathlib import Path
from string import ascii_lowercase

import torch
from load import Loaded, client
from machine import machine, print_machine
from served import Served

import vocable

MISSPELLED = " ".join("rivar" + "".join(letters) for letters in islice(product(ascii_lowercase, repeat=3), 11_000))


async def mixed_load(url: str, queries: list[str], clients: int, seconds: float) -> list[Loaded]:
    """Return the figures of the searches, of the query of misspelled words, and of the explanations."""
    searches = [json.dumps({"query": query}).encode() for query in queries]
    explained = [json.dumps({"query": query, "explain": True}).encode() for query in queries]
    misspelled = [json.dumps({"query": MISSPELLED}).encode()]
    await client(url, "/search", searches, time.perf_counter() + 1, 0, Loaded("warm", 1, [], Counter(), 0))
    kinds = {"search": (searches, 1), "misspelled": (misspelled, 1), "explain": (explained, clients)}
    results, tasks, until = [], [], time.perf_counter() + seconds
    for name, (bodies, count) in kinds.items():
        results.append(into := Loaded(name, seconds, [], Counter(), 0))
        tasks += [client(url, "/search", bodies, until, number, into) for number in range(count)]
    await asyncio.gather(*tasks)
    return results


def benchmark() -> int:
    """Load a service, and print the figures of each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--model", default="vocable-mini")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vocable-load-") as folder:
        documents = list(islice(vocable.read_corpus("pydocs:"), options.documents))
        rows = [json.dumps({"_id": entry.id, "title": entry.title, "text": entry.text}) for entry in documents]
        Path(folder, "corpus.jsonl").write_text("\n".join(rows))
        vocable.index(options.model, f"{folder}/corpus.jsonl", f"{folder}/index", device="cpu").close()
        queries = list(dict.fromkeys(" ".join(entry.full.split()[:8]) for entry in documents))
        with Served.vocable(f"{folder}/index") as served:
            results = asyncio.run(mixed_load(served.url, queries, options.clients, options.seconds))
    print_machine(machine(torch.device("cpu"), "fastapi", "uvicorn"))
    print(f"load of the machine: {getloadavg()[0]:.1f}")
    table = [result.row() for result in results]
    print("  ".join(table[0]))
    print(*("  ".join(f"{value!s:>{len(name)}}" for name, value in row.items()) for row in table), sep="\n")
    return int(set(results[0].statuses) != {200})


if __name__ == "__main__":
    sys.exit(benchmark())
