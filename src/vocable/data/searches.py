"""Logged searches: a query, the page that was clicked for it, and the number of clicks.

A log is a table with commas, semicolons or tabs (.csv), whose first line may name the columns, or another source of
records with the same fields.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from vocable.core.storage import StrPath, path_name
from vocable.data.bad_lines import BadLines
from vocable.data.kinds import Kind, RowValues
from vocable.data.lines import decode
from vocable.data.read import open_source, records
from vocable.data.records import MalformedError
from vocable.data.sources import Stream, file_lines, numbered
from vocable.errors import DataError

PAGE_COLUMNS = ("page", "url", "id")
CLICK_COLUMNS = ("count", "clicks")
LOG_COLUMNS = ("query", "page", "count")
MOST_CLICKS = (1 << 31) - 1  # a grade of a judgment has 32 bits


class LoggedSearch(NamedTuple):
    """A query, a page by its address, path, file or id, and the number of clicks that led there."""

    query: str
    page: str
    clicks: int = 1


class TableLine(NamedTuple):
    """A row of a table of a file, from a line on."""

    file: str
    line: int
    cells: list[str]


def read_searches(source: StrPath, *, bad: BadLines) -> Iterator[LoggedSearch]:
    """Return the searches of a log, one at a time; `bad` tolerates and counts bad rows.

    Raises:
        DataError: the log is missing (at once), or a row is bad (when it is reached).
    """
    name = path_name(source, "log")
    is_table = Path(name).suffix.lower() == ".csv" and Path(name).is_file()
    return records(_table(name) if is_table else open_source(name, LOGGED_SEARCH), LOGGED_SEARCH, bad)


def _search(row: RowValues) -> LoggedSearch:
    query, page = (_cell(row, names) for names in (("query",), PAGE_COLUMNS))
    clicks = next((row[name] for name in CLICK_COLUMNS if row.get(name) not in (None, "")), 1)
    with suppress(TypeError, ValueError):
        if not isinstance(clicks, bool | float) and 0 < (number := int(clicks)) <= MOST_CLICKS:
            return LoggedSearch(query, page, number)
    raise MalformedError(f"the count is {clicks!r}, not a whole number from 1 on")


def _cell(row: RowValues, names: tuple[str, ...]) -> str:
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if value is None:
        raise MalformedError(f'no "{names[0]}"')
    if not isinstance(value, str):
        raise MalformedError(f'"{names[0]}" is a {type(value).__name__}')
    if not (text := " ".join(value.split())):
        raise MalformedError(f'an empty "{names[0]}"')
    return text


LOGGED_SEARCH = Kind(
    name="search",
    record=_search,
    names=frozenset({"query", *PAGE_COLUMNS, *CLICK_COLUMNS}),
    columns={2: LOG_COLUMNS[:2], 3: LOG_COLUMNS},
    fields='"query", "page" and optionally "count"',
    layout="query, page and optionally count",
)


def _table(source: str) -> Stream:
    """Return the stream of a .csv file; its separator is the most frequent in the first line."""
    first = next(file_lines(Path(source)), b"")
    separator = max(",;\t", key=lambda mark: first.count(mark.encode()))
    items = numbered(lambda: _rows(source, separator), source)
    return Stream(source, Path(source).stem, items, _TableRow(), LOGGED_SEARCH.layout, several=True)


def _rows(source: str, separator: str) -> Iterator[TableLine]:
    lines = (f"{decode(number, raw)}\n" for number, raw in enumerate(file_lines(Path(source)), start=1))
    reader, line = csv.reader(lines, delimiter=separator, strict=True), 1
    try:
        for cells in reader:
            yield TableLine(source, line, cells)
            line = reader.line_num + 1  # a quoted cell may go over several lines
    except (csv.Error, MalformedError) as error:
        raise DataError(f"not a row of CSV ({error})", source=source, line=line) from error


class _TableRow:
    """Parser of the rows of a table; a header names the columns, or their order tells them."""

    def __init__(self) -> None:
        self.header: list[str] | None = None

    def __call__(self, number: int, item: Any) -> RowValues | None:
        cells = item.cells
        if not any(cell.strip() for cell in cells):
            return None
        if self.header is None:
            names = [re.sub(r"\W+", " ", cell).strip().lower() for cell in cells]
            self.header = names if "query" in names else list(LOG_COLUMNS)
            if self.header is names:
                return None
        if len(cells) > len(self.header):
            raise MalformedError(f"{len(cells)} cells")
        return dict(zip(self.header, cells, strict=False))
