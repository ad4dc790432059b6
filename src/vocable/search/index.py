"""The protocol of a searchable index, and how an index on disk finds its engine.

An engine is one module of `vocable.search`, named as the engine, with a class that implements `Index` and stands there
as `ENGINE`. It is made of (vectors, ids, meta) and has a class method `load(folder, verify)`. The folder of an index
says its engine as `kind`; an index that lives in a server is named by an address whose scheme begins with the engine,
as `qdrant+http://host:6333/name`.

Letters: n documents, m of them, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.sparse import csr_array

from vocable.errors import ArgumentError, VectorsError
from vocable.search.ranking import Ranking
from vocable.storage import read_header
from vocable.vectors import VectorsMeta


@dataclass(frozen=True)
class About:
    """What an engine promises."""

    engine: str
    exact: bool  # it finds the k best, not most of them
    precision: str = "float32"  # of the stored weights: a NumPy type or what comes near
    max_nonzeros: int | None = None  # terms of a document that it stores at most
    max_terms: int | None = None  # terms of a query that it takes at most
    durable: bool = False  # what `commit` returned from outlasts a loss of power
    filters: bool = False  # a search can be limited to some documents
    mutable: bool = False  # documents can be added and deleted
    of_texts: bool = False  # it is made of texts, in place of vectors


@runtime_checkable
class Index(Protocol):
    """Documents as sparse vectors that can be searched.

    Ties are broken by id, by row without ids; a document that shares no term with a query is never a hit.
    """

    about: About
    ids: Sequence[str] | None  # the n documents' by row, if they have any
    meta: VectorsMeta | None  # what made the vectors, where the index says so

    @property
    def document_frequency(self) -> np.ndarray:
        """How many documents have each term, int64 [v]."""

    @property
    def nbytes(self) -> int:
        """The bytes that the index takes."""

    def __len__(self) -> int: ...

    def search(
        self, queries: csr_array, k: int = 10, *, minimum_match: float = 0.0, threads: int | None = None
    ) -> Ranking:
        """The k best documents for each of `queries` [q, v].

        `minimum_match` is the share of a query's terms that a document must have; `threads` all cores unless given.
        """

    def get(self, rows: Sequence[int] | np.ndarray | None = None) -> csr_array:
        """The stored vectors of the documents in `rows`, csr_array [m, v]; of all n by default."""

    def add(self, vectors: csr_array, ids: Sequence[str]) -> None:
        """Add documents [m, v]; one whose id is there already is replaced."""
        raise ArgumentError(f"the {self.about.engine} index cannot change: build it anew")

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents."""
        raise ArgumentError(f"the {self.about.engine} index cannot change: build it anew")

    def commit(self) -> None:
        """Make what was added and deleted visible and, where the engine is durable, lasting."""
        return

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index as a folder, whole or not at all."""

    def close(self) -> None:
        """Give back what the index holds: connections, files, memory."""
        return


def engines() -> Iterator[tuple[str, Any]]:
    """The names and classes of all engines."""
    for module in iter_modules([str(Path(__file__).parent)]):
        engine = getattr(import_module(f"vocable.search.{module.name}"), "ENGINE", None)
        if engine is not None:
            yield module.name, engine


def vector_engine(name: str) -> Any:
    """The class of the engine of this name, which makes an index of vectors; `ArgumentError` if there is none."""
    choices = {known: engine for known, engine in engines() if not engine.about.of_texts}
    if name not in choices:
        raise ArgumentError(f"engine must be one of {', '.join(choices)}, not {name!r}")
    return choices[name]


def vector_index(vectors: csr_array, ids: Sequence[str] | None = None) -> Index:
    """Index `vectors` [n, v] exactly, in memory; `ids` are the documents' names by row."""
    index: Index = vector_engine("exact")(vectors, ids)
    return index


def load_index(source: str | os.PathLike[str], *, verify: bool = True) -> Index:
    """Open the index in a folder, or at an address such as "qdrant+http://host:6333/name".

    `verify` first reads all of an index on disk once, to compare its checksums.

    Raises:
        VectorsError: there is no index, it is damaged, or no engine of this version reads it.
    """
    scheme, address, _ = os.fspath(source).partition("://")
    kind = scheme.partition("+")[0] if address else str(read_header(Path(source)).get("kind"))
    engine = dict(engines()).get(kind)
    if engine is None:
        raise VectorsError(f"{source}: this version has no engine {kind!r}")
    index: Index = engine.load(source, verify=verify)
    return index
