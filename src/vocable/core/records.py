"""Records of our own in files of JSON: dataclasses and named tuples, by msgspec.

pydantic reads what people write: recipes and requests. Its import and its schemas would take a seventh of the processor
time of a cold search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache, partial
from pathlib import PurePath
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from vocable.core.faults import placed
from vocable.core.hints import Values
from vocable.errors import ArgumentError

T = TypeVar("T")
TYPE_NAMES = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "null"}
TYPE_NAMES |= {"array": "a list", "object": "a mapping of keys"}  # of types, as msgspec writes them


class WrongRecordError(ValueError):
    """Values that are no record of a kind. Keys are missing or unknown (`keys`), as in another version's records."""

    def __init__(self, message: str, *, keys: bool = False) -> None:
        super().__init__(message)
        self.keys = keys


def as_record(values: object, kind: type[T], *, forbid: bool = True) -> T:
    """Return parsed JSON as a `kind`: a dataclass, named tuple, typed dict, or a list or dict of these.

    Raises `WrongRecordError` for a value of another type or beyond its limits, a missing key, or, unless `forbid` is
    False, an unknown key.

    >>> as_record({"one": 1}, dict[str, str])
    Traceback (most recent call last):
    vocable.core.records.WrongRecordError: one must be text, not a whole number
    """
    if get_origin(kind) is dict and isinstance(values, dict):
        return cast(T, {key: _of_key(key, value, get_args(kind)[1], forbid) for key, value in values.items()})
    names: Sequence[str] = getattr(kind, "_fields", ())
    if names and isinstance(values, dict):
        values = _in_order(values, kind, names, forbid)
    try:
        record = msgspec.convert(values, kind, dec_hook=_read)
    except msgspec.ValidationError as error:
        _name_key(values, kind)
        raise _wrong(str(error), names) from error
    for message, is_unknown_key in _faults(values, record, kind):
        if forbid or not is_unknown_key:
            raise WrongRecordError(message, keys=is_unknown_key)
    return record


def _name_key(values: object, kind: type) -> None:
    """Raise the fault in a mapping of a dataclass with its key, which msgspec does not name."""
    if not (is_dataclass(kind) and isinstance(values, dict)):
        return
    for name, hint in _hints(kind).items():
        if get_origin(hint) in (dict, Mapping) and isinstance(inner := values.get(name), dict):
            for key, value in inner.items():
                _of_key(f"{name}: {key}", value, get_args(hint)[1], True)


def _of_key(key: str, value: object, kind: Any, forbid: bool) -> Any:
    try:
        return as_record(value, kind, forbid=forbid)
    except WrongRecordError as error:
        raise WrongRecordError(placed(key, str(error)), keys=error.keys) from error


def as_json(record: object) -> Any:
    """Return a record as JSON values; a named tuple becomes a tuple."""
    return msgspec.to_builtins(record, str_keys=True, enc_hook=_written)


def _in_order(values: Mapping[str, object], kind: Any, names: Sequence[str], forbid: bool) -> list[object]:
    """Return the values of a named tuple, with its defaults."""
    values = {**kind._field_defaults, **values}
    for name in names:
        if name not in values:
            raise WrongRecordError(placed(name, "this key is missing"), keys=True)
    if forbid and (unknown := next((name for name in values if name not in names), None)):
        raise WrongRecordError(placed(unknown, "unknown key"), keys=True)
    return [values[name] for name in names]


def _faults(values: Any, record: object, hint: object = None) -> Iterator[tuple[str, bool]]:
    """Yield what is wrong in a record of these values: a number beyond its limits, or (True) an unknown key."""
    pairs: list[tuple[object, object, object, object]]  # keys, values, values in the record, hints
    if is_dataclass(record) or hasattr(hint, "__required_keys__"):  # a typed dict
        hints = _hints(type(record) if is_dataclass(record) else hint)
        yield from ((placed(key, "unknown key"), True) for key in values if key not in hints)
        read = record.get if isinstance(record, dict) else partial(getattr, record)
        pairs = [(name, values[name], read(name), hint) for name, hint in hints.items() if name in values]
    elif isinstance(record, Mapping) and isinstance(values, Mapping):
        pairs = [(key, values.get(key), value, None) for key, value in record.items()]
    elif isinstance(record, list | tuple) and isinstance(values, list):
        pairs = [(row, *pair, None) for row, pair in enumerate(zip(values, record, strict=False))]
    else:
        return
    for key, inner, value, part in pairs:
        if (allowed := Values.of(part)) and allowed.limits:
            try:
                allowed.check(str(key), value)
            except ArgumentError as error:
                yield str(error), False
        yield from ((placed(str(key), message), unknown) for message, unknown in _faults(inner, value, part))


@cache
def _hints(kind: Any) -> Mapping[str, object]:
    return get_type_hints(kind, include_extras=True)


def _wrong(message: str, names: Sequence[str]) -> WrongRecordError:
    """Return msgspec's fault in the words that all other messages have."""
    fault, _, path = message.partition(" - at `$")
    place = [row or key for row, key in re.findall(r"\[(\d+|\.\.\.)\]|\.?([^.\[]+)", path.rstrip("`"))]
    if names and place:
        place[0] = names[int(place[0])]
    if missing := re.fullmatch(r"Object missing required field `(.*)`", fault):
        return WrongRecordError(placed(": ".join([*place, missing[1]]), "this key is missing"), keys=True)
    if wrong := re.fullmatch(r"Expected `(.*)`, got `(.*)`", fault):
        wanted, given = (" or ".join(TYPE_NAMES.get(name, name) for name in one.split(" | ")) for one in wrong.groups())
        fault = f"must be {wanted}, not {given}"
    return WrongRecordError(placed(": ".join(place), fault))


def _read(kind: type, value: object) -> object:
    """Return a value of a type that JSON does not have, or of any type."""
    if kind is object:
        return value
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"{kind.__name__} has no values in JSON")


def _written(value: Any) -> object:
    """Return a value that JSON has no type for as one that it has: a path, a number of NumPy, a model of pydantic."""
    if isinstance(value, PurePath):
        return str(value)
    return value.item() if hasattr(value, "item") else value.model_dump(mode="json")
