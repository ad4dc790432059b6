"""What commands print on stdout: JSON, tables and lines that fit a terminal of 80 columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vocable.errors import ArgumentError
from vocable.tables import visible


def show(result: Any) -> None:
    """Print a result as text, or those of a list or stream; None has no text."""
    if isinstance(result, list | Iterator):
        for one in result:
            show(one)
    elif result is not None:
        print("\n".join(map(visible, str(result).split("\n"))))


def print_json(values: Any, *, indent: int | None = 2) -> None:
    """Print JSON values; `indent=None` puts them on one line, for output that is a stream of objects."""
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    print(re.sub(r"[^\n -~]", lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text))


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
