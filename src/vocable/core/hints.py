"""Values that a type hint allows.

pydantic's `TypeAdapter` has an error for each part of a union and takes no integers of NumPy, and the command line
needs words and limits as values: its checks would be more lines.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from vocable.errors import ArgumentError

COMPARISONS = {
    "ge": (operator.ge, "at least", "≥"),
    "gt": (operator.gt, "above", ">"),
    "le": (operator.le, "at most", "≤"),
    "lt": (operator.lt, "below", "<"),
}


@dataclass(frozen=True)
class Values:
    """The values of an argument: some words, numbers within limits, sequences of such items, and perhaps None.

    >>> from annotated_types import Gt, Le
    >>> share = Values.of(Annotated[float, Gt(0), Le(1)] | None)
    >>> str(share), share.short
    ('above 0 and at most 1', '> 0, ≤ 1')
    """

    words: tuple[object, ...] = ()
    number: type[int] | type[float] | None = None
    limits: tuple[tuple[str, float], ...] = ()  # names in `COMPARISONS`, and numbers
    items: Values | None = None
    optional: bool = False

    @classmethod
    def of(cls, hint: object) -> Values | None:
        """Return the values of a type hint; None for a hint that is not checked, as of texts and objects."""
        kind, inner = get_origin(hint), get_args(hint)
        if kind is Annotated:
            found = cls.of(inner[0])
            limits = tuple(
                (sign, getattr(one, sign)) for one in inner[1:] for sign in COMPARISONS if hasattr(one, sign)
            )
            return found and replace(found, limits=found.limits + limits)
        if kind in (Union, UnionType):
            alternatives = [cls.of(one) for one in inner if one is not NoneType]
            return _joined([one for one in alternatives if one], NoneType in inner) if all(alternatives) else None
        if kind is Sequence:
            found = cls.of(inner[0])
            return cls(items=found) if found and found.limits else None
        if hint is bool or kind is Literal:
            return cls(words=inner or (True, False))
        return cls(number=hint) if hint in (int, float) else None

    def check(self, name: str, value: Any) -> Any:
        """Return a value of the argument `name`, NumPy's numbers as Python's; `ArgumentError` for any other value."""
        value = value.item() if getattr(value, "ndim", None) == 0 else value
        if (value is None and self.optional) or (isinstance(value, str | int) and value in self.words):
            return value
        if self.items is not None and not isinstance(value, str | int | float | None):
            for item in value:
                self.items.check(name, item)
            return value
        if self.number is None or (self.words and isinstance(value, str)):
            several = (
                " or ".join(map(str, self.words))
                if len(self.words) < 3
                else "one of " + ", ".join(map(str, self.words))
            )
            raise ArgumentError(f"{name} must be {several or 'a list'}, not {value!r}")
        if isinstance(value, bool) or not isinstance(value, int if self.number is int else int | float):
            raise ArgumentError(f"{name} must be a {'whole ' if self.number is int else ''}number, not {value!r}")
        if isinstance(value, float) and not isfinite(value):
            raise ArgumentError(f"{name} must be a finite number, not {value}")
        if not all(COMPARISONS[sign][0](value, limit) for sign, limit in self.limits):
            raise ArgumentError(f"{name} must be {self}, not {value}")
        return value

    def __str__(self) -> str:
        return " and ".join(f"{COMPARISONS[sign][1]} {limit:g}" for sign, limit in self.limits)

    @property
    def short(self) -> str:
        """The limits in signs."""
        return ", ".join(f"{COMPARISONS[sign][2]} {limit:g}" for sign, limit in self.limits)


def _joined(alternatives: Sequence[Values], optional: bool) -> Values:
    words = tuple(word for one in alternatives for word in one.words)
    number = next((one.number for one in alternatives if one.number), None)
    limits = tuple(limit for one in alternatives for limit in one.limits)
    items = next((one.items for one in alternatives if one.items), None)
    return Values(words, number, limits, items, optional or any(one.optional for one in alternatives))


def goes_with(main: str, *others: str) -> Callable[[Mapping[str, object]], None]:
    """Return the rule that raises `ArgumentError` if one of the `others` is given without the option `main`.

    >>> goes_with("sort", "sort_hits")({"sort_hits": 5})
    Traceback (most recent call last):
    vocable.errors.ArgumentError: `sort_hits` goes with `sort`
    """

    def rule(options: Mapping[str, object]) -> None:
        given = (name for name in others if options.get(name) is not None)
        if not options.get(main) and (name := next(given, None)):
            raise ArgumentError(f"`{name}` goes with `{main}`")

    return rule
