"""What commands print on stdout: JSON, tables and lines that fit a terminal of 80 columns."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table as RichTable

from vocable.tables import WIDTH, Table


def show(result: Any, as_json: bool) -> None:
    """Print the result of a verb: its JSON values, or its text, lines and tables in their order.

    A result has `to_json()`, and `__str__` or `table()`, a rich table or a list of tables; JSON values, strings, tables
    and lists of these are printed as they are, and None is not.
    """
    if as_json:
        print_json(to_json(result))
        return
    for part in _parts(result):
        print(part) if isinstance(part, str) else print_table(part)


def to_json(result: Any) -> Any:
    """The JSON values of a result, of results in a list or dict, or what is given."""
    if hasattr(result, "to_json"):
        return result.to_json()
    if isinstance(result, dict):
        return {key: to_json(value) for key, value in result.items()}
    return [to_json(one) for one in result] if isinstance(result, list) else result


def _parts(result: Any) -> Iterator[Any]:
    if isinstance(result, list | tuple) and not hasattr(result, "_fields"):
        for one in result:
            yield from _parts(one)
    elif isinstance(result, str | Table | RichTable):
        yield result
    elif not hasattr(result, "table") or any("__str__" in vars(one) for one in type(result).__mro__[:-1]):
        yield str(result)
    elif result is not None:
        yield from _parts(result.table())


def print_json(values: Any, *, indent: int | None = 2) -> None:
    """Print JSON values; `indent=None` puts them on one line, for output that is a stream of objects."""
    print(json.dumps(values, indent=indent, ensure_ascii=False))


def print_table(table: Table | RenderableType) -> None:
    """Print a table, or what else rich can render; bold only where stdout is a terminal, too wide a table in parts."""
    if isinstance(table, Table):
        print(table.text(terminal=sys.stdout.isatty()))
        return
    # Rendered first and then printed: rich would end the process itself when the reader has gone.
    console = Console(file=StringIO(), width=WIDTH, force_terminal=sys.stdout.isatty(), highlight=False)
    with console.capture() as rendered:
        for part in _narrow(table) if isinstance(table, RichTable) else [table]:
            console.print(part)
    print("\n".join(line.rstrip() for line in rendered.get().splitlines()))


def _narrow(table: RichTable) -> Iterator[RichTable]:
    """The table, or where it is too wide several with its first column, each as wide as fits."""
    first, *others = table.columns
    part = copy(table)
    part.columns = [first]
    for column in others:
        wider = copy(table)
        wider.columns = [*part.columns, replace(column, _index=len(part.columns))]
        if len(part.columns) > 1 and natural_width(wider) > WIDTH:
            yield part
            wider.columns = [first, replace(column, _index=1)]
        part = wider
    yield part


def natural_width(table: RenderableType) -> int:
    """The columns of a terminal that a table takes when nothing in it is cut or wrapped."""
    console = Console(file=StringIO(), width=10 * WIDTH)
    return console.measure(table).maximum


def shortened(text: str, width: int) -> str:
    """The text on one line of at most `width` characters.

    >>> shortened("one two\\n three", 9)
    'one two …'
    """
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number and its noun.

    >>> counted(1, "text"), counted(2048, "text"), counted(2, "query", "queries")
    ('1 text', '2,048 texts', '2 queries')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
