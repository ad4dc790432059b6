"""A server that fails as a cluster does: busy, lost, slow, partly; over the engines of tests.

`python -m tests.engines.fault_table` prints what happened, for the documentation.
"""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

Answer = Callable[[str, str, bytes, str], tuple[int, Any]]  # of a method, a path, a content and a fault in the engine
BEFORE = ("429", "503")  # instead of carrying the request out; a second word is the header Retry-After
SLOW = 1.3  # seconds, longer than a request may take


class Faults:
    """Faults of the requests that write or search, one for each in their order; then none, or `forever` the last."""

    def __init__(self) -> None:
        self.waiting = deque[str]()
        self.forever = False
        self.met: list[str] = []
        self.begun: list[float] = []  # times of the requests
        self.requests: list[tuple[str, str, bytes]] = []  # all, also those without faults
        self.answer: tuple[int, dict[str, str], bytes] | None = None  # of a proxy, but not for the mapping
        self.headers: list[dict[str, str]] = []  # of the requests

    def plan(self, faults: Iterable[str], *, forever: bool = False) -> None:
        self.waiting, self.forever, self.met, self.begun = deque(faults), forever, [], []
        self.requests = []

    def next(self, method: str, path: str) -> str:
        if not path.partition("?")[0].endswith(("/_bulk", "/_msearch", "/points", "/points/query/batch")):
            return ""
        if method == "POST" and path.partition("?")[0].endswith("/points"):  # reads of Qdrant
            return ""
        self.begun.append(time.monotonic())
        if not self.waiting:
            return ""
        fault = self.waiting[0] if self.forever else self.waiting.popleft()
        self.met.append(fault)
        return fault


@contextmanager
def serving_http(
    answer: Answer, headers: dict[str, str], faults: Faults | None = None, tls: SSLContext | None = None
) -> Iterator[str]:
    """Serve the answers of an engine, with faults and perhaps encrypted, and give the URL."""
    planned = faults or Faults()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # answers are written in two parts

        def answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            planned.requests.append((self.command, self.path, content))
            planned.headers.append(dict(self.headers))
            fault = planned.next(self.command, self.path)
            if planned.answer is not None and not self.path.partition("?")[0].endswith("_mapping"):
                status, more, body = planned.answer
                return self.give(status, body, more)
            if fault == "cut before":
                return self.cut()
            if fault.startswith(BEFORE):
                status, _, after = fault.partition(" ")
                return self.give(int(status), {"error": "busy"}, {"Retry-After": after} if after else {})
            try:
                status_, body = answer(self.command, self.path, content, fault)
            except (AssertionError, KeyError) as error:
                status_, body = 400, {"error": {"type": "not documented", "reason": repr(error)}, "status": 400}
            if fault == "cut after":
                return self.cut()
            if fault == "slow":
                time.sleep(SLOW)
            return self.give(status_, body, {}, half=fault == "cut inside")

        def give(self, status: int, body: Any, more: dict[str, str], half: bool = False) -> None:
            data = b"" if self.command == "HEAD" else body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in (headers | more | {"Content-Length": str(len(data))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if half else data)
            if half:
                self.cut()

        def cut(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = answer  # noqa: N815

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *given: None  # type: ignore[method-assign]  # a client that hung up
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' * (tls is not None)}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def forwarding(url: str) -> Answer:
    """The answers of a real server; its own, so that no fault is inside."""

    def answer(method: str, path: str, content: bytes, fault: str) -> tuple[int, Any]:
        kind = "application/x-ndjson" if "/_bulk" in path else "application/json"
        request = Request(url + path, content or None, {"Content-Type": kind}, method=method)
        try:
            with urlopen(request, timeout=60) as given:
                return given.status, json.load(given)
        except HTTPError as error:
            return error.code, json.load(error)

    return answer


class Proxy:
    """Connections to a server that are cut at the n-th piece of data that the client sends and `cuts` tells."""

    def __init__(self, target: tuple[str, int] | str, cuts: Callable[[bytes], bool]) -> None:
        self.target, self.cuts, self.waiting = target, cuts, deque[str]()
        self.met: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                kind = socket.AF_UNIX if isinstance(self.target, str) else socket.AF_INET
                server = socket.socket(kind)
                try:
                    server.connect(self.target)
                except OSError:
                    client.close()
                    continue
                for one, other, watched in ((client, server, True), (server, client, False)):
                    Thread(target=self._pass, args=(one, other, watched), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, watched: bool) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 20):
                fault = self.waiting.popleft() if watched and self.waiting and self.cuts(data) else ""
                if fault:
                    self.met.append(fault)
                if fault == "cut after":
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_RD)
                    one.close()  # no answer reaches the client
                    other.sendall(data)
                    time.sleep(0.3)
                if fault:
                    break
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self._listener.close()
