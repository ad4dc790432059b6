"""Engines on servers: addresses, and making, opening and configuring a collection over a driver.

A request that a server was too busy for, that was lost on the way, or whose answer leaves out a part of the collection,
is repeated with growing pauses: every write has the same result when it is carried out twice.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Event
from typing import Any, ClassVar, NamedTuple, Self, Unpack

import numpy as np

from vocable.core.tables import counted, masked
from vocable.data import Document
from vocable.engines.base import Row, RowStore, Vectors
from vocable.engines.filters import Filter
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, DataError, UnavailableError, VectorsError
from vocable.indexes.ranking import Ranking
from vocable.options import Matching

logger = logging.getLogger(__name__)

LONGEST_MESSAGE = 300  # characters
BUSY_STATUSES = (429, 502, 503, 504)  # statuses of HTTP that may pass
WRITE_PATIENCE = 180.0  # seconds since the first attempt in which a request is repeated
SEARCH_PATIENCE = 20.0  # the same of an opening, a search or another reading, for which somebody waits
QUIET_SECONDS, SAID_SECONDS = 3.0, 30.0  # of waiting before its reason is logged, and between two such lines
NAMED = 10  # documents that a message names
TIMEOUT = 60  # seconds of one attempt
SHARD_SECONDS = 5  # in which a server waits for a lost shard in a write; without this, a minute
LEAST_SECONDS = (2.0, SHARD_SECONDS + 2.0)  # of one attempt, to read and to write
MODEL_SECONDS = 5.0  # between looks at the model of a collection that is searched, which another may replace
KEPT_SECONDS = 5.0  # in which document frequencies are not asked for again
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds between attempts; each pause is up to twice as long as the last


writing: ContextVar[bool] = ContextVar("writing", default=False)
deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))


class BusyError(Exception):
    """A server's answer that it cannot carry out a request now; it may have named the seconds to `wait`."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Counted(NamedTuple):
    """A number of documents, and the time at which it was asked for."""

    documents: int
    time: float


UNCOUNTED = Counted(0, -float("inf"))


class ServerStore(RowStore):
    """A store of a server, over a driver."""

    driver_errors: tuple[type[Exception], ...] = ()
    kind: ClassVar[str] = "collection"  # the engine's own word, for messages
    joint: ClassVar[str] = "-"  # between a name and the number of a collection that has it as an alias
    name: str  # of the collection on the server
    options: Any  # the engine's own, a record of `about.options`
    checked = 0.0  # time at which the model was looked up
    _counted: dict[Space, dict[int, Counted]]  # documents that have a term, by column
    _total: Counted  # of all documents
    _counted_version: object  # of the documents that were counted
    said = -SAID_SECONDS  # time at which the reason of waiting was logged
    reached = False  # the server has answered: until then, an address without a server is taken for a wrong one

    @abstractmethod
    def __init__(self, address: str, *, new: bool = False) -> None:
        """Connect, and set `place`, `name` and `driver_errors`."""

    @abstractmethod
    def _make(self, record: Mapping[str, object]) -> None:
        """Make the empty collection with this record; `self.spaces` are known."""

    @abstractmethod
    def _exists(self) -> bool: ...

    @abstractmethod
    def _read_record(self) -> Mapping[str, Any]:
        """Return the record of the collection; `KeyError`, `TypeError` or `ValueError` if it has none."""

    @abstractmethod
    def _write_record(self, record: Mapping[str, object]) -> None: ...

    @abstractmethod
    def _wait(self, error: Exception) -> float | None:
        """Return the seconds that a server wants before a failed request is repeated; None if repeating is no use."""

    @abstractmethod
    def _named(self, name: str) -> str | None:
        """Return the collection that has the name or the alias `name`; None without one. Called by `_ask`."""

    @abstractmethod
    def _take_name(self, name: str) -> None:
        """Give this collection a name in place of the one that has it, in one step. Called by `_ask`."""

    @abstractmethod
    def _count_terms(self, columns: Sequence[int], space: Space) -> tuple[Mapping[int, int], int]:
        """Return the number of the documents with each term, by column, and of all documents, as they are now."""

    @classmethod
    def generation(cls, address: str) -> int:
        """Return the number of the collection that has the name at an address as its alias; 0 without one.

        Raises `VectorsError` for a collection of something else.
        """
        store = cls(address, new=True)
        try:
            if not store._exists():
                return 0
            cls.open(address).close()
            prefix, found = store.name + cls.joint, str(store._ask(store._named, store.name))
        finally:
            store.close()
        number = found.removeprefix(prefix)
        return int(number) if found != number and number.isdecimal() else 0

    @classmethod
    def numbered(cls, address: str, number: int) -> str:
        """Return the address of a collection with a number."""
        return f"{address}{cls.joint}{number}"

    def take_name(self, address: str) -> None:
        """Let the name at an address mean this collection from now on."""
        other = type(self)(address, new=True)
        name = other.name
        other.close()
        with patiently():
            self._ask(lambda: None if self._named(name) == self.name else self._take_name(name))

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        store = cls(address, new=True)
        with patiently(), store._closed_on_error():
            if store._exists():
                raise ArgumentError(f"{store.place}: the {cls.kind} {store.name!r} already exists: name another")
            store._configure(spaces, settings)
            store._make(store._record())
        return store

    @classmethod
    def open(cls, address: str) -> Self:
        store = cls(address)
        with store._closed_on_error():
            if not store._exists():
                raise VectorsError(f"{store.place}: there is no {cls.kind} {store.name!r} here")
            try:
                found = store._read_record()
                store._configure(found["spaces"], dict(found["settings"]))
            except (KeyError, TypeError, ValueError) as error:
                raise VectorsError(f"{store.place}: vocable did not make the {cls.kind} {store.name!r}") from error
        return store

    def configure(self, settings: dict[str, object]) -> None:
        with patiently():
            self._write_record(self._record() | {"settings": settings})
        self.settings = settings

    def version(self) -> object:
        return self._read_record().get("version")

    @contextmanager
    def changing(self) -> Iterator[None]:
        if not self.settings.get("whole"):  # nobody searches it yet, and `configure` gives it a version
            yield
            return
        self._set_version(None)
        try:
            yield
        except (ArgumentError, DataError):  # raised before anything was written
            self._set_version(_new_version())
            raise
        self._set_version(_new_version())

    def count_terms(self, columns: np.ndarray, space: Space = "sparse") -> tuple[np.ndarray, int]:
        """Count the documents that have each term, int64 [t], and all documents, as they are now.

        Counts are kept until the documents change, and for a few seconds, since other programs change no version.
        """
        now, version = time.monotonic(), self.version()
        if version is None or version != self._counted_version:
            self._counted, self._total, self._counted_version = {}, UNCOUNTED, version
        wanted, kept = columns.tolist(), self._counted.setdefault(space, {})
        asked = [column for column in wanted if now - kept.get(column, UNCOUNTED).time >= KEPT_SECONDS]
        if asked or now - self._total.time >= KEPT_SECONDS:
            counts, documents = self._count_terms(asked, space)
            kept |= {column: Counted(counts.get(column, 0), now) for column in asked}
            self._total = Counted(documents, now)
        return np.array([kept[column].documents for column in wanted], dtype=np.int64), self._total.documents

    def _set_version(self, version: str | None) -> None:
        """Write a version into the record, which may be that of a replacement of this collection."""
        self._write_record({**self._read_record(), "version": version})

    def settings_now(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self._read_record()["settings"]
        return settings

    def _configure(self, spaces: Mapping[Space, int], settings: dict[str, Any]) -> None:
        self.spaces, self.settings = dict(spaces), settings
        self.options = self.about.options(**settings.get("engine_options", {}))
        self._noted = threading.local()
        self._counted, self._total, self._counted_version = {}, UNCOUNTED, None
        self.page, self.checked = getattr(self.options, "bulk", None) or self.page, time.monotonic()

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        """Add documents with their vectors, as in any store.

        Raises `UnavailableError`, which names the documents that are not written, when the patience is over.
        """
        with patiently():
            super().upsert(documents, vectors)

    def delete(self, ids: Sequence[str]) -> int:
        count, names = 0, list(dict.fromkeys(ids))
        with patiently():
            for start in range(0, len(names), self.page):
                some = names[start : start + self.page]
                try:
                    count += self._delete(some)
                except UnavailableError as error:
                    left = [*(error.unwritten or some), *names[start + self.page :]]
                    raise _naming(error, left, "deleted") from error
        return count

    def _write_pages(self, parts: Sequence[tuple[Sequence[Document], Sequence[Sequence[Row]]]]) -> None:
        failed, errors, unwritten = Event(), list[UnavailableError](), dict[int, list[str]]()

        def write(number: int) -> None:
            documents, rows = parts[number]
            unwritten[number] = [document.id for document in documents]
            if failed.is_set():  # the patience is over: no page is begun
                return
            try:
                self._write(documents, rows)
            except UnavailableError as error:
                failed.set()
                errors.append(error)
                unwritten[number] = error.unwritten or unwritten[number]
                return
            except BaseException:
                failed.set()
                raise
            del unwritten[number]

        if (workers := getattr(self.options, "workers", 1)) == 1:
            deque(map(write, range(len(parts))), maxlen=0)  # in this thread, which Ctrl-C reaches
        else:
            contexts = [copy_context() for _ in parts]
            with ThreadPoolExecutor(workers) as pool:
                deque(
                    pool.map(lambda context, number: context.run(write, number), contexts, range(len(parts))), maxlen=0
                )
        if errors:
            left = [name for number in sorted(unwritten) for name in unwritten[number]]
            raise _naming(errors[0], left, "written") from errors[0]

    def search(
        self,
        queries: Vectors,
        k: int = 10,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        """Return the k best documents, as in any store; with the option `partial`, what the ranking is `missing`.

        Raises `VectorsError` also if a collection of another model has taken the name since this one was opened, which
        is looked up every few seconds.
        """
        self._noted.missing = None
        found = replace(super().search(queries, k, space=space, filter=filter, **matching), missing=self.missing)
        if time.monotonic() - self.checked > MODEL_SECONDS:
            now = self.settings_now()
            if any(now.get(name) != self.settings.get(name) for name in ("meta", "dense_fingerprint")):
                raise VectorsError(f"{self.place}: replaced by a {self.kind} of another model: open it again")
            self.checked = time.monotonic()
        return found

    @property
    def missing(self) -> str | None:
        """Return what the last search of this thread left out; None if nothing."""
        missing: str | None = getattr(self._noted, "missing", None)
        return missing

    def note_missing(self, part: str) -> None:
        """Keep what a search leaves out, until the next search of this thread."""
        self._noted.missing = part

    def _record(self) -> dict[str, object]:
        return {"spaces": self.spaces, "settings": self.settings, "version": _new_version()}

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _ask(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Call the driver, and again while the server is busy or out of reach, as long as the patience lasts.

        Raises:
            UnavailableError: it was so all the time, or wants a longer pause.
            VectorsError: any other error of the driver.
        """
        began, attempts = time.monotonic(), 0
        failures: tuple[type[Exception], ...] = (BusyError, *self.driver_errors)
        ends = deadline.set(began + patience())
        try:
            while True:
                try:
                    answer = call(*given, **named)
                except failures as error:
                    attempts, spent = attempts + 1, time.monotonic() - began
                    if attempts > 1 and "already exists" in str(error):
                        return None  # an attempt whose answer was lost has made it
                    time.sleep(self._pause(error, attempts, spent))
                else:
                    self.reached = True
                    return answer
        finally:
            deadline.reset(ends)

    def _pause(self, error: Exception, attempts: int, spent: float) -> float:
        """Return the seconds before a failed request is repeated; raise its error if it is not."""
        if refusal := self._refusal(error):
            raise refusal from error
        message = shortened(self._reason(error)) or type(error).__name__
        wait: float | None = error.wait if isinstance(error, BusyError) else self._wait(error)
        if wait is None:
            raise VectorsError(f"{self.place}: {message}") from error
        left = patience() - spent
        pause: float = max(wait, min(FIRST_PAUSE * 2**attempts, LONGEST_PAUSE) * random.uniform(0.5, 1))
        if wait < left and left > FIRST_PAUSE:
            pause = min(pause, left)  # the last attempt is at the end of the patience
        if pause > left:
            tried = f"{counted(attempts, 'time')} in {spent:.0f} s" + (
                f", it asks to wait {wait:.0f} s" if wait else ""
            )
            raise UnavailableError(f"{self.place}: {message} (tried {tried})") from error
        if spent + pause > QUIET_SECONDS and time.monotonic() - self.said > SAID_SECONDS:
            self.said = time.monotonic()
            logger.warning("%s: %s: waiting, for at most %.0f s", self.place, message, left)
        return pause

    def _reason(self, error: Exception) -> str:
        """Return the reason that the server gives for an error, without the driver's words about it."""
        return str(error)

    def _refusal(self, error: Exception) -> VectorsError | None:
        """Return the error of a request that is of no use to repeat, in our words; None for any other."""
        return None


def _new_version() -> str:
    return secrets.token_hex(8)


@contextmanager
def patiently() -> Iterator[None]:
    """Repeat requests to a server as long as a write lasts, also those that read."""
    before = writing.set(True)
    try:
        yield
    finally:
        writing.reset(before)


def patience() -> float:
    """Return the seconds since the first attempt in which a request is repeated."""
    return WRITE_PATIENCE if writing.get() else SEARCH_PATIENCE


def seconds_left(nodes: int = 1) -> float:
    """Return the seconds that an attempt at one of some nodes may take: its share of the patience that is left.

    There are enough of them for the answer of a server that waits for a lost shard, and at most `TIMEOUT`.
    """
    least = LEAST_SECONDS[writing.get()]
    return min(TIMEOUT, max(least, (deadline.get() - time.monotonic()) / nodes))


def shortened(message: str) -> str:
    """Return a message of a server as one line without passwords."""
    return masked(" ".join(message.split()))[:LONGEST_MESSAGE]


def _naming(error: UnavailableError, ids: list[str], done: str) -> UnavailableError:
    """Return the error with the documents to which a write was not `done`."""
    names = ", ".join(map(repr, ids[:NAMED])) + (f" and {len(ids) - NAMED:,} others" if len(ids) > NAMED else "")
    return UnavailableError(f"{error}; {counted(len(ids), 'document')} not {done}: {names}", unwritten=ids)


def seconds_of(header: str | None) -> float:
    """Return the seconds of a header `Retry-After`, which may be a date; 0 without one.

    >>> seconds_of("20"), seconds_of(None)
    (20.0, 0.0)
    """
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(str(header)) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
