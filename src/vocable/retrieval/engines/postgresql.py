"""PostgreSQL with pgvector: documents and vectors in one table, searched exactly by a sequential scan.

The address is a URI of libpq with one parameter more, `table` ("vocable" unless said):

    postgresql://user@host:5432/database?table=name

The table has the columns id, title, text, fields (jsonb), ranges (jsonb: the lowest and highest number and time of each
field, for filters) and one for each space, and can be joined with others; its comment holds the settings. What the
address leaves out comes from libpq's own places: PGHOST, PGUSER, PGPASSWORD, a service, ~/.pgpass.

Letters: m documents, q queries, k results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document
from vocable.errors import ArgumentError, VectorsError, require_extra
from vocable.retrieval.engines.base import (
    EXACT,
    CommonStore,
    asked,
    bound_of,
    checked,
    checked_queries,
    facts_of,
    matrix_of,
    rows_of,
    translated,
)
from vocable.retrieval.filters import Comparison, Filter
from vocable.retrieval.protocols import About, Space
from vocable.retrieval.ranking import Ranking, ranking_of
from vocable.tables import masked

COLUMNS = ("id", "title", "text", "fields", "ranges")
PAGE = 10_000  # ids that are read at once
LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer names without a word
MOST_COLUMNS, MOST_DIMENSIONS = 1_000_000_000, 16_000  # of sparsevec and of vector


class PostgreSQL(CommonStore):
    """A table of documents."""

    about = About(
        "postgresql",
        exact=True,
        max_nonzeros=16_000,
        max_terms=16_000,
        durable=True,
        filters=True,
        spaces=("sparse", "bm25", "dense"),
    )

    def __init__(self, address: str) -> None:
        psycopg = require_extra("psycopg", "postgresql")
        self._sql = psycopg.sql
        parts = urlsplit(address)
        given = parse_qsl(parts.query, keep_blank_values=True)
        self.name = dict(given).get("table", "vocable")
        if not 0 < len(self.name.encode()) <= LONGEST_NAME or "\0" in self.name:
            raise ArgumentError(f"{masked(address)}: the name of a table has 1 to {LONGEST_NAME} bytes")
        self._place, self._kinds = masked(address), (psycopg.Error,)
        self._table = psycopg.sql.Identifier(self.name)
        query = urlencode([pair for pair in given if pair[0] != "table"])
        with self._errors():
            self._connection = psycopg.connect(urlunsplit(parts._replace(query=query)), autocommit=True)

    @classmethod
    def create(cls, address: str, spaces: Mapping[Space, int], settings: dict[str, Any]) -> Self:
        """As `Store.create`; the extension pgvector is made where it is not, which needs the right to do so."""
        store = cls(address)
        with store._closed_on_error():
            for space, columns in spaces.items():
                if columns > (MOST_DIMENSIONS if space == "dense" else MOST_COLUMNS):
                    raise ArgumentError(f"{space}: {columns:,} columns, more than PostgreSQL stores")
            kinds = [
                f"vector({columns})" if space == "dense" else f"sparsevec({columns or MOST_COLUMNS})"
                for space, columns in spaces.items()
            ]
            identifier, plain = store._sql.Identifier, store._sql.SQL
            vectors = [
                plain(", {} {} NOT NULL").format(identifier(s), plain(k)) for s, k in zip(spaces, kinds, strict=True)
            ]
            with store._errors():
                if store._exists():
                    raise ArgumentError(f"{store._place}: there is a table {store.name!r} already: name another")
                store._execute("CREATE EXTENSION IF NOT EXISTS vector")
                with store._connection.transaction():
                    # Ids in the order of their characters, as Python has it: ties are broken by the database.
                    store._execute(
                        'CREATE TABLE {table} (id text COLLATE "C" PRIMARY KEY, title text NOT NULL, '
                        "text text NOT NULL, fields jsonb NOT NULL, ranges jsonb NOT NULL{vectors})",
                        vectors=store._sql.Composed(vectors),
                    )
                    store._spaces = dict(spaces)
                    store.configure(settings)
            return store

    @classmethod
    def open(cls, address: str) -> Self:
        """As `Store.open`."""
        store = cls(address)
        with store._closed_on_error():
            with store._errors():
                if not store._exists():
                    raise VectorsError(f"{store._place}: there is no table {store.name!r} here")
                [(comment,)] = store._execute("SELECT obj_description({name}::regclass)", name=store._literal())
            store._take(lambda: json.loads(comment)["vocable"], f"the table {store.name!r}")
            return store

    def configure(self, settings: dict[str, Any]) -> None:
        """As `Store.configure`: they are the table's comment."""
        comment = json.dumps({"vocable": {"spaces": self._spaces, "settings": settings}})
        with self._errors():
            self._execute("COMMENT ON TABLE {table} IS {comment}", comment=self._sql.Literal(comment))
        self.settings = settings

    def upsert(self, documents: Sequence[Document], vectors: Mapping[Space, csr_array | np.ndarray]) -> None:
        """As `Store.upsert`, in one transaction."""
        documents, vectors = checked(self.about, self._spaces, documents, vectors, _refused)
        names = [*COLUMNS, *self._spaces]
        rows = zip(
            (
                (d.id, d.title, d.text, json.dumps(_digits(d.fields)), json.dumps(facts_of(d.fields).order))
                for d in documents
            ),
            zip(*(_written(vectors[space]) for space in self._spaces), strict=True),
            strict=True,
        )
        joined, identifiers = self._sql.SQL(", ").join, [self._sql.Identifier(name) for name in names]
        statement = self._sql.SQL(
            "INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT (id) DO UPDATE SET {replaced}"
        ).format(
            table=self._table,
            names=joined(identifiers),
            values=joined([self._sql.SQL(f"%s{self._cast(name)}") for name in names]),
            replaced=joined([self._sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in identifiers[1:]]),
        )
        with self._errors(), self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(statement, [(*first, *second) for first, second in rows])

    def delete(self, ids: Sequence[str]) -> int:
        """As `Store.delete`."""
        with self._errors():
            return len(self._execute("DELETE FROM {table} WHERE id = ANY(%s) RETURNING id", [_possible(ids)]))

    def documents(self, ids: Sequence[str]) -> list[Document | None]:
        """As `Store.documents`."""
        with self._errors():
            rows = self._execute("SELECT id, text, title, fields FROM {table} WHERE id = ANY(%s)", [_possible(ids)])
        found = {row[0]: Document(*row) for row in rows}
        return [found.get(identifier) for identifier in ids]

    def ids(self) -> Iterator[str]:
        """As `Store.ids`, in their order."""
        rows: Sequence[Any] = [("",)]
        while rows:
            with self._errors():
                rows = self._execute("SELECT id FROM {table} WHERE id > %s ORDER BY id LIMIT %s", [rows[-1][0], PAGE])
            yield from (row[0] for row in rows)

    def vectors(self, ids: Sequence[str], space: Space = "sparse") -> csr_array | np.ndarray:
        """As `Store.vectors`."""
        columns, column = self._columns(space), self._sql.Identifier(space)
        with self._errors():
            rows = self._execute(
                "SELECT id, {column}::text FROM {table} WHERE id = ANY(%s)", [_possible(ids)], column=column
            )
        found = {row[0]: row[1] for row in rows}
        self._missing(ids, found)
        read = [_read(found[identifier]) for identifier in ids]
        return matrix_of(read, space, columns)

    def search(
        self, queries: csr_array | np.ndarray, k: int = 10, *, space: Space = "sparse", filter: Filter | None = None
    ) -> Ranking:
        """As `Store.search`."""
        queries = checked_queries(self.about, self._spaces, queries, k, space)
        condition, values = ("true", []) if filter is None else _condition(filter)
        hits = []
        with self._errors():
            for query in _written(queries):
                # The inner query keeps each product from being computed for every place where it is used.
                rows = self._execute(
                    "SELECT id, product FROM "
                    f"(SELECT id, {{column}} <#> %s{self._cast(space)} AS product FROM {{table}} "
                    f"WHERE {condition} OFFSET 0) AS scored WHERE product < 0 ORDER BY product, id LIMIT %s",
                    [query, *values, k],
                    column=self._sql.Identifier(space),
                )
                hits.append([(row[0], -row[1]) for row in rows])
        return ranking_of(hits, k)

    def optimize(self) -> None:
        """Give back the space of what was replaced, and renew the statistics."""
        with self._errors():
            self._execute("VACUUM (ANALYZE) {table}")

    def close(self) -> None:
        """As `Store.close`."""
        self._connection.close()

    def drop(self) -> None:
        """Remove the table."""
        with self._errors():
            self._execute("DROP TABLE {table}")

    def __len__(self) -> int:
        with self._errors():
            return int(self._execute("SELECT count(*) FROM {table}")[0][0])

    @property
    def nbytes(self) -> int:
        """The bytes of the table with its indexes and long values."""
        with self._errors():
            return int(self._execute("SELECT pg_total_relation_size({name}::regclass)", name=self._literal())[0][0])

    def _execute(self, statement: str, values: Sequence[Any] = (), **parts: Any) -> list[Any]:
        """The rows that a statement gives: {parts} are composed by the driver, values travel beside it."""
        query = self._sql.SQL(statement).format(table=self._table, **parts)
        with self._connection.cursor() as cursor:
            cursor.execute(query, values or None)
            return cursor.fetchall() if cursor.description else []

    def _exists(self) -> bool:
        return bool(self._execute("SELECT to_regclass({name}) IS NOT NULL", name=self._literal())[0][0])

    def _literal(self) -> Any:
        """The table's name as a text that a cast to regclass takes."""
        return self._sql.Literal('"' + self.name.replace('"', '""') + '"')

    def _cast(self, column: str) -> str:
        """What a value of a column is said to be."""
        return "" if column not in self._spaces else "::vector" if column == "dense" else "::sparsevec"


def _refused(document: Document) -> str | None:
    fields = json.dumps(dict(document.fields))
    null = any("\0" in text for text in document[:3]) or re.search(r"(?<!\\)(\\\\)*\\u0000", fields)
    return "PostgreSQL stores no character NUL" if null else None


def _digits(value: Any) -> Any:
    """The value with all digits of large numbers: jsonb keeps decimal ones, and gives 1e23 back as another number."""
    if isinstance(value, Mapping):
        return {name: _digits(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_digits(inner) for inner in value]
    return int(value) if isinstance(value, float) and abs(value) >= EXACT else value


def _possible(ids: Sequence[str]) -> list[str]:
    return [identifier for identifier in ids if "\0" not in identifier]


def _written(matrix: csr_array | np.ndarray) -> Iterator[str]:
    """The rows in pgvector's form, which counts columns from 1."""
    if isinstance(matrix, np.ndarray):
        yield from (json.dumps(row.tolist()) for row in matrix)
        return
    for columns, weights in rows_of(matrix):
        pairs = zip((columns + 1).tolist(), weights.tolist(), strict=True)
        yield f"{{{','.join(f'{column}:{weight}' for column, weight in pairs)}}}/{min(matrix.shape[1], MOST_COLUMNS)}"


def _read(text: str) -> Any:
    """The row that a text in pgvector's form is."""
    if text.startswith("["):
        return json.loads(text)
    pairs = [pair.split(":") for pair in text[1 : text.index("}")].split(",") if pair]
    return [int(column) - 1 for column, _ in pairs], [float(weight) for _, weight in pairs]


def _condition(filter: Filter) -> tuple[str, list[Any]]:
    """The filter as a condition of SQL, and the values of its placeholders."""

    def leaf(comparison: Comparison) -> tuple[str, list[Any]]:
        if comparison.operator == "=":
            names = comparison.field.split(".")
            # Of an array, @> asks whether one of its elements is this value.
            found = f"fields{' -> %s::text' * len(names)}"
            return f"coalesce(({found}) @> %s::jsonb, false)", [*names, json.dumps(_digits(comparison.value))]
        condition = f"coalesce((ranges ->> %s)::float8 {comparison.operator} %s::float8, false)"
        return condition, [asked(comparison), bound_of(comparison)]

    def joined(word: str) -> Callable[[list[tuple[str, list[Any]]]], tuple[str, list[Any]]]:
        return lambda parts: (
            "(" + f" {word} ".join(condition for condition, _ in parts) + ")",
            [value for _, values in parts for value in values],
        )

    return translated(filter, leaf, joined("AND"), joined("OR"), lambda part: (f"NOT {part[0]}", part[1]))


ENGINE = PostgreSQL
