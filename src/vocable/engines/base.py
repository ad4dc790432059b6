"""Base classes of all engines: they check input and split it into pages; an engine adds a few primitives.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar, Unpack

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.encoding.idf import idf
from vocable.encoding.vectors import as_vectors
from vocable.engines.filters import Filter
from vocable.engines.protocols import About, Lexicon, NoOptions, Space
from vocable.errors import ArgumentError, DataError
from vocable.indexes.ranking import Ranking
from vocable.options import Matching, check_fields

T = TypeVar("T")
UNBOUNDED = 2**31 - 1  # columns of a space created with 0 columns: its words are numbered as they come
STORE_FORMAT = 3  # of stored documents and their keys for filters on servers

Vectors: TypeAlias = csr_array | np.ndarray  # sparse or dense, [m, columns]
VectorRow: TypeAlias = Any  # a sparse vector as (columns int32, weights float32), or a dense vector as an array
Hits: TypeAlias = list[tuple[str, float]]  # (document id, score), best first


class SpaceSearch(NamedTuple):
    """A search for the k best documents that pass the filter for each of `queries` [q, columns] in one space."""

    queries: Vectors
    k: int
    space: Space
    filter: Filter | None = None
    matching: Matching = Matching()


class Store(ABC):
    """Documents with their vectors at an address; the address is the part of a place after the engine's name.

    The store keeps a document without terms, but no search finds it. Documents with equal scores are ordered by id.

    A making calls `create`, `set_run`, `check_documents` before it writes, `upsert` for each part and `finish`. A
    change calls `upsert` and `delete` within `changing`, and within `alone` where it must not meet another writer, then
    `settle`. A search calls `search_all`, on the store itself or on a `pinned` view of it.
    """

    about: ClassVar[About]
    max_hits: ClassVar[int] = UNBOUNDED  # hits that a search returns at most
    uncounted_depth = 0  # a search for up to this many hits does not ask for the number of documents
    missing: str | None = None  # what the last search of this thread left out
    place: str  # for messages, without a password
    spaces: dict[Space, int]  # number of columns of each space; 0: any number
    settings: dict[str, Any]  # JSON values that are stored with the documents
    search_options: Any = NoOptions()  # of the searches of this handle, a record of `about.search_options`

    @classmethod
    @abstractmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        """Create an empty store; raise `ArgumentError` if the address is taken."""

    @classmethod
    @abstractmethod
    def open(cls, address: str) -> Self:
        """Open a store; raise `VectorsError` if it is missing, damaged or in use."""

    @classmethod
    @abstractmethod
    def find(cls, address: str) -> Self | None:
        """Open the store at an address, or return None. Raises `ArgumentError` if something else stands there."""

    @classmethod
    def numbered(cls, address: str, number: int) -> str:
        """Return the address of the collection that replaces others under an alias; only servers have aliases."""
        instead = f"index to another folder and rename it, or `vocable add {address} CORPUS --replace`"
        raise ArgumentError(f"replace is for servers: {instead}")

    @abstractmethod
    def configure(self, settings: dict[str, object]) -> None:
        """Replace the settings."""

    @abstractmethod
    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        """Add documents with their vectors [m, columns] by space, and replace documents with the same ids.

        The store counts the words of BM25 itself, if its settings say `bm25`.

        When this returns, searches find the documents, and a durable engine keeps them even if the process is killed.
        All documents are checked before the first is written. If several documents have the same id, the last is
        written.

        Raises:
            ArgumentError: the vectors do not fit the documents or the spaces, or a vector has more terms than the
                engine stores.
            DataError: the engine cannot store a document.
        """

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents, and return how many of them existed."""

    @abstractmethod
    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, and None for each unknown id."""

    @abstractmethod
    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        """Return the stored vectors [m, columns] of documents; raise `ArgumentError` for an unknown id."""

    @abstractmethod
    def ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents, in any order."""

    def search(
        self,
        queries: Vectors,
        k: int = 10,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        """Return the k best documents that pass the filter for each of `queries` [q, columns], by the dot product.

        An engine takes the options of `matching` that it declares.

        Raises:
            ArgumentError: the engine does not declare an option, the space is unknown, k is out of range, or a query
                has more terms than the engine takes.
            VectorsError: the number of columns of the queries is wrong.
        """
        self._check_search(k, matching)
        return self._search(queries, k, space, filter, matching)

    def search_all(self, searches: Sequence[SpaceSearch]) -> list[Ranking]:
        """Return the rankings of several searches, which a server gets in one request. Raises errors as `search`."""
        return [self.search(one.queries, one.k, space=one.space, filter=one.filter, **one.matching) for one in searches]

    def _check_search(self, k: int, matching: Matching) -> None:
        if name := next((name for name, value in matching.items() if value and name not in self.about.matching), None):
            raise ArgumentError(f"{name}: not supported by the {self.about.engine} engine")
        if not 1 <= k <= self.max_hits:
            most = f" and at most {self.max_hits:,} in {self.about.engine}" if self.max_hits < UNBOUNDED else ""
            raise ArgumentError(f"k must be at least 1{most}, not {k}")

    @abstractmethod
    def _search(self, queries: Vectors, k: int, space: Space, filter: Filter | None, matching: Matching) -> Ranking:
        """Carry out a search with k and `matching` in range."""

    @abstractmethod
    def optimize(self) -> None:
        """Tidy up after changes; an engine that is filled only once builds its index here."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the store; afterwards, only `close` may be called."""

    @abstractmethod
    def close(self) -> None:
        """Release connections, files and memory."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def nbytes(self) -> int | None:
        """Size in bytes; None if the engine does not report it."""

    def settings_now(self) -> Mapping[str, Any]:
        """Return the stored settings; another process may have changed them on a server."""
        return self.settings

    def version(self) -> object:
        """Return a token that differs after each change of the documents by any process.

        The token is None during a change, and after a process was killed during a change: then a caller must not cache
        what it computes from the documents.
        """
        raise NotImplementedError

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Give the documents another version at the end of the block; in a folder, all its changes are one commit."""
        yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other writers out during the block, where the engine can."""
        yield

    @property
    def partial(self) -> bool:
        """True if a search may answer from a part of the documents."""
        return False

    @property
    def searchable(self) -> bool:
        """True if searches find documents: of an engine that counts `words_first` also while the index is made."""
        return bool(self.settings.get("whole"))

    @property
    def encoded_share(self) -> float:
        """The share of the documents that have vectors; an index that is being made counts their words first."""
        return 1.0

    def lack_vectors(self, rows: np.ndarray) -> np.ndarray:
        """Return whether the documents in rows of a ranking, int32 [q, k], have no vectors yet, bool [q, k]."""
        return np.zeros(rows.shape, bool)

    def finish(self) -> None:
        """Tidy up when all documents of a new collection are written."""
        self.optimize()

    def settle(self) -> None:  # noqa: B027
        """Complete a change that a killed writer may have left half done, and weigh the words of its documents."""

    def without_vectors(self) -> Iterator[Document]:
        """Iterate over the documents that have no vectors yet."""
        return iter(())

    def pinned(self) -> Self:
        """Return the store as it is now, without later changes, if the engine can; else the store itself."""
        return self

    def replace_vectors(self, ids: Sequence[str], space: Space, vectors: Vectors) -> None:
        """Replace the vectors [m, columns] of documents in one space; raise `ArgumentError` for an unknown id."""
        kept = {name: self.vectors(ids, name) for name in self.spaces}
        documents = [document for document in self.documents(ids) if document is not None]
        self.upsert(documents, kept | {space: vectors})

    @property
    def lexicon(self) -> Lexicon:
        """The words of the documents; `ArgumentError` for a collection without BM25."""
        raise ArgumentError(f"{self.place}: it was made without bm25 vectors")

    @abstractmethod
    def count_terms(
        self, columns: np.ndarray, space: Space = "sparse", filter: Filter | None = None
    ) -> tuple[np.ndarray, int]:
        """Count the documents that have each of t terms, int64 [t], and all documents: those that pass a filter."""

    def count_ahead(self, texts: Sequence[str], terms: np.ndarray, filter: Filter | None = None) -> None:  # noqa: B027
        """Count what weighs the words of texts and sparse terms, in one request to a server that keeps its counts."""

    def idf(self, columns: np.ndarray, space: Space = "sparse", filter: Filter | None = None) -> np.ndarray:
        """Return the IDF of t terms in the documents that pass a filter, float32 [t]; 1 without documents."""
        frequencies, documents = self.count_terms(columns, space, filter)
        # A server that is written to counts documents and terms at two moments.
        return idf(np.minimum(frequencies, documents), documents) if documents else np.ones(len(columns), np.float32)

    def count(self, filter: Filter) -> int:
        """Count the documents that pass the filter; for engines that have filters and can change."""
        raise NotImplementedError

    @classmethod
    def parse_options(cls, options: str | Mapping[str, object] | None, *, of_search: bool = False) -> dict[str, object]:
        """Return the engine's own options, checked, from a mapping or text such as "weight_bits=8".

        A store is created with these options, and keeps them; with `of_search`, they are of the searches of one handle.
        Raises `ArgumentError` for an unknown option, or for a value that the option does not take.
        """
        if isinstance(options, str):
            pairs = [part.partition("=") for part in options.split(",")]
            options = {name.strip(): _value(value.strip()) for name, _, value in pairs}
        record = cls.about.search_options if of_search else cls.about.options
        known = [field.name for field in fields(record)]
        for name in options or {}:
            if name not in known:
                has = f"has {', '.join(known)}" if known else "has none" + " of a search" * of_search
                raise ArgumentError(f"engine_options: no option {name!r}: the {cls.about.engine} engine {has}")
        settings = record(**options or {})
        check_fields(settings)
        return dict(vars(settings))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r}, {len(self):,} documents)"

    def _refuse(self, document: Document) -> str | None:
        """Return why the engine cannot store a document; None if it can."""
        return None

    def _checked(
        self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]
    ) -> tuple[list[Document], dict[Space, Vectors]]:
        """Return the last document of each id, and their vectors; raise `ArgumentError` for what does not fit."""
        if set(vectors) != set(self.spaces):
            raise ArgumentError(
                f"vectors of {', '.join(vectors) or 'no space'}; the store has {', '.join(self.spaces)}"
            )
        self.check_documents(documents)
        last = list({document.id: row for row, document in enumerate(documents)}.values())
        kept: dict[Space, Vectors] = {}
        for space, columns in self.spaces.items():
            matrix = fitting(vectors[space], columns, space)
            expected = (len(documents), columns or UNBOUNDED)
            if (space == "dense") != isinstance(matrix, np.ndarray) or matrix.shape != expected:
                shape = f"{len(documents)} documents and {columns or 'any'} columns"
                raise ArgumentError(f"{space}: vectors {type(matrix).__name__} {matrix.shape}, expected {shape}")
            if isinstance(matrix, np.ndarray):
                if not np.isfinite(matrix).all():
                    raise ArgumentError(f"{space}: weights must be finite")
            else:
                self._check_lengths(matrix, documents)
            kept[space] = matrix if len(last) == len(documents) else matrix[last]
        return [documents[row] for row in last], kept

    def check_documents(self, documents: Iterable[Document]) -> None:
        """Raise `DataError` for a document that the engine cannot store."""
        for document in documents:
            try:
                json.dumps(dict(document.fields), allow_nan=False).encode()
                wrong = self._refuse(document) if document.id else "an empty id"
            except (TypeError, ValueError) as error:
                wrong = f"its fields are not JSON: {error}"
            if wrong:
                raise DataError(f"document {document.id!r}: {wrong}")

    def _check_lengths(self, matrix: csr_array, documents: Sequence[Document]) -> None:
        lengths, most = np.diff(matrix.indptr), self.about.max_nonzeros
        if most is not None and lengths.max(initial=0) > most:
            row = int(lengths.argmax())
            limit = f"{lengths[row]:,} terms, {self.about.engine} stores {most:,}: encode with a lower max_terms"
            raise ArgumentError(f"document {documents[row].id!r}: {limit}")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def key_of(identifier: str) -> str:
    """Return a key of 32 hexadecimal digits, also a valid UUID, for engines that do not take every text as a key."""
    return blake2b(identifier.encode(), digest_size=16).hexdigest()


def fitting(matrix: Vectors, columns: int, name: str) -> Vectors:
    """Return the matrix as float32; in a space with any number of columns, widen it to `UNBOUNDED` columns."""
    if isinstance(matrix, np.ndarray):
        return np.asarray(matrix, dtype=np.float32)
    matrix = as_vectors(matrix, name)
    if columns or matrix.shape[1] >= UNBOUNDED:
        return matrix
    return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], UNBOUNDED))


def pages(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split the items into pages of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def rows_of(matrix: Vectors) -> Iterator[VectorRow]:
    """Iterate over the rows: (columns int32, weights float32) for a sparse matrix, arrays for a dense matrix."""
    if isinstance(matrix, np.ndarray):
        yield from matrix
        return
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        yield matrix.indices[start:end], matrix.data[start:end]


def matrix_of(rows: Sequence[VectorRow], space: Space, columns: int) -> Vectors:
    """Return the matrix [m, columns] of rows such as `rows_of` yields, with their columns in any order."""
    if space == "dense":
        return np.array(rows, dtype=np.float32).reshape(len(rows), columns)
    indptr = np.cumsum([0, *(len(indices) for indices, _ in rows)]).astype(np.int32)
    indices = np.array([index for row, _ in rows for index in row], dtype=np.int32)
    weights = np.array([weight for _, row in rows for weight in row], dtype=np.float32)
    matrix: csr_array = csr_array((weights, indices, indptr), shape=(len(rows), columns or UNBOUNDED))
    matrix.sort_indices()
    return matrix
