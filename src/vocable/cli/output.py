"""What commands print on stdout: JSON, tables and lines that fit a terminal of 80 columns."""

from __future__ import annotations

import json
import sys
from io import StringIO
from typing import Any

from rich.console import Console, RenderableType

WIDTH = 80


def print_json(values: Any, *, indent: int | None = 2) -> None:
    """Print JSON values; `indent=None` puts them on one line, for output that is a stream of objects."""
    print(json.dumps(values, indent=indent, ensure_ascii=False))


def print_table(table: RenderableType) -> None:
    """Print what rich can render; colours and bold only where stdout is a terminal."""
    # Rendered first and then printed: rich would end the process itself when the reader has gone.
    console = Console(file=StringIO(), width=WIDTH, force_terminal=sys.stdout.isatty(), highlight=False)
    with console.capture() as rendered:
        console.print(table)
    print("\n".join(line.rstrip() for line in rendered.get().splitlines()))


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
