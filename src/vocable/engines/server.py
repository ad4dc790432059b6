"""The base class of engines on servers: create, open, configure and name a collection through a driver.

A request is repeated with growing pauses if the server was too busy, if the request was lost on the way, or if the
answer leaves out a part of the collection. Carrying out a write twice has the same result as carrying it out once.
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
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from threading import Event
from typing import Any, ClassVar, Self

from vocable.core.cancelling import answer_by, stop_if_cancelled
from vocable.core.storage import ANOTHER_VERSION
from vocable.core.tables import counted, masked
from vocable.core.threads import in_threads
from vocable.data import Document
from vocable.engines.base import STORE_FORMAT, SpaceSearch, VectorRow, Vectors
from vocable.engines.hashed_words import HashedWords
from vocable.engines.health import Health
from vocable.engines.kept_counts import CountingStore
from vocable.engines.patience import patience, patiently, request, requests
from vocable.engines.protocols import Lexicon, Space
from vocable.errors import ArgumentError, DataError, UnavailableError, VectorsError
from vocable.indexes.fusion import MIN_DEPTH
from vocable.indexes.ranking import Ranking

logger = logging.getLogger(__name__)

LONGEST_MESSAGE = 300  # characters of a server's message
BUSY_STATUSES = (429, 502, 503, 504)  # HTTP statuses of temporary errors
QUIET_SECONDS, LOGGED_SECONDS = 3.0, 30.0  # seconds of waiting before the reason is logged, and between two such lines
NAMED = 10  # number of documents that a message names
FIRST_SHARES = 3  # of the patience: the first attempt to read has one of them, so that a second is made
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds between attempts; each pause is up to twice the previous pause


class BusyError(Exception):
    """The server cannot carry out a request now; it may have asked to `wait` some seconds."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class ServerStore(CountingStore):
    """A store on a server, reached through a driver."""

    driver_errors: tuple[type[Exception], ...] = ()
    kind: ClassVar[str] = "collection"  # the engine's word for a collection, in messages
    name: str  # name of the collection on the server
    options: Any  # the engine's options, a record of `about.options`
    logged_at = -LOGGED_SECONDS  # time when the reason for waiting was last logged
    uncounted_depth = MIN_DEPTH
    reached = False  # whether the server has ever answered; if not, a failed connection means a wrong address

    @abstractmethod
    def __init__(self, address: str, *, new: bool = False) -> None:
        """Connect, and set `place`, `name` and `driver_errors`."""

    @abstractmethod
    def _make(self, record: Mapping[str, object]) -> None:
        """Create the empty collection with this record; `self.spaces` is already set."""

    @abstractmethod
    def _exists(self) -> bool: ...

    @abstractmethod
    def _write_record(self, record: Mapping[str, object]) -> None: ...

    @abstractmethod
    def _wait(self, error: Exception) -> float | None:
        """Return the seconds to wait before a failed request is repeated; None if repeating is no use."""

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        store = cls(address, new=True)
        with patiently(), store._closed_on_error():
            if store._exists():
                raise ArgumentError(f"{store.place}: the {cls.kind} {store.name!r} already exists: name another")
            # Words are numbered as they come.
            store._configure({**spaces, "bm25": 0} if settings.get("bm25") else spaces, settings)
            store._make(store._record())
        return store

    @classmethod
    def open(cls, address: str) -> Self:
        store = cls(address)
        with store._closed_on_error():
            if not store._exists():
                raise VectorsError(f"{store.place}: there is no {cls.kind} {store.name!r} here")
            try:
                record = store._read_record()
                if record.get("format") != STORE_FORMAT:
                    raise VectorsError(f"{store.place}: {ANOTHER_VERSION}")
                store._configure(record["spaces"], dict(record["settings"]))
                store._kept_record = dict(record), time.monotonic()
            except (KeyError, TypeError, ValueError) as error:
                raise VectorsError(f"{store.place}: vocable did not make the {cls.kind} {store.name!r}") from error
        return store

    @classmethod
    def find(cls, address: str) -> Self | None:
        try:
            return cls.open(address)
        except UnavailableError:
            raise
        except VectorsError:
            return None

    def configure(self, settings: dict[str, object]) -> None:
        with patiently():
            self._write_record(self._record() | {"settings": settings})
        self._forget()
        self.settings = settings

    @contextmanager
    def changing(self) -> Iterator[None]:
        # Nobody searches an incomplete collection, and `configure` gives it a version.
        if not self.settings.get("whole") or getattr(self._noted, "changing", False):
            yield
            return
        self._set_version(None)
        self._noted.changing = True
        try:
            yield
        except (ArgumentError, DataError):  # raised before anything was written
            self._set_version(_new_version())
            raise
        finally:
            self._noted.changing = False
        self._set_version(_new_version())

    @cached_property
    def _words(self) -> HashedWords:
        return HashedWords(self)

    @cached_property
    def health(self) -> Health:
        """The results of the last requests; a service sets its own."""
        return Health()

    @property
    def lexicon(self) -> Lexicon:
        return self._words if self.settings.get("bm25") else super().lexicon

    def finish(self) -> None:
        if self.settings.get("bm25") and not self.settings["whole"]:
            self._words.weigh_all()
        self.optimize()

    def settle(self) -> None:
        if self.settings.get("bm25"):
            self.optimize()  # counts see what is written
            self._words.warn_of_drift()

    def _set_version(self, version: str | None) -> None:
        """Write a version into the record; the name may already belong to a replacement of this collection."""
        self._write_record({**self._read_record(), "version": version})
        self._forget()

    def settings_now(self) -> Mapping[str, Any]:
        with requests(kind="record"):
            return self._read_record()["settings"]

    def _configure(self, spaces: Mapping[Space, int], settings: dict[str, Any]) -> None:
        self.spaces, self.settings = dict(spaces), settings
        self.options = self.about.options(**settings.get("engine_options", {}))
        self._noted = threading.local()
        self._forget()
        self.page = getattr(self.options, "bulk", None) or self.page

    def set_run(self, options: Mapping[str, object]) -> None:
        """Write by these options of a run; other options stay as the store was created."""
        self.options = replace(self.options, **{name: options[name] for name in self.about.of_run if name in options})
        self.page = getattr(self.options, "bulk", None) or self.page

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        """Add documents with their vectors, as in any store.

        Raises `UnavailableError`, which names the unwritten documents, when the patience is over.
        """
        if self.settings.get("bm25") and "bm25" not in vectors:
            vectors = {**vectors, "bm25": self._words.vectors(documents)}
        with patiently():
            super().upsert(documents, vectors)

    def delete(self, ids: Sequence[str]) -> int:
        count, names = 0, list(dict.fromkeys(ids))
        with patiently():
            for start in range(0, len(names), self.page):
                page = names[start : start + self.page]
                try:
                    count += self._delete(page)
                except UnavailableError as error:
                    left = [*(error.unwritten or page), *names[start + self.page :]]
                    raise _naming(error, left, "deleted") from error
        return count

    def _write_pages(self, parts: Sequence[tuple[Sequence[Document], Sequence[Sequence[VectorRow]]]]) -> None:
        failed, errors, unwritten = Event(), list[UnavailableError](), dict[int, list[str]]()

        def write(number: int) -> None:
            documents, rows = parts[number]
            unwritten[number] = [document.id for document in documents]
            if failed.is_set():  # the patience is over: begin no other page
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
            deque(map(write, range(len(parts))), maxlen=0)  # in this thread, so that Ctrl-C works
        else:
            in_threads(workers, write, range(len(parts)))
        if errors:
            left = [name for number in sorted(unwritten) for name in unwritten[number]]
            raise _naming(errors[0], left, "written") from errors[0]

    def search_all(self, searches: Sequence[SpaceSearch]) -> list[Ranking]:
        for search in searches:
            self._check_search(search.k, search.matching)
        return self._rankings(searches)

    def _rankings(self, searches: Sequence[SpaceSearch]) -> list[Ranking]:
        """Carry out searches; with the option `partial`, note what the rankings are `missing`."""
        self._noted.missing = None
        with requests(kind="search"):
            rankings = super()._rankings(searches)
        self.health.missing = self.missing
        return [replace(ranking, missing=self.missing) for ranking in rankings]

    @property
    def missing(self) -> str | None:  # type: ignore[override]
        return getattr(self._noted, "missing", None)

    def note_missing(self, part: str) -> None:
        """Remember what a search leaves out, until the next search of this thread."""
        self._noted.missing = part

    def _record(self) -> dict[str, object]:
        return {"spaces": self.spaces, "settings": self.settings, "format": STORE_FORMAT, "version": _new_version()}

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _ask(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Call the driver; repeat the call while the server is busy or unreachable, until the patience is over.

        Raises:
            UnavailableError: the patience is over, or the server asks for a longer pause.
            VectorsError: any other error of the driver.
        """
        began, attempts = time.monotonic(), 0
        failures: tuple[type[Exception], ...] = (BusyError, *self.driver_errors)
        shares, turn = (1, None) if request().writing else (FIRST_SHARES, self._turn)
        with requests(deadline=min(began + patience(), answer_by.get())), self.health.asking():
            while True:
                stop_if_cancelled()
                try:
                    with requests(shares=1 if attempts else shares):
                        answer = self.health.send(partial(call, *given, **named), turn)
                except failures as error:
                    attempts, spent = attempts + 1, time.monotonic() - began
                    if attempts > 1 and "already exists" in str(error):
                        return None  # an earlier attempt created it, and its answer was lost
                    time.sleep(self._pause(error, attempts, spent))
                else:
                    self.reached = True
                    return answer

    def _pause(self, error: Exception, attempts: int, spent: float) -> float:
        """Return the seconds before a failed request is repeated; raise its error if it must not be repeated."""
        if refusal := self._refusal(error):
            raise refusal from error
        message = shortened(self._reason(error)) or type(error).__name__
        wait: float | None = error.wait if isinstance(error, BusyError) else self._wait(error)
        if wait is None:
            raise VectorsError(f"{self.place}: {message}") from error
        left = request().deadline - time.monotonic()
        pause: float = max(wait, min(FIRST_PAUSE * 2**attempts, LONGEST_PAUSE) * random.uniform(0.5, 1))
        if wait < left and left > FIRST_PAUSE:
            pause = min(pause, left)  # make the last attempt when the patience ends
        # A server that was quick and is silent hangs: a service lets others know at once.
        is_first = attempts == 1 and not request().writing
        silent = is_first and spent >= patience() / FIRST_SHARES and self.health.hangs(spent)
        if pause > left or silent:
            tried = f"{counted(attempts, 'time')} in {spent:.0f} s" + (
                f", it asks to wait {wait:.0f} s" if wait else ""
            )
            raise UnavailableError(f"{self.place}: {message} (tried {tried})") from error
        if spent + pause > QUIET_SECONDS and time.monotonic() - self.logged_at > LOGGED_SECONDS:
            self.logged_at = time.monotonic()
            logger.warning("%s: %s: waiting, for at most %.0f s", self.place, message, left)
        return pause

    _turn: Callable[[], object] | None = None  # turns to another node, in an engine that may ask two at a time

    def _reason(self, error: Exception) -> str:
        """Return the server's reason for an error, without the driver's words."""
        return str(error)

    def _refusal(self, error: Exception) -> VectorsError | None:
        """Return the error to raise if repeating a request is no use, in our own words; None for any other."""
        return None


def _new_version() -> str:
    return secrets.token_hex(8)


def shortened(message: str) -> str:
    """Return a server's message as one line, without passwords."""
    return masked(" ".join(message.split()))[:LONGEST_MESSAGE]


def _naming(error: UnavailableError, ids: list[str], done: str) -> UnavailableError:
    """Return the error, extended by the documents that were not `done`: written or deleted."""
    names = ", ".join(map(repr, ids[:NAMED])) + (f" and {len(ids) - NAMED:,} others" if len(ids) > NAMED else "")
    return UnavailableError(f"{error}; {counted(len(ids), 'document')} not {done}: {names}", unwritten=ids)


def seconds_of(header: str | None) -> float:
    """Return the seconds of a header `Retry-After`, which may also be a date; 0 without a header.

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
