"""One thread for all work on a model and a collection, so that no search reads a half-done change.

Batches start in the order of their oldest items. Later items with the same work and arguments join a batch with room.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Any, NamedTuple, TypeAlias

# Takes items and their shared arguments, and returns a result or an error for each item.
Work: TypeAlias = Callable[..., list[Any]]


class OverloadedError(Exception):
    """The queue is full or closed."""


class _Key(NamedTuple):
    """The work and the arguments that the items of a batch share."""

    work: Work
    shared: tuple[object, ...]
    wait: float


class _Waiting(NamedTuple):
    item: object
    future: asyncio.Future[Any]
    since: float


class Batcher:
    """A thread and its queues, one for each `_Key`; a batch has at most `size` items, all queues together `limit`.

    `seen` is called with the work and the number of items of each batch, in the event loop.
    """

    def __init__(self, *, size: int, limit: int, seen: Callable[[Work, int], None] = lambda work, count: None) -> None:
        self._size, self._limit, self._seen = size, limit, seen
        self._queues: dict[_Key, deque[_Waiting]] = {}
        self._changed, self._closed = Condition(), False
        self._thread = Thread(target=self._run, name="vocable-serve", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """Return the number of waiting items."""
        return sum(map(len, list(self._queues.values())))

    @property
    def alive(self) -> bool:
        """Return whether work is accepted."""
        return self._thread.is_alive() and not self._closed

    async def run(self, work: Work, items: Sequence[object], *shared: object, wait: float = 0.0) -> list[Any]:
        """Return the results of `work(batch, *shared)` for the items, which may be done in several batches.

        An item waits up to `wait` seconds for other items of the same work, also during another batch. Raises
        `OverloadedError` and accepts no item if they do not all fit into the queue. An item that is
        cancelled before its batch begins is skipped.
        """
        if not items:
            return []
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in items]
        with self._changed:
            if self._closed:
                raise OverloadedError("the service is stopping")
            if self.depth + len(items) > self._limit:
                raise OverloadedError(f"more than {self._limit:,} texts, searches and changes wait")
            queue = self._queues.setdefault(_Key(work, shared, wait), deque())
            now = time.monotonic()
            queue.extend(_Waiting(item, future, now) for item, future in zip(items, futures, strict=True))
            self._changed.notify()
        return list(await asyncio.gather(*futures))

    def close(self) -> None:
        """Finish the accepted work, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next():
            (work, shared, _), taken = batch
            active = [waiting for waiting in taken if not waiting.future.cancelled()]
            results = _results(work, [waiting.item for waiting in active], shared) if active else []
            answered = list(zip(active, results, strict=True))
            for loop in {waiting.future.get_loop() for waiting in active}:
                pairs = [(waiting.future, result) for waiting, result in answered if waiting.future.get_loop() is loop]
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._deliver, work, pairs)

    def _next(self) -> tuple[_Key, list[_Waiting]] | None:
        """Return the next batch with its key; None at the end."""
        with self._changed:
            while not self._queues:
                if self._closed:
                    return None
                self._changed.wait()
            key = min(self._queues, key=lambda key: self._queues[key][0].since)
            queue = self._queues[key]
            until = queue[0].since + key.wait
            while len(queue) < self._size and not self._closed and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            batch = [queue.popleft() for _ in range(min(self._size, len(queue)))]
            if not queue:
                del self._queues[key]
            return key, batch

    def _deliver(self, work: Work, pairs: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
        """Set the results of a batch; runs in the event loop."""
        self._seen(work, len(pairs))
        for future, result in pairs:
            if future.done():  # cancelled
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)


def _results(work: Work, items: list[object], shared: Sequence[object]) -> list[Any]:
    """Return a result or an error for each item; if a batch fails, each item is tried alone."""
    try:
        results = work(items, *shared)
        return [result for _, result in zip(items, results, strict=True)]
    except BaseException as error:
        if len(items) == 1:
            return [as_exception(error)]
        return [result for item in items for result in _results(work, [item], shared)]


def as_exception(error: BaseException) -> Exception:
    """Return an error as an `Exception`: a panic of a library in Rust is only a `BaseException`."""
    if isinstance(error, Exception):
        return error
    raised = RuntimeError(f"{type(error).__name__}: {error}")
    raised.__cause__ = error
    return raised
