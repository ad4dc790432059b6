"""JSON whose objects have each key once: of a repeated key Python would keep the last value, silently."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from vocable.core.tables import shortened


class RepeatedKeyError(ValueError):
    """An object of JSON has a key twice."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(name, _), *_] = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedKeyError(f"the key {shortened(name, 80)!r} occurs twice")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct)


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raise `RepeatedKeyError` or, as `json.loads`, another `ValueError`.

    >>> parse_json('{"k": {"a": 1, "a": 2}}')
    Traceback (most recent call last):
    vocable.core.json_objects.RepeatedKeyError: the key 'a' occurs twice
    """
    return _DECODER.decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass"))
