"""Cases of `break.py` about requests that are made to harm: sent through a socket to a service as `serve` runs it."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from break_toys import Case, Toys
from preloaded import LIMIT, end, start

HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
LAST = b"Host: localhost\r\nConnection: close\r\n\r\n"
SECOND = b"GET /info HTTP/1.1\r\n" + LAST  # which must not be answered after a request whose end is unclear
BOTH = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


def _post(path: str, body: str) -> bytes:
    length = f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"POST {path} HTTP/1.1\r\n".encode() + HEAD + f"{length}{body}".encode()


REQUESTS = {  # what is sent, the status of the first answer, and the answers until the connection ends
    "two lengths": (b"POST /search HTTP/1.1\r\n" + HEAD + BOTH + SECOND, 400, 1),
    "two lengths for an open path": (b"POST /health HTTP/1.1\r\n" + HEAD + BOTH + SECOND, 400, 1),
    "an encoding in HTTP/1.0": (
        b"POST /search HTTP/1.0\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
        400,
        1,
    ),
    "two different lengths": (
        b"POST /search HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n0\r\n\r\n" + SECOND,
        400,
        1,
    ),
    "another method": (b"PUT /search HTTP/1.1\r\n" + LAST, 405, 1),
    "HEAD of a search": (b"HEAD /search HTTP/1.1\r\n" + LAST, 405, 1),
    "HEAD": (b"HEAD /info HTTP/1.1\r\nHost: localhost\r\n\r\n" + SECOND, 200, 2),
    "true for a number": (_post("/search", '{"query": "list", "k": true}'), 422, 1),
    "a text for a number": (_post("/search", '{"query": "list", "k": "5"}'), 422, 1),
    "a large power of the IDF": (_post("/search", '{"query": "list", "query_idf": 1e300}'), 422, 1),
    "a right search": (_post("/search", '{"query": "list"}'), 200, 1),
}


def http_cases(toys: Toys) -> Iterator[Case]:
    """Send each request to a service of its own."""

    def case(sent: bytes, status: int, answers: int, folder: Path) -> tuple[str, str]:
        child = start(folder, ["serve", toys.folder / "index", "--port", "0", "--device", "cpu"])
        try:
            with socket.create_connection(("127.0.0.1", _port(folder)), timeout=LIMIT) as connection:
                connection.sendall(sent)
                received = b"".join(iter(lambda: connection.recv(65_536), b""))
        finally:
            os.kill(child, signal.SIGTERM)
            ran = end(child, folder)
        statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+) ", received)]
        if ran.status != 0 or '"traceback"' in ran.err:
            return "TRACEBACK", ran.err[-300:]
        if statuses[:1] != [status] or len(statuses) != answers:
            return "WRONG", f"{statuses}: {received[:200]!r}"
        return ("right" if status == 200 else "refused"), received[:80].decode("latin-1")

    for name, (sent, status, answers) in REQUESTS.items():
        yield Case("http", name, partial(case, sent, status, answers))


def _port(folder: Path) -> int:
    """Return the port that a service has logged."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        if found := re.search(r" at http://127\.0\.0\.1:(\d+)", (folder / ".err").read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"the service did not start: {(folder / '.err').read_text()}")
