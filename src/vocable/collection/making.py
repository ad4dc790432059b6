"""Fill the place of an index: begin or resume it, open a finished one, or replace one on a server."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from vocable.collection.collection import Collection
from vocable.collection.settings import STATE, CollectionSettings
from vocable.collection.writer import Parts
from vocable.core.fingerprint import INPUTS_KEY
from vocable.core.storage import ANOTHER, differing
from vocable.core.tables import masked
from vocable.encoding.protocol import EncodingModel
from vocable.engines.base import Store
from vocable.engines.protocols import Space
from vocable.engines.server import patiently
from vocable.errors import ArgumentError, VocableError

if TYPE_CHECKING:
    from vocable.encoding.dense_models import DenseModel

logger = logging.getLogger(__name__)


@dataclass
class Making:
    """The making of an index: engine, place, settings to compare when it is repeated, and loaded models.

    `total` is the number of documents, if it is known.
    """

    engine: type[Store]
    output: str | PathLike[str]
    settings: CollectionSettings
    model: EncodingModel | None
    dense_model: DenseModel | None
    dimensions: int | None  # size of the dense vectors that the sparse model gives in the same pass
    device: str | None
    total: int | None = None

    @patiently()
    def make(self, address: str, parts: Parts) -> Collection:
        """Fill a store, a new one or one that the same call has begun."""
        return self._fill(address, self._begun(address), parts)

    @patiently()
    def replace(self, address: str, parts: Parts) -> Collection:
        """Fill a new store on a server, give it the name in an address, and remove the previous store."""
        engine: Any = self.engine
        number = engine.generation(address)
        if not (was_there := self._differing(address) == []):
            replacement = engine.numbered(address, number + 1)
            if other := self._differing(replacement):  # its command may be running
                begun = f"{masked(replacement)}: a replacement with other settings ({', '.join(other)}) has begun"
                raise ArgumentError(f"{begun}: repeat its command, or, if none is running, remove this {engine.kind}")
            self._fill(replacement, self._begun(replacement), parts).close()
            with closing(engine.open(replacement)) as store:
                store.take_name(address)
            logger.info("%s: searches find the new %s %r", masked(fspath(self.output)), engine.kind, store.name)
            number += 1
        if number > 1 and self._differing(previous := engine.numbered(address, number - 1)) is not None:
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

    def _fill(self, address: str, begun: bool, parts: Parts) -> Collection:
        store = (
            self.engine.open(address) if begun else self.engine.create(address, self._spaces(), asdict(self.settings))
        )
        try:
            collection = Collection(fspath(self.output), store, device=self.device)
            if self.model is not None:
                collection.models.loaded = self.model
            if self.dense_model is not None:
                collection.models.dense = self.dense_model
            with store.alone():
                collection.was_there = bool(store.settings_now()["whole"])
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
            raise ArgumentError(f"{place} {reason}: {ANOTHER}{self._update(other)}")
        return other is not None

    def _update(self, differing_names: list[str]) -> str:
        """Return the command that brings an index up to date, for a message; "" if more than its corpus differs."""
        if not self.engine.about.changes or differing_names != [INPUTS_KEY] or not self.settings.source:
            return ""
        place = masked(fspath(self.output))
        return f"; `vocable add {place} {self.settings.source} --replace` brings it up to date"

    def _differing(self, address: str) -> list[str] | None:
        """Return the names of a store's settings that differ from this call's; None if there is no store."""
        if (store := self.engine.find(address)) is None:
            return None
        store.close()
        made_from = self._made_from
        return sorted(differing({name: store.settings.get(name) for name in made_from}, made_from))


def _is_written(store: Store) -> bool:
    """Return whether a part of the corpus has vectors in a store, or perhaps has."""
    return store.encoded_share > 0 and (bool(store.settings["progress"]["parts"]) or len(store) > 0)
