"""Turn the fields of documents into keys and numbers that every engine compares in the same way.

For equality, a document has a digest of each value of a field, and of the beginnings of a text up to its slashes. For
order, it has the lowest and the highest number of each field, and the earliest and the latest time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import numpy as np

from vocable.engines.filters import Comparison, Every, Filter, Not, beginnings, named_values, time_of

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_FLOAT = float(np.finfo(np.float64).max)


class FilterKeys(NamedTuple):
    """Digests of a document's (field, value) pairs, and the bounds of its fields by their digests."""

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
    for name, value in _scalars(fields):
        number = _number(value)
        equal[_digest(name, *_equal_to(value))] = None
        equal |= dict.fromkeys(_digest(name, "beginning", beginning) for beginning in beginnings(value))
        if number is not None:
            kind = "time" if isinstance(value, str) else "number"
            for bound, better in (("low", min), ("high", max)):
                key = _digest(name, kind, bound)
                order[key] = better(order.get(key, number), number)
    return FilterKeys(list(equal), order)


def comparison_key(comparison: Comparison) -> str:
    """Return the digest that a comparison looks up: in `equal` if it is `keyed`, otherwise in `order`."""
    name, value = comparison.field, comparison.value
    if comparison.operator == "^=":
        return _digest(name, "beginning", value)
    if comparison.keyed:
        return _digest(name, *_equal_to(value))
    return _digest(
        name, "time" if isinstance(value, str) else "number", "low" if "<" in comparison.operator else "high"
    )


def bound_of(comparison: Comparison) -> float:
    """Return the number of an order comparison, which float64 holds exactly."""
    number = _number(comparison.value)
    assert number is not None
    return number


def translate(
    filter: Filter,
    leaf: Callable[[Comparison], T],
    all_of: Callable[[list[T]], T],
    any_of: Callable[[list[T]], T],
    negated: Callable[[T], T],
) -> T:
    """Translate a filter into an engine's language: translate its parts, and combine the results."""
    if isinstance(filter, Comparison):
        return leaf(filter)
    if isinstance(filter, Not):
        return negated(translate(filter.part, leaf, all_of, any_of, negated))
    parts = [translate(part, leaf, all_of, any_of, negated) for part in filter.parts]
    return (all_of if isinstance(filter, Every) else any_of)(parts)


def beyond_64_bits(value: object) -> bool:
    """Return whether fields contain a whole number that JSON keeps exactly but engines round."""
    if isinstance(value, Mapping | list):
        return any(map(beyond_64_bits, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _scalars(fields: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
    """Iterate over the values that a comparison can match, each with the name of its field."""
    for name, value in named_values(fields).items():
        for element in value if isinstance(value, list) else [value]:
            if isinstance(element, str | int | float):
                yield name, element


def _equal_to(value: object) -> list[object]:
    """Return what equal values have in common: 1 and 1.0 are equal, true and 1 are not, dates are equal by time."""
    if isinstance(value, str) and (time := _number(value)) is not None:
        return ["time", time]
    return [int(value) if isinstance(value, float) and value.is_integer() else value]


def _number(value: Any) -> float | None:
    """Return the number that orders a value: a number itself, or the microseconds since 1970 for a time."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        time = time_of(value)
        return None if time is None else float((time - EPOCH) // timedelta(microseconds=1))
    return float(max(-MAX_FLOAT, min(MAX_FLOAT, value)))


def _digest(*parts: object) -> str:
    return blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()
