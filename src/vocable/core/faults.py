"""The faults that pydantic finds, in the words that all other messages have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from vocable.core.tables import counted, shortened

SHOWN_VALUE = 80  # characters of a wrong value
FAULT_KINDS = {  # beginnings of pydantic's names of faults
    "int_": "a whole number",
    "float_": "a number",
    "decimal_": "a number",
    "finite_number": "a finite number",
    "bool_": "true or false",
    "string_type": "text",
    "list_": "a list",
    "tuple_": "a list",
    "dict_": "a mapping of keys",
    "mapping_": "a mapping of keys",
    "model_": "a mapping of keys",
    "dataclass_": "a mapping of keys",
    "none_required": "null",
}
# Parts of a place that name an alternative of a value's type, as pydantic writes it.
ALTERNATIVE = re.compile(r"(?:str|int|float|bool|none|list|dict|mapping|constrained-\w+)(?:\[.*\])?")
LIMIT_WORDS = {
    "greater_than_equal": "at least",
    "greater_than": "above",
    "less_than_equal": "at most",
    "less_than": "below",
}


def in_words(error: Mapping[str, Any]) -> str:
    """Return a fault that pydantic found, with the wrong value if it is short enough.

    >>> in_words({"type": "greater_than", "ctx": {"gt": 0}, "msg": "Input should be greater than 0", "input": -3})
    'must be above 0, not -3'
    >>> tags = {"tag": "infonce", "expected_tags": "'info_nce', 'margin_mse'"}
    >>> in_words({"type": "union_tag_invalid", "ctx": tags, "msg": "", "input": {"name": "infonce"}})
    "must be 'info_nce' or 'margin_mse', not 'infonce'; did you mean info_nce?"
    """
    kind, context, given = error["type"], error.get("ctx", {}), error.get("input")
    # Keys that are missing or unknown.
    if kind == "missing":
        return "this key is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return "unknown key"
    if kind == "union_tag_not_found":
        return f"needs the key {context['discriminator']}"
    # A choice among names, which pydantic gives quoted and in one string.
    if kind == "union_tag_invalid":
        given = context["tag"]
    if kind in ("union_tag_invalid", "literal_error"):
        known = context.get("expected_tags", context.get("expected", "")).replace("' or '", "', '").split(", ")
        words = f"must be {', '.join(known[:-1])}{' or ' * (len(known) > 1)}{known[-1]}"
        near = get_close_matches(str(given), [name.strip("'") for name in known], 1)
        return f"{words}{_not(given)}{f'; did you mean {near[0]}?' if near else ''}"
    # Limits of a number, then of a length.
    if kind in LIMIT_WORDS:
        limit = next(iter(context.values()))
        return f"must be {LIMIT_WORDS[kind]} {f'{limit:g}' if isinstance(limit, float) else limit}{_not(given)}"
    if kind in ("too_long", "string_too_long", "too_short", "string_too_short"):
        least = kind.endswith("short")
        limit = counted(
            context["min_length" if least else "max_length"], "character" if kind.startswith("string") else "item"
        )
        return f"must have at {'least' if least else 'most'} {limit}"
    # Values of another type. Its faults have one beginning, as `int_type` and `int_parsing`.
    if what := next((what for beginning, what in FAULT_KINDS.items() if kind.startswith(beginning)), None):
        return f"must be {what}{_not(given)}"
    # The message of a validator has the value already.
    message = " ".join(str(error["msg"]).removeprefix("Value error, ").split())
    return message if kind == "value_error" else f"{message}{_not(given)}"


def first_fault(errors: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the first fault; of a value with several types, the fault of the type that reads the most of it.

    >>> errors = [{"loc": ("k", "str"), "type": "string_type"}, {"loc": ("k", "list[str]", 0), "type": "string_type"}]
    >>> first_fault(errors)
    {'loc': ('k', 0), 'type': 'string_type'}
    """
    first, *others = errors
    depth = next((depth for depth, part in enumerate(first["loc"]) if _is_alternative(part)), None)
    if depth is None:
        return first
    same = [error for error in others if error["loc"][:depth] == first["loc"][:depth]]
    deepest = max([first, *same], key=lambda error: len(error["loc"]))
    return {**deepest, "loc": tuple(part for part in deepest["loc"] if not _is_alternative(part))}


def _is_alternative(part: object) -> bool:
    return isinstance(part, str) and ALTERNATIVE.fullmatch(part) is not None


def described(place: str, error: Mapping[str, Any]) -> str:
    """Return a fault with the place that has it.

    >>> described("k", {"type": "missing"})
    'k: this key is missing'
    """
    return placed(place, in_words(error))


def placed(place: str, message: str) -> str:
    """Return a message with its place: "k must be ...", otherwise "k: ...".

    >>> placed("k", "must be a number"), placed("k", "unknown key"), placed("", "not JSON")
    ('k must be a number', 'k: unknown key', 'not JSON')
    """
    if not place:
        return message
    return f"{place}{'' if message.startswith(('must ', 'needs ')) else ':'} {message}"


def _not(given: object) -> str:
    return "" if isinstance(given, Mapping | list) or given is None else f", not {shortened(repr(given), SHOWN_VALUE)}"
