"""Other searches: files of results, and real HTTP servers that answer, fail, trickle or talk too much."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest

from vocable.data import Query
from vocable.errors import ArgumentError, DataError, ServiceError
from vocable.evaluation import other_searches
from vocable.evaluation.other_searches import OtherSearch, other_search

QUERIES = [Query("q0", "copy a file"), Query("q1", "50 % & größer")]
Answer = Callable[[str], tuple[int, bytes]]  # from a query to a status and a body


class Handler(BaseHTTPRequestHandler):
    """Answers GET with the query in `q`, and POST as a vocable service does."""

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        if place.path == "/moved":
            self.send_response(302)
            self.send_header("Location", f"/search?{place.query}")
            self.end_headers()
            return
        self._answer(parse_qs(place.query)["q"][0])

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self._answer(json.loads(self.rfile.read(length))["query"])

    def _answer(self, query: str) -> None:
        status, body = self.server.answer(query)  # type: ignore[attr-defined]
        self.send_response(status)
        self.end_headers()
        with suppress(ConnectionError):  # the client has read enough
            for start in range(0, len(body), 1 << 16):
                self.wfile.write(body[start : start + (1 << 16)])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served() -> Iterator[Callable[[Answer], str]]:
    servers = list[ThreadingHTTPServer]()

    def serve(answer: Answer) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads, server.answer = True, answer  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def of_json(values: object) -> Answer:
    return lambda query: (200, json.dumps(values).encode())


def late(query: str) -> tuple[int, bytes]:
    time.sleep(3)
    return 200, b"[]"


def test_a_run_is_read_by_the_ids_of_queries_and_ordered_by_scores(tmp_path: Path) -> None:
    run = tmp_path / "theirs.run"
    run.write_text("q0 Q0 b 1 2.0 t\nq0 Q0 a 2 2.0 t\nq0 Q0 c 3 5.0 t\nq9 Q0 c 1 1.0 t\n", encoding="utf-8")
    search = other_search(str(run), QUERIES)
    assert (search.name, search.file_bytes) == ("theirs", run.stat().st_size)
    assert search.hits(QUERIES[0]) == ([("c",), ("a",), ("b",)], None)
    assert search.hits(QUERIES[1]) == ([], None)


def test_results_are_read_by_the_texts_of_queries(tmp_path: Path) -> None:
    file = tmp_path / "theirs.json"
    hits = ["/a/", {"url": "/b/", "id": 7}, {"id": "c", "fields": {"url": "/c/"}}]
    file.write_text(json.dumps({"copy  a file": hits, "another": []}), encoding="utf-8")
    search = other_search(str(file), QUERIES)
    assert search.hits(QUERIES[0]) == ([("/a/",), ("/b/", "7"), ("c", "/c/")], None)
    assert search.hits(QUERIES[1]) == ([], None)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("r.json", '{"copy a file": [\n"/a/"', "r.json:2: not JSON"),
        ("r.json", '["/a/"]', 'r.json: results must be an object {"query"'),
        ("r.json", '{"copy a file": "/a/"}', "r.json: an answer must be a list"),
        ("r.json", '{"copy a file": [{"title": "A"}]}', "r.json: a hit must be an address"),
        ("r.json", '{"copy a file": [""]}', "r.json: a hit must be an address"),
        ("r.json", '{"copy a file": [], "copy a file": []}', "r.json: not readable JSON"),
        ("r.json", '{"another": ["/a/"]}', "'copy a file'"),
        ("r.run", "q0 Q0 b 1\n", "r.run:1: "),
        ("r.run", "q9 Q0 b 1 2.0 t\n", "'copy a file'"),
        ("r.run", "", "r.run: an empty run"),
    ],
)
def test_a_file_that_is_no_result_is_refused(name: str, text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        other_search(str(tmp_path / name), QUERIES)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("source", ["ftp://example.org/{query}", "file:///etc/passwd", "http://"])
def test_other_addresses_than_those_of_the_web_are_refused(source: str) -> None:
    with pytest.raises(ArgumentError) as error:
        other_search(source, QUERIES)
    assert source in str(error.value)
    with pytest.raises(DataError):
        other_search("no-such.run", QUERIES)


Opened: TypeAlias = Callable[[str], OtherSearch]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """A search over HTTP, whose connection is closed at the end."""
    with ExitStack() as stack:
        yield lambda source: stack.enter_context(closing(other_search(source, QUERIES)))


def test_an_address_answers_with_a_query_in_its_place(served: Callable[[Answer], str], opened: Opened) -> None:
    asked = list[str]()

    def answer(query: str) -> tuple[int, bytes]:
        asked.append(query)
        return 200, b'["/a/"]'

    base = served(answer)
    for path in ("search", "moved"):
        search = opened(f"{base}/{path}?q={{query}}")
        assert [search.hits(query) for query in QUERIES] == [([("/a/",)], 7)] * 2
        assert (search.name, search.file_bytes) == (base.removeprefix("http://"), None)
    assert asked == 2 * [query.text for query in QUERIES]


def test_lists_of_objects_of_several_kinds_are_read(served: Callable[[Answer], str], opened: Opened) -> None:
    hits = [{"url": "/a/"}, {"id": "b"}]
    for values in (
        hits,
        {"hits": hits},
        {"results": hits},
        {"hits": [{"id": "x"}], "pages": hits},
        {"pages": 3, "hits": hits},
    ):
        base = served(of_json(values))
        assert opened(f"{base}/s?q={{query}}").hits(QUERIES[0])[0] == [("/a/",), ("b",)]
    assert opened(served(of_json({"hits": []}))).hits(QUERIES[0]) == ([], 12)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda query: (503, b"busy"), "503"),
        (lambda query: (200, b"<html>"), "not JSON"),
        (of_json({"documents": []}), "must be a list"),
        (of_json([3]), "must be an address"),
        (lambda query: (200, b"[" + b" " * 5_000_000), "at most 1 MB"),
        (late, "within 0.5 seconds"),
    ],
    ids=["refused", "no JSON", "no list", "no hit", "too large", "too late"],
)
def test_a_bad_answer_is_one_line_with_address_and_query(
    answer: Answer, reason: str, served: Callable[[Answer], str], opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_searches, "ANSWER_BYTES", 1 << 20)
    monkeypatch.setattr(other_searches, "ANSWER_SECONDS", 0.5)
    address = f"{served(answer)}/search?q={{query}}"
    with pytest.raises(ServiceError) as error:
        opened(address).hits(QUERIES[1])
    assert str(error.value).startswith(f"{address}, query '50 % & größer': ")
    assert reason in str(error.value)


def test_a_server_that_is_gone_is_named_without_its_password(served: Callable[[Answer], str], opened: Opened) -> None:
    with pytest.raises(ServiceError) as error:
        opened("http://me:secret@127.0.0.1:9/search?q={query}").hits(QUERIES[0])
    assert "http://me:***@127.0.0.1:9/search" in str(error.value)
