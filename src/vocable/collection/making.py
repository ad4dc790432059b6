"""Fill the place of an index: begin or resume it, open a finished one, or replace one on a server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from vocable.collection.collection import Collection
from vocable.collection.settings import STATE, CollectionSettings
from vocable.collection.writer import DocumentParts
from vocable.core.fingerprint import INPUTS_KEY, differing
from vocable.core.storage import ANOTHER
from vocable.core.tables import masked
from vocable.data import Document
from vocable.encoding.protocol import EncodingModel
from vocable.engines.base import Store
from vocable.engines.patience import patiently
from vocable.engines.protocols import Space
from vocable.engines.server import ServerStore
from vocable.errors import ArgumentError, VocableError

if TYPE_CHECKING:
    from vocable.encoding.dense_models import DenseModel

logger = logging.getLogger(__name__)
REMOVE = "`vocable drop {}` removes it"
KEEP = "make it by --replace from the beginning, or to another name"


@dataclass
class Making:
    """The making of an index: engine, place, settings to compare when it is repeated, and loaded models.

    `total` is the number of documents, if it is known. `mean_length` counts the words of documents that can be read
    twice, for a server.
    """

    engine: type[Store]
    output: str | PathLike[str]
    settings: CollectionSettings
    model: EncodingModel | None
    dense_model: DenseModel | None
    dimensions: int | None  # size of the dense vectors that the sparse model gives in the same pass
    device: str | None
    total: int | None = None
    keep_old: bool = False  # a replaced collection stays
    reread: Callable[[], Iterable[Document]] | None = None  # reads the documents, to check them before any is written
    mean_length: Callable[[], float] | None = None

    @patiently()
    def make(self, address: str, parts: DocumentParts) -> Collection:
        """Fill a store, a new one or one that the same call has begun."""
        return self._fill(address, self._begun(address), parts)

    @patiently()
    def replace(self, address: str, parts: DocumentParts) -> Collection:
        """Fill a new store on a server, give it the name in an address, and remove the previous store."""
        engine: Any = self.engine
        # The number of the store that the name leads to; 0 if the name is no alias.
        number = engine.generation(address)
        if self.keep_old and not number and engine.find(address) is not None:
            raise ArgumentError(
                f"{masked(address)}: the name is the {engine.kind}'s own, so that it cannot stay: {KEEP}"
            )
        was_there = self._differing(address) == []
        if not was_there:
            # Find the next number: stores that were kept have the numbers in between.
            number += 1
            replacement = engine.numbered(address, number)
            while (other := self._differing(replacement)) and self._is_whole(replacement):
                number += 1
                replacement = engine.numbered(address, number)
            if other:  # its command may be running
                begun = f"{masked(replacement)}: a replacement with other settings ({', '.join(other)}) has begun"
                raise ArgumentError(
                    f"{begun}: repeat its command, or, if none is running, {REMOVE.format(masked(replacement))}"
                )
            # Searches find the old store until the new one is whole.
            self._fill(replacement, self._begun(replacement), parts).close()
            with closing(engine.open(replacement)) as store:
                store.take_name(address)
            logger.info("%s: searches find the new %s %r", masked(fspath(self.output)), engine.kind, store.name)
        # After a kill before this line, the repeated call removes the previous store.
        if not self.keep_old and number > 1:
            previous = engine.numbered(address, number - 1)
            if self._differing(previous) is not None:
                self._remove(previous)
        collection = self._fill(address, True, parts)
        collection.was_there = was_there
        return collection

    def _remove(self, address: str) -> None:
        """Delete the previous generation of the store."""
        with closing(self.engine.open(address)) as opened:
            store: Any = opened
            store.drop()
        logger.info("%s: %r, the one before, is removed", masked(fspath(self.output)), store.name)

    def _fill(self, address: str, begun: bool, parts: DocumentParts) -> Collection:
        # Open the store that the same call has begun, or create it.
        store = (
            self.engine.open(address) if begun else self.engine.create(address, self._spaces(), asdict(self.settings))
        )
        if isinstance(store, ServerStore):
            store.set_run(self.settings.engine_options)
        try:
            collection = Collection(fspath(self.output), store, device=self.device)
            if self.model is not None:
                collection.models.loaded = self.model
            if self.dense_model is not None:
                collection.models.dense = self.dense_model
            # A new store first checks all documents and counts their words.
            with store.alone():
                collection.was_there = bool(store.settings_now()["whole"])
                if not begun and self.reread is not None and type(store)._refuse is not Store._refuse:
                    store.check_documents(self.reread())
                if not begun and self.mean_length is not None:
                    store.configure({**store.settings, "mean_length": self.mean_length()})
                if not collection.was_there:
                    collection.writer.fill(parts, self.total)
        except BaseException as error:
            if isinstance(error, VocableError) and not begun and not _is_written(store):
                store.drop()  # this call made it, and no vector is written: the input is wrong
            store.close()
            raise
        return collection

    def _spaces(self) -> dict[Space, int]:
        spaces: dict[Space, int] = {"sparse": self.settings.meta.size}
        if self.settings.dense is not None:
            of_model = None if self.dense_model is None else self.dense_model.get_embedding_dimension()
            spaces["dense"] = of_model or self.dimensions or 0
        return spaces

    @property
    def _made_from(self) -> dict[str, object]:
        """The settings to compare when the call is repeated."""
        return {name: value for name, value in asdict(self.settings).items() if name not in STATE}

    def _begun(self, address: str) -> bool:
        """Return whether the same call has begun or made the store; `ArgumentError` if another call has."""
        if other := self._differing(address):
            place = masked(fspath(self.output))
            reason = f"was made with other settings ({', '.join(other)})"
            if other == [INPUTS_KEY]:
                reason = "was made from inputs that have changed since then"
            unfinished = issubclass(self.engine, ServerStore) and not self._is_whole(address)
            instead = f"; {REMOVE.format(place)}" if unfinished else self._update(other)
            raise ArgumentError(f"{place} {reason}: {ANOTHER}{instead}")
        return other is not None

    def _update(self, differing_names: list[str]) -> str:
        """Return the command that brings an index up to date, for a message; "" if its corpus does not differ."""
        if not self.engine.about.changes or INPUTS_KEY not in differing_names or not self.settings.source:
            return ""
        place = masked(fspath(self.output))
        its = "" if differing_names == [INPUTS_KEY] else ", with its own settings"
        return f"; `vocable add {place} {self.settings.source} --replace` brings it up to date{its}"

    def _differing(self, address: str) -> list[str] | None:
        """Return the names of a store's settings that differ from this call's; None if there is no store."""
        if (store := self.engine.find(address)) is None:
            return None
        store.close()
        made_from = self._made_from
        names = differing({name: store.settings.get(name) for name in made_from}, made_from)
        of_run = {f"engine_options.{name}" for name in self.engine.about.of_run}
        return sorted(name for name in names if name not in of_run)

    def _is_whole(self, address: str) -> bool:
        with closing(self.engine.open(address)) as store:
            return bool(store.settings["whole"])


def _is_written(store: Store) -> bool:
    """Return whether a part of the corpus has vectors in a store, or perhaps has."""
    return store.encoded_share > 0 and (bool(store.settings["progress"]["parts"]) or len(store) > 0)
