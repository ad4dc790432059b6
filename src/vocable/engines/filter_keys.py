"""Fields of documents as keys and numbers that every engine compares in the same way.

A document has a digest for each value of a field, for equality, and the lowest and highest number and time of each
field, for order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import numpy as np

from vocable.engines.filters import Comparison, Every, Filter, Not, shown, time_of
from vocable.errors import ArgumentError

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_FLOAT = float(np.finfo(np.float64).max)
EXACT = 2**53  # whole numbers up to here are exact in float64


class FilterKeys(NamedTuple):
    """Digests of the (field, value) pairs of a document, and a number for the digest of each bound."""

    equal: list[str]
    order: dict[str, float]


def filter_keys(fields: Mapping[str, object]) -> FilterKeys:
    """Return the keys of a document's fields.

    >>> tags, year = filter_keys({"tags": ["a", "b"]}), filter_keys({"year": 2021.0})
    >>> comparison_key(Comparison("tags", "=", "b")) in tags.equal
    True
    >>> comparison_key(Comparison("year", "=", 2021)) in year.equal
    True
    >>> year.order[comparison_key(Comparison("year", ">=", 2020))]
    2021.0
    """
    equal: dict[str, None] = {}
    order: dict[str, float] = {}
    for path, value in _scalars(fields, ()):
        equal[_digest(path, _plain(value))] = None
        number = _number(value)
        if number is not None:
            kind = "time" if isinstance(value, str) else "number"
            for bound, better in (("low", min), ("high", max)):
                key = _digest(path, kind, bound)
                order[key] = better(order.get(key, number), number)
    return FilterKeys(list(equal), order)


def comparison_key(comparison: Comparison) -> str:
    """Return the digest to look up for a comparison: in `equal` for "=", else in `order`."""
    path, value = tuple(comparison.field.split(".")), comparison.value
    if comparison.operator == "=":
        return _digest(path, _plain(value))
    return _digest(
        path, "time" if isinstance(value, str) else "number", "low" if "<" in comparison.operator else "high"
    )


def bound_of(comparison: Comparison) -> float:
    """Return the number of an order comparison; `ArgumentError` for a number that float64 does not hold exactly."""
    number, value = _number(comparison.value), comparison.value
    exact = number is not None and (isinstance(value, str) or abs(value) < EXACT)
    if number is None or not exact:
        text = shown(f"{comparison.field} {comparison.operator} {value}")
        raise ArgumentError(f"filter: {text}: numbers are ordered below 2**53")
    return number


def translate(
    filter: Filter,
    leaf: Callable[[Comparison], T],
    every: Callable[[list[T]], T],
    some: Callable[[list[T]], T],
    negated: Callable[[T], T],
) -> T:
    """Translate a filter into an engine's language by the translations of its parts."""
    if isinstance(filter, Comparison):
        return leaf(filter)
    if isinstance(filter, Not):
        return negated(translate(filter.part, leaf, every, some, negated))
    parts = [translate(part, leaf, every, some, negated) for part in filter.parts]
    return (every if isinstance(filter, Every) else some)(parts)


def beyond_64_bits(value: object) -> bool:
    """Return whether fields hold a whole number that JSON keeps and engines round."""
    if isinstance(value, Mapping | list):
        return any(map(beyond_64_bits, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _scalars(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Iterate over the values that a comparison can meet, each with its path of names."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if "." not in name:  # no filter can name such a field
                yield from _scalars(inner, (*path, name))
    elif path:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str | int | float):
                yield path, one


def _plain(value: object) -> Any:
    """Give equal values one form in JSON: 1 and 1.0, but not true and 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> float | None:
    """Return the number that orders a value: its own, or microseconds from 1970 to a time."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        time = time_of(value)
        return None if time is None else float((time - EPOCH) // timedelta(microseconds=1))
    return float(max(-MAX_FLOAT, min(MAX_FLOAT, value)))


def _digest(*parts: object) -> str:
    return blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()
