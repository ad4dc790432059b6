"""An index in memory: the engine of a folder without a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from vocable.engines.folder import FolderStore, write_index
from vocable.engines.protocols import Space
from vocable.engines.segmented import Draft, SegmentedStore
from vocable.engines.snapshot import Snapshot

IN_MEMORY = "memory"  # place of an index in memory


class MemoryStore(SegmentedStore):
    """Documents in the memory of this process; `save` writes them to a folder."""

    about = replace(SegmentedStore.about, engine="memory", durable=False)

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        return cls(IN_MEMORY, dict(spaces), settings)

    @classmethod
    def open(cls, address: str) -> Self:
        """Return an empty store: nothing is kept under an address."""
        return cls(IN_MEMORY, {}, {})

    @classmethod
    def find(cls, address: str) -> Self | None:
        return None

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the documents to a new folder, whole or not at all."""
        self.now()
        settings = {**self.settings, "engine": FolderStore.about.engine}
        write_index(Path(folder), self._snapshot, self.spaces, settings)

    def _look(self) -> None:
        """Do nothing: changes by this process are known."""

    @contextmanager
    def _keep_out(self) -> Iterator[None]:
        yield

    def _save(self, draft: Draft) -> Snapshot:
        return Snapshot(draft.parts, draft.previous.number + 1)

    def drop(self) -> None:
        self._snapshot = Snapshot([])

    @property
    def nbytes(self) -> int:
        """Size of all arrays."""
        segments = [part.segment for part in self.now().parts]
        return sum(array.nbytes for segment in segments for array in segment.arrays().values())


ENGINE = MemoryStore
