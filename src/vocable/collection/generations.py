"""The numbered collections of a name on a server: listed, searched under the name, and removed."""

from __future__ import annotations

from contextlib import closing
from os import PathLike, fspath
from typing import Any, NamedTuple

from vocable.core.tables import counted, masked
from vocable.engines.aliases import AliasedStore
from vocable.engines.protocols import engine_of
from vocable.engines.server import ServerStore
from vocable.errors import ArgumentError


class NumberedCollection(NamedTuple):
    """A collection on a server; searches of the name find the collection in use."""

    name: str
    documents: int
    model: str
    whole: bool
    in_use: bool

    def __str__(self) -> str:
        state = "in use" if self.in_use else "kept" if self.whole else "unfinished"
        return f"{self.name}: {counted(self.documents, 'document')}, {self.model}, {state}"


class NumberedCollections(tuple[NumberedCollection, ...]):
    """The collections that may have a name, by their numbers."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no collections"

    def to_json(self) -> list[dict[str, object]]:
        """Return JSON values."""
        return [one._asdict() for one in self]


def alias(index: str | PathLike[str], name: str | None = None) -> NumberedCollections:
    """List the collections of an index on a server, or choose one.

    Programs that have the index open go on with their collection if the other has another model, until they open it
    again; a service does so by POST /reload.

    Args:
        index: place of the index, such as opensearch+http://HOST:9200/NAME.
        name: the collection to search from now on, such as NAME-2.

    Raises:
        ArgumentError: the engine has no aliases, or there is no such collection.
        VectorsError: the collection is unfinished.
    """
    place = masked(fspath(index))
    engine, address = engine_of(index)
    if not issubclass(engine, AliasedStore) or not engine.pins:
        raise ArgumentError(f"{place}: the {engine.about.engine} engine has no aliases")
    if name is not None:
        numbers = {engine.named(address, number): number for number in engine.numbers(address)}
        if name not in numbers:
            raise ArgumentError(f"{place}: there is no collection {name!r}: {', '.join(numbers) or 'none is numbered'}")
        # A name leads to a whole collection only, and is not the name of a collection itself.
        with closing(engine.open(engine.numbered(address, numbers[name]))) as store:
            if not store.settings["whole"]:
                raise ArgumentError(f"{place}: {name!r} is unfinished: repeat the command that began it")
            if engine.is_taken(address):
                raise ArgumentError(f"{place}: a collection itself has the name, no alias: `vocable drop` removes it")
            store.take_name(address)
    current = engine.generation(address)
    return NumberedCollections(_described(engine, address, number, current) for number in engine.numbers(address))


def _described(engine: Any, address: str, number: int, current: int) -> NumberedCollection:
    with closing(engine.open(engine.numbered(address, number))) as store:
        settings = store.settings
        return NumberedCollection(store.name, len(store), settings["model"], settings["whole"], number == current)


def drop(index: str | PathLike[str]) -> NumberedCollections:
    """Remove a collection from a server, with its documents.

    It may be whole or unfinished. A collection that searches find under another name stays.

    Args:
        index: place of the collection, such as opensearch+http://HOST:9200/NAME-1.

    Raises:
        ArgumentError: the index is a folder, or in use under another name.
        VectorsError: there is no collection, or vocable did not make it.
    """
    place = masked(fspath(index))
    engine, address = engine_of(index)
    if not issubclass(engine, ServerStore):
        raise ArgumentError(f"{place}: `drop` is for servers: remove the folder itself")
    store: Any = engine.open(address)
    with closing(store):
        # A name that leads to the collection must move first, or its searches would fail.
        if store.name != store.alias:
            raise ArgumentError(f"{place}: an alias of {store.name!r}: name that collection")
        if (user := store.used_as()) is not None:
            raise ArgumentError(f"{place}: searches find it as {user!r}: move this alias first (`vocable alias`)")
        settings, count = store.settings, len(store) if store.settings["whole"] else 0
        store.drop()
    return NumberedCollections([NumberedCollection(store.name, count, settings["model"], settings["whole"], False)])
