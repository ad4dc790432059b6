"""Numbered collections on a server: the name of an address is an alias of one of them, which a replacement takes.

An open store asks the collection that had the name when it was opened, so that its queries never meet vectors of
another model. It moves to a replacement of the same model by itself. A collection that has the name itself loses it to
a replacement: an answer that might be another model's is refused.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from copy import copy
from typing import Any, ClassVar, Self

from vocable.engines.base import SpaceSearch
from vocable.engines.patience import patiently, request
from vocable.engines.server import ServerStore
from vocable.errors import GoneError
from vocable.indexes.ranking import Ranking

FOLLOW_SECONDS = 5.0  # between checks whether a replacement has taken the name
OF_MODEL = ("meta", "dense_fingerprint")  # settings that differ between collections of two models


class AliasedStore(ServerStore):
    """A store on a server whose name may be an alias of a numbered collection."""

    joint: ClassVar[str] = "-"  # between the name and the number of the collection
    pins: ClassVar[bool] = True  # an open store goes on with its collection when another has taken the name
    signed: ClassVar[bool] = False  # the engine refuses answers of a collection of another model
    alias = ""  # the name in the address
    checked = 0.0  # time of the last check

    @abstractmethod
    def _named(self, name: str) -> str | None:
        """Return the collection with the name or the alias `name`, or None. `_ask` calls this method."""

    @abstractmethod
    def _take_name(self, name: str) -> None:
        """Give this collection the name `name` atomically; its holder loses the name. `_ask` calls this method."""

    def _names_from(self, start: str) -> list[str]:
        """Return the names of collections that begin with `start`. `_ask` calls this method."""
        raise NotImplementedError

    @classmethod
    def open(cls, address: str) -> Self:
        store = super().open(address)
        store.alias, store.checked = store.name, time.monotonic()
        with store._closed_on_error():
            store.name = store._opened_as()
        return store

    def _opened_as(self) -> str:
        """Return the collection whose record was just read."""
        return self._holder()

    def _holder(self) -> str:
        """Return the collection that has the name in the address."""
        return self._ask(self._named, self.alias) or self.alias

    @classmethod
    def generation(cls, address: str) -> int:
        """Return the number of the collection whose alias is the name at an address; 0 if the name is no alias.

        Raises `VectorsError` if vocable did not create the collection.
        """
        with closing(cls(address, new=True)) as store:
            if not store._exists():
                return 0
            cls.open(address).close()
            return store._number(str(store._ask(store._named, store.name)))

    def _number(self, name: str) -> int:
        """Return the number at the end of the name of a collection; 0 without one."""
        number = name.removeprefix(prefix := self.name + self.joint)
        return int(number) if name.startswith(prefix) and number.isdecimal() else 0

    @classmethod
    def numbered(cls, address: str, number: int) -> str:
        """Return the address of the collection with this number."""
        return f"{address}{cls.joint}{number}"

    @classmethod
    def named(cls, address: str, number: int) -> str:
        """Return the name of the collection with this number."""
        with closing(cls(cls.numbered(address, number), new=True)) as store:
            return store.name

    @classmethod
    def numbers(cls, address: str) -> list[int]:
        """Return the numbers of the collections that may have the name at an address."""
        with closing(cls(address, new=True)) as store:
            names = store._ask(store._names_from, store.name + cls.joint)
            return sorted(number for name in names if (number := store._number(name)))

    @classmethod
    def is_taken(cls, address: str) -> bool:
        """Return whether a collection itself has the name at an address, which is no alias then."""
        with closing(cls(address, new=True)) as store:
            return bool(store._ask(store._named, store.name) == store.name)

    def used_as(self) -> str | None:
        """Return the alias of this collection, which searches use; None if it has none."""
        alias, joint, number = self.name.rpartition(self.joint)
        used = joint and number.isdecimal() and self._ask(self._named, alias) == self.name
        return alias if used else None

    def take_name(self, address: str) -> None:
        """Give this collection the name at an address; another collection loses the name."""
        with closing(type(self)(address, new=True)) as other:
            name = other.name
        with patiently():
            self._ask(lambda: None if self._named(name) == self.name else self._take_name(name))

    def _rankings(self, searches: Sequence[SpaceSearch]) -> list[Ranking]:
        """Carry out searches; every few seconds and when the collection is gone, move to a replacement."""
        if time.monotonic() - self.checked > FOLLOW_SECONDS:
            self._follow()
        try:
            rankings = super()._rankings(searches)
        except GoneError:
            if not self._follow():
                raise
            return super()._rankings(searches)
        if not self.signed and self.name == self.alias and self._follow():
            return super()._rankings(searches)
        return rankings

    def settings_now(self) -> Mapping[str, Any]:
        """Return the settings; before a change, move to the collection that has the name.

        Raises `GoneError` if a collection of another model has the name.
        """
        if request().writing and self.alias and not self._follow() and self._holder() != self.name:
            raise self._replaced()
        return super().settings_now()

    def _follow(self) -> bool:
        """Move to the collection that has the name now, if its model is the same; return whether there is one.

        Raises `GoneError` for another model where a store cannot go on with its collection.
        """
        self.checked = time.monotonic()
        if not self.alias:  # it is just created
            return False
        if (holder := self._holder()) == self.name and self.pins:
            return False
        replacement = copy(self)  # other threads search by this store meanwhile
        replacement.name = holder
        if self._has_model_of(replacement._read_record()):
            self.name = holder
            self._forget()
            return True
        if not self.pins or self.name == self.alias:
            raise self._replaced()
        return False

    def _has_model_of(self, record: Mapping[str, Any]) -> bool:
        """Return whether a collection with this record has the model of this store."""
        return all(record["settings"].get(setting) == self.settings.get(setting) for setting in OF_MODEL)

    def _replaced(self) -> GoneError:
        return GoneError(f"{self.place}: another model's {self.kind} has the name: open it again")
