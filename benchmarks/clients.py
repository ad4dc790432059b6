"""Answers a second of a service over a server: clients, plain and hybrid, a node killed, a server at a distance.

    python benchmarks/clients.py queries.txt --place folder=/tmp/index \
        --place one=opensearch+http://localhost:9200/one --place two=opensearch+http://localhost:9200,localhost:9201/d \
        --kill "cluster kill 2" --back "cluster restart 2" --source before=../main/src --source after=src

Each place is an index of the same documents, already made. Each `--source` is a folder of the program's code; for each
row the services of all sources are asked one after the other, so that they share the load of the machine. The delay is
a proxy before the first address of the last place, which waits `--delay` milliseconds with each request. Round trips
are counted by the proxy, as the requests of one client divided by its answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import product
from os import getloadavg
from pathlib import Path

import numpy as np
from load import Loaded, client
from served import Served

METHODS = re.compile(rb"^(GET|POST|PUT|DELETE|HEAD) \S+ HTTP/1\.1\r\n")
KINDS = {"plain": {"weights": "sparse"}, "hybrid": {}}


class Proxy:
    """A proxy that waits before it passes a request on, and counts requests."""

    def __init__(self, port: int) -> None:
        self.target, self.delay, self.requests = port, 0.0, 0
        self.loop, started = asyncio.new_event_loop(), threading.Event()
        threading.Thread(target=self._run, args=(started,), daemon=True).start()
        started.wait()

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node, to_node = await asyncio.open_connection("127.0.0.1", self.target, limit=1 << 22)
        await asyncio.gather(self._pass(reader, to_node, counted=True), self._pass(node, writer, counted=False))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool) -> None:
        try:
            while data := await reader.read(1 << 20):
                if counted and METHODS.match(data):
                    self.requests += 1
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


async def loaded(url: str, bodies: list[bytes], clients: int, seconds: float) -> Loaded:
    """Have clients send searches for so long."""
    into, began = Loaded("", seconds, [], Counter(), 0), time.perf_counter()
    until = began + seconds
    await asyncio.gather(*(client(url, "/search", bodies, until, number, into) for number in range(clients)))
    return into._replace(seconds=time.perf_counter() - began)  # the last answers come later


def figures(into: Loaded) -> str:
    """Return the cells of a row."""
    p50, p95 = np.percentile(into.times, [50, 95]) if into.times else (np.nan, np.nan)
    other = ", ".join(f"{count} × {status}" for status, count in sorted(into.statuses.items()) if status != 200)
    return f"{into.statuses[200] / into.seconds:.1f} | {p50:,.0f} | {p95:,.0f} | {other or '–'}"


def measure(name: str, place: str, sources: dict[str, Path], queries: list[str], given: argparse.Namespace) -> None:
    """Print the rows of one place, with the services of all sources."""
    for kind, options in KINDS.items():
        bodies = [json.dumps({"query": query, **options}).encode() for query in queries]
        with ExitStack() as services:
            urls = {}
            for source, folder in sources.items():
                environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
                urls[source] = services.enter_context(Served.vocable(place, environment=environment)).url
            for clients, (source, url) in product(given.clients, urls.items()):
                asyncio.run(loaded(url, bodies[:3], 1, 0.1))
                with given.during():
                    row = asyncio.run(loaded(url, bodies, clients, given.seconds))
                cells = [name, kind, clients, source, figures(row), f"{getloadavg()[0]:.0f}"]
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


@contextmanager
def killed(given: argparse.Namespace) -> Iterator[None]:
    """Kill a node in the middle of a row, and start it again afterwards."""
    timer = threading.Timer(given.seconds / 3, subprocess.run, [given.kill], {"shell": True})
    timer.start()
    yield
    timer.join()
    subprocess.run(given.back, shell=True, check=True, stdout=subprocess.DEVNULL)
    time.sleep(8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", type=Path, help="a query a line")
    parser.add_argument("--place", action="append", required=True, help="NAME=PLACE of an index")
    parser.add_argument("--source", action="append", required=True, help="NAME=FOLDER of the code")
    parser.add_argument("--kill", help="command that kills a node, in the middle of 16 clients' searches")
    parser.add_argument("--back", help="command that starts it again")
    parser.add_argument("--delay", type=float, default=50.0, help="milliseconds")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 50])
    given = parser.parse_args()
    given.during = nullcontext
    queries = given.queries.read_text().splitlines()
    places = dict(one.split("=", 1) for one in given.place)
    sources = {name: Path(folder).resolve() for name, folder in (one.split("=", 1) for one in given.source)}
    print("| place | search | clients | code | answers/s | p50 ms | p95 ms | other answers | load |")
    print("|:--|:--|--:|:--|--:|--:|--:|:--|--:|")
    for name, place in places.items():
        measure(name, place, sources, queries, given)
    *_, last = places.values()
    port = int(re.search(r":(\d+)", last)[1])  # type: ignore[index]
    proxy = Proxy(port)
    distant = re.sub(r"//[^/]+", f"//localhost:{proxy.port}", last)
    for kind, options in KINDS.items():
        bodies = [json.dumps({"query": query, **options}).encode() for query in queries]
        for source, folder in sources.items():
            environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
            with Served.vocable(distant, environment=environment) as served:
                asyncio.run(loaded(served.url, bodies[:3], 1, 0.1))
                proxy.requests = 0
                row = asyncio.run(loaded(served.url, bodies, 1, given.seconds))
                print(f"round trips, {kind}, {source}: {proxy.requests / sum(row.statuses.values()):.1f}", flush=True)
    proxy.delay = given.delay / 1000
    measure(f"{given.delay:g} ms", distant, sources, queries, given)
    if given.kill:
        given.clients, given.seconds, given.during = [16], 3 * given.seconds, partial(killed, given)
        measure("a node killed", last, sources, queries, given)


if __name__ == "__main__":
    main()
