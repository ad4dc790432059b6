"""From a raw item to a row: a mapping from column names to values.

Each parser takes an item and its number and returns a row, or None where there is nothing (an empty line, a header).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from vocable.data.bad_lines import MalformedError

Row = Mapping[str, Any]
Parser = Callable[[int, Any], Row | None]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def mapping_row(number: int, item: Row) -> Row:
    """A row that is one already."""
    return item


def json_row(number: int, raw: bytes) -> Row | None:
    """A line that is a JSON object.

    >>> json_row(1, b'{"id": "d1", "text": "A list."}')
    {'id': 'd1', 'text': 'A list.'}
    """
    line = decode(number, raw)
    if not line.strip():
        return None
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise MalformedError(f"not JSON ({error.msg} at character {error.pos + 1})") from error
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"not JSON that can be read ({error})") from error
    if not isinstance(row, dict):
        raise MalformedError(f"a JSON {type(row).__name__}")
    if "\\ud" in line or "\\uD" in line:
        _refuse_half_characters(row)
    return row


def text_row(number: int, raw: bytes) -> Row | None:
    """A line that is a text; its number is its id.

    >>> text_row(3, b"A list.")
    {'id': '3', 'text': 'A list.'}
    """
    line = decode(number, raw)
    return {"id": str(number), "text": line} if line.strip() else None


class TableRow:
    """Lines of fields, the columns named by their number or by a header.

    `columns` has the column names for each possible number of fields; with `rest`, further fields go to that column as
    a list. `names` are those that make a first line a header. Fields are separated by tabs; with `spaces` by any
    blanks, unless there is a header with tabs.

    >>> row = TableRow({2: ("id", "text")}, names=frozenset({"id", "text"}))
    >>> row(1, b"d1\\tA list."), row(2, b"d2\\tA set.")
    ({'id': 'd1', 'text': 'A list.'}, {'id': 'd2', 'text': 'A set.'})
    """

    def __init__(
        self,
        columns: Mapping[int, tuple[str, ...]],
        *,
        names: frozenset[str],
        rest: str | None = None,
        spaces: bool = False,
    ) -> None:
        self.columns, self.names, self.rest = columns, names, rest
        self.separator: str | None = None if spaces else "\t"

    def __call__(self, number: int, raw: bytes) -> Row | None:
        line = decode(number, raw)
        if not line.strip(" "):
            return None
        fields = line.split(self.separator)
        if number == 1 and self._is_header(fields):
            self.columns, self.rest = {len(fields): tuple(field.lower() for field in fields)}, None
            self.separator = "\t" if "\t" in line else self.separator
            return None
        return self._named(fields)

    def _is_header(self, fields: list[str]) -> bool:
        lowered = {field.lower() for field in fields}
        return len(lowered) == len(fields) > 1 and lowered <= self.names

    def _named(self, fields: list[str]) -> Row:
        widest = max(self.columns)
        if self.rest is not None and len(fields) > widest:
            return dict(zip(self.columns[widest], fields, strict=False)) | {self.rest: fields[widest:]}
        if len(fields) not in self.columns:
            raise MalformedError(f"{len(fields)} field{'s' if len(fields) != 1 else ''}")
        return dict(zip(self.columns[len(fields)], fields, strict=True))


def decode(number: int, raw: bytes) -> str:
    """A line as text, without its line end and without a byte-order mark.

    >>> decode(1, b"\\xef\\xbb\\xbfA list.\\r\\n")
    'A list.'

    Raises:
        MalformedError: when it is not UTF-8.
    """
    if number == 1:
        raw = raw.removeprefix(BYTE_ORDER_MARK)
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 (byte {error.start + 1} is 0x{raw[error.start]:02x})") from error


def _refuse_half_characters(row: Row) -> None:
    """JSON can write half of a surrogate pair, which no tokenizer, Parquet file or terminal takes."""
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise MalformedError("half of a surrogate pair, which is not a character") from error
