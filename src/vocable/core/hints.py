"""Values that a type hint allows.

pydantic's `TypeAdapter` reports an error for each part of a union and refuses NumPy's integers, and the command line
needs words and limits as values. With it, the checks would take more lines.
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
        """Return the values of a type hint; None for a hint that is not checked, such as `str` or a class."""
        kind, inner = get_origin(hint), get_args(hint)
        if kind is Annotated:
            values = cls.of(inner[0])
            limits = tuple(
                (sign, getattr(limit, sign)) for limit in inner[1:] for sign in COMPARISONS if hasattr(limit, sign)
            )
            return values and replace(values, limits=values.limits + limits)
        if kind in (Union, UnionType):
            alternatives = [cls.of(part) for part in inner if part is not NoneType]
            return (
                _joined([values for values in alternatives if values], NoneType in inner) if all(alternatives) else None
            )
        if kind is Sequence:
            items = cls.of(inner[0])
            return cls(items=items) if items and items.limits else None
        if hint is bool or kind is Literal:
            return cls(words=inner or (True, False))
        return cls(number=hint) if hint in (int, float) else None

    def check(self, name: str, value: Any) -> Any:
        """Return the value of the argument `name`, with Python's numbers for NumPy's.

        Raises `ArgumentError` for a value that is not among these values.
        """
        value = value.item() if getattr(value, "ndim", None) == 0 else value
        if (value is None and self.optional) or (isinstance(value, str | int) and value in self.words):
            return value
        if self.items is not None and not isinstance(value, str | int | float | None):
            for item in value:
                self.items.check(name, item)
            return value
        if self.number is None or (self.words and isinstance(value, str)):
            words = [*map(str, self.words), *(["a number"] if self.number else [])]
            several = " or ".join(words) if len(words) < 3 else "one of " + ", ".join(words)
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
        """The limits as signs."""
        return ", ".join(f"{COMPARISONS[sign][2]} {limit:g}" for sign, limit in self.limits)


def _joined(alternatives: Sequence[Values], optional: bool) -> Values:
    words = tuple(word for values in alternatives for word in values.words)
    number = next((values.number for values in alternatives if values.number), None)
    limits = tuple(limit for values in alternatives for limit in values.limits)
    items = next((values.items for values in alternatives if values.items), None)
    return Values(words, number, limits, items, optional or any(values.optional for values in alternatives))


def goes_with(main: str, *others: str) -> Callable[[Mapping[str, object]], None]:
    """Return a rule that raises `ArgumentError` if one of the `others` is given without the option `main`.

    >>> goes_with("sort", "sort_hits")({"sort_hits": 5})
    Traceback (most recent call last):
    vocable.errors.ArgumentError: `sort_hits` needs `sort`
    """

    def rule(options: Mapping[str, object]) -> None:
        given = (name for name in others if options.get(name) is not None)
        if not options.get(main) and (name := next(given, None)):
            raise ArgumentError(f"`{name}` needs `{main}`")

    return rule
