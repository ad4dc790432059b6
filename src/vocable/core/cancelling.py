"""Cancellation: work that nobody waits for stops at its next step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from contextvars import ContextVar

# When nobody waits for an answer any more, on the monotonic clock: requests to a server end with it.
answer_by: ContextVar[float] = ContextVar("answer_by", default=float("inf"))
_IS_CANCELLED: ContextVar[Callable[[], bool]] = ContextVar("is_cancelled", default=lambda: False)


@contextmanager
def cancelled_if(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Let the work of this thread in the context stop when `is_cancelled` returns true."""
    token = _IS_CANCELLED.set(is_cancelled)
    try:
        yield
    finally:
        _IS_CANCELLED.reset(token)


def stop_if_cancelled() -> None:
    """Raise `CancelledError` if the work in progress is cancelled; long work calls this between its steps."""
    if _IS_CANCELLED.get()():
        raise CancelledError("nobody waits for this work")
