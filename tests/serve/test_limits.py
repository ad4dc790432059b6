"""What is refused, with which status, and that it is: sizes, numbers, depth, crowds, time, tokens."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import Client
from vocable.errors import ArgumentError
from vocable.serve.limits import checked_limits

Serve = Callable[..., Client]
DEEP = "not " * 17 + "a=1"


@pytest.fixture(scope="module")
def limited(served: Serve, exact: Path) -> Client:
    return served(exact, max_body=2000, max_characters=200, max_inputs=4, max_k=20)


@pytest.mark.parametrize(
    ("status", "path", "body", "said"),
    [
        (413, "/search", {"query": "x" * 3000}, "a request has at most 2,000 bytes"),
        (413, "/search", {"query": "x" * 300}, "a text has at most 200 characters, not 300"),
        (413, "/embed_sparse", {"inputs": ["x" * 300]}, "a text has at most 200 characters, not 300"),
        (413, "/explain", {"query": "a", "document": "x" * 300}, "a text has at most 200 characters, not 300"),
        (413, "/embed_sparse", {"inputs": ["x"] * 5}, "a request has at most 4 inputs, not 5"),
        (422, "/embed_sparse", {"inputs": []}, "`inputs` cannot be empty"),
        (422, "/embed_sparse", {"inputs": [1]}, "inputs.str: Input should be a valid string"),
        (422, "/embed_sparse", {"inputs": "a", "prompt_name": "no such"}, "prompt_name must be one of document, query"),
        (422, "/search", {"query": "a", "k": 21}, "k must be at most 20, not 21"),
        (422, "/search", {"query": "a", "k": 0}, "k: Input should be greater than or equal to 1"),
        (422, "/search", {"query": "a", "filter": DEEP}, "filter: and, or and not stand more than 16 deep"),
        (422, "/search", {"query": "a", "filter": "a>b"}, "filter 'a>b'"),
        (422, "/search", {"k": 3}, "query is missing"),
        (422, "/search", {"vector": [{"index": 1, "value": 1}], "hybrid": True}, "query is missing"),
        (422, "/search", {"vector": [{"index": 1, "value": 1}], "weights": {"bm25": 1}}, "query is missing"),
        (422, "/search", {"query": "a", "weights": {"bm52": 1}}, "weights: there is no space 'bm52'"),
        (422, "/search", {"query": "a", "weights": {"bm25": -1}}, "weights must be 0, or between 1e-06 and 1,000,000"),
        (422, "/search", {"query": "a", "weights": {}}, "weights: at least one must be above 0"),
        (422, "/search", {"query": "a", "fusion": "max"}, "fusion: Input should be 'weighted' or 'reciprocal-rank'"),
        (422, "/search", {"vector": [{"index": 10**6, "value": 1}]}, "vector: the index has "),
        (422, "/search", {"vector": [{"index": 1, "value": 1}] * 2}, "vector: an index occurs twice"),
        (422, "/search", {"vector": [{"index": 1, "value": -1}]}, "vector.0.value: "),
        (422, "/search", {"query": "a", "tok_p": 3}, "tok_p: Extra inputs are not permitted"),
        (422, "/explain", {"query": "a", "document": "b", "id": "d1"}, "document and id: give one of them"),
        (404, "/nowhere", {}, "Not Found"),
        (405, "/health", {}, "Method Not Allowed"),
    ],
)
def test_a_limit_is_said(limited: Client, status: int, path: str, body: dict[str, Any], said: str) -> None:
    answer = limited("POST", path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(said)
    assert answer.json()["error_type"] == "Validation"
    assert limited("POST", "/search", json={"query": "the old fox"}).status_code == 200


def test_many_brackets_are_no_depth(limited: Client) -> None:
    body = {"query": "the old fox", "filter": "(" * 250 + "lang=de" + ")" * 250}
    assert limited("POST", "/search", json=body).status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"query": "\xff"}', b"[" * 1900, b"1" * 1900, b'"text"', b"", b'{"query": "\\ud800"}', b'{"query": NaN}'],
)
def test_what_is_not_json_is_refused(limited: Client, body: bytes) -> None:
    answer = limited("POST", "/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error_type"] == "Validation"
    plain = limited("POST", "/search", content=b'{"query": "a fox"}', headers={"content-type": "text/plain"})
    assert plain.status_code == 422  # what another site's page could send


def test_a_body_without_a_length_is_counted(limited: Client) -> None:
    async def parts() -> Any:
        for _ in range(100):
            yield b" " * 100

    answer = limited("POST", "/search", content=parts(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_too_much_at_once_is_refused_and_nothing_falls(served: Serve, exact: Path) -> None:
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


def test_what_takes_too_long_is_given_up(served: Serve, exact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, hold = served(exact, timeout=1), threading.Event()
    done: list[str] = []
    monkeypatch.setattr(client.service.collection, "search", lambda *_, **__: hold.wait(10) and 1 / 0)
    monkeypatch.setattr(client.service.collection, "documents", lambda ids: done.extend(ids) or [None for _ in ids])
    slow, waiting = client.together(
        [("POST", "/search", {"json": {"query": "a fox"}}), ("GET", "/documents", {"params": {"id": "d1"}})]
    )
    assert slow.status_code == 504
    assert slow.json()["error"] == "not done within 1 s; a change may still come into effect"
    assert waiting.status_code in (200, 504)
    hold.set()
    assert client("GET", "/documents", params={"id": "d2"}).status_code == 200
    assert done in (["d2"], ["d1", "d2"])  # what was given up before it began is not done


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
    monkeypatch.setattr(client.service.collection, "search", lambda *_, **__: 1 / 0)
    answer = client("POST", "/search", json={"query": "a fox"})
    assert (answer.status_code, answer.json()["error"]) == (500, "internal error: the log has more")
    line = json.loads(capsys.readouterr().err)
    assert (line["status"], line["error"]) == (500, "ZeroDivisionError: division by zero")
    assert "1 / 0" in line["traceback"]


def test_a_token_is_needed_but_to_see_whether_it_lives(served: Serve, exact: Path) -> None:
    client, body = served(exact, token="s3cret"), {"json": {"query": "a fox"}}
    for headers in ({}, {"authorization": "Bearer s3cre"}, {"authorization": "s3cret"}, {"authorization": "Bearer é"}):
        refused = client("POST", "/search", headers={k: v.encode() for k, v in headers.items()}, **body)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "s3cret" not in refused.text
    assert client("POST", "/search", headers={"authorization": "Bearer s3cret"}, **body).status_code == 200
    assert client("GET", "/metrics").status_code == client("GET", "/openapi.json").status_code == 401
    assert client("GET", "/health").status_code == client("GET", "/ready").status_code == 200


def test_a_local_service_is_asked_as_localhost(served: Serve, exact: Path) -> None:
    client = served(exact, local=True)
    for host, status in (("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]", 200), ("evil.example:8000", 403)):
        assert client("GET", "/info", headers={"host": host}).status_code == status
    assert client("GET", "/health", headers={"host": "evil.example"}).status_code == 200


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
        assert {"time", "level", "event", "method", "endpoint", "status", "ms", "bytes"} == lines[-1].keys()


@pytest.mark.parametrize("limits", [{"max_k": 0}, {"timeout": 0}, {"batch_wait": -1.0}, {"no_such": 1}])
def test_limits_have_limits(limits: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(limits))):
        checked_limits(limits)
