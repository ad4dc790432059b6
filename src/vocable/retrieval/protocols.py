"""The protocols of what is searched, the engines that implement them, and how one string names a place.

An engine is one module of `vocable.retrieval.engines`, named as the engine, with a class that stands there as `ENGINE` and
implements one of the two. An `Index` is of vectors alone and does not change: it is made of (vectors, ids, meta), saved
as a folder, and opened by `load(folder, verify)`. A `Store` holds documents with their vectors, and can change.

Letters: n documents, m of them, q queries, v output vocabulary, k results.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from scipy.sparse import csr_array

from vocable.arrays import read_header
from vocable.data import Document
from vocable.errors import ArgumentError, VectorsError
from vocable.retrieval import engines as package
from vocable.retrieval.filters import Filter
from vocable.retrieval.ranking import Ranking
from vocable.storage import path_name
from vocable.vectors import VectorsMeta

PLACE = re.compile(r"(?P<name>[a-z][a-z0-9_]+)(?P<server>\+https?://|://|:)")
Space = str  # one of the vectors of a document: "sparse", sparse [n, v]; "bm25", sparse; "dense", float32 [n, d]


@dataclass(frozen=True)
class About:
    """What an engine promises."""

    engine: str
    exact: bool  # it finds the k best, not most of them
    precision: str = "float32"  # of the stored weights: a NumPy type, or "9 bits" of significand
    max_nonzeros: int | None = None  # terms of a document that it stores at most
    max_terms: int | None = None  # terms of a query that it takes at most
    durable: bool = False  # what was added is there after a kill of the process that added it
    filters: bool = False  # a search can be limited to some documents
    in_folder: bool = False  # its address is a folder, which is whole or not there
    of_texts: bool = False  # it is made of texts, in place of vectors
    spaces: tuple[Space, ...] = ("sparse",)  # the vectors that it can hold


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
        self,
        queries: csr_array,
        k: int = 10,
        *,
        minimum_match: float = 0.0,
        allowed: np.ndarray | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """The k best documents for each of `queries` [q, v].

        `minimum_match` is the share of a query's terms that a document must have, `allowed`, bool [n], says which
        documents may be hits; `threads` all cores unless given.
        """

    def get(self, rows: Sequence[int] | np.ndarray | None = None) -> csr_array:
        """The stored vectors of the documents in `rows`, csr_array [m, v]; of all n by default."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index as a folder, whole or not at all."""


@runtime_checkable
class Store(Protocol):
    """Documents with their vectors, in an engine that holds both and changes.

    It is found by its address: what a place has after the engine's name. A document without a term in a space is kept
    and never a hit there. Ties are broken by id as far as the engine returned them.
    """

    about: About
    settings: dict[str, Any]  # what `configure` wrote last

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, Any]) -> Self:
        """Make an empty store with these spaces and their numbers of columns; `ArgumentError` if there is one."""

    @classmethod
    def open(cls, address: str) -> Self:
        """Open a store; `VectorsError` if there is none, or it is damaged or in use."""

    def configure(self, settings: dict[str, Any]) -> None:
        """Replace the settings, JSON values that are stored with the documents."""

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, csr_array | np.ndarray]) -> None:
        """Add documents with their vectors [m, columns] by space; one whose id is there already is replaced.

        What has returned is found by the next search and, where the engine is durable, is there after a kill.
        """

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents, and return how many of them there were."""

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None where there is none."""

    def ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents, in the order of the ids or in any other."""

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> csr_array | np.ndarray:
        """Return the stored vectors [m, columns] of documents; `ArgumentError` for an id that is not there."""

    def search(
        self, queries: csr_array | np.ndarray, k: int = 10, *, space: Space = "sparse", filter: Filter | None = None
    ) -> Ranking:
        """The k best documents that pass the filter, for each of `queries` [q, columns], by the dot product."""

    def replace_vectors(self, ids: Sequence[str], space: Space, vectors: csr_array | np.ndarray) -> None:
        """Replace the vectors [m, columns] of documents in one space; needed where "bm25" is among the spaces."""

    def optimize(self) -> None:
        """Do what the engine does to be faster or smaller, if it is due."""

    def drop(self) -> None:
        """Remove all documents and the store itself, which can then only be closed."""

    def close(self) -> None:
        """Give back what the store holds: connections, files, memory."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int | None:
        """The bytes that the store takes, None where the engine does not tell."""


def engines() -> Iterator[tuple[str, Any]]:
    """The names and classes of all engines."""
    for module in iter_modules(package.__path__):
        engine = getattr(import_module(f"{package.__name__}.{module.name}"), "ENGINE", None)
        if engine is not None:
            yield module.name, engine


def engine_of(place: str | os.PathLike[str]) -> tuple[Any, str]:
    """The class of the engine that a place names, None for a plain path, and the address that the engine is given.

    The place is ENGINE:FOLDER, ENGINE+http(s)://HOST/NAME, or ENGINE://HOST/NAME, an address as a whole.

    Raises:
        ArgumentError: there is no such engine.
    """
    text = path_name(place, "a place")
    found = PLACE.match(text)
    choices = {name: engine for name, engine in engines() if not engine.about.of_texts} if found else {}
    if found is None or (found["name"] not in choices and found["server"] == ":"):
        return None, text
    if found["name"] in ("http", "https"):
        raise ArgumentError(
            f"{text}: a service is searched by its address; its documents change by PUT and DELETE there"
        )
    if found["name"] not in choices:
        raise ArgumentError(f"{text.partition('//')[0]}: the engines are {', '.join(choices)}")
    return choices[found["name"]], text if found["server"] == "://" else text[found.end("name") + 1 :]


def vector_engine(name: str) -> Any:
    """The class of the engine of this name, which makes an index of vectors; `ArgumentError` if there is none."""
    choices = {known: engine for known, engine in engines() if hasattr(engine, "load") and not engine.about.of_texts}
    if name not in choices:
        raise ArgumentError(f"engine must be one of {', '.join(choices)}, not {name!r}")
    return choices[name]


def vector_index(vectors: csr_array, ids: Sequence[str] | None = None) -> Index:
    """Index `vectors` [n, v] exactly, in memory; `ids` are the documents' names by row."""
    index: Index = dict(engines())["exact"](vectors, ids)
    return index


def load_index(folder: str | os.PathLike[str], *, verify: bool = True) -> Index:
    """Open the index of vectors in a folder.

    `verify` first reads all of it once, to compare its checksums.

    Raises:
        VectorsError: there is no index, it is damaged, or no engine of this version reads it.
    """
    kind = str(read_header(Path(folder)).get("kind"))
    engine = dict(engines()).get(kind)
    if engine is None or not hasattr(engine, "load"):
        raise VectorsError(f"{folder}: this version has no engine {kind!r}")
    index: Index = engine.load(folder, verify=verify)
    return index
