"""HTTP of uvicorn with a time limit for the headers of a request, and none lost when a process ends."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol  # httptools does not limit the size of headers

NEW_CONNECTION_SECONDS = 1.0  # seconds in which a new connection may send its request to a process that ends


class BoundedHeaders(H11Protocol):
    """A connection that is closed unless each request's line and headers arrive within `seconds`."""

    def __init__(self, *arguments: Any, seconds: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._seconds = seconds
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the headers of the first request."""
        super().connection_made(transport)
        self._limit = self.loop.call_later(self._seconds, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Wait on while the headers are incomplete."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._limit is None:  # the headers of a further request begin
            self._limit = self.loop.call_later(self._seconds, self.timeout_keep_alive_handler)

    def shutdown(self) -> None:
        """End the connection with its request; a new one, whose request may be on its way, has a moment to send it."""
        request: Any = self.cycle  # None before the first one, whatever uvicorn's hint says
        if request is None:
            self.loop.call_later(NEW_CONNECTION_SECONDS, self._end)
        else:
            super().shutdown()

    def _end(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait with the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
