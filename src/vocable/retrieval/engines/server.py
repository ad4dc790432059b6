"""Engines on servers: addresses, and making, opening and configuring a collection over a driver.

A request that a server was too busy for, or that was lost on the way, is repeated with growing pauses: every write has
the same result when it is carried out twice.
"""

from __future__ import annotations

import random
import secrets
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Event
from typing import Any, ClassVar, NamedTuple, Self, Unpack
from urllib.parse import unquote, urlsplit

from vocable.data import Document
from vocable.errors import ArgumentError, DataError, UnavailableError, VectorsError
from vocable.options import Matching
from vocable.retrieval.engines.base import Row, RowStore, Vectors
from vocable.retrieval.filters import Filter
from vocable.retrieval.protocols import Space
from vocable.retrieval.ranking import Ranking
from vocable.tables import masked

LONGEST_MESSAGE = 300  # characters
BUSY_STATUSES = (429, 502, 503, 504)  # statuses of HTTP that may pass
WRITE_PATIENCE = 180.0  # seconds since the first attempt in which a request is repeated
SEARCH_PATIENCE = 20.0  # the same of a search, for which somebody waits
TIMEOUT = 60  # seconds of one attempt
MODEL_SECONDS = 5.0  # between looks at the model of a collection that is searched, which another may replace
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds between attempts; each pause is up to twice as long as the last


class BusyError(Exception):
    """A server's answer that it cannot carry out a request now; it may have named the seconds to `wait`."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class ServerStore(RowStore):
    """A store of a server, over a driver."""

    driver_errors: tuple[type[Exception], ...] = ()
    kind: ClassVar[str] = "collection"  # the engine's own word, for messages
    joint: ClassVar[str] = "-"  # between a name and the number of a collection that has it as an alias
    name: str  # of the collection on the server
    options: Any  # the engine's own, a record of `about.options`
    checked = 0.0  # time at which the model was looked up
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
        self._ask(lambda: None if self._named(name) == self.name else self._take_name(name))

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        store = cls(address, new=True)
        with store._closed_on_error():
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

    def _set_version(self, version: str | None) -> None:
        """Write a version into the record, which may be that of a replacement of this collection."""
        self._write_record({**self._read_record(), "version": version})

    def _configure(self, spaces: Mapping[Space, int], settings: dict[str, Any]) -> None:
        self.spaces, self.settings = dict(spaces), settings
        self.options = self.about.options(**settings.get("engine_options", {}))
        self.page, self.checked = getattr(self.options, "bulk", None) or self.page, time.monotonic()

    def _write_pages(self, parts: Sequence[tuple[Sequence[Document], Sequence[Sequence[Row]]]]) -> None:
        if (workers := getattr(self.options, "workers", 1)) == 1:
            super()._write_pages(parts)  # in this thread, which Ctrl-C reaches
            return
        failed = Event()

        def write(documents: Sequence[Document], rows: Sequence[Sequence[Row]]) -> None:
            if failed.is_set():  # the patience is over: no page is begun
                return
            try:
                self._write(documents, rows)
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(workers) as pool:
            deque(pool.map(write, *zip(*parts, strict=True)), maxlen=0)

    def search(
        self,
        queries: Vectors,
        k: int = 10,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        """Return the k best documents, as in any store.

        Raises `VectorsError` also if a collection of another model has taken the name since this one was opened, which
        is looked up every few seconds.
        """
        found = super().search(queries, k, space=space, filter=filter, **matching)
        if time.monotonic() - self.checked > MODEL_SECONDS:
            now = self._read_record()["settings"]
            if any(now.get(name) != self.settings.get(name) for name in ("meta", "weights")):
                raise VectorsError(f"{self.place}: replaced by a {self.kind} of another model: open it again")
            self.checked = time.monotonic()
        return found

    def _record(self) -> dict[str, object]:
        return {"spaces": self.spaces, "settings": self.settings, "version": _new_version()}

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _ask(self, call: Callable[..., Any], *given: Any, searching: bool = False, **named: Any) -> Any:
        """Call the driver, and again while the server is busy or out of reach, as long as the patience lasts.

        Raises:
            UnavailableError: it was so all the time, or wants a longer pause.
            VectorsError: any other error of the driver.
        """
        began, attempts = time.monotonic(), 0
        failures: tuple[type[Exception], ...] = (BusyError, *self.driver_errors)
        while True:
            try:
                answer = call(*given, **named)
            except failures as error:
                attempts, spent = attempts + 1, time.monotonic() - began
                if attempts > 1 and "already exists" in str(error):
                    return None  # an attempt whose answer was lost has made it
                message = masked(" ".join(str(error).split()))[:LONGEST_MESSAGE] or type(error).__name__
                wait = error.wait if isinstance(error, BusyError) else self._wait(error)
                if wait is None:
                    raise VectorsError(f"{self.place}: {message}") from error
                pause = max(wait, min(FIRST_PAUSE * 2**attempts, LONGEST_PAUSE) * random.uniform(0.5, 1))
                if spent + pause > patience(searching):
                    tried = f"{attempts} times in {spent:.0f} s" + (f", it asks to wait {wait:.0f} s" if wait else "")
                    raise UnavailableError(f"{self.place}: {message} (tried {tried})") from error
                time.sleep(pause)
            else:
                self.reached = True
                return answer


def _new_version() -> str:
    return secrets.token_hex(8)


def patience(searching: bool) -> float:
    """Return the seconds since the first attempt in which a request is repeated."""
    return SEARCH_PATIENCE if searching else WRITE_PATIENCE


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


class Server(NamedTuple):
    """The parts of a server's address."""

    url: str
    name: str
    user: str | None
    password: str | None


def server_of(address: str, ports: Mapping[str, int]) -> Server:
    """Parse the address http(s)://USER:PASSWORD@HOST:PORT/NAME; `ports` are the default ports by scheme.

    Raises:
        ArgumentError: a part is missing, or there is one more.
    """
    parts = urlsplit(address)
    try:
        port = parts.port or ports[parts.scheme]
    except (ValueError, KeyError) as error:
        raise ArgumentError(f"{masked(address)}: expected http(s)://HOST:PORT/NAME") from error
    *above, name = parts.path.split("/")
    if not parts.hostname or not name or parts.query or parts.fragment:
        raise ArgumentError(f"{masked(address)}: expected http(s)://HOST:PORT/NAME")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
    return Server(f"{parts.scheme}://{host}:{port}{'/'.join(above)}", unquote(name), user, password)
