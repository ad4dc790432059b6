"""A static web server that counts the bytes it sends, for the benchmark of searches of static sites."""

from __future__ import annotations

import gzip
import threading
from functools import lru_cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, Self

TEXTS = (".html", ".js", ".mjs", ".css", ".json", ".svg", ".txt")  # what common hosts compress


@lru_cache(maxsize=64)
def compressed(path: str) -> bytes:
    return gzip.compress(Path(path).read_bytes(), 6)


class _Handler(SimpleHTTPRequestHandler):
    """Files of a folder, over HTTP/1.1 so that a browser reuses its connections."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        write = self.wfile.write

        def counted(data: Any) -> int:
            self.server.add(memoryview(data).nbytes)  # type: ignore[attr-defined]
            return write(data)

        self.wfile.write = counted  # type: ignore[method-assign]

    def send_head(self) -> Any:
        path = self.translate_path(self.path)
        accepts = "gzip" in self.headers.get("Accept-Encoding", "")
        if not (self.server.gzip and accepts and path.endswith(TEXTS) and Path(path).is_file()):  # type: ignore[attr-defined]
            return super().send_head()
        body = compressed(path)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return BytesIO(body)

    def log_message(self, *_: Any) -> None:
        pass


class Served(ThreadingHTTPServer):
    """The server of a folder, in threads of this process: `url`, and the bytes `sent` so far."""

    daemon_threads = True

    def __init__(self, folder: Path, compress: bool) -> None:
        self.gzip, self.sent, self._counting = compress, 0, threading.Lock()
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server_port}"

    def add(self, count: int) -> None:
        with self._counting:
            self.sent += count

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
