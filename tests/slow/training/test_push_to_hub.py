"""A trained model on the Hub: what `push_to_hub` of sentence-transformers sends, and what comes back."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

COMMIT = "a" * 40
PUSHES = """
from vocable.cli import main
assert main(["train", "recipe.yaml", "-o", "my-model"]) == 0
import vocable as vo
vo.load("my-model").push_to_hub("me/my-model")
theirs, ours = (vo.encode(vo.load(name), ["a red fox"], role="query") for name in ("me/my-model", "my-model"))
print(theirs.nnz, abs(theirs - ours).max())
"""


class Hub(BaseHTTPRequestHandler):
    """The part of the Hub's interface that takes a commit of small files, and gives the files back."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            return self.answer(json.dumps({"files": modes}))
        if "/commit/" in self.path:
            for operation in map(json.loads, body.splitlines()):
                if operation["key"] == "file":
                    value = operation["value"]
                    self.files[value["path"]] = base64.b64decode(value["content"])
        address = f"http://{self.headers['Host']}/me/my-model"
        return self.answer(json.dumps({"url": address, "commitUrl": address, "commitOid": COMMIT, "errors": []}))

    def do_GET(self) -> None:
        _, is_file, name = self.path.partition("/resolve/")
        name = name.partition("/")[2]
        if is_file and name not in self.files:
            return self.answer("", 404, {"X-Error-Code": "EntryNotFound"})
        if is_file:
            digest = hashlib.sha1(self.files[name]).hexdigest()
            return self.answer(self.files[name], headers={"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT})
        if "/tree/" in self.path:
            listed = [{"type": "file", "path": name, "size": len(self.files[name]), "oid": name} for name in self.files]
            return self.answer(json.dumps(listed))
        siblings = [{"rfilename": name} for name in self.files]
        return self.answer(json.dumps({"id": "me/my-model", "sha": COMMIT, "siblings": siblings}))

    def do_HEAD(self) -> None:
        self.do_GET()

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the repository, which the server keeps."""
        server: Any = self.server
        return server.files

    def answer(self, body: str | bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def hub() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_a_trained_model_is_pushed_and_loaded_again(hub: Any, model: str, tmp_path: Path) -> None:
    pairs = [{"query": f"red fox {number}", "positive": f"a red fox runs {number}"} for number in range(8)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    training = {"steps": 1, "batch_size": 2, "guard": "off"}
    recipe = {"model": model, "data": {"examples": ["pairs.jsonl"]}, "training": training}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(tmp_path / "cache"),
        "HF_TOKEN": "hf_none",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
    }

    command = [sys.executable, "-c", PUSHES]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    terms, difference = done.stdout.splitlines()[-1].split()
    assert int(terms) > 0
    assert float(difference) == 0
    folder = tmp_path / "my-model"
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files.keys() - hub.files.keys() == {"recipe.json", "log.jsonl", "training.png"}
    assert {name for name, content in hub.files.items() if content != files[name]} == {"README.md"}
    card = hub.files["README.md"].decode()
    assert 'SparseEncoder("me/my-model")' in card
    assert str(tmp_path) not in card
    assert "runs" not in card
