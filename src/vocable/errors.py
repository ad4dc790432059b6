"""What can go wrong, as one tree.

Every `VocableError` is the user's to mend: the command line prints it as one line and exits with status 2. Anything
else that escapes is a fault of ours (status 1).
"""

from __future__ import annotations

import operator
from dataclasses import asdict, dataclass
from importlib import import_module
from numbers import Integral, Real
from types import ModuleType
from typing import overload


class VocableError(Exception):
    """The base of every error that a user can mend."""


class DataError(VocableError):
    """A corpus, query, judgment or example file is missing or malformed; the message begins with source and line.

    `line` is counted from 1.
    """

    def __init__(self, message: str, *, source: str | None = None, line: int | None = None) -> None:
        self.source, self.line = source, line
        where = "" if source is None else f"{source}: " if line is None else f"{source}:{line}: "
        super().__init__(where + message)


class VectorsError(VocableError):
    """Stored vectors or an index are damaged, cut short, or of another vocabulary."""


class NoSpaceError(VectorsError):
    """The disk has too little room for an index."""


class ModelError(VocableError):
    """Not a sparse encoder, or a head that cannot be used without its logits."""


class RecipeError(VocableError):
    """A recipe has an unknown key, a wrong type or an impossible combination; the message has the key's path."""


class ArgumentError(VocableError):
    """An argument is out of its range, or arguments exclude each other."""


class InUseError(ArgumentError):
    """Another process is making the same output."""


class UnwrittenError(VocableError):
    """A file cannot be written when the work is done: `result` is what there is to see."""

    def __init__(self, error: OSError, result: object) -> None:
        super().__init__(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        self.result = result


class CollapseError(VocableError):
    """A training that the guard has stopped; the message has the likely cause and the repair."""


class LostProcessError(VocableError):
    """Another process of the same training has ended, or does not come to what all do together."""


class ServiceError(VocableError):
    """A service has refused a request, or does not answer; the message has its reason."""


class MissingExtraError(VocableError):
    """An optional dependency is not installed; the message has the install line."""


@dataclass(frozen=True)
class Range:
    """The numbers that an argument takes: the limits by the names that pydantic gives them, None for no limit.

    >>> str(Range(gt=0, le=1)), Range(gt=0, le=1).short
    ('above 0 and at most 1', '> 0, ≤ 1')
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __str__(self) -> str:
        words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
        return " and ".join(f"{words[name]} {limit:g}" for name, limit in self._limits().items())

    @property
    def short(self) -> str:
        """The same in signs."""
        signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
        return ", ".join(f"{signs[name]} {limit:g}" for name, limit in self._limits().items())

    def holds(self, value: float) -> bool:
        """Whether an argument can be `value`."""
        return all(getattr(operator, name)(value, limit) for name, limit in self._limits().items())

    def _limits(self) -> dict[str, float]:
        return {name: limit for name, limit in asdict(self).items() if limit is not None}


POSITIVE = Range(ge=1)  # whole numbers that are not among these
RANGES = {
    **dict.fromkeys(("seed", "skip_bad", "distractors", "longest", "bootstrap", "held_out", "cache_size"), Range(ge=0)),
    "time_queries": Range(ge=0),
    **dict.fromkeys(("classes", "clusters", "draws", "folds"), Range(ge=2)),
    **dict.fromkeys(("mass", "min_overlap", "wacky_share"), Range(gt=0, le=1)),
    **dict.fromkeys(("min_weight", "query_idf"), Range(ge=0)),
    "port": Range(ge=0, le=65535),
    "shards": Range(ge=1, le=10_000),
    "minimum_match": Range(ge=0, le=1),
    "relative_margin": Range(ge=0, lt=1),
    "activation_rate": Range(gt=0, lt=1),
}


def check_numbers(**given: float | None) -> None:
    """Raise `ArgumentError` for an argument that is no finite number or out of its range; None is not given."""
    for name, value in given.items():
        if value is None:
            continue
        if not _is(value, Real):
            raise ArgumentError(f"{name} must be a number, not {value!r}")
        if not abs(value) < float("inf"):
            raise ArgumentError(f"{name} must be a finite number, not {value}")
        limits = RANGES.get(name, POSITIVE if _is(value, Integral) else Range())
        if not limits.holds(value):
            raise ArgumentError(f"{name} must be {limits}, not {value}")


@overload
def whole(name: str, value: int) -> int: ...


@overload
def whole(name: str, value: int | None) -> int | None: ...


def whole(name: str, value: int | None) -> int | None:
    """Return an argument as an int, one of NumPy's types too; None is not given.

    Raises `ArgumentError` for what is not a whole number, as 2.0 is not, or out of its range.
    """
    if value is not None and (isinstance(value, bool) or not _is(value, Integral)):
        raise ArgumentError(f"{name} must be a whole number, not {value!r}")
    check_numbers(**{name: value})
    return None if value is None else int(value)


def _is(value: object, kind: type) -> bool:
    """Return whether a value is a number of a kind, NumPy's types among them, which type checkers do not know."""
    return isinstance(value, kind)


def check_whole(**given: int | None) -> None:
    """Raise `ArgumentError` for an argument that is not a whole number or out of its range; None is not given."""
    for name, value in given.items():
        whole(name, value)


def require_extra(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise `MissingExtraError` with the line that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module} is not installed: pip install 'vocable[{extra}]'") from error
