"""Doors of managed clusters: certificates, keys and tokens, before a server that is encrypted by a CA of the test."""

from __future__ import annotations

import logging
import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.cluster import Answer, Faults, forwarding, serving_http
from tests.engines.lucene_server import Engine
from vocable.engines.addresses import Server
from vocable.engines.logins import Login
from vocable.engines.protocols import engines
from vocable.errors import ArgumentError, VectorsError

pytest.importorskip("opensearchpy")
HEADERS = {"Content-Type": "application/json"}
SECRET = "hunter2"


class Authority:
    """A CA in a folder, and certificates that it issues."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.file = folder / f"{name}.pem"
        self._openssl("req", "-x509", *self._new(name), "-subj", f"/CN={name}", "-days", "2", "-out", self.file)

    def issue(self, name: str, days: int = 1) -> Path:
        """Issue a certificate for 127.0.0.1; with days below 0, one that has expired. The key is in NAME.key."""
        request, file = self.folder / f"{name}.csr", self.folder / f"{name}.pem"
        extension = self.folder / "extension"
        extension.write_text("subjectAltName=IP:127.0.0.1")
        self._openssl("req", *self._new(name), "-subj", f"/CN={name}", "-out", request)
        issuer = ["-CA", self.file, "-CAkey", self.file.with_suffix(".key"), "-CAcreateserial", "-extfile", extension]
        self._openssl("x509", "-req", "-in", request, *issuer, "-days", days, "-out", file)
        return file

    def context(self, certificate: Path, *, asks: bool = False) -> ssl.SSLContext:
        """Return the context of a server; one that `asks` demands a certificate of this CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.file)
        return context

    def _new(self, name: str) -> list[object]:
        return [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            self.folder / f"{name}.key",
        ]

    def _openssl(self, *words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ca")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENSEARCH_", "ELASTIC_")):
            monkeypatch.delenv(name)


@pytest.fixture(params=["a server of tests", "VOCABLE_OPENSEARCH"])
def answer(request: pytest.FixtureRequest) -> Iterator[Answer]:
    """The answers of a server behind a proxy that encrypts."""
    if request.param == "a server of tests":
        yield Engine("opensearch").answer
    elif url := os.environ.get(request.param):
        yield forwarding(url)
    else:
        pytest.skip("no server")


def made(address: str) -> Any:
    """Create an index and remove it."""
    store = engines()["opensearch"].create(address, {"sparse": 5}, {})
    try:
        return len(store)
    finally:
        store.drop()
        store.close()


def test_a_server_of_an_own_authority_is_trusted_by_its_file(
    authority: Authority, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(authority.folder, "other")
    with serving_http(answer, HEADERS, tls=authority.context(authority.issue("server"))) as url:
        for file in (None, other.file):
            if file is not None:
                monkeypatch.setenv("OPENSEARCH_CA_FILE", str(file))
            with pytest.raises(VectorsError) as found:
                made(f"{url}/tls")
            assert "its certificate is not trusted: " in str(found.value)
            assert "CA" in str(found.value)
        monkeypatch.setenv("OPENSEARCH_CA_FILE", str(authority.file))
        assert made(f"{url}/tls") == 0


def test_an_expired_certificate_is_said(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSEARCH_CA_FILE", str(authority.file))
    expired = authority.issue("expired", days=-1)
    with serving_http(Engine("opensearch").answer, HEADERS, tls=authority.context(expired)) as url:
        with pytest.raises(VectorsError) as found:
            made(f"{url}/tls")
        assert str(found.value) == f"{url}/tls: its certificate is not trusted: certificate has expired"


def test_a_server_that_asks_for_a_certificate_gets_it(
    authority: Authority, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSEARCH_CA_FILE", str(authority.file))
    client = authority.issue("client")
    with serving_http(answer, HEADERS, tls=authority.context(authority.issue("server"), asks=True)) as url:
        with pytest.raises(VectorsError):
            made(f"{url}/tls")
        monkeypatch.setenv("OPENSEARCH_CERT_FILE", str(client))
        monkeypatch.setenv("OPENSEARCH_KEY_FILE", str(client.with_suffix(".key")))
        assert made(f"{url}/tls") == 0


@pytest.mark.parametrize(
    ("engine", "variable", "header"),
    [
        ("opensearch", "OPENSEARCH_TOKEN", f"Bearer {SECRET}"),
        ("opensearch", "OPENSEARCH_API_KEY", f"ApiKey {SECRET}"),
        ("elasticsearch", "ELASTIC_TOKEN", f"Bearer {SECRET}"),
        ("elasticsearch", "ELASTIC_API_KEY", f"ApiKey {SECRET}"),
    ],
)
def test_a_key_goes_with_each_request_and_nowhere_else(
    engine: str, variable: str, header: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("elasticsearch" if engine == "elasticsearch" else "opensearchpy")
    faults, lucene = Faults(), Engine(engine)
    headers = HEADERS | ({"X-Elastic-Product": "Elasticsearch"} if engine == "elasticsearch" else {})

    def answer(method: str, path: str, content: bytes, fault: str) -> tuple[int, Any]:
        if {name.lower(): value for name, value in faults.headers[-1].items()}.get("authorization") != header:
            return 401, {"error": {"type": "security_exception", "reason": "missing"}, "status": 401}
        return lucene.answer(method, path, content, fault)

    with serving_http(answer, headers, faults) as url:
        with pytest.raises(VectorsError) as found:
            engines()[engine].create(f"{url}/keyed", {"sparse": 5}, {})
        assert "(the server answers 401)" in str(found.value)
        monkeypatch.setenv(variable, SECRET)
        with caplog.at_level(logging.DEBUG, "vocable"):
            store = engines()[engine].create(f"{url}/keyed", {"sparse": 5}, {})
        record = store._read_record()
        store.close()
    assert SECRET not in f"{record}{store.place}{caplog.text}{faults.requests}"
    assert [
        line.getMessage().count("without encryption") for line in caplog.records if line.name.endswith("logins")
    ] == [1]


def test_files_are_looked_for_before_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("https://h:9200", "x", None, None)
    assert Login.of("OPENSEARCH", [server]) == Login({})
    monkeypatch.setenv("OPENSEARCH_CA_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ArgumentError):
        Login.of("OPENSEARCH", [server])
    monkeypatch.setenv("OPENSEARCH_CA_FILE", __file__)
    monkeypatch.setenv("OPENSEARCH_USERNAME", "me")
    monkeypatch.setenv("OPENSEARCH_PASSWORD", SECRET)
    monkeypatch.setenv("OPENSEARCH_TOKEN", "other")
    assert Login.of("OPENSEARCH", [server]) == Login({"ca_certs": __file__}, "me", SECRET)
    assert Login.of("OPENSEARCH", [server._replace(user="you", password="p")]) == Login(
        {"ca_certs": __file__}, "you", "p"
    )
    assert Login.of("OPENSEARCH", [server._replace(url="http://h:9200")]).tls == {}


def test_requests_are_signed_for_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    for name, value in {"REGION": "eu-west-1"}.items():
        monkeypatch.setenv(f"OPENSEARCH_AWS_{name}", value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    faults = Faults()
    with serving_http(Engine("opensearch").answer, HEADERS, faults) as url:
        assert made(f"{url}/signed") == 0
    signed = [{name.lower(): value for name, value in headers.items()}["authorization"] for headers in faults.headers]
    assert all(one.startswith("AWS4-HMAC-SHA256 Credential=AKID/") and "/eu-west-1/es/" in one for one in signed)
    assert len(signed) >= 5
