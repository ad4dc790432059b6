"""The memory and the speed of many calls by MCP, over stdin and stdout and over HTTP, by the SDK's own client.

    python benchmarks/mcp_calls.py                     # 10,000 calls of each; an index of 200 documents
    python benchmarks/mcp_calls.py --calls 1000 --over http

Every tenth call is a mistake: an unknown tool, a filter that cannot be read, an unknown id. Resident memory is the
service's own, after 100, 1,000, ... calls. The exit status is 1 if it grows by more than a tenth from the second row
to the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from machine import machine, print_machine
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from served import Served

import vocable

SUBJECTS = ("a set", "a list", "the old fox", "the compiler", "a star", "a ship at night", "the sea", "a posting list")
MISTAKES: list[tuple[str, dict[str, Any]]] = [
    ("serch", {"query": "a"}),
    ("search", {"query": "a", "filter": "year="}),
    ("get_document", {"id": "none"}),
]
GROWTH = 1.1


def call_of(number: int) -> tuple[str, dict[str, Any]]:
    """Return a call: the three tools take turns, each query differs, and some calls have mistakes."""
    if number % 10 == 9:
        return MISTAKES[number // 10 % len(MISTAKES)]
    query, identifier = f"{SUBJECTS[number % len(SUBJECTS)]} {number}", str(number % 200)
    return (
        ("search", {"query": query, "k": 10, "weights": (None, "sparse")[number % 2], "filter": "year>=2000"}),
        ("explain", {"query": query, "id": identifier}),
        ("get_document", {"id": identifier}),
    )[number % 3]


def resident(process: int) -> float:
    """Return the resident memory of a process in MiB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(name: str, server: Any, memory: Callable[[], float], calls: int) -> list[float]:
    """Call the tools, print the memory of the service on the way, and return it."""
    rows: list[float] = []
    async with Client(server) as client:
        started, mark = time.perf_counter(), 100
        for number in range(calls):
            result = await client.call_tool(*call_of(number))
            if result.is_error != (number % 10 == 9):
                raise SystemExit(f"call {number}: {result.content}")
            if number + 1 == mark:
                rows.append(memory())
                speed = mark / (time.perf_counter() - started)
                print(f"{name:6}{mark:>8,} calls{rows[-1]:>9,.1f} MiB{speed:>8,.0f} calls/s", flush=True)
                mark *= 10
    return rows


def of_child() -> float:
    """Return the memory of the only child of this process."""
    [child] = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    return resident(int(child))


def main() -> int:
    """Print the rows of both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--over", choices=["stdio", "http"], nargs="+", default=["stdio", "http"])
    arguments = parser.parse_args()
    calls: int = arguments.calls
    print_machine(machine(torch.device("cpu"), "mcp"))
    with tempfile.TemporaryDirectory() as folder:
        corpus, place = Path(folder, "corpus.jsonl"), f"{folder}/index"
        rows = [
            {"_id": str(i), "text": f"{SUBJECTS[i % len(SUBJECTS)]} is seen {i} times", "year": 1990 + i % 40}
            for i in range(200)
        ]
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
        vocable.index("vocable-mini", corpus, place, bm25=True).close()
        environment = {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "OMP_NUM_THREADS")}
        words = ["-m", "vocable", "serve", place, "--mcp"]
        stdio = StdioServerParameters(command=sys.executable, args=words, env=environment)
        grown = []
        if "stdio" in arguments.over:
            grown.append(asyncio.run(measure("stdio", stdio, of_child, calls)))
        if "http" in arguments.over:
            with Served.vocable(place) as served:
                grown.append(asyncio.run(measure("http", f"{served.url}/mcp", lambda: served.memory, calls)))
    return int(any(len(one) > 1 and one[-1] > GROWTH * one[1] for one in grown))


if __name__ == "__main__":
    raise SystemExit(main())
