"""PostgreSQL with pgvector: documents and vectors in one table, searched exactly by a sequential scan.

The address is a libpq URI with the additional parameter `table` (default "vocable"):

    postgresql://user@host:5432/database?table=name

The table has the columns id, title, text, fields (jsonb), keys (jsonb, for filters: digests of values, and the lowest
and highest number and time of each field) and a column for each space. SQL can join it with other tables. The comment
of the table holds the settings. A second table, "NAME terms", counts all documents, and the documents that have each
term; each transaction changes both tables. Libpq completes the address from PGHOST, PGUSER, PGPASSWORD, a service and
~/.pgpass.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np

from vocable.core.tables import masked
from vocable.data import Document
from vocable.engines.aliases import AliasedStore
from vocable.engines.base import Hits, VectorRow, pages
from vocable.engines.filter_keys import filter_keys
from vocable.engines.filters import Filter
from vocable.engines.health import hanging_up
from vocable.engines.kept_counts import Asked, Counted
from vocable.engines.patience import LEAST_SECONDS, TIMEOUT, request
from vocable.engines.postgresql_values import all_digits, condition_of, possible, read_row, written
from vocable.engines.protocols import About, Space
from vocable.engines.row_store import RowQuery
from vocable.errors import ArgumentError, GoneError, VectorsError, require_extra
from vocable.options import Count

COLUMNS = ("id", "title", "text", "fields", "keys")
DEFAULT_TABLE = "vocable"
LONGEST_NAME = 63  # bytes; PostgreSQL silently truncates longer names
ALL_DOCUMENTS = "documents"  # the name of a space in the row that counts all documents
COUNTS_ENDING = " terms"  # the table that counts documents by term is named after the first table, with this ending
# Temporary SQLSTATEs: connection lost, too many connections, shutdown or crash or start, conflict of transactions.
PASSING_STATES = ("08", "53300", "57P01", "57P02", "57P03", "40001", "40P01")
CONNECTION_LIMITS = {
    "connect_timeout": 10,
    "tcp_user_timeout": TIMEOUT * 1000,
}  # seconds, and milliseconds
TERMS_ASKED = 1_000  # terms that are counted in one statement, which returns at most 1,664 columns
MOST_COLUMNS, MOST_DIMENSIONS = 1_000_000_000, 16_000  # largest sparsevec and vector

Statement: TypeAlias = tuple[Any, Sequence[object]]  # with the values of its placeholders


@dataclass(frozen=True)
class PostgreSQLOptions:
    """Options of PostgreSQL: `partitions` splits the table by a hash of the id, so that workers share a scan."""

    partitions: Count | None = None


class PostgreSQL(AliasedStore):
    """A table of documents; one transaction writes up to 10,000 documents."""

    about = About(
        "postgresql",
        exact=True,
        max_nonzeros=16_000,
        max_terms=16_000,
        durable=True,
        filters=True,
        matching=("minimum_match",),
        side_by_side=True,
        spaces=("sparse", "bm25", "dense"),
        options=PostgreSQLOptions,
    )
    page = 10_000
    kind = "table"
    pins = False  # a replacement removes the table with the name
    signed = True

    def __init__(self, address: str, *, new: bool = False) -> None:
        psycopg = require_extra("psycopg", "postgresql")
        self._driver, self._sql = psycopg, psycopg.sql
        parts = urlsplit(address)
        parameters = parse_qsl(parts.query, keep_blank_values=True)
        self.name = dict(parameters).get("table", DEFAULT_TABLE)
        if not 0 < len(self.name.encode()) <= LONGEST_NAME - len(COUNTS_ENDING) or "\0" in self.name:
            raise ArgumentError(
                f"{masked(address)}: the name of a table has 1 to {LONGEST_NAME - len(COUNTS_ENDING)} bytes"
            )
        self.place, self.driver_errors = masked(address), (psycopg.Error,)
        self._table = psycopg.sql.Identifier(self.name)
        query = urlencode([pair for pair in parameters if pair[0] != "table"])
        self._address = urlunsplit(parts._replace(query=query))
        self._limits = {name: limit for name, limit in CONNECTION_LIMITS.items() if name not in dict(parameters)}
        self._free = list[Any]()  # connections that no thread uses
        self._execute("SELECT 1")

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Give a connection to this thread alone; a lost connection is not used again."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._driver.connect(self._address, autocommit=True, **self._limits)
        try:
            seconds = inf if request().writing else max(LEAST_SECONDS[False], request().deadline - time.monotonic())
            with hanging_up(connection.fileno(), seconds):
                yield connection
        finally:
            if not connection.closed:
                self._free.append(connection)

    def _wait(self, error: Exception) -> float | None:
        if isinstance(error, self._driver.OperationalError):
            state = getattr(error, "sqlstate", None)
            lost = state is None and self.reached  # an error without a state means that there was no answer
            return 0.0 if lost or str(state).startswith(PASSING_STATES) else None
        return None

    def _refusal(self, error: Exception) -> VectorsError | None:
        if not isinstance(error, self._driver.errors.UndefinedTable):
            return None
        return GoneError(f"{self.place}: there is no {self.kind} {self.name!r} here: it was deleted")

    def _make(self, record: Mapping[str, object]) -> None:
        """Create the table, and the extension pgvector if it is missing, which takes a privilege."""
        columns = []
        for space, size in self.spaces.items():
            if size > (MOST_DIMENSIONS if space == "dense" else MOST_COLUMNS):
                raise ArgumentError(f"{space}: {size:,} columns, more than PostgreSQL stores")
            kind = f"vector({size})" if space == "dense" else f"sparsevec({size or MOST_COLUMNS})"
            columns.append(self._sql.SQL(", {} {} NOT NULL").format(self._sql.Identifier(space), self._sql.SQL(kind)))
        self._execute("CREATE EXTENSION IF NOT EXISTS vector")
        parts = self.options.partitions or 0
        if parts and len(self._part(parts - 1).encode()) > LONGEST_NAME:
            raise ArgumentError(f"{self.place}: the names of partitions would have more than {LONGEST_NAME} bytes")
        divided = "PARTITION OF {table} FOR VALUES WITH (MODULUS {parts}, REMAINDER {part})"
        # The statements are one transaction. The database breaks ties by id: the collation orders ids by code point, as
        # Python does.
        self._execute(
            'CREATE TABLE {table} (id text COLLATE "C" PRIMARY KEY, title text NOT NULL, '
            "text text NOT NULL, fields jsonb NOT NULL, keys jsonb NOT NULL{vectors})"
            + (" PARTITION BY HASH (id)" if parts else "")
            + "".join(f"; CREATE TABLE {{p{part}}} {divided.replace('{part}', str(part))}" for part in range(parts))
            + "; CREATE TABLE {terms} (space text, term int, df bigint NOT NULL, PRIMARY KEY (space, term))"
            + "; COMMENT ON TABLE {table} IS {comment}",
            vectors=self._sql.Composed(columns),
            parts=self._sql.Literal(parts),
            comment=self._comment(record),
            **{f"p{part}": self._sql.Identifier(self._part(part)) for part in range(parts)},
        )

    def _part(self, number: int) -> str:
        """Return the name of a partition."""
        return f"{self.name} {number}"

    def _exists(self) -> bool:
        return bool(self._execute("SELECT to_regclass({name}) IS NOT NULL", name=self._literal())[0][0])

    def _named(self, name: str) -> str | None:
        rows = self._rows_for("SELECT to_regclass(%s) IS NOT NULL", [self._quoted(name)])
        return name if rows[0][0] else None

    def _take_name(self, name: str) -> None:
        """Rename this table and its partitions in one transaction, which first removes the table with the name."""
        if self._named(self.name) is not None:  # otherwise an earlier attempt renamed it, and its answer was lost
            self._rename(name)
        self.name = name

    def _rename(self, name: str) -> None:
        both = self._sql.Identifier(name), self._sql.Identifier(name + COUNTS_ENDING)
        statements = self._sql.SQL("DROP TABLE IF EXISTS {}, {}").format(*both)
        renamed = [(self.name, name), (self.name + COUNTS_ENDING, name + COUNTS_ENDING)]
        renamed += [(f"{self.name} {part}", f"{name} {part}") for part in range(self.options.partitions or 0)]
        for pair in renamed:
            change = self._sql.SQL("; ALTER TABLE {} RENAME TO {}").format(*map(self._sql.Identifier, pair))
            statements += change
        self._rows_for(statements, ())

    @classmethod
    def numbered(cls, address: str, number: int) -> str:
        parts = urlsplit(address)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
        parameters["table"] = f"{parameters.get('table', DEFAULT_TABLE)}{cls.joint}{number}"
        return urlunsplit(parts._replace(query=urlencode(parameters)))

    def _read_record(self) -> Mapping[str, object]:
        [rows] = self._together([self._record_read()])
        return _record_in(rows)

    def _record_read(self) -> Statement:
        return self._composed("SELECT obj_description({name}::regclass)", name=self._literal()), ()

    def _write_record(self, record: Mapping[str, object]) -> None:
        self._execute("COMMENT ON TABLE {table} IS {comment}", comment=self._comment(record))

    def _comment(self, record: Mapping[str, object]) -> Any:
        return self._sql.Literal(json.dumps({"vocable": record}))

    def _refuse(self, document: Document) -> str | None:
        fields = json.dumps(dict(document.fields))
        null = any("\0" in text for text in document[:3]) or re.search(r"(?<!\\)(\\\\)*\\u0000", fields)
        return "PostgreSQL stores no character NUL" if null else None

    def _write(self, documents: Sequence[Document], rows: Sequence[Sequence[VectorRow]]) -> None:
        names = [*COLUMNS, *self.spaces]
        values = []
        for document, vectors in zip(documents, rows, strict=True):
            texts = [self._written(row, space) for space, row in zip(self.spaces, vectors, strict=True)]
            keys = json.dumps(filter_keys(document.fields)._asdict())
            fields = json.dumps(all_digits(document.fields))
            values.append((document.id, document.title, document.text, fields, keys, *texts))
        joined, identifiers = self._sql.SQL(", ").join, [self._sql.Identifier(name) for name in names]
        statement = self._sql.SQL(
            "INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT (id) DO UPDATE SET {replaced}"
        ).format(
            table=self._table,
            names=joined(identifiers),
            values=joined([self._sql.SQL(f"%s{self._cast(name)}") for name in names]),
            replaced=joined([self._sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in identifiers[1:]]),
        )
        added = {space: [row[number] for row in rows] for number, space in enumerate(self.spaces)}
        self._ask(self._insert, statement, values, [document.id for document in documents], added)

    def _insert(
        self,
        statement: Any,
        values: Sequence[Sequence[object]],
        ids: Sequence[str],
        added: Mapping[Space, list[VectorRow]],
    ) -> None:
        with self._counting() as cursor:
            removed = self._stored(cursor, "SELECT {columns} FROM {table} WHERE id = ANY(%s)", ids)
            cursor.executemany(statement, values)
            self._count(cursor, added, removed)

    def _delete(self, ids: Sequence[str]) -> int:
        def delete() -> int:
            with self._counting() as cursor:
                removed = self._stored(cursor, "DELETE FROM {table} WHERE id = ANY(%s) RETURNING {columns}", ids)
                self._count(cursor, {space: [] for space in self.spaces}, removed)
                return len(removed["sparse"])

        return int(self._ask(delete))

    @contextmanager
    def _counting(self) -> Iterator[Any]:
        """Return a cursor in a transaction; no other transaction changes the documents and counts meanwhile."""
        with self._connected() as connection, connection.transaction(), connection.cursor() as cursor:
            cursor.execute(self._composed("LOCK TABLE {terms} IN SHARE ROW EXCLUSIVE MODE"))
            yield cursor

    def _stored(self, cursor: Any, statement: str, ids: Sequence[str]) -> dict[Space, list[VectorRow]]:
        """Return the vectors of the documents that a statement returns, by space."""
        columns = [self._sql.SQL("{}::text").format(self._sql.Identifier(space)) for space in self.spaces]
        cursor.execute(self._composed(statement, columns=self._sql.SQL(", ").join(columns)), [possible(ids)])
        rows = cursor.fetchall()
        return {space: [read_row(row[number]) for row in rows] for number, space in enumerate(self.spaces)}

    def _count(
        self, cursor: Any, added: Mapping[Space, list[VectorRow]], removed: Mapping[Space, list[VectorRow]]
    ) -> None:
        """Change the counts, always in the same order, although only one transaction at a time does so."""
        changes = [(ALL_DOCUMENTS, 0, len(added["sparse"]) - len(removed["sparse"]))]
        for space in self.spaces:
            if space != "dense":
                counts = Counter(chain.from_iterable(map(int, row[0]) for row in added[space]))
                counts.subtract(Counter(chain.from_iterable(map(int, row[0]) for row in removed[space])))
                changes += [(space, column, change) for column, change in sorted(counts.items()) if change]
        cursor.execute(
            self._composed(
                "INSERT INTO {terms} AS kept SELECT * FROM unnest(%s::text[], %s::int[], %s::bigint[]) "
                "ON CONFLICT (space, term) DO UPDATE SET df = kept.df + EXCLUDED.df"
            ),
            [list(values) for values in zip(*changes, strict=True)],
        )

    def _count_terms(self, columns: Sequence[int], space: Space, filter: Filter | None) -> Counted:
        return self._count_all([Asked(columns, space, filter)])[0]

    def _count_all(self, asked: Sequence[Asked]) -> list[Counted]:
        statements = [self._counts_of(one) for one in asked]
        answers = iter(self._together([*chain.from_iterable(statements)]))
        return [_counted(one, [*islice(answers, len(own))]) for one, own in zip(asked, statements, strict=True)]

    def _counts_of(self, asked: Asked) -> list[Statement]:
        """Return the statements that count the documents that pass a filter, all and with each term."""
        columns, space, filter = asked
        if filter is None:
            counts = "SELECT space, term, df FROM {terms} WHERE (space = %s AND term = ANY(%s)) OR space = %s"
            return [(self._composed(counts), [space, list(columns), ALL_DOCUMENTS])]
        (condition, values), statements = condition_of(filter), list[Statement]()
        has_term = f"count(*) FILTER (WHERE {{column}} <#> %s{self._cast(space)} < 0)"
        for part in pages(columns, TERMS_ASKED) if columns else [()]:
            counts = f"SELECT {', '.join(['count(*)', *[has_term] * len(part)])} FROM {{table}} WHERE {condition}"
            terms = [self._written((np.array([term]), np.ones(1)), space) for term in part]
            statements.append((self._composed(counts, column=self._sql.Identifier(space)), [*terms, *values]))
        return statements

    def _documents(self, ids: Sequence[str]) -> dict[str, Document]:
        rows = self._execute("SELECT id, text, title, fields FROM {table} WHERE id = ANY(%s)", [possible(ids)])
        return {row[0]: Document(*row) for row in rows}

    def _rows(self, ids: Sequence[str], space: Space) -> dict[str, VectorRow]:
        rows = self._execute(
            "SELECT id, {column}::text FROM {table} WHERE id = ANY(%s)",
            [possible(ids)],
            column=self._sql.Identifier(space),
        )
        return {row[0]: read_row(row[1]) for row in rows}

    def ids(self) -> Iterator[str]:
        rows: Sequence[Any] = [("",)]
        while rows:
            last = [rows[-1][0], self.page]
            rows = self._execute("SELECT id FROM {table} WHERE id > %s ORDER BY id LIMIT %s", last)
            yield from (row[0] for row in rows)

    def _query(self, queries: Sequence[RowQuery]) -> Iterator[Hits]:
        # The record comes last: no replacement takes the name of a table that the transaction has read.
        *answers, record = self._together([*map(self._scan_of, queries), self._record_read()])
        if not self._has_model_of(_record_in(record)):
            raise self._replaced()
        return ([(identifier, -product) for identifier, product in hits] for hits in answers)

    def _scan_of(self, query: RowQuery) -> Statement:
        """Return the statement of a query."""
        row, k, space, filter, needed = query
        condition, values = ("true", []) if filter is None else condition_of(filter)
        given, shared = [self._written(row, space), *values], ""
        if needed:
            # A product with one term is negative if the document has it.
            has = f"({{column}} <#> %s{self._cast(space)} < 0)::int"
            shared = f" AND {' + '.join([has] * len(row[0]))} >= %s"
            ones = [self._written((row[0][[place]], np.ones(1)), space) for place in range(len(row[0]))]
            given += [*ones, needed]
        # Without the inner query, each use of a product would compute it again.
        scan = (
            "SELECT id, product FROM "
            f"(SELECT id, {{column}}, {{column}} <#> %s{self._cast(space)} AS product FROM {{table}} "
            f"WHERE {condition} OFFSET 0) AS scored WHERE product < 0{shared} ORDER BY product, id LIMIT %s"
        )
        return self._composed(scan, column=self._sql.Identifier(space)), [*given, k]

    def optimize(self) -> None:
        """Free the space of replaced documents, and update the planner's statistics."""
        self._execute("VACUUM (ANALYZE) {table}")
        self._execute("VACUUM (ANALYZE) {terms}")

    def close(self) -> None:
        while self._free:
            self._free.pop().close()

    def drop(self) -> None:
        self._execute("DROP TABLE {table}, {terms}")

    def __len__(self) -> int:
        return int(self._execute("SELECT count(*) FROM {table}")[0][0])

    def count(self, filter: Filter) -> int:
        condition, values = condition_of(filter)
        return int(self._execute(f"SELECT count(*) FROM {{table}} WHERE {condition}", values)[0][0])

    @property
    def nbytes(self) -> int:
        """Size of the table with its indexes and long values."""
        partitions = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree({name}::regclass)"
        statement = f"SELECT coalesce(({partitions}), pg_total_relation_size({{name}}::regclass))"
        return int(self._execute(statement, name=self._literal())[0][0])

    def _execute(self, statement: str, values: Sequence[object] = (), **parts: object) -> list[Any]:
        """Return the rows of a statement; the driver inserts {parts}, and sends the values separately."""
        return list(self._ask(self._rows_for, self._composed(statement, **parts), values) or ())

    def _together(self, statements: Sequence[Statement]) -> list[list[Any]]:
        """Return the rows of each statement; all are one transaction and one round trip."""

        def send() -> list[list[Any]]:
            with self._connected() as connection, connection.pipeline():
                cursors = [connection.execute(query, values or None) for query, values in statements]
                return [cursor.fetchall() for cursor in cursors]

        return list(self._ask(send))

    def _composed(self, statement: str, **parts: object) -> Any:
        """Return a statement with {parts} inserted; {table} and {terms} are the names of the tables."""
        terms = self._sql.Identifier(self.name + COUNTS_ENDING)
        return self._sql.SQL(statement).format(table=self._table, terms=terms, **parts)

    def _rows_for(self, query: Any, values: Sequence[object]) -> list[Any]:
        with self._connected() as connection:
            cursor = connection.execute(query, values or None)
            return cursor.fetchall() if cursor.description else []

    def _literal(self) -> Any:
        """Return the table's name as text, for a cast to regclass."""
        return self._sql.Literal(self._quoted(self.name))

    def _quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def _cast(self, column: str) -> str:
        return "" if column not in self.spaces else "::vector" if column == "dense" else "::sparsevec"

    def _written(self, row: VectorRow, space: Space) -> str:
        return written(row, self.spaces[space] or MOST_COLUMNS)


def _record_in(rows: Sequence[Sequence[str]]) -> Mapping[str, Any]:
    """Return the record in a table's comment."""
    [(comment,)] = rows
    return json.loads(comment)["vocable"]


def _counted(asked: Asked, answers: Sequence[Sequence[Any]]) -> Counted:
    """Return the counts in the rows of the statements that count."""
    columns, space, filter = asked
    if filter is None:
        counts = {(kind, column): df for kind, column, df in chain.from_iterable(answers)}
        return {column: counts.get((space, column), 0) for column in columns}, counts.get((ALL_DOCUMENTS, 0), 0)
    numbers = chain.from_iterable(row[0][1:] for row in answers)
    return dict(zip(columns, numbers, strict=True)), answers[0][0][0]


ENGINE = PostgreSQL
