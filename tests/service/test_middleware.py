"""Limits of the service: sizes, numbers, depth, crowds, time, tokens; each refusal has its status."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import copy_store
from tests.service.conftest import Client
from vocable.collection.search import CollectionSearch
from vocable.errors import ArgumentError, NoSpaceError
from vocable.options import check
from vocable.service import ServiceLimits

Serve = Callable[..., Client]
DEEP = "not " * 17 + "a=1"


@pytest.fixture(scope="module")
def limited(served: Serve, exact: Path) -> Client:
    return served(exact, max_body=2000, max_characters=200, max_inputs=4, max_k=20)


@pytest.fixture(scope="module")
def with_token(served: Serve, closed_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A service of an index that tests change."""
    return served(copy_store(closed_store, tmp_path_factory.mktemp("token") / "store"), token="s3cret")


@pytest.mark.parametrize(
    ("status", "path", "body", "said"),
    [
        (413, "/search", {"query": "x" * 3000}, "a request has at most 2,000 bytes"),
        (413, "/search", {"query": "x" * 300}, "a text has at most 200 characters, not 300"),
        (413, "/embed_sparse", {"inputs": ["x" * 300]}, "a text has at most 200 characters, not 300"),
        (413, "/explain", {"query": "a", "document": "x" * 300}, "a text has at most 200 characters, not 300"),
        (413, "/embed_sparse", {"inputs": ["x"] * 5}, "a request has at most 4 inputs, not 5"),
        (422, "/embed_sparse", {"inputs": []}, "`inputs` cannot be empty"),
        (422, "/embed_sparse", {"inputs": [1]}, "inputs.0 must be text, not 1"),
        (422, "/embed_sparse", {"inputs": 1}, "inputs must be text, not 1"),
        (422, "/search", {"query": "a", "facets": ["lang", 1]}, "facets.1 must be text, not 1"),
        (422, "/search", {"query": "a", "weights": {"bm25": "x"}}, "weights.bm25 must be a number, not 'x'"),
        (422, "/search", {"like": "no such"}, "there is no document 'no such'"),  # without the place of the index
        (422, "/embed_sparse", {"inputs": "a", "prompt_name": "no such"}, "prompt_name must be one of document, query"),
        (422, "/search", {"query": "a", "k": 21}, "k must be at most 20, not 21"),
        (422, "/search", {"query": "a", "k": 9, "offset": 12}, "offset + k must be at most 20, not 21"),
        (422, "/search", {"query": "a", "k": 0}, "k must be at least 1"),
        (422, "/search", {"query": "a", "k": True}, "k must be a whole number"),
        (422, "/search", {"query": "a", "k": "5"}, "k must be a whole number"),
        (422, "/search", {"query": "a", "rerank": 1}, "rerank must be true or false"),
        (422, "/search", {"query": "a", "vector": [{"index": True, "value": 1}]}, "vector.0.index must be a"),
        (422, "/view", {"query": "a", "k": True}, "k must be a whole number"),
        (422, "/explain", {"query": "a", "k": True}, "k must be a whole number"),
        (422, "/search", {"query": "a", "query_idf": 1000}, "query_idf must be at most 10"),
        (422, "/search", {"query": "a", "query_idf": 1e300}, "query_idf must be at most 10"),
        (422, "/search", {"query": "a", "query_idf": -1}, "query_idf must be at least 0"),
        (422, "/search", {"query": "a", "filter": DEEP}, "filter: and, or and not stand more than 16 deep"),
        (422, "/search", {"query": "a", "filter": "a>b"}, "filter 'a>b'"),
        (422, "/search", {"query": "a", "filter": f"n={'9' * 1000}"}, "filter 'n=999"),
        (422, "/search", {"query": "a", "filter": f"n in ({'1,' * 300}1)"}, "filter 'n in (1,1,"),
        (
            422,
            "/search",
            {"query": "a", "filter": "laang=de"},
            "filter: no document has the field 'laang': did you mean",
        ),
        (422, "/view", {"query": "a", "filter": "not laang=de"}, "filter: no document has the field 'laang'"),
        (422, "/search", {"k": 3}, "query is missing"),
        (422, "/search", {"vector": [{"index": 1, "value": 1}], "explain": True}, "query is missing"),
        (422, "/search", {"vector": [{"index": 1, "value": 1}], "weights": {"bm25": 1}}, "query is missing"),
        (422, "/search", {"query": "a", "weights": {"bm52": 1}}, "weights: there is no space 'bm52'"),
        (422, "/search", {"query": "a", "weights": {"bm25": -1}}, "weights must be 0, or between 1e-06 and 1,000,000"),
        (422, "/search", {"query": "a", "weights": {"sparse": 1e308, "bm25": 1e308}}, "weights must be 0, or between"),
        (422, "/search", {"query": "a", "weights": {}}, "weights: at least one must be above 0"),
        (422, "/search", {"query": "a", "fusion": "max"}, "fusion must be 'weighted' or 'reciprocal-rank'"),
        (422, "/search", {"vector": [{"index": 10**6, "value": 1}]}, "vector: the index has "),
        (422, "/search", {"vector": [{"index": 1, "value": 1}] * 2}, "vector: an index occurs twice"),
        (422, "/search", {"vector": [{"index": 1, "value": -1}]}, "vector.0.value must be above 0, not -1"),
        (422, "/search", {"query": "a", "tok_p": 3}, "tok_p: unknown key"),
        (422, "/explain", {"query": "a", "document": "b", "id": "d1"}, "document and id: give one of them"),
        (404, "/nowhere", {}, "Not Found"),
        (405, "/health", {}, "/health is for GET, HEAD"),
    ],
)
def test_a_wrong_request_is_refused_with_its_status_and_reason(
    limited: Client, status: int, path: str, body: dict[str, Any], said: str
) -> None:
    answer = limited("POST", path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(said)
    assert answer.json()["error_type"] == "Validation"
    assert limited("POST", "/search", json={"query": "the old fox"}).status_code == 200


METHODS = {
    "/": "GET, HEAD",
    "/info": "GET, HEAD",
    "/health": "GET, HEAD",
    "/search": "POST",
    "/documents": "DELETE, GET, HEAD, POST, PUT",
    "/mcp": "POST",
}


@pytest.mark.parametrize("path", METHODS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_method_that_a_path_does_not_have_is_405_whatever_the_body(client: Client, path: str, method: str) -> None:
    if method in METHODS[path].split(", "):
        return
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/json"}):
        answer = client(method, path, content=b"x", headers=headers)
        assert (answer.status_code, answer.headers["allow"]) == (405, METHODS[path])
        assert method == "HEAD" or answer.json()["error"] == f"{path} is for {METHODS[path]}"


def test_a_wrong_method_of_a_second_index_is_405(served: Serve, exact: Path) -> None:
    client = served(exact, compare_with=str(exact))
    assert client("PUT", "/compare-with/search", content=b"x").headers["allow"] == "POST"
    assert client("HEAD", "/compare-with/postings", params={"term": "fox"}).status_code in (200, 404)
    assert client("PUT", "/nowhere", json={}).status_code == 404


def test_a_wrong_method_without_the_token_is_401(with_token: Client) -> None:
    assert with_token("PUT", "/search", content=b"x").status_code == 401
    assert with_token("HEAD", "/info").status_code == 401


@pytest.mark.parametrize("path", ["/", "/info", "/health", "/ready", "/documents?id=d1", "/documents?id=" + "d" * 2000])
def test_head_has_the_status_and_headers_of_get_without_a_body(client: Client, path: str) -> None:
    head, get = client("HEAD", path), client("GET", path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers == get.headers
    assert int(get.headers["content-length"]) == len(get.content) > 0


def test_many_brackets_in_a_text_are_no_depth(limited: Client) -> None:
    body = {"query": "the old fox", "filter": "(" * 250 + "lang=de" + ")" * 250}
    assert limited("POST", "/search", json=body).status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"query": "\xff"}', b"[" * 1900, b"1" * 1900, b'"text"', b"", b'{"query": "\\ud800"}', b'{"query": NaN}'],
)
def test_what_is_not_json_is_refused(limited: Client, body: bytes) -> None:
    answer = limited("POST", "/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error_type"] == "Validation"
    if body == b"{":
        assert answer.json()["error"].startswith("not JSON at character 1: ")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/search", b'{"query": "a", "query": "b"}'),
        ("PUT", "/documents", b'{"documents": [{"id": "x", "text": "a", "fields": {"a": {"b": 1, "\\u0062": 2}}}]}'),
        ("POST", "/mcp", b'{"jsonrpc": "2.0", "id": 1, "id": 1, "method": "ping"}'),
    ],
)
def test_a_key_twice_is_refused(changeable: Client, method: str, path: str, body: bytes) -> None:
    answer = changeable(method, path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("not readable JSON: the key '")


KINDS = (  # without the first, what a form or a script of another site's page can send unasked
    *(
        "text/plain",
        "text/plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ),
    *("", None, "application/x-json", "text/json", "application/json-patch+json", "application/octet-stream"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_is_not_said_to_be_json_is_refused(changeable: Client, kind: str | None) -> None:
    client = changeable
    documents = client("GET", "/info").json()["documents"]
    headers = {} if kind is None else {"content-type": kind}
    bodies = {"/documents": b'{"documents": [{"id": "new", "text": "a fox"}]}'}
    for path in ("/search", "/view", "/explain", "/embed_sparse", "/documents"):
        for method in ("POST", "PUT") if path == "/documents" else ("POST",):
            answer = client(method, path, content=bodies.get(path, b'{"query": "a fox"}'), headers=headers)
            assert (answer.status_code, answer.json()["error_type"]) == (415, "Validation")
            assert "send the header Content-Type: application/json" in answer.json()["error"]
    assert client("GET", "/info").json()["documents"] == documents
    body = {"content": b'{"query": "a fox"}', "headers": {"content-type": "Application/JSON; charset=utf-8"}}
    assert client("POST", "/search", **body).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({}, True),
        ({"origin": "http://test"}, True),
        ({"origin": "https://test", "host": "test"}, True),  # behind a proxy that ends TLS
        ({"origin": "http://test:3000"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "https://public.example"}, True),  # a proxy has changed the host
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://test"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
    ],
)
def test_a_page_of_another_site_changes_nothing(
    with_token: Client, method: str, headers: dict[str, str], taken: bool
) -> None:
    client, headers = with_token, headers | {"authorization": "Bearer s3cret"}
    body = {"params": {"id": "d1"}} if method == "DELETE" else {"json": {"documents": [{"id": "new", "text": "a fox"}]}}
    answer = client(method, "/documents", headers=headers, **body)
    assert (answer.status_code != 403) == taken
    assert taken or "a page of another site" in answer.json()["error"]
    assert client("GET", "/documents", params={"id": "d1"}, headers=headers).status_code == 200


def test_a_body_without_a_length_is_counted(limited: Client) -> None:
    async def parts() -> Any:
        for _ in range(100):
            yield b" " * 100

    answer = limited("POST", "/search", content=parts(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_requests_beyond_the_queue_are_refused_and_the_others_answered(served: Serve, exact: Path) -> None:
    client = served(exact, max_requests=5)
    body = {"json": {"query": "the old fox"}}
    answers = client.together([("POST", "/search", body)] * 20)
    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(200), statuses.count(429)) == (5, 15)
    refused = answers[-1]
    assert refused.headers["retry-after"] == "1"
    assert refused.json() == {"error": "more than 5 requests at a time", "error_type": "Overloaded"}
    assert client("POST", "/search", **body).status_code == 200


def test_a_full_queue_takes_no_part_of_a_request(served: Serve, exact: Path) -> None:
    client = served(exact, max_queue=3)
    refused = client("POST", "/embed_sparse", json={"inputs": ["a", "b", "c", "d"]})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert client.service.batcher.depth == 0
    assert client("POST", "/embed_sparse", json={"inputs": ["a", "b", "c"]}).status_code == 200


def test_a_request_beyond_the_time_limit_ends_with_its_status(
    served: Serve, exact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, hold = served(exact, timeout=1), threading.Event()
    done: list[str] = []
    monkeypatch.setattr(CollectionSearch, "rank", lambda *_, **__: hold.wait(10) and 1 / 0)
    monkeypatch.setattr(client.service.collection, "documents", lambda ids: done.extend(ids) or [None for _ in ids])
    slow, waiting = client.together(
        [("POST", "/search", {"json": {"query": "a fox"}}), ("GET", "/documents", {"params": {"id": "d1"}})]
    )
    assert slow.status_code == 504
    assert slow.json()["error"] == "not done within 1 s"
    assert waiting.status_code in (200, 504)
    hold.set()
    assert client("GET", "/documents", params={"id": "d2"}).status_code == 200
    assert done in (["d2"], ["d1", "d2"])  # what was given up before it began is not done


def test_the_work_of_a_client_that_is_gone_is_not_begun(
    served: Serve, exact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, begun, hold, done = served(exact), threading.Event(), threading.Event(), list[str]()
    monkeypatch.setattr(CollectionSearch, "rank", lambda *_, **__: begun.set() or (hold.wait(10) and 1 / 0))
    monkeypatch.setattr(client.service.collection, "documents", lambda ids: done.extend(ids) or [None for _ in ids])
    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/documents", "query_string": b"id=d1"}
    headers, sent = [(b"host", b"test")], list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append({"type": "http.request", "body": b""})
            return sent[0]
        await asyncio.sleep(0.1)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as other:
            held = asyncio.create_task(other.post("/search", json={"query": "a fox"}))
            await asyncio.to_thread(begun.wait, 10)
            await client.app({**scope, "headers": headers, "raw_path": b"/documents", "root_path": ""}, receive, send)
            hold.set()
            await held

    asyncio.run(ask())
    assert sent[1]["status"] == 499
    assert client("GET", "/documents", params={"id": "d2"}).status_code == 200
    assert done == ["d2"]


def test_a_body_that_does_not_arrive_gives_its_place_to_others(served: Serve, exact: Path) -> None:
    client, statuses = served(exact, max_requests=2), dict[str, int]()
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/search", "query_string": b""}
    headers = [(b"host", b"test"), (b"content-type", b"application/json"), (b"content-length", b"1000")]

    async def slow(name: str) -> None:
        first = [{"type": "http.request", "body": b"{", "more_body": True}]

        async def receive() -> dict[str, Any]:
            return first.pop() if first else await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            statuses.setdefault(name, message.get("status"))

        await client.app({**scope, "headers": headers, "raw_path": b"/search", "root_path": ""}, receive, send)

    async def ask() -> list[int]:
        waiting = [asyncio.create_task(slow(name)) for name in ("first", "second")]
        await asyncio.sleep(0)
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as other:
            answers = [await other.post("/search", json={"query": "a fox"}) for _ in range(3)]
        for task in waiting:
            task.cancel()
        return [answer.status_code for answer in answers]

    assert asyncio.run(ask()) == [200, 200, 200]
    assert statuses == {"first": 408}


def test_a_compressed_body_is_refused(with_token: Client) -> None:
    headers, body = {"authorization": "Bearer s3cret", "content-type": "application/json"}, b'{"query": "a fox"}'
    for encoding, status in (("gzip", 415), ("br", 415), ("gzip, identity", 415), ("identity", 200), ("", 200)):
        answer = with_token("POST", "/search", content=body, headers=headers | {"content-encoding": encoding})
        assert answer.status_code == status


def test_an_error_of_one_is_not_that_of_those_beside_it(served: Serve, exact: Path) -> None:
    client = served(exact, batch_wait=200)
    good = ("POST", "/explain", {"json": {"query": "the old fox", "id": "d1"}})
    bad = ("POST", "/explain", {"json": {"query": "the old fox", "id": "no such"}})
    statuses = [answer.status_code for answer in client.together([good, bad, good])]
    assert statuses == [200, 404, 200]


def test_an_internal_error_is_logged_and_told_to_nobody(
    served: Serve, exact: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = served(exact)
    capsys.readouterr()
    monkeypatch.setattr(CollectionSearch, "rank", lambda *_, **__: 1 / 0)
    answer = client("POST", "/search", json={"query": "a fox"})
    assert (answer.status_code, answer.json()["error"]) == (500, "internal error: the log has more")
    line = json.loads(capsys.readouterr().err)
    assert (line["status"], line["error"]) == (500, "ZeroDivisionError: division by zero")
    assert "1 / 0" in line["traceback"]


def test_all_paths_but_health_need_the_token(served: Serve, exact: Path) -> None:
    client, body = served(exact, token="s3cret"), {"json": {"query": "a fox"}}
    for headers in (
        {},
        {"authorization": "Bearer s3cre"},
        {"authorization": "s3cret"},
        {"authorization": "Basic s3cret"},
        {"authorization": "Bearer é"},
    ):
        refused = client("POST", "/search", headers={k: v.encode() for k, v in headers.items()}, **body)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "s3cret" not in refused.text
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert client("POST", "/search", headers={"authorization": f"{scheme} s3cret"}, **body).status_code == 200
    assert client("GET", "/metrics").status_code == client("GET", "/openapi.json").status_code == 401
    assert client("GET", "/health").status_code == client("GET", "/ready").status_code == 200


def test_without_a_token_other_names_are_refused(served: Serve, exact: Path) -> None:
    client = served(exact, allow_host=["search.intern"])
    known = ("localhost:8000", "LOCALHOST", "127.0.0.1", "[::1]", "[fe80::1]:80", "192.168.1.7:8000", "Search.Intern:1")
    others = (
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "search",
        "0x7f.1",
        "[",
        ":80",
    )
    for host in (*known, *others):
        for method, path in (("GET", "/info"), ("GET", "/"), ("POST", "/search"), ("DELETE", "/documents")):
            answer = client(method, path, headers={"host": host}, **({"json": {}} if method == "POST" else {}))
            assert (answer.status_code == 403) is (host in others), host
    assert "--allow-host NAME adds a name" in client("GET", "/info", headers={"host": "evil.example"}).json()["error"]
    assert client("GET", "/health", headers={"host": "evil.example"}).status_code == 200
    with_token = served(exact, token="s3cret", allow_host=[])
    headers = {"host": "any.example", "authorization": "Bearer s3cret"}
    assert with_token("GET", "/info", headers=headers).status_code == 200


def test_every_answer_forbids_to_guess_its_type(client: Client) -> None:
    asked = [
        ("GET", path, {}) for path in ("/", "/main.js", "/info", "/health", "/metrics", "/openapi.json", "/nowhere")
    ]
    asked += [("POST", "/search", {"json": body}) for body in ({"query": "a fox"}, {"query": 1}, {"k": 0})]
    asked += [("POST", "/search", {"content": b"x"}), ("GET", "/info", {"headers": {"host": "evil.example"}})]
    for answer in client.together(asked):
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), NoSpaceError("no space left: free some")])
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_a_full_disk_is_said(
    served: Serve, store: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception
) -> None:
    client = served(store)

    def fail(given: Any) -> Any:
        raise error

    for name in ("add", "delete"):
        monkeypatch.setattr(client.service.collection, name, fail)
    body = {"params": {"id": "d1"}} if method == "DELETE" else {"json": {"documents": [{"id": "n", "text": "a fox"}]}}
    answer = client(method, "/documents", **body)
    assert (answer.status_code, answer.json()["error_type"]) == (507, "Backend")
    assert "no space left" in answer.json()["error"]
    monkeypatch.undo()
    assert client("POST", "/search", json={"query": "a fox"}).status_code == 200


class Panic(BaseException):
    """An error as those of libraries in Rust."""


def test_a_panic_ends_no_thread(served: Serve, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = served(store)
    body = {"json": {"documents": [{"id": "n", "text": "a fox"}]}}

    def fail(*_: Any, **__: Any) -> Any:
        raise Panic("slice index")

    collection = client.service.collection
    for owner, name in ((CollectionSearch, "rank"), (collection, "add"), (collection, "documents")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, fail)
            asked = [("POST", "/search", {"json": {"query": "a fox"}}), ("PUT", "/documents", body)]
            answers = client.together([*asked, ("GET", "/documents", {"params": {"id": "d1"}})] * 2)
        statuses = [answer.status_code for answer in answers]
        assert 500 in statuses
        assert client("GET", "/ready").status_code == 200
    assert client("POST", "/search", json={"query": "a fox"}).status_code == 200


def test_queries_are_logged_only_if_asked(served: Serve, exact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "my very own question"
    for log_queries in (False, True):
        client = served(exact, log_queries=log_queries)
        capsys.readouterr()
        client("POST", "/search", json={"query": secret})
        client("POST", "/explain", json={"query": secret})
        client("POST", "/search", json={"query": secret, "k": "?"})
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [line.get("query") for line in lines] == [secret if log_queries else None] * 2 + [None]
        assert {"time", "level", "event", "id", "method", "endpoint", "status", "ms", "bytes"} == lines[-1].keys()


@pytest.mark.parametrize("limits", [{"max_k": 0}, {"timeout": 0}, {"batch_wait": -1.0}, {"no_such": 1}])
def test_limits_out_of_range_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(limits))):
        check(ServiceLimits, limits)
