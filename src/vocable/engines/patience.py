"""The purpose of the requests of a context, and the time during which they are repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

WRITE_PATIENCE = 180.0  # seconds after the first attempt during which a request is repeated
SEARCH_PATIENCE = 20.0  # the same for opening, searching and reading, where somebody waits
TIMEOUT = 60  # seconds of one attempt
SHARD_SECONDS = 5  # during which a write waits for a lost shard on the server; by default a minute
LEAST_SECONDS = (2.0, SHARD_SECONDS + 2.0)  # shortest time limit of an attempt: to read, to write


@dataclass(frozen=True)
class Request:
    """The purpose and the limits of all requests of a context."""

    kind: Literal["search", "count", "read", "write", "record"] = "record"
    writing: bool = False  # is repeated, a read too, for as long as a write
    longest: float = inf  # most seconds during which it is repeated
    deadline: float = inf  # when it is not repeated any more, on the monotonic clock
    shares: int = 1  # an attempt has one of so many equal parts of the time until the deadline


_REQUEST = ContextVar("request", default=Request())  # noqa: B039 - it is frozen


def request() -> Request:
    """Return the purpose and the limits of the requests of this context."""
    return _REQUEST.get()


@contextmanager
def requests(**changes: Any) -> Iterator[None]:
    """Change fields of `Request` for the requests in this block."""
    token = _REQUEST.set(replace(_REQUEST.get(), **changes))
    try:
        yield
    finally:
        _REQUEST.reset(token)


@contextmanager
def patiently() -> Iterator[None]:
    """Repeat all requests in this block, reads too, for as long as a write would be repeated."""
    with requests(kind="write", writing=True):
        yield


def patience() -> float:
    """Return the number of seconds after the first attempt during which a request is repeated."""
    return min(request().longest, WRITE_PATIENCE if request().writing else SEARCH_PATIENCE)


def seconds_left(nodes: int = 1) -> float:
    """Return the time limit of an attempt at one of `nodes` nodes: an equal share of the remaining patience, or less.

    The limit is long enough for a server that waits for a lost shard, and at most `TIMEOUT`.
    """
    left = request().deadline - time.monotonic()
    return min(TIMEOUT, max(LEAST_SECONDS[request().writing], left / max(nodes, request().shares)))
