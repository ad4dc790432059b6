"""Addresses of servers: their parts, several nodes of one cluster, and passwords that no message repeats."""

from __future__ import annotations

import pytest

from vocable.engines.addresses import Server, server_of, servers_of
from vocable.errors import ArgumentError

PORTS = {"http": 9200, "https": 443}


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("http://localhost/docs", Server("http://localhost:9200", "docs", None, None)),
        ("https://host/docs", Server("https://host:443", "docs", None, None)),
        ("http://host:1/a%20b", Server("http://host:1", "a b", None, None)),
        ("http://host/below/here/docs", Server("http://host:9200/below/here", "docs", None, None)),
        ("http://me:p%40ss@host/docs", Server("http://host:9200", "docs", "me", "p@ss")),
        ("http://me@host/docs", Server("http://host:9200", "docs", "me", None)),
        ("http://[::1]:5/docs", Server("http://[::1]:5", "docs", None, None)),
    ],
)
def test_parts_of_an_address(address: str, server: Server) -> None:
    assert server_of(address, PORTS) == server
    assert servers_of(address, PORTS) == [server]


def test_nodes_share_user_password_and_name_and_repeated_nodes_count_once() -> None:
    servers = servers_of("https://me:secret@a,b:1,a/docs", PORTS)
    assert servers == [Server(f"https://{host}", "docs", "me", "secret") for host in ("a:443", "b:1")]


@pytest.mark.parametrize(
    "address",
    [
        "http://me:secret@host",
        "http://me:secret@host/",
        "http://me:secret@host:none/docs",
        "http://me:secret@host:99999/docs",
        "http://me:secret@/docs",
        "ftp://me:secret@host/docs",
        "http://me:secret@host/docs?x=1",
        "http://me:secret@host/docs#x",
    ],
)
def test_a_wrong_address_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        server_of(address, PORTS)
    assert "secret" not in str(caught.value)
