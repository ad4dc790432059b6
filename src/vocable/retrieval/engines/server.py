"""Engines on servers: addresses, and making, opening and configuring a collection over a driver."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from vocable.errors import ArgumentError, VectorsError
from vocable.retrieval.engines.base import RowStore
from vocable.retrieval.protocols import Space
from vocable.tables import masked

LONGEST_MESSAGE = 300  # characters


class ServerStore(RowStore):
    """A store of a server, over a driver."""

    driver_errors: tuple[type[Exception], ...] = ()
    kind: ClassVar[str] = "collection"  # the engine's own word, for messages
    name: str  # of the collection on the server

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

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        store = cls(address, new=True)
        with store._closed_on_error(), store._errors():
            if store._exists():
                raise ArgumentError(f"{store.place}: the {cls.kind} {store.name!r} already exists: name another")
            store.spaces, store.settings = dict(spaces), settings
            store._make(store._record())
        return store

    @classmethod
    def open(cls, address: str) -> Self:
        store = cls(address)
        with store._closed_on_error(), store._errors():
            if not store._exists():
                raise VectorsError(f"{store.place}: there is no {cls.kind} {store.name!r} here")
            try:
                found = store._read_record()
                store.spaces, store.settings = dict(found["spaces"]), dict(found["settings"])
            except (KeyError, TypeError, ValueError) as error:
                raise VectorsError(f"{store.place}: vocable did not make the {cls.kind} {store.name!r}") from error
        return store

    def configure(self, settings: dict[str, object]) -> None:
        with self._errors():
            self._write_record(self._record() | {"settings": settings})
        self.settings = settings

    def _record(self) -> dict[str, object]:
        return {"spaces": self.spaces, "settings": self.settings}

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self.driver_errors as error:
            message = masked(" ".join(str(error).split()))[:LONGEST_MESSAGE]
            raise VectorsError(f"{self.place}: {message or type(error).__name__}") from error


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
