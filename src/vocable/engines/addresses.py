"""Addresses of servers: nodes, user and password, and the name of a collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from vocable.core.tables import masked
from vocable.errors import ArgumentError


class Server(NamedTuple):
    """The parts of a server's address."""

    url: str  # without user and password
    name: str  # of the collection
    user: str | None
    password: str | None


def servers_of(address: str, ports: Mapping[str, int]) -> list[Server]:
    """Parse the address http(s)://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME of the nodes of a cluster.

    `ports` are the default ports by scheme.

    >>> [server.url for server in servers_of("http://me:secret@node1,node2:9201/documents", {"http": 9200})]
    ['http://node1:9200', 'http://node2:9201']
    """
    scheme, mark, rest = address.partition("://")
    nodes, slash, name = rest.partition("/")
    login, at, hosts = nodes.rpartition("@")
    return [
        server_of(f"{scheme}{mark}{login}{at}{host}{slash}{name}", ports) for host in dict.fromkeys(hosts.split(","))
    ]


def server_of(address: str, ports: Mapping[str, int]) -> Server:
    """Parse the address http(s)://USER:PASSWORD@HOST:PORT/NAME; `ports` are the default ports by scheme.

    Raises:
        ArgumentError: the address lacks a part, or has a query or a fragment.
    """
    parts = urlsplit(address)
    try:
        port = parts.port or ports[parts.scheme]
    except (ValueError, KeyError) as error:
        raise ArgumentError(f"{masked(address)}: expected http(s)://HOST:PORT/NAME") from error
    *above, name = parts.path.split("/")
    if not parts.hostname or not name or parts.query or parts.fragment:
        raise ArgumentError(f"{masked(address)}: expected http(s)://HOST:PORT/NAME")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
    return Server(f"{parts.scheme}://{host}:{port}{'/'.join(above)}", unquote(name), user, password)
