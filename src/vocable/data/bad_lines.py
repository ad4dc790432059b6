"""Bad lines: their toleration up to a limit, and the messages about them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import ParamSpec, TypeVar, cast

from vocable.core.tables import counted
from vocable.errors import ArgumentError, DataError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class BadLines:
    """Counter of bad lines that tolerates up to `limit` bad lines; a line that is read twice counts once.

    >>> bad = BadLines(limit=1)
    >>> bad.add("no id", source="corpus.jsonl", line=7)
    >>> bad.count, bad.first
    (1, 'corpus.jsonl:7: no id')
    """

    def __init__(self, limit: int = 0) -> None:
        if limit < 0:
            raise ArgumentError(f"the number of tolerated bad lines must be at least 0, not {limit}")
        self.limit = limit
        self._messages: dict[str, None] = {}  # in their order
        self._repeated: dict[tuple[str, str], int] = {}  # by source and kind of record
        self._empty: dict[tuple[str, str], int] = {}

    @property
    def count(self) -> int:
        """Number of bad lines in all reads so far."""
        return len(self._messages)

    @property
    def first(self) -> str | None:
        """Message about the first bad line, or None."""
        return next(iter(self._messages), None)

    @property
    def repeated(self) -> int:
        """Number of lines that were skipped because they repeat an earlier line."""
        return sum(self._repeated.values())

    @property
    def empty(self) -> int:
        """Number of documents without text in published collections."""
        return sum(self._empty.values())

    def add(self, message: str, *, source: str, line: int) -> None:
        """Count a bad line; raise `DataError` beyond the limit."""
        self._messages[str(DataError(message, source=source, line=line))] = None
        if self.count > self.limit:
            tolerated = f" ({self.count} bad lines, {self.limit} tolerated)" if self.limit else ""
            raise DataError(message + tolerated, source=source, line=line)

    def note(self, source: str, kind: str, *, repeated: int, empty: int) -> None:
        """Record the counts of a source, replacing the counts of an earlier reading."""
        self._repeated[source, kind], self._empty[source, kind] = repeated, empty

    def clear(self) -> None:
        """Reset all counts."""
        self._messages.clear()
        self._repeated.clear()
        self._empty.clear()

    def lines(self) -> list[str]:
        """Return a sentence for each kind of irregular line."""
        sentences = [f"{counted(self.count, 'bad line')} skipped, the first: {self.first}"] if self.count else []
        for (source, kind), count in self._repeated.items():
            sentences += [f"{source}: {counted(count, f'repeated {kind}')} skipped"] * bool(count)
        for (source, _), count in self._empty.items():
            sentences += [f"{source}: {counted(count, 'document')} without text, which no search finds"] * bool(count)
        return sentences


_tolerance: ContextVar[BadLines | None] = ContextVar("tolerance", default=None)


def tolerance() -> BadLines:
    """Return the counter of the enclosing `tolerating` block, or a new counter that tolerates no bad line."""
    return _tolerance.get() or BadLines()


@contextmanager
def tolerating(limit: int) -> Iterator[BadLines]:
    """Tolerate up to `limit` bad lines in all sources that are opened in the block; log skipped lines at its end.

    A block with limit 0 inside another block uses the counter of the outer block.

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
    """Decorate a verb to tolerate `skip_bad` bad lines in everything that it reads."""

    @wraps(verb)
    def within(*args: P.args, **kwargs: P.kwargs) -> T:
        with tolerating(cast(int, kwargs.get("skip_bad", 0))):
            return verb(*args, **kwargs)

    return within


@cache
def warn_once(message: str) -> None:
    """Log a warning about a source, however often the source is read."""
    logger.warning("%s", message)
