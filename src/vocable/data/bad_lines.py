"""Lines that cannot be used: how one is signalled inside this package, and how many a user tolerates."""

from __future__ import annotations

from vocable.errors import ArgumentError, DataError


class MalformedError(ValueError):
    """One line or row is not what it should be; the reader adds place, line and what was expected."""


class BadLines:
    """Counts bad lines and tolerates up to `limit` of them.

    `count` is how many there were so far, `first` the message of the first one (None as long as there is none). One
    object can serve several reads; its limit is then that of all of them together.

    >>> bad = BadLines(limit=1)
    >>> bad.add("no id", place="corpus.jsonl", line=7)
    >>> bad.count, bad.first
    (1, 'corpus.jsonl:7: no id')

    Raises:
        ArgumentError: when `limit` is negative.
    """

    def __init__(self, limit: int = 0) -> None:
        if limit < 0:
            raise ArgumentError(f"the number of bad lines to tolerate must be 0 or more, not {limit}")
        self.limit, self.count = limit, 0
        self.first: str | None = None

    def add(self, message: str, *, place: str, line: int) -> None:
        """Count one bad line.

        Raises:
            DataError: when it is one more than the limit.
        """
        self.count += 1
        if self.first is None:
            self.first = str(DataError(message, place=place, line=line))
        if self.count > self.limit:
            tolerated = f" ({self.count} bad lines, {self.limit} tolerated)" if self.limit else ""
            raise DataError(message + tolerated, place=place, line=line)
