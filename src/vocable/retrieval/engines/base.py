"""What stores have in common: limits that are checked before anything is written, fields as facts, and addresses.

Facts are what a filter asks of a document's fields, in a form that every engine compares in the same way: a digest for
each value that a field equals, and the lowest and highest of its numbers and times, which are all that an order needs.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.errors import ArgumentError, DataError, VectorsError
from vocable.retrieval.filters import Comparison, Every, Filter, Not, shown, time_of
from vocable.retrieval.protocols import About, Space, Store
from vocable.tables import masked
from vocable.vectors import as_vectors

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LARGEST = float(np.finfo(np.float64).max)
LONGEST_MESSAGE = 300  # characters
UNBOUNDED = 2**31 - 1  # columns of a space that was made with 0: words that get numbers as they come
EXACT = 2**53  # whole numbers up to here are exact in float64


class Facts(NamedTuple):
    """What filters ask of one document: digests of (field, value), and a number for the digest of each bound."""

    equal: list[str]
    order: dict[str, float]


def facts_of(fields: Mapping[str, Any]) -> Facts:
    """The facts that a document's fields are.

    >>> tags, year = facts_of({"tags": ["a", "b"]}), facts_of({"year": 2021.0})
    >>> asked(Comparison("tags", "=", "b")) in tags.equal, asked(Comparison("year", "=", 2021)) in year.equal
    (True, True)
    >>> year.order[asked(Comparison("year", ">=", 2020))]
    2021.0
    """
    equal: dict[str, None] = {}
    order: dict[str, float] = {}
    for path, value in _scalars(fields, ()):
        equal[_digest(path, _plain(value))] = None
        number = _number(value)
        if number is not None:
            kind = "time" if isinstance(value, str) else "number"
            for bound, better in (("low", min), ("high", max)):
                key = _digest(path, kind, bound)
                order[key] = better(order.get(key, number), number)
    return Facts(list(equal), order)


def asked(comparison: Comparison) -> str:
    """The digest that a comparison asks for: in `equal` for "=", in `order` for the others."""
    path, value = tuple(comparison.field.split(".")), comparison.value
    if comparison.operator == "=":
        return _digest(path, _plain(value))
    return _digest(
        path, "time" if isinstance(value, str) else "number", "low" if "<" in comparison.operator else "high"
    )


def bound_of(comparison: Comparison) -> float:
    """The number that an order compares with; `ArgumentError` if it is none that float64 tells from its neighbours."""
    number, value = _number(comparison.value), comparison.value
    exact = number is not None and (isinstance(value, str) or abs(value) < EXACT)
    if number is None or not exact:
        said = shown(f"{comparison.field} {comparison.operator} {value}")
        raise ArgumentError(f"filter: {said}: numbers are ordered below 2**53")
    return number


def translated(
    filter: Filter,
    leaf: Callable[[Comparison], T],
    every: Callable[[list[T]], T],
    some: Callable[[list[T]], T],
    negated: Callable[[T], T],
) -> T:
    """A filter in an engine's own language, put together by these functions."""
    if isinstance(filter, Comparison):
        return leaf(filter)
    if isinstance(filter, Not):
        return negated(translated(filter.part, leaf, every, some, negated))
    parts = [translated(part, leaf, every, some, negated) for part in filter.parts]
    return (every if isinstance(filter, Every) else some)(parts)


def _scalars(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value that a comparison can meet, with the names that lead to it."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if "." not in name:  # which no filter can name
                yield from _scalars(inner, (*path, name))
    elif path:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str | int | float):
                yield path, one


def _plain(value: Any) -> Any:
    """The value such that equal ones have one form in JSON: 1 and 1.0, but not true and 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> float | None:
    """The number that a value is ordered by: its own, or the microseconds from 1970 to a time; None if it has none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        time = time_of(value)
        return None if time is None else float((time - EPOCH) // timedelta(microseconds=1))
    return float(max(-LARGEST, min(LARGEST, value)))


def _digest(*parts: Any) -> str:
    return blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()


class CommonStore(Store):
    """What the stores of servers have in common."""

    _place: str  # the address without its password, for messages
    _spaces: dict[Space, int]
    _kinds: tuple[type[Exception], ...]  # of the driver's errors

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place!r}, {len(self):,} documents)"

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        """Close a store that cannot be made or opened."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the driver's errors into a `VectorsError` that names the place."""
        try:
            yield
        except self._kinds as error:
            message = masked(" ".join(str(error).split()))[:LONGEST_MESSAGE]
            raise VectorsError(f"{self._place}: {message or type(error).__name__}") from error

    def _take(self, stored: Callable[[], Mapping[str, Any]], what: str) -> None:
        """Take the spaces and settings that are stored with the documents."""
        try:
            found = stored()
            self._spaces, self.settings = dict(found["spaces"]), dict(found["settings"])
        except (KeyError, TypeError, ValueError) as error:
            raise VectorsError(f"{self._place}: {what} is not one that vocable made") from error

    def _columns(self, space: Space) -> int:
        if space not in self._spaces:
            raise ArgumentError(f"space must be one of {', '.join(self._spaces)}, not {space!r}")
        return self._spaces[space]

    def _missing(self, ids: Sequence[str], found: Container[str]) -> None:
        """Raise `ArgumentError` for an id that is not found."""
        for identifier in ids:
            if identifier not in found:
                raise ArgumentError(f"{self._place}: there is no document {identifier!r}")

    def replace_vectors(self, ids: Sequence[str], space: Space, vectors: csr_array | np.ndarray) -> None:
        """As `Store.replace_vectors`, by writing the documents anew."""
        self._columns(space)
        there = [document for document in self.documents(ids) if document is not None]
        self._missing(ids, {document.id for document in there})
        kept = {name: self.vectors(ids, name) for name in self._spaces if name != space}
        self.upsert(there, kept | {space: vectors})


def key_of(identifier: str) -> str:
    """A key for engines that do not take any text as one: 32 hexadecimal digits, which are a UUID, too."""
    return blake2b(identifier.encode(), digest_size=16).hexdigest()


def beyond_64_bits(value: Any) -> bool:
    """Whether fields hold a whole number that JSON can, but engines round."""
    if isinstance(value, Mapping | list):
        return any(map(beyond_64_bits, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def refused_beyond_64_bits(document: Document) -> str | None:
    """What Qdrant has against a document."""
    return "Qdrant rounds whole numbers beyond 64 bits" if beyond_64_bits(document.fields) else None


def checked(
    about: About,
    spaces: Mapping[Space, int],
    documents: Sequence[Document],
    vectors: Mapping[Space, csr_array | np.ndarray],
    refuse: Callable[[Document], str | None] = lambda document: None,
) -> tuple[list[Document], dict[Space, csr_array | np.ndarray]]:
    """Documents and their vectors [m, columns] as they can be written; of those with one id, the last.

    `refuse` says what an engine has against a document.

    Raises:
        ArgumentError: the vectors are not of these documents and spaces, or a document has more terms than the engine
            stores.
        DataError: a document that the engine cannot store.
    """
    if set(vectors) != set(spaces):
        raise ArgumentError(
            f"vectors are given in {', '.join(vectors) or 'no space'}; the store has {', '.join(spaces)}"
        )
    for document in documents:
        try:
            json.dumps(dict(document.fields), allow_nan=False).encode()
            wrong = refuse(document) if document.id else "an empty id"
        except (TypeError, ValueError) as error:
            wrong = f"its fields are not JSON: {error}"
        if wrong:
            raise DataError(f"document {document.id!r}: {wrong}")
    last = list({document.id: row for row, document in enumerate(documents)}.values())
    kept: dict[Space, csr_array | np.ndarray] = {}
    for space, columns in spaces.items():
        given = vectors[space]
        matrix = _fitting(given, columns, space)
        wanted = (len(documents), columns or UNBOUNDED)
        if (space == "dense") != isinstance(matrix, np.ndarray) or matrix.shape != wanted:
            shape = f"{len(documents)} documents and {columns or 'any'} columns"
            raise ArgumentError(f"{space}: the vectors are {type(matrix).__name__} {matrix.shape}, expected {shape}")
        if isinstance(matrix, np.ndarray):
            if not np.isfinite(matrix).all():
                raise ArgumentError(f"{space}: weights must be finite")
        elif about.max_nonzeros is not None and (lengths := np.diff(matrix.indptr)).max(initial=0) > about.max_nonzeros:
            row = int(lengths.argmax())
            limit = (
                f"{lengths[row]:,} terms, {about.engine} stores {about.max_nonzeros:,}: encode with a lower max_terms"
            )
            raise ArgumentError(f"document {documents[row].id!r}: {limit}")
        kept[space] = matrix if len(last) == len(documents) else matrix[last]
    return [documents[row] for row in last], kept


def _fitting(matrix: csr_array | np.ndarray, columns: int, name: str) -> csr_array | np.ndarray:
    """The matrix as float32, of a space without a number of columns as wide as all of that space."""
    if isinstance(matrix, np.ndarray):
        return np.asarray(matrix, dtype=np.float32)
    matrix = as_vectors(matrix, name)
    if columns or matrix.shape[1] >= UNBOUNDED:
        return matrix
    return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], UNBOUNDED))


def checked_queries(
    about: About,
    spaces: Mapping[Space, int],
    queries: csr_array | np.ndarray,
    k: int,
    space: Space,
    most: int | None = None,
) -> csr_array | np.ndarray:
    """Queries [q, columns] as they can be searched with; `most` is the largest k that the engine takes.

    Raises:
        ArgumentError: no such space, k out of range, or a query has more terms than the engine takes.
        VectorsError: the queries have another number of columns.
    """
    if space not in spaces:
        raise ArgumentError(f"space must be one of {', '.join(spaces)}, not {space!r}")
    if k < 1 or (most is not None and k > most):
        raise ArgumentError(
            f"k must be at least 1{f' and at most {most:,} in {about.engine}' if most else ''}, not {k}"
        )
    queries = _fitting(queries, spaces[space], "queries")
    if queries.ndim != 2 or queries.shape[1] != (spaces[space] or UNBOUNDED):
        raise VectorsError(f"the queries have {queries.shape[-1]} columns, the documents {spaces[space]}")
    if not isinstance(queries, np.ndarray) and about.max_terms is not None:
        lengths = np.diff(queries.indptr)
        if lengths.max(initial=0) > about.max_terms:
            limit = f"{lengths.max():,} terms, {about.engine} takes {about.max_terms:,}: search with a lower max_terms"
            raise ArgumentError(f"query {int(lengths.argmax()) + 1}: {limit}")
    return queries


def parts_of(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, so many at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))


def rows_of(matrix: csr_array | np.ndarray) -> Iterator[Any]:
    """The rows: of sparse ones (columns int32, weights float32), of dense ones the vector."""
    if isinstance(matrix, np.ndarray):
        yield from matrix
        return
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        yield matrix.indices[start:end], matrix.data[start:end]


def matrix_of(rows: Sequence[Any], space: Space, columns: int) -> csr_array | np.ndarray:
    """The matrix [m, columns] of rows as `rows_of` gives them, in any order of the columns."""
    if space == "dense":
        return np.array(rows, dtype=np.float32).reshape(len(rows), columns)
    indptr = np.cumsum([0, *(len(indices) for indices, _ in rows)]).astype(np.int32)
    indices = np.array([index for some, _ in rows for index in some], dtype=np.int32)
    weights = np.array([weight for _, some in rows for weight in some], dtype=np.float32)
    matrix: csr_array = csr_array((weights, indices, indptr), shape=(len(rows), columns or UNBOUNDED))
    matrix.sort_indices()
    return matrix


class Server(NamedTuple):
    """Where a server is, and the name of what is asked there."""

    url: str
    name: str
    user: str | None
    password: str | None


def server_of(address: str, ports: Mapping[str, int]) -> Server:
    """The parts of the address http(s)://USER:PASSWORD@HOST:PORT/NAME; `ports` are those that need not be said.

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
