"""What commands print on stdout: JSON, tables and lines that fit a terminal of 80 columns."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from vocable.errors import ArgumentError
from vocable.tables import WIDTH, Table


def show(result: Any, as_json: bool = False) -> None:
    """Print a result as JSON, or its text: lines, tables, or the figures of a dict; None has no text."""
    if as_json:
        print_json(to_json(result))
    elif type(result) is dict:
        for name, value in result.items():
            print(f"{name.replace('_', ' ')}: {_words(value)}")
    elif type(result) is list:
        for one in result:
            show(one)
    elif isinstance(result, Table):
        print_table(result)
    elif hasattr(result, "table") and not any("__str__" in vars(one) for one in type(result).__mro__[:-1]):
        print_table(result.table())
    elif result is not None:
        print(result)


def _words(value: Any) -> str:
    """A figure in words.

    >>> _words({"share": 0.123456, "tokens": 2048, "init": "mean"})
    'share 0.1235, tokens 2,048, init mean'
    """
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(one)}" for name, one in value.items())
    if isinstance(value, list):
        return "; ".join(_words(one) for one in value)
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def to_json(result: Any) -> Any:
    """The JSON values of a result (`to_json()`), of results in a list or dict, or of plain values."""
    if hasattr(result, "to_json"):
        return result.to_json()
    if isinstance(result, dict):
        return {key: to_json(value) for key, value in result.items()}
    return [to_json(one) for one in result] if isinstance(result, list) else result


def print_json(values: Any, *, indent: int | None = 2) -> None:
    """Print JSON values; `indent=None` puts them on one line, for output that is a stream of objects."""
    print(json.dumps(values, indent=indent, ensure_ascii=False))


def print_table(table: Table | RenderableType) -> None:
    """Print a table, or what else rich can render; bold only where stdout is a terminal."""
    if isinstance(table, Table):
        print(table.text(terminal=sys.stdout.isatty()))
        return
    # Rendered first and then printed: rich would end the process itself when the reader has gone.
    console = Console(file=StringIO(), width=WIDTH, force_terminal=sys.stdout.isatty(), highlight=False)
    with console.capture() as rendered:
        console.print(table)
    print("\n".join(line.rstrip() for line in rendered.get().splitlines()))


def read_text(text: str) -> str:
    """The text itself, or with an @ in front the content of a file.

    Raises:
        ArgumentError: the file is not there, or not UTF-8.
    """
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ArgumentError(f"{text[1:]}: no such file (a text that begins with @ names one)") from error
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{text[1:]}: not UTF-8") from error
