"""The base class of all engines: checks, paging, addresses and errors; an engine adds a few primitives.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar, Unpack

import numpy as np
from scipy.sparse import csr_array

from vocable.core.storage import partial_of, read_record, write_record
from vocable.data import Document
from vocable.encoding.vectors import as_vectors
from vocable.engines.filters import Filter
from vocable.engines.protocols import STORE, About, NoOptions, Space
from vocable.errors import ArgumentError, DataError, VectorsError
from vocable.indexes.ranking import Ranking, ranking_of
from vocable.options import Matching

T = TypeVar("T")
UNBOUNDED = 2**31 - 1  # columns of a space that was made with 0: words are numbered as they come
FORMAT = 1

Vectors: TypeAlias = csr_array | np.ndarray  # sparse or dense, [m, columns]
Row: TypeAlias = Any  # one vector: (columns int32, weights float32) of a sparse one, an array of a dense one
Hits: TypeAlias = list[tuple[str, float]]  # (document id, score), best first


class Store(ABC):
    """Documents with their vectors at an address, the part of a place after the engine's name.

    A document without terms is kept and is never a hit. Equal scores are in the order of the ids.
    """

    about: ClassVar[About]
    folder: Path | None = None
    place: str  # for messages, without a password
    spaces: dict[Space, int]  # numbers of columns; 0: any
    settings: dict[str, Any]  # JSON values that are stored with the documents
    _changes = 0  # of the documents by this process, since it opened the store
    opening: Any = NoOptions()  # options of this opening, a record of `about.opening`

    @classmethod
    @abstractmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, object]) -> Self:
        """Make an empty store; `ArgumentError` if the address is taken."""

    @classmethod
    @abstractmethod
    def open(cls, address: str) -> Self:
        """Open a store; `VectorsError` if it is missing, damaged or in use."""

    @abstractmethod
    def configure(self, settings: dict[str, object]) -> None:
        """Replace the settings."""

    @abstractmethod
    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        """Add documents with their vectors [m, columns] by space; documents with known ids are replaced.

        When it returns, searches find them, and a durable engine keeps them after a kill. All are checked before any is
        written; of documents with one id, the last is written.

        Raises:
            ArgumentError: vectors of other documents or spaces, or more terms than the engine stores.
            DataError: a document that the engine cannot store.
        """

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents, and return the number of those that existed."""

    @abstractmethod
    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id."""

    @abstractmethod
    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        """Return the stored vectors [m, columns] of documents; `ArgumentError` for an unknown id."""

    @abstractmethod
    def ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents, in any order."""

    @abstractmethod
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

        Options of `matching` are for engines that declare them.

        Raises:
            ArgumentError: an option that the engine does not declare, unknown space, k out of range, or more terms in a
                query than the engine takes.
            VectorsError: the queries have another number of columns.
        """

    @abstractmethod
    def optimize(self) -> None:
        """Tidy up after changes; an engine that is filled once makes its index."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the store; afterwards it can only be closed."""

    @abstractmethod
    def close(self) -> None:
        """Release connections, files and memory."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def nbytes(self) -> int | None:
        """Size in bytes, None if the engine does not report it."""

    def settings_now(self) -> Mapping[str, Any]:
        """Return the settings as they are stored, which on a server another process may have changed."""
        return self.settings

    def version(self) -> object:
        """Return a token of the documents, which differs after each change by any process.

        None while they change, and after a kill in a change: what is computed from them then may not be kept.
        """
        return self._changes  # no other process changes a folder that is open

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Give the documents another version at the end of the block."""
        try:
            yield
        finally:
            self._changes += 1

    def replace_vectors(self, ids: Sequence[str], space: Space, vectors: Vectors) -> None:
        """Replace the vectors [m, columns] of documents in one space; `ArgumentError` for an unknown id."""
        kept = {name: self.vectors(ids, name) for name in self.spaces}
        found = [document for document in self.documents(ids) if document is not None]
        self.upsert(found, kept | {space: vectors})

    def document_frequencies(self) -> np.ndarray:
        """Count the documents that have each term, int64 [v], by reading all sparse vectors."""
        counts, ids = np.zeros(self.spaces["sparse"], dtype=np.int64), self.ids()
        while some := list(islice(ids, self.about.part)):
            counts += np.bincount(csr_array(self.vectors(some)).indices, minlength=len(counts))
        return counts

    def count_terms(self, columns: np.ndarray, space: Space = "sparse") -> tuple[np.ndarray, int]:
        """Count the documents that have each term, int64 [t], and all documents; of an engine on a server."""
        raise NotImplementedError

    def count(self, filter: Filter) -> int:
        """Count the documents that pass the filter; of an engine with filters that changes."""
        raise NotImplementedError

    @classmethod
    def parse_options(cls, options: str | Mapping[str, object] | None, *, opening: bool = False) -> dict[str, object]:
        """Return the engine's own options, checked, from a mapping or text such as "weight_bits=8".

        They are those of the making of a store, or of an `opening`.
        Raises `ArgumentError` for an unknown option or a value that the option does not take.
        """
        if isinstance(options, str):
            pairs = [part.partition("=") for part in options.split(",")]
            options = {name.strip(): _value(value.strip()) for name, _, value in pairs}
        record = cls.about.opening if opening else cls.about.options
        known = [field.name for field in fields(record)]
        for name in options or {}:
            if name not in known:
                has = f"has {', '.join(known)}" if known else "has none" + " of a search" * opening
                raise ArgumentError(f"engine_options: no option {name!r}: the {cls.about.engine} engine {has}")
        return dict(vars(record(**options or {})))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r}, {len(self):,} documents)"

    def _refuse(self, document: Document) -> str | None:
        """Return the reason for which the engine cannot store a document."""
        return None

    def _checked(
        self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]
    ) -> tuple[list[Document], dict[Space, Vectors]]:
        if set(vectors) != set(self.spaces):
            raise ArgumentError(
                f"vectors of {', '.join(vectors) or 'no space'}; the store has {', '.join(self.spaces)}"
            )
        for document in documents:
            try:
                json.dumps(dict(document.fields), allow_nan=False).encode()
                wrong = self._refuse(document) if document.id else "an empty id"
            except (TypeError, ValueError) as error:
                wrong = f"its fields are not JSON: {error}"
            if wrong:
                raise DataError(f"document {document.id!r}: {wrong}")
        last = list({document.id: row for row, document in enumerate(documents)}.values())
        kept: dict[Space, Vectors] = {}
        for space, columns in self.spaces.items():
            matrix = _fitting(vectors[space], columns, space)
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

    def _check_lengths(self, matrix: csr_array, documents: Sequence[Document]) -> None:
        lengths, most = np.diff(matrix.indptr), self.about.max_nonzeros
        if most is not None and lengths.max(initial=0) > most:
            row = int(lengths.argmax())
            limit = f"{lengths[row]:,} terms, {self.about.engine} stores {most:,}: encode with a lower max_terms"
            raise ArgumentError(f"document {documents[row].id!r}: {limit}")


class RowStore(Store):
    """A store that writes, reads and searches documents in pages; an engine adds the primitives."""

    page: int = 1_000  # documents, or queries, of one request
    max_hits: ClassVar[int | None] = None
    ties_by_id: ClassVar[bool] = True  # the engine orders equal scores by id itself

    @abstractmethod
    def _write(self, documents: Sequence[Document], rows: Sequence[Sequence[Row]]) -> None:
        """Add or replace a page of documents, with a row for each space."""

    @abstractmethod
    def _delete(self, ids: Sequence[str]) -> int:
        """Delete documents, whose ids are all different, and return the number of those that existed."""

    @abstractmethod
    def _documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return the documents that exist, by id."""

    @abstractmethod
    def _rows(self, ids: Sequence[str], space: Space) -> dict[str, Row]:
        """Return the vectors of the documents that exist, by id."""

    @abstractmethod
    def _query(self, rows: Sequence[Row], k: int, space: Space, filter: Filter | None) -> Iterator[Hits]:
        """Iterate over the k best documents of each query."""

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, Vectors]) -> None:
        documents, vectors = self._checked(documents, vectors)
        rows = list(zip(*(rows_of(vectors[space]) for space in self.spaces), strict=True))
        self._write_pages(list(zip(pages(documents, self.page), pages(rows, self.page), strict=True)))

    def _write_pages(self, parts: Sequence[tuple[Sequence[Document], Sequence[Sequence[Row]]]]) -> None:
        """Write pages of documents with their rows."""
        for documents, rows in parts:
            self._write(documents, rows)

    def delete(self, ids: Sequence[str]) -> int:
        return sum(self._delete(some) for some in pages(list(dict.fromkeys(ids)), self.page))

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        found = self._by_id(ids, self._documents)
        return [found.get(identifier) for identifier in ids]

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> Vectors:
        columns = self._columns(space)
        found = self._by_id(ids, lambda some: self._rows(some, space))
        if (missing := next((identifier for identifier in ids if identifier not in found), None)) is not None:
            raise ArgumentError(f"{self.place}: there is no document {missing!r}")
        return matrix_of([found[identifier] for identifier in ids], space, columns)

    def search(
        self,
        queries: Vectors,
        k: int = 10,
        *,
        space: Space = "sparse",
        filter: Filter | None = None,
        **matching: Unpack[Matching],
    ) -> Ranking:
        if name := next((name for name, value in matching.items() if value), None):
            raise ArgumentError(f"{name}: not supported by the {self.about.engine} engine")
        rows = list(rows_of(self._checked_queries(queries, k, space)))
        hits = [hits for some in pages(rows, self.page) for hits in self._best(some, k, space, filter)]
        return ranking_of(hits, k)

    def _best(self, rows: Sequence[Row], k: int, space: Space, filter: Filter | None) -> Iterator[Hits]:
        """Iterate over the k best documents of each query, with all that score as much as the last of them."""
        most = self.max_hits or UNBOUNDED
        depth = k if self.ties_by_id else min(k + 1, most)
        for row, hits in zip(rows, self._query(rows, depth, space, filter), strict=True):
            wanted = depth
            while k < wanted == len(hits) and hits[-1][1] == hits[k - 1][1] and wanted < most:
                wanted = min(4 * wanted, most)
                [hits] = self._query([row], wanted, space, filter)
            yield hits

    def _by_id(self, ids: Sequence[str], read: Callable[[Sequence[str]], dict[str, T]]) -> dict[str, T]:
        found: dict[str, T] = {}
        for some in pages(list(dict.fromkeys(ids)), self.page):
            found |= read(some)
        return found

    def _columns(self, space: Space) -> int:
        if space not in self.spaces:
            raise ArgumentError(f"space must be one of {', '.join(self.spaces)}, not {space!r}")
        return self.spaces[space]

    def _checked_queries(self, queries: Vectors, k: int, space: Space) -> Vectors:
        columns, about = self._columns(space), self.about
        if k < 1 or (self.max_hits is not None and k > self.max_hits):
            most = f" and at most {self.max_hits:,} in {about.engine}" if self.max_hits else ""
            raise ArgumentError(f"k must be at least 1{most}, not {k}")
        queries = _fitting(queries, columns, "queries")
        if queries.ndim != 2 or queries.shape[1] != (columns or UNBOUNDED):
            raise VectorsError(f"the queries have {queries.shape[-1]} columns, the documents {columns}")
        if not isinstance(queries, np.ndarray) and about.max_terms is not None:
            lengths = np.diff(queries.indptr)
            if lengths.max(initial=0) > about.max_terms:
                limit = (
                    f"{lengths.max():,} terms, {about.engine} takes {about.max_terms:,}: search with lower max_terms"
                )
                raise ArgumentError(f"query {int(lengths.argmax()) + 1}: {limit}")
        return queries


class StoreRecord(NamedTuple):
    """The file `store.json` in the folder of a store; `files` are checksums that the engine keeps."""

    engine: str
    spaces: dict[Space, int]
    settings: dict[str, object]
    files: dict[str, int]
    format: int


class FolderStore(Store):
    """A store in a local folder."""

    folder: Path

    def __init__(self, folder: Path, spaces: dict[Space, int], settings: dict[str, object]) -> None:
        self.folder, self.place, self.spaces, self.settings = folder, str(folder), spaces, settings
        self.files: dict[str, int] = {}

    @classmethod
    def read(cls, folder: Path) -> StoreRecord:
        """Read the record of a folder; `VectorsError` if it is missing, damaged or of another engine."""
        if not (folder / STORE).is_file():
            unfinished = folder.name and partial_of(folder).exists()
            hint = "it is unfinished: repeat the command that began it" if unfinished else "make one with vocable index"
            raise VectorsError(f"{folder}: there is no index here ({hint})")
        record = read_record(folder / STORE, StoreRecord)
        if record.format != FORMAT:
            raise VectorsError(f"{folder}: stored in format {record.format}; this version reads format {FORMAT}")
        if record.engine != cls.about.engine:
            raise VectorsError(f"{folder} is of the {record.engine} engine: open it by its folder alone")
        return record

    def configure(self, settings: dict[str, object]) -> None:
        write_record(self.folder / STORE, StoreRecord(self.about.engine, self.spaces, settings, self.files, FORMAT))
        self.settings = settings

    def drop(self) -> None:
        self.close()
        shutil.rmtree(self.folder)

    @property
    def nbytes(self) -> int:
        """Size of the files on disk."""
        return sum(path.stat().st_blocks * 512 for path in self.folder.rglob("*") if path.is_file())


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def key_of(identifier: str) -> str:
    """Return a key of 32 hexadecimal digits, which is also a UUID, for engines that do not take any text as a key."""
    return blake2b(identifier.encode(), digest_size=16).hexdigest()


def _fitting(matrix: Vectors, columns: int, name: str) -> Vectors:
    """Return the matrix as float32; in a space of any number of columns, with the largest number."""
    if isinstance(matrix, np.ndarray):
        return np.asarray(matrix, dtype=np.float32)
    matrix = as_vectors(matrix, name)
    if columns or matrix.shape[1] >= UNBOUNDED:
        return matrix
    return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], UNBOUNDED))


def pages(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split the items into pages of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def rows_of(matrix: Vectors) -> Iterator[Row]:
    """Iterate over the rows: (columns int32, weights float32) of a sparse matrix, arrays of a dense one."""
    if isinstance(matrix, np.ndarray):
        yield from matrix
        return
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        yield matrix.indices[start:end], matrix.data[start:end]


def matrix_of(rows: Sequence[Row], space: Space, columns: int) -> Vectors:
    """Return the matrix [m, columns] of rows as `rows_of` yields them, their columns in any order."""
    if space == "dense":
        return np.array(rows, dtype=np.float32).reshape(len(rows), columns)
    indptr = np.cumsum([0, *(len(indices) for indices, _ in rows)]).astype(np.int32)
    indices = np.array([index for some, _ in rows for index in some], dtype=np.int32)
    weights = np.array([weight for _, some in rows for weight in some], dtype=np.float32)
    matrix: csr_array = csr_array((weights, indices, indptr), shape=(len(rows), columns or UNBOUNDED))
    matrix.sort_indices()
    return matrix
