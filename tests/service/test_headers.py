"""A connection whose headers do not arrive in time is closed, the first and a later one."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from vocable.service.headers import BoundedHeaders

REQUEST = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer "yes"."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"yes"})


async def _connected(sent: bytes) -> tuple[bytes, bytes]:
    """Return the answer to bytes, and what comes after half of a further request, until the end of the connection."""
    config = uvicorn.Config(application, log_config=None, timeout_keep_alive=60)
    protocol = partial(BoundedHeaders, config=config, server_state=ServerState(), app_state={}, seconds=0.2)
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        async with asyncio.timeout(20):
            writer.write(sent)
            answer = await reader.readuntil(b"yes") if sent == REQUEST else b""
            writer.write(REQUEST[:20])
            return answer, await reader.read()
    finally:
        writer.close()
        server.close()


def test_half_a_header_is_waited_for_no_longer_than_the_limit() -> None:
    assert asyncio.run(_connected(REQUEST[:5])) == (b"", b"")


def test_half_of_a_further_request_is_waited_for_no_longer_than_the_limit() -> None:
    answer, rest = asyncio.run(_connected(REQUEST))
    assert answer.startswith(b"HTTP/1.1 200")
    assert rest == b""
