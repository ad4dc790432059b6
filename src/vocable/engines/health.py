"""The health of a server: results of its last requests, a breaker, a second request while the first hangs, an end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from math import inf
from queue import Empty, SimpleQueue
from threading import Thread, Timer, get_ident
from typing import TypeVar

from vocable.core.locks import thread_lock
from vocable.engines.patience import request
from vocable.errors import UnavailableError, VectorsError

T = TypeVar("T")
HEDGE_SECONDS = 2.0  # without an answer, before another node is asked, too
HEDGE_FACTOR = 3.0  # the same as a multiple of the slowest recent answer: a busy server gets no second request
NEXT_HEDGE_SECONDS = 1.0  # before a further one
HEDGES = 6  # requests at most
DECAY = 0.9  # of the slowest answer, with each further answer
TRIAL_SECONDS = 25.0  # during which one thread tries whether the server answers again

attempt: ContextVar[int] = ContextVar("attempt", default=0)  # number of a second request while the first hangs
request_id: ContextVar[str] = ContextVar("request_id", default="")  # of those who wait for the answer


class Health:
    """The results of the last requests to a server; after a failure, requests fail at once for `rest` seconds.

    Afterwards one thread tries, while the others still fail at once. `failure` is why the last request failed, until a
    search or a count succeeds. `seen` is a context manager around each request, by its kind.
    """

    def __init__(self, rest: float = 0.0, seen: Callable[[str], AbstractContextManager[None]] | None = None) -> None:
        self._rest, self._seen = rest, seen or (lambda kind: nullcontext())
        self.failure: str | None = None
        self.missing: str | None = None  # what the last search left out
        self.answered = -float("inf")  # time of the last search that succeeded
        self._slowest, self._until, self._trying = 0.0, 0.0, 0
        self._lock = thread_lock()

    def check(self) -> None:
        """Raise `UnavailableError` while the server rests, unless this thread tries it."""
        with self._lock:
            now = time.monotonic()
            if not self._until or self._trying == get_ident():
                return
            if now < self._until:
                raise UnavailableError(self.failure or "the server rests", seconds=self._until - now)
            self._trying, self._until = get_ident(), now + TRIAL_SECONDS

    def hangs(self, seconds: float) -> bool:
        """Return whether a server that has been silent for these seconds hangs: its answers took a part of them.

        Without a breaker, it is always asked again.
        """
        return bool(self._rest) and 0.0 < HEDGE_FACTOR * self._slowest < seconds

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Note what a request came to, with its repetitions."""
        self.check()
        try:
            yield
        except VectorsError as error:
            if request().kind != "write" or isinstance(error, UnavailableError):  # a refused document says nothing
                self.failure = str(error)
            if isinstance(error, UnavailableError) and self._rest:
                self._until, self._trying = time.monotonic() + self._rest, 0
            raise
        if request().kind in ("search", "count"):
            self.failure, self._until, self.answered = None, 0.0, time.monotonic()
        elif request().kind != "record" and self._until:
            self._until = time.monotonic()  # a search tries next: a read asks one shard alone

    def send(self, call: Callable[[], T], hedges: Callable[[], object] | None = None) -> T:
        """Call the driver once, or with `hedges`, which turns to another node, again while the first call hangs."""
        started, patient = time.monotonic(), max(HEDGE_SECONDS, HEDGE_FACTOR * self._slowest)
        with self._seen(request().kind):
            answer, second = (call(), 0) if hedges is None else hedged(lambda: (call(), attempt.get()), hedges, patient)
        if not second:  # else it waited for a node that hung
            self._slowest = max(self._slowest * DECAY, time.monotonic() - started)
        return answer


def hedged(call: Callable[[], T], turn: Callable[[], object], seconds: float) -> T:
    """Return the first answer of a call, which begins again after `turn()` if no answer comes within `seconds`."""
    ended: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def run(number: int) -> None:
        attempt.set(number)
        try:
            ended.put((call(), None))
        except BaseException as error:
            ended.put((None, error))

    running = 0
    while True:
        Thread(target=copy_context().run, args=(run, running), daemon=True).start()
        running += 1
        try:
            answer, error = ended.get(timeout=seconds if running < HEDGES else None)
        except Empty:
            seconds = NEXT_HEDGE_SECONDS
            turn()
            continue
        if error is not None:
            raise error
        return answer  # type: ignore[return-value]


def others(nodes: Sequence[str], number: int) -> list[str]:
    """Return the nodes that a second request asks: each of a row of requests leaves out other nodes.

    >>> [others(["a", "b", "c"], number) for number in (1, 2, 3)]
    [['a', 'c'], ['a', 'b'], ['b', 'c']]
    """
    groups = min(len(nodes), HEDGES - 1)
    return [node for place, node in enumerate(nodes) if place % groups != number % groups]


@contextmanager
def hanging_up(descriptor: int, seconds: float) -> Iterator[None]:
    """End a connection if the block takes more than some seconds, so that its driver raises an error.

    Some drivers wait without a limit for a server that keeps the connection open and is silent.
    """
    if seconds == inf:
        yield
        return
    with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:  # stays open for the timer

        def end() -> None:
            with suppress(OSError):  # the server itself has ended it
                copy.shutdown(socket.SHUT_RDWR)

        timer = Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
