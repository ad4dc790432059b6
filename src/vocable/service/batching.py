"""One thread for all work on a model and a collection, so that no search reads a half-done change.

Batches start in the order of their oldest items. Later items with the same work and arguments join a batch with room.
An item that would not be done in time is refused, at once or when its turn moves back: the time of the work before it
is expected from the recent work of each kind.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import ceil
from threading import Condition, Thread
from typing import Any, NamedTuple, TypeAlias

# Takes items and their shared arguments, and returns a result or an error for each item.
Work: TypeAlias = Callable[..., list[Any]]


CAUTION = 1.5  # times the expected seconds: a refusal comes early, a timeout late
ARRIVED: ContextVar[float] = ContextVar("arrived")  # when the request of this context arrived, on the monotonic clock


class OverloadedError(Exception):
    """The queue is full, closed or too slow; after `seconds` it may have room."""

    def __init__(self, message: str, seconds: float = 1) -> None:
        super().__init__(message)
        self.seconds = max(1, ceil(seconds))


@dataclass(frozen=True)
class _Calls:
    """Work that calls a function for each item, a tuple of arguments."""

    function: Callable[..., Any]

    def __call__(self, items: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [self.function(*item) for item in items]


class _Key(NamedTuple):
    """The work and the arguments that the items of a batch share, and the most items of a batch."""

    work: Work
    shared: tuple[object, ...]
    wait: float
    size: int


class _Waiting(NamedTuple):
    item: object
    future: asyncio.Future[Any]
    since: float
    arrived: float


class Batcher:
    """A thread and its queues, one for each `_Key`; a batch has at most `size` items, all queues together `limit`.

    An item is to be done within `timeout` seconds after its request arrived. `seen` is called with the work and the
    number of items of each batch, in the event loop.
    """

    def __init__(
        self, *, size: int, limit: int, timeout: float, seen: Callable[[Work, int], None] = lambda work, count: None
    ) -> None:
        self._size, self._limit, self._timeout, self._seen = size, limit, timeout, seen
        self._means: dict[Work, float] = {}  # seconds of an item
        self._doing, self._started = 0.0, 0.0  # expected seconds of the batch in progress, and its start
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
        `OverloadedError` and accepts no item if they do not all fit into the queue, or would not be done in time. An
        item that is cancelled before its batch begins is skipped.
        """
        return await self._results_of(_Key(work, shared, wait, self._size), items) if items else []

    async def call(self, function: Callable[..., Any], *given: object) -> Any:
        """Return the result of a function; as `run`, but no other call waits for it to be answered."""
        [result] = await self._results_of(_Key(_Calls(function), (), 0.0, 1), [given])
        return result

    async def _results_of(self, key: _Key, items: Sequence[object]) -> list[Any]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in items]
        with self._changed:
            if self._closed:
                raise OverloadedError("the service is stopping")
            if self.depth + len(items) > self._limit:
                raise OverloadedError(f"more than {self._limit:,} texts, searches and changes wait")
            now = time.monotonic()
            arrived, ahead = ARRIVED.get(now), max(0.0, self._started + self._doing - now)
            ahead += sum(self._seconds(other, len(queue)) for other, queue in self._queues.items())
            if (late := self._late(key, len(items), arrived, now, ahead)) is not None:
                raise late
            queue = self._queues.setdefault(key, deque())
            queue.extend(_Waiting(item, future, now, arrived) for item, future in zip(items, futures, strict=True))
            self._changed.notify()
        return list(await asyncio.gather(*futures))

    def close(self) -> None:
        """Finish the accepted work, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _seconds(self, key: _Key, count: int) -> float:
        """Return the expected seconds of items."""
        return CAUTION * count * self._means.get(key.work, 0.0)

    def _late(self, key: _Key, count: int, arrived: float, now: float, ahead: float) -> OverloadedError | None:
        """Return the refusal of items that would not be done in time after the seconds of work `ahead`, or None.

        What has just arrived is tried if nothing is ahead of it, however slow its kind has been.
        """
        late = now + ahead + min(self._seconds(key, count), self._timeout / 2) - (arrived + self._timeout)
        if late <= 0:
            return None
        return OverloadedError(f"the work that waits would not be done within {self._timeout:g} s", late)

    def _run(self) -> None:
        while batch := self._next():
            key, taken = batch
            active = [waiting for waiting in taken if not waiting.future.cancelled()]
            if not active:
                continue
            self._doing, self._started = self._seconds(key, len(active)), time.monotonic()
            results = _results(key.work, [waiting.item for waiting in active], key.shared)
            seconds = (time.monotonic() - self._started) / len(active)
            self._means[key.work] = (self._means.get(key.work, seconds) + seconds) / 2
            self._doing = 0.0
            self._return(key.work, list(zip(active, results, strict=True)))

    def _return(self, work: Work | None, answered: Sequence[tuple[_Waiting, object]]) -> None:
        """Deliver results in the event loops that wait for them."""
        for loop in {waiting.future.get_loop() for waiting, _ in answered}:
            pairs = [(waiting.future, result) for waiting, result in answered if waiting.future.get_loop() is loop]
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._deliver, work, pairs)

    def _refuse_late(self) -> None:
        """Refuse the waiting items that are no longer expected to be done in time."""
        now, ahead = time.monotonic(), 0.0
        refused = list[tuple[_Waiting, object]]()
        waiting = [(item.since, key, item) for key, queue in self._queues.items() for item in queue]
        for _, key, item in sorted(waiting, key=lambda entry: entry[0]):
            if item.future.cancelled():
                continue
            if (late := self._late(key, 1, item.arrived, now, ahead)) is None:
                ahead += self._seconds(key, 1)
            else:
                refused.append((item, late))
        if refused:
            refused_items = {id(item) for item, _ in refused}
            left = (
                (key, deque(item for item in queue if id(item) not in refused_items))
                for key, queue in self._queues.items()
            )
            self._queues = {key: queue for key, queue in left if queue}
            self._return(None, refused)

    def _next(self) -> tuple[_Key, list[_Waiting]] | None:
        """Return the next batch with its key; None at the end."""
        with self._changed:
            self._refuse_late()
            while not self._queues:
                if self._closed:
                    return None
                self._changed.wait()
            key = min(self._queues, key=lambda key: self._queues[key][0].since)
            queue = self._queues[key]
            until = queue[0].since + key.wait
            while len(queue) < key.size and not self._closed and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            batch = [queue.popleft() for _ in range(min(key.size, len(queue)))]
            if not queue:
                del self._queues[key]
            return key, batch

    def _deliver(self, work: Work | None, pairs: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
        """Set the results of a batch, or without `work` refusals; runs in the event loop."""
        if work is not None:
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
