"""One thread for all work on a model and a collection, so that no search reads a half-done change; or several.

Batches start in the order of their oldest items; batches of slow work and of other work take turns, so that a search
waits for one explanation, not for all. Later items with the same work and arguments join a batch with room. An item
that would not be done in time is refused, at once or when its turn moves back: the time of the work before it is
expected from the recent work of each kind. An item whose request is gone is not begun, and if it has begun, it stops at
its next step, unless it is a change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from math import ceil
from statistics import median_low
from threading import Condition, Thread, get_ident
from typing import Any, NamedTuple, TypeAlias

from vocable.core.cancelling import cancelled_if
from vocable.engines.health import request_id
from vocable.errors import UnavailableError

logger = logging.getLogger(__name__)

# Takes items and their shared arguments, and returns a result or an error for each item. A sequence may make a result
# when it is asked for it: the result is delivered before the next one is made.
Work: TypeAlias = Callable[..., Sequence[Any]]


MOST_IDS = 8  # requests of a batch that the server of the index is told
RECENT_BATCHES = 3  # batches of a kind that tell how long the next one takes
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
    """The work and the arguments that the items of a batch share, and the most items of a batch.

    The work may be slow, and may be a change.
    """

    work: Work
    shared: tuple[object, ...]
    wait: float
    size: int
    slow: bool = False
    change: bool = False


class _Waiting(NamedTuple):
    item: object
    future: asyncio.Future[Any]
    since: float
    arrived: float
    request: str
    context: Context


class Batcher:
    """Threads and their queues, one for each `_Key`; a batch has at most `size` items, all queues together `limit`.

    Free threads share what waits. An item is to be done within `timeout` seconds after its request arrived. `seen` is
    called with the work and the number of items of each batch, in the thread.
    """

    def __init__(
        self,
        *,
        size: int,
        limit: int,
        timeout: float,
        threads: int = 1,
        seen: Callable[[Work, int], None] = lambda work, count: None,
    ) -> None:
        self._size, self._limit, self._timeout, self._seen = size, limit, timeout, seen
        self._recent: dict[Work, tuple[float, ...]] = {}  # seconds of an item, in the last batches of each kind
        self._ends: dict[int, float] = {}  # when the batch of each thread is expected to end
        self._queues: dict[_Key, deque[_Waiting]] = {}
        self._slow_next = False
        self._changed, self._closed = Condition(), False
        self._threads = [Thread(target=self._run, name="vocable-serve", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def depth(self) -> int:
        """Return the number of waiting items."""
        return sum(map(len, list(self._queues.values())))

    @property
    def alive(self) -> bool:
        """Return whether work is accepted."""
        return all(thread.is_alive() for thread in self._threads) and not self._closed

    async def run(self, work: Work, items: Sequence[object], *shared: object, wait: float = 0.0) -> list[Any]:
        """Return the results of `work(batch, *shared)` for the items, which may be done in several batches.

        An item waits up to `wait` seconds for other items of the same work, also during another batch. Raises
        `OverloadedError` and accepts no item if they do not all fit into the queue, or would not be done in time. An
        item that is cancelled before its batch begins is skipped.
        """
        return await self._results_of(_Key(work, shared, wait, self._size), items) if items else []

    async def call(self, function: Callable[..., Any], *given: object, slow: bool = False, change: bool = False) -> Any:
        """Return the result of a function; as `run`, but no other call waits for it to be answered.

        With `slow`, it takes turns with other work. A `change` that has begun is finished.
        """
        [result] = await self._results_of(_Key(_Calls(function), (), 0.0, 1, slow, change), [given])
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
            arrived, ahead = ARRIVED.get(now), self._at_work(now)
            same, others = self._batches(key.slow), self._batches(not key.slow)
            ahead += sum(self._seconds(other, len(batch)) for other, batch in [*same, *others[: len(same) + 1]])
            ahead /= len(self._threads)
            if (late := self._late(self._seconds(key, len(items)), arrived, now, ahead)) is not None:
                raise late
            queue = self._queues.setdefault(key, deque())
            request, context = request_id.get(), copy_context()
            pairs = zip(items, futures, strict=True)
            queue.extend(_Waiting(item, future, now, arrived, request, context) for item, future in pairs)
            self._changed.notify()
        return list(await asyncio.gather(*futures))

    def close(self) -> None:
        """Finish the accepted work, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _at_work(self, now: float) -> float:
        """Return the seconds that the batches in progress are expected to take still, of all threads together."""
        return sum(max(0.0, end - now) for end in [*self._ends.values()])

    def _seconds(self, key: _Key, count: int) -> float:
        """Return the expected seconds of items: the median of recent batches, so that one that stalled does not count.

        Nothing is expected after the first batch of a kind, which loads what the kind needs.
        """
        recent = self._recent.get(key.work, ())
        return CAUTION * count * median_low(recent) if len(recent) > 1 else 0.0

    def _late(self, seconds: float, arrived: float, now: float, ahead: float) -> OverloadedError | None:
        """Return the refusal of work of `seconds` that would not be done in time after the work `ahead`, or None.

        What has just arrived is tried if nothing is ahead of it, however slow its kind has been.
        """
        late = now + ahead + min(seconds, self._timeout / 2) - (arrived + self._timeout)
        if late <= 0:
            return None
        return OverloadedError(f"the work that waits would not be done within {self._timeout:g} s", late)

    def _run(self) -> None:
        while batch := self._next():
            key, taken = batch
            if active := [waiting for waiting in taken if not waiting.future.cancelled()]:
                # In the context of the first request, so that a tracer knows it.
                active[0].context.copy().run(self._timed, key, active)

    def _timed(self, key: _Key, batch: Sequence[_Waiting]) -> None:
        """Do a batch, and note the seconds of its kind."""
        started = time.monotonic()
        self._ends[get_ident()] = started + self._seconds(key, len(batch))
        ARRIVED.set(max(waiting.arrived for waiting in batch))
        self._seen(key.work, len(batch))
        self._do(key, batch)
        seconds = (time.monotonic() - started) / len(batch)
        self._recent[key.work] = (*self._recent.get(key.work, ()), seconds)[-RECENT_BATCHES:]
        self._ends[get_ident()] = 0.0

    def _do(self, key: _Key, batch: Sequence[_Waiting]) -> None:
        """Return each result of a batch when it is ready, and refuse early what would not be done in time."""
        request_id.set(",".join(dict.fromkeys(waiting.request for waiting in batch[:MOST_IDS])))
        with cancelled_if(lambda: all(waiting.future.cancelled() for waiting in batch)):
            results = _results(key.work, [waiting.item for waiting in batch], key.shared)
        began, done, rest = time.monotonic(), 0, deque(zip(batch, results, strict=True))
        while rest:
            waiting, result = rest.popleft()
            if waiting.future.cancelled():  # its client is gone, or its time is over
                continue
            with nullcontext() if key.change else cancelled_if(waiting.future.cancelled):
                answered, done = [(waiting, _outcome(result))], done + 1
            now = time.monotonic()
            pace, left = CAUTION * (now - began) / done, rest
            rest = deque()
            for other, work in left:
                if (late := self._late(pace, other.arrived, now, pace * len(rest))) is None:
                    rest.append((other, work))
                else:
                    answered.append((other, late))
            self._return(answered)

    def _return(self, answered: Sequence[tuple[_Waiting, object]]) -> None:
        """Deliver results in the event loops that wait for them."""
        for loop in {waiting.future.get_loop() for waiting, _ in answered}:
            pairs = [(waiting.future, result) for waiting, result in answered if waiting.future.get_loop() is loop]
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver, pairs)

    def _batches(self, slow: bool) -> list[tuple[_Key, list[_Waiting]]]:
        """Return the waiting batches of slow or of other work, in their order."""
        batches = []
        for key, queue in self._queues.items():
            if key.slow is slow:
                waiting = [*queue]
                batches += [(key, waiting[start : start + key.size]) for start in range(0, len(waiting), key.size)]
        return sorted(batches, key=lambda batch: batch[1][0].since)

    def _refuse_late(self) -> None:
        """Refuse the waiting items that are no longer expected to be done in time."""
        now, ahead = time.monotonic(), 0.0
        refused = list[tuple[_Waiting, object]]()
        turns = zip_longest(self._batches(self._slow_next), self._batches(not self._slow_next), fillvalue=None)
        for key, item in ((key, item) for turn in turns for key, batch in filter(None, turn) for item in batch):
            if item.future.cancelled():
                continue
            if (late := self._late(self._seconds(key, 1), item.arrived, now, ahead)) is None:
                ahead += self._seconds(key, 1) / len(self._threads)
            else:
                refused.append((item, late))
        if refused:
            refused_items = {id(item) for item, _ in refused}
            left = (
                (key, deque(item for item in queue if id(item) not in refused_items))
                for key, queue in self._queues.items()
            )
            self._queues = {key: queue for key, queue in left if queue}
            self._return(refused)

    def _next(self) -> tuple[_Key, list[_Waiting]] | None:
        """Return the next batch with its key; None at the end."""
        with self._changed:
            self._refuse_late()
            while not self._queues:
                if self._closed:
                    return None
                self._changed.wait()
            key, _ = (self._batches(self._slow_next) or self._batches(not self._slow_next))[0]
            self._slow_next, queue = not key.slow, self._queues[key]
            until = queue[0].since + key.wait
            while len(queue) < key.size and not self._closed and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            share = ceil(len(queue) / len(self._threads))
            batch = [queue.popleft() for _ in range(min(key.size, share))]
            if not queue and self._queues.get(key) is queue:
                del self._queues[key]
            return key, batch


def _deliver(pairs: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
    """Set results or errors; runs in the event loop."""
    for future, result in pairs:
        if future.done():  # cancelled
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


def _results(work: Work, items: list[object], shared: Sequence[object]) -> list[Callable[[], Any]]:
    """Return a function for each item that makes its result; if a batch fails, each item is tried alone."""
    if len(items) > 1:
        try:
            results = work(items, *shared)
            return [partial(results.__getitem__, place) for place in range(len(items))]
        except UnavailableError as error:  # each alone would wait as long
            return [partial(_raised, error)] * len(items)
        except BaseException:  # one of them has the fault
            logger.debug("each item of a batch is tried alone", exc_info=True)
    return [partial(_alone, work, item, shared) for item in items]


def _raised(error: Exception) -> Any:
    raise error


def _alone(work: Work, item: object, shared: Sequence[object]) -> Any:
    return work([item], *shared)[0]


def _outcome(result: Callable[[], Any]) -> object:
    """Return a result or its error."""
    try:
        return result()
    except BaseException as error:
        return as_exception(error)


def as_exception(error: BaseException) -> Exception:
    """Return an error as an `Exception`: a panic of a library in Rust is only a `BaseException`."""
    if isinstance(error, Exception):
        return error
    raised = RuntimeError(f"{type(error).__name__}: {error}")
    raised.__cause__ = error
    return raised
