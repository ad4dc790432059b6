"""Print results: text without control characters, JSON, and words for a shell."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator
from typing import Any

from vocable.core.tables import BOLD, PLAIN, visible


def show(result: object) -> None:
    """Print a result as text, each item of a list or iterator; None prints nothing."""
    if isinstance(result, list | Iterator):
        for item in result:
            show(item)
    elif result is not None:
        kept = "|".join(map(re.escape, ("\n", BOLD, PLAIN)))  # these control characters stay
        pieces = re.split(f"({kept})", str(result))
        print("".join(piece if number % 2 else visible(piece) for number, piece in enumerate(pieces)), flush=True)


def print_json(values: object, *, indent: int | None = 2) -> None:
    """Print JSON values; `indent=None` prints them on one line, for streams of objects.

    JSON has no NaN and no infinite numbers: they are printed as null.
    """
    text = json.dumps(_finite(values), indent=indent, ensure_ascii=False, allow_nan=False)
    shown = re.sub(r"[^\n -~]", lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)
    print(shown, flush=True)  # a program may wait for the answer before it sends its next query


def quoted(path: object) -> str:
    """Return a path or an address as a single shell word, for the command that may follow."""
    return shlex.quote(str(path))


def _finite(value: object) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
