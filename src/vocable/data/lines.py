"""Lines of text files as rows: JSON objects, tables and plain texts.

Each parser takes a line and its number and returns a row, or None for an empty line, a comment or a header.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from vocable.core.json_objects import parse_json
from vocable.data.kinds import DOCUMENT_ID, Kind, RowValues
from vocable.data.records import MalformedError, check_characters
from vocable.errors import ArgumentError

Parser: TypeAlias = Callable[[int, Any], RowValues | None]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_LINE = "VOCABLE_MAX_LINE"  # environment variable: most MB of a line, decompressed, or of a page; 64 by default


class LineLimit(NamedTuple):
    """The most megabytes that are read at once, as a line or as a page of a folder."""

    megabytes: int
    variable: str = MAX_LINE

    @property
    def bytes(self) -> int:
        return self.megabytes << 20


def line_limit() -> LineLimit:
    """Return the limit that the environment sets; raise `ArgumentError` if it is not a number of megabytes."""
    limit = os.environ.get(MAX_LINE, "64")
    if not limit.isdecimal() or not 0 < (megabytes := int(limit)) < 1 << 20:
        raise ArgumentError(
            f"the environment variable {MAX_LINE} is a whole number of MB, 64 by default, not {limit!r}"
        )
    return LineLimit(megabytes)


def parsers(kind: Kind[object]) -> dict[str, tuple[Parser, str]]:
    """Return, for the extension of each text format, a new parser and the expected format of a line."""
    objects: tuple[Parser, str] = (json_row, f"a JSON object with {kind.fields}")
    table: tuple[Parser, str] = (TableRow(kind), kind.layout)
    texts: dict[str, tuple[Parser, str]] = {".txt": (text_row, f"one {kind.name} a line")} if kind.lines else {}
    return {".jsonl": objects, ".ndjson": objects, ".json": objects, ".tsv": table, **texts}


def json_row(number: int, raw: bytes) -> RowValues | None:
    """Return a line with a JSON object as a row."""
    line = decode(number, raw)
    if not line.strip():
        return None
    try:
        row = parse_json(line)
        written = json.dumps(row, ensure_ascii=False) if "\\ud" in line or "\\uD" in line else ""  # surrogates?
    except json.JSONDecodeError as error:
        raise MalformedError(f"not JSON ({error.msg} at character {error.pos + 1})") from error
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"not readable JSON ({error})") from error
    if not isinstance(row, dict):
        raise MalformedError(f"a JSON {type(row).__name__}")
    check_characters(written)
    return row


def numbered_row(number: int, raw: bytes) -> RowValues | None:
    """Return a line with a JSON object as a row, its number as the id of a document without one."""
    row = json_row(number, raw)
    return row if row is None or has_id(row) else {**row, "_id": str(number)}


def has_id(row: RowValues) -> bool:
    """Return whether a row names its document."""
    return any(row.get(name) is not None for name in DOCUMENT_ID)


def text_row(number: int, raw: bytes) -> RowValues | None:
    """Return a line with a text as a row, its number as the id."""
    row = typed_row(number, raw)
    return row if row["text"].strip() else None


def typed_row(number: int, raw: bytes) -> RowValues:
    """Return a line, blank or not, as a row, its number as the id."""
    return {"id": str(number), "text": decode(number, raw)}


class TableRow:
    """Parser of the lines of a table; a header names the columns, or their number tells them.

    >>> from vocable.data.kinds import QUERY
    >>> row = TableRow(QUERY)
    >>> row(1, b"q1\\tlists?"), row(2, b"q2\\tsets?")
    ({'id': 'q1', 'text': 'lists?'}, {'id': 'q2', 'text': 'sets?'})
    """

    def __init__(self, kind: Kind[object]) -> None:
        self.kind, self.columns, self.rest = kind, kind.columns, kind.rest
        self.separator = None if kind.spaces else "\t"
        self._begun = False  # a line was read that is neither blank nor a comment

    def __call__(self, number: int, raw: bytes) -> RowValues | None:
        line = decode(number, raw)
        if not line.strip(" "):
            return None
        fields = line.split(self.separator)
        if self.kind.spaces and line.startswith("#") and self._is_comment(fields):
            return None
        begun, self._begun = self._begun, True
        return None if not begun and self._is_header(line, fields) else self._row(fields)

    def _is_header(self, line: str, fields: list[str]) -> bool:
        """Return whether the first line names the columns."""
        names = tuple(field.lower() for field in fields)
        if not (len(set(names)) == len(fields) > 1 and self.kind.names.issuperset(names)):
            return False
        self.columns, self.rest = {len(fields): names}, None
        self.separator = "\t" if "\t" in line else self.separator
        return True

    def _row(self, fields: list[str]) -> RowValues:
        widest = max(self.columns)
        if self.rest is not None and len(fields) > widest:
            rest = fields[widest:]
            first = dict(zip(self.columns[widest], fields, strict=False))
            return first | {self.rest: rest if len(rest) > 1 else rest[0]}
        if len(fields) not in self.columns:
            raise MalformedError(f"{len(fields)} field{'s' if len(fields) != 1 else ''}")
        return dict(zip(self.columns[len(fields)], fields, strict=True))

    def _is_comment(self, fields: list[str]) -> bool:
        """Return whether a line that begins with # is a comment, not a record whose id begins with #."""
        if fields[0] != "#":
            with suppress(MalformedError):
                self.kind.record(self._row(fields))
                return False
        return True


def decode(number: int, raw: bytes) -> str:
    """Return a line as text, without its end and without a byte-order mark."""
    if number == 1:
        raw = raw.removeprefix(BYTE_ORDER_MARK)
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 (byte {error.start + 1} is 0x{raw[error.start]:02x})") from error
