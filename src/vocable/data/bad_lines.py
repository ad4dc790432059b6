"""Lines that cannot be read: how many of them are tolerated, and what is said about them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from vocable.errors import ArgumentError, DataError
from vocable.tables import counted

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class BadLines:
    """Counts bad lines and tolerates up to `limit` of them; a line that is read again is not counted again.

    `count` is the number of bad lines so far, in all reads that it serves, and `first` the message about the first one,
    or None.

    >>> bad = BadLines(limit=1)
    >>> bad.add("no id", source="corpus.jsonl", line=7)
    >>> bad.count, bad.first
    (1, 'corpus.jsonl:7: no id')
    """

    def __init__(self, limit: int = 0) -> None:
        if limit < 0:
            raise ArgumentError(f"the number of bad lines to tolerate must be 0 or more, not {limit}")
        self.limit = limit
        self._messages: dict[str, None] = {}  # in their order
        self._repeated: dict[tuple[str, str], int] = {}  # by source and kind of record
        self._empty: dict[tuple[str, str], int] = {}

    @property
    def count(self) -> int:
        """The number of bad lines."""
        return len(self._messages)

    @property
    def first(self) -> str | None:
        """The message about the first bad line."""
        return next(iter(self._messages), None)

    @property
    def repeated(self) -> int:
        """The number of lines that were passed over because they repeat an earlier one."""
        return sum(self._repeated.values())

    @property
    def empty(self) -> int:
        """The number of documents without text in published collections."""
        return sum(self._empty.values())

    def add(self, message: str, *, source: str, line: int) -> None:
        """Count one bad line, or raise a `DataError` when it is one more than the limit."""
        self._messages[str(DataError(message, source=source, line=line))] = None
        if self.count > self.limit:
            tolerated = f" ({self.count} bad lines, {self.limit} tolerated)" if self.limit else ""
            raise DataError(message + tolerated, source=source, line=line)

    def note(self, source: str, kind: str, *, repeated: int, empty: int) -> None:
        """Note what was met in a source's records of a kind; what was noted at an earlier reading is replaced."""
        self._repeated[source, kind], self._empty[source, kind] = repeated, empty

    def clear(self) -> None:
        """Forget what was counted."""
        self._messages.clear()
        self._repeated.clear()
        self._empty.clear()

    def lines(self) -> list[str]:
        """Return a sentence about each kind of line that was not read as the others were."""
        said = [f"{counted(self.count, 'bad line')} left out, the first: {self.first}"] if self.count else []
        for (source, kind), count in self._repeated.items():
            said += [f"{source}: {counted(count, f'repeated {kind}')} passed over"] * bool(count)
        for (source, _), count in self._empty.items():
            said += [f"{source}: {counted(count, 'document')} without text, which no search finds"] * bool(count)
        return said


_tolerance: ContextVar[BadLines | None] = ContextVar("tolerance", default=None)


def tolerance() -> BadLines:
    """Return what counts the bad lines of a read: that of the `tolerating` block, outside of one a new one."""
    return _tolerance.get() or BadLines()


@contextmanager
def tolerating(limit: int) -> Iterator[BadLines]:
    """Tolerate up to `limit` bad lines in all sources that are opened in the block; its end logs what was left out.

    A block in another one that tolerates none counts in that one.

    >>> with tolerating(3) as bad:
    ...     bad is tolerance()
    True
    """
    if not limit and (around := _tolerance.get()) is not None:
        yield around
        return
    token = _tolerance.set(bad := BadLines(limit))
    try:
        yield bad
    finally:
        _tolerance.reset(token)
    for line in bad.lines():
        logger.warning("%s", line)


def tolerant(verb: Callable[P, T]) -> Callable[P, T]:
    """Have a verb tolerate as many bad lines, in all that it reads, as its argument `skip_bad` says."""

    @wraps(verb)
    def within(*args: P.args, **kwargs: P.kwargs) -> T:
        with tolerating(cast(int, kwargs.get("skip_bad", 0))):
            return verb(*args, **kwargs)

    return within
