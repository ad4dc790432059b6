"""The service as a process: its start and end, several workers, kills, and the clients that people have."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import httpx
import pytest
from huggingface_hub import InferenceClient

import vocable
from tests.cli.command_line import done, refused
from tests.conftest import copy_store
from tests.service.process import Process, serving
from vocable.collection.collection import open_index
from vocable.errors import ServiceError
from vocable.service.client import Client
from vocable.torch_models.cpu import native_bfloat16

TOKEN = "s3cret"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def process(exact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A service of the index as a Python of its own; its token is `TOKEN`."""
    token = tmp_path_factory.mktemp("service") / "token"
    token.write_text(f"{TOKEN}\n")
    with serving(exact, "--token-file", token, fresh=True) as process:
        yield process


@pytest.mark.slow
def test_requests_of_text_embeddings_inference_are_answered(process: Process) -> None:
    headers = HEADERS | {"Content-Type": "application/json"}
    content = b'{"inputs":"I like you."}'
    [terms] = httpx.post(f"{process.url}/embed_sparse", content=content, headers=headers, timeout=60).json()
    assert terms
    assert all(term.keys() == {"index", "value"} for term in terms)
    assert all(type(term["index"]) is int and term["value"] > 0 for term in terms)
    body = {"inputs": ["a", "b"], "truncate": False, "truncation_direction": "Right", "prompt_name": None}
    assert len(httpx.post(f"{process.url}/embed_sparse", json=body, headers=HEADERS, timeout=60).json()) == 2


@pytest.mark.slow
def test_the_client_of_hugging_face_reads_health_and_kind_of_model(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)  # it asks nobody else
    client = InferenceClient(process.url, provider="hf-inference", token=TOKEN)
    assert client.health_check()
    assert client.get_endpoint_info()["model_type"] == {"embedding": {"pooling": "splade"}}


@pytest.mark.slow
def test_the_client_searches_explains_and_embeds(process: Process) -> None:
    with Client(process.url, token=TOKEN) as client:
        assert client.info().documents == 40
        [hit, *_] = client.search("posting lists at night", filter="lang in (de, en)", explain=True)
        assert client.get([hit.document.id]) == [hit.document]
        assert hit.explanation is not None
        why = client.explain("posting lists at night", id=hit.document.id)
        assert why == replace(hit.explanation, parts=hit.parts)
        [vector] = client.embed(["posting lists at night"], "query")
        scores = {one.document.id: one.score for one in client.search(k=40, vector=vector)}
        assert scores[hit.document.id] == pytest.approx(hit.explanation.score)


@pytest.mark.slow
def test_a_request_without_the_token_is_refused(process: Process, capsys: pytest.CaptureFixture[str]) -> None:
    assert httpx.get(f"{process.url}/info").status_code == 401
    with pytest.raises(ServiceError, match="401: "), Client(process.url) as client:
        client.info()
    assert "401: a bearer token is needed" in refused(capsys, "search", process.url, "night")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [[], ["--json"], ["--weights", "sparse=1"], ["--max-terms", 2], ["--mass", 0.5], ["--query-idf", 1]],
)
def test_search_prints_at_a_service_what_it_prints_at_its_index(
    process: Process,
    exact: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[Any],
) -> None:
    monkeypatch.setenv("VOCABLE_TOKEN", TOKEN)
    monkeypatch.setattr("vocable.torch_models.cpu.native_bfloat16", native_bfloat16)  # as in the service's process
    queries = ["posting lists at night", "a fox", "-k", 3, "--explain", "--filter", "lang in (de, en)"]
    here, there = (done(capsys, "search", place, *queries, *options) for place in (exact, process.url))
    assert here == there


@pytest.mark.slow
def test_an_option_of_an_index_on_this_machine_is_refused_at_a_service(
    process: Process, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOCABLE_TOKEN", TOKEN)
    said = refused(capsys, "search", process.url, "night", "--allow-changed-model")
    assert "--allow-changed-model is for an index on this machine" in said


@pytest.mark.slow
def test_a_service_that_is_stopped_answers_waiting_requests_and_logs_no_query_and_no_token(
    exact: Path, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with serving(exact, "--token-file", tmp_path / "token", "--batch-wait", 1000) as process:
        answers: list[httpx.Response] = []

        def ask() -> None:
            asked = {"query": "the old fox"}
            answers.append(httpx.post(f"{process.url}/search", json=asked, headers=HEADERS, timeout=60))

        asking = threading.Thread(target=ask)
        with httpx.Client(base_url=process.url, headers=HEADERS, timeout=60) as watching:
            asking.start()
            while not answers and "vocable_queue_depth 1" not in watching.get("/metrics").text:
                time.sleep(0.01)
        assert process.stop(signal.SIGTERM) == 0
        asking.join()
    assert answers[0].status_code == 200
    assert answers[0].json()["hits"]
    said = "".join([*process.said, *process.log])
    assert TOKEN not in said
    assert "fox" not in said
    assert json.loads(process.log[-1])["endpoint"] == "/search"


@pytest.mark.slow
def test_workers_share_one_index_and_one_page_of_metrics(built_in: Path) -> None:
    with serving(built_in, "--workers", 2, fresh=True) as process:

        async def ask(count: int) -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=process.url, timeout=300) as client:
                bodies = [{"query": f"the old fox {i % 7}"} for i in range(count)]
                return await asyncio.gather(*(client.post("/search", json=body) for body in bodies))

        answers = asyncio.run(ask(60))
        assert {answer.status_code for answer in answers} == {200}
        text = httpx.get(f"{process.url}/metrics", timeout=60).text
        assert 'vocable_requests_total{endpoint="/search",status="200"} 60' in text
        assert process.stop() == 0


@pytest.mark.slow
def test_many_clients_at_once_are_answered_or_refused_in_time(built_in: Path) -> None:
    with serving(built_in, "--timeout", 3, fresh=True) as process:

        async def ask() -> list[int]:
            async with httpx.AsyncClient(base_url=process.url, timeout=300) as client:

                async def one(number: int) -> list[int]:
                    body = {"query": f"the old fox {number}", "explain": True, "k": 40}
                    return [(await client.post("/search", json=body)).status_code for _ in range(8)]

                return [status for statuses in await asyncio.gather(*map(one, range(50))) for status in statuses]

        statuses = asyncio.run(ask())
        assert set(statuses) <= {200, 429, 504}
        assert statuses.count(504) <= len(statuses) // 20  # other processes may slow the machine after an estimate
        assert 200 in statuses
        assert httpx.post(f"{process.url}/search", json={"query": "a fox"}, timeout=60).status_code == 200


SMUGGLED = b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTHS = {
    "both lengths": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "both, in the other order": b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
    "both, of an open path": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n",
    "an encoding in HTTP/1.0": b"Transfer-Encoding: chunked\r\n",
}


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(exact: Path) -> None:
    """Behind a proxy that believes the other length, the rest of the body would be another user's request."""
    with serving(exact) as process:
        address = httpx.URL(process.url)
        for name, lengths in LENGTHS.items():
            path, version = (b"/health" if "open" in name else b"/search"), (b"1.0" if "1.0" in name else b"1.1")
            head = b"POST %s HTTP/%s\r\nHost: localhost\r\nContent-Type: application/json\r\n" % (path, version)
            with socket.create_connection((address.host, address.port), timeout=60) as connection:
                connection.sendall(head + lengths + b"\r\n0\r\n\r\n" + SMUGGLED)
                answer = b"".join(iter(lambda c=connection: c.recv(65_536), b""))  # until the service closes
            assert answer.startswith(b"HTTP/1.1 400 "), name
            assert answer.count(b"HTTP/1.1 ") == 1, name
            assert b"documents" not in answer, name
        head = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        chunked = head + b'Transfer-Encoding: chunked\r\n\r\n10\r\n{"query": "fox" \r\n1\r\n}\r\n0\r\n\r\n'
        without_body = b"HEAD /info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with socket.create_connection((address.host, address.port), timeout=60) as connection:
            connection.sendall(chunked + without_body)  # an encoding alone is right
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert answer.count(b"HTTP/1.1 200 ") == 2
        assert answer.endswith(b"\r\n\r\n")


HEAD = b"GET /info HTTP/1.1\r\nHost: localhost\r\n"
ENDLESS = {
    "one header": (HEAD + b"X: ", b"a" * 65_536),
    "many headers": (HEAD, b"X: aaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 2000),
    "a path": (b"GET /", b"a" * 65_536),
    "what is no HTTP": (b"", b"a" * 65_536),
}


def test_headers_without_end_are_refused_and_take_no_memory(exact: Path) -> None:
    with serving(exact) as process:
        address, before = httpx.URL(process.url), resident(process.pid)
        for begin, more in ENDLESS.values():
            with socket.create_connection((address.host, address.port), timeout=60) as connection:
                connection.sendall(begin)
                with suppress(ConnectionError):
                    for _ in range(1600):  # 100 MB
                        connection.sendall(more)
                    pytest.fail("the service takes headers without end")
        longest = urlencode([("id", "é" * 512)] * 64)  # that the limits allow
        with urlopen(f"{process.url}/documents?{longest}", timeout=60) as answer:
            assert json.load(answer) == [None] * 64
        assert resident(process.pid) - before < 50


def resident(process: int) -> float:
    """Return the memory of a process in MB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_an_index_that_is_served_is_searched_and_changed_by_other_processes(
    built_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet_libraries: None
) -> None:
    """The next answer of each worker has the change, which the worker did not make itself."""
    store, more = copy_store(built_in, tmp_path / "store"), tmp_path / "more.jsonl"
    with serving(store, "--workers", 2, fresh=True) as process:
        for number in range(3):
            more.write_text(json.dumps({"_id": "zebra", "text": f"zebras and {number} giraffes"}))
            assert "1 " in done(capsys, "add", store, more)
            for _ in range(12):
                [zebra] = httpx.get(f"{process.url}/documents?id=zebra", timeout=60).json()
                assert zebra["text"] == f"zebras and {number} giraffes"
                assert [hit["id"] for hit in hits_of_words(process, "zebras giraffes")] == ["zebra"]
        assert '"zebra"' in done(capsys, "search", store, "zebras", "--weights", "bm25=1", "--json")
        assert "1 deleted" in done(capsys, "delete", store, "zebra")
        for _ in range(6):
            assert not hits_of_words(process, "zebras")


def hits_of_words(process: Process, query: str) -> list[dict[str, Any]]:
    """Return the hits of a search by words alone."""
    body = {"query": query, "weights": {"bm25": 1}}
    hits: list[dict[str, Any]] = httpx.post(f"{process.url}/search", json=body, timeout=60).json()["hits"]
    return hits


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "70000"], "--port must be at least 0 and at most 65535, not 70000"),
        (["--host", "no.such.host.invalid"], "--host no.such.host.invalid, port 8000: "),
        (["--max-k", "0"], "--max-k must be at least 1, not 0"),
        (["--batch-wait", "2000"], "--batch-wait must be at least 0 and at most 1000, not 2000.0"),
        (["--host", "a" * 300], f"--host {'a' * 79}… is no name of a host: "),
        (["--token-file", "no-such-file"], "no-such-file: No such file or directory"),
        (["--token-file", "/dev/zero"], "--token-file /dev/zero: not a regular file"),
        (
            ["--allow-host", "http://search.intern"],
            "--allow-host is a name alone, without scheme and port, not http://",
        ),
        (
            ["--allow-host", "search.intern:80"],
            "--allow-host is a name alone, without scheme and port, not search.intern:80",
        ),
    ],
)
def test_a_mistake_is_one_line(
    exact: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str, quiet_libraries: None
) -> None:
    assert refused(capsys, "serve", exact, *arguments).startswith(f"vocable: {said}")


def test_a_taken_port_and_an_empty_token_are_one_line(
    exact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet_libraries: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "Address already in use" in refused(capsys, "serve", exact, "--port", port)
    for wrong in (b"two words", b"", b"caf\xe9", b"\xff\xfe", "café".encode(), b"\xef\xbb\xbfs3cret", b"a\nb"):
        (tmp_path / "token").write_bytes(wrong)
        line = refused(capsys, "serve", exact, "--token-file", tmp_path / "token")
        assert line.endswith("a token is one word of printable ASCII")
    os.mkfifo(tmp_path / "pipe")
    assert "pipe: not a regular file" in refused(capsys, "serve", exact, "--token-file", tmp_path / "pipe")


def test_a_wide_open_service_is_warned_of(
    exact: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vocable.service.server._run", lambda *_: None)
    for host, token, warned in (("0.0.0.0", "", True), ("0.0.0.0", "s3cret", False), ("127.0.0.1", "", False)):
        caplog.clear()
        monkeypatch.setenv("VOCABLE_TOKEN", token) if token else monkeypatch.delenv("VOCABLE_TOKEN", raising=False)
        vocable.serve(exact, host=host, port=0, device="cpu")
        said = [record.getMessage() for record in caplog.records]
        assert any("anybody who reaches it can read the whole index" in line for line in said) is warned
        assert f"(40 documents) at http://{host}:" in said[-1]


@pytest.mark.slow
def test_acknowledged_documents_are_there_after_a_kill(store: Path, documents: list[Any]) -> None:
    """Writers write and delete until the process is killed; what was answered is there, and searches are whole."""
    there, gone = {document.id for document in documents}, set[str]()
    with serving(store) as process:
        stop = threading.Event()

        def write(writer: int) -> None:
            with httpx.Client(base_url=process.url, timeout=300) as client:
                for i in range(10_000):
                    name = f"w{writer}-{i}"
                    one: dict[str, Any] = {"id": name, "text": f"zebra {name}", "fields": {"writer": writer}}
                    try:
                        client.put("/documents", json={"documents": [one]}).raise_for_status()
                        there.add(name)
                        if i % 5 == 4:
                            earlier = f"w{writer}-{i - 2}"
                            there.discard(earlier)
                            client.delete("/documents", params={"id": earlier}).raise_for_status()
                            gone.add(earlier)
                    except httpx.TransportError:
                        break
            stop.set()

        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for writer in writers:
            writer.start()
        while len(there) < 150:
            assert not stop.is_set()
            time.sleep(0.01)
        process.process.kill()
        for writer in writers:
            writer.join()
    collection = open_index(store, device="cpu")
    try:
        names = sorted(there)
        assert [name for name, one in zip(names, collection.documents(names), strict=True) if one is None] == []
        assert collection.documents(sorted(gone)) == [None] * len(gone)
        found = collection.search(["zebra"], k=len(collection), filter="writer in (0, 1, 2)")
        assert {name for name, _ in found.hits(0)} >= {name for name in there if re.match("w", name)}
    finally:
        collection.close()
