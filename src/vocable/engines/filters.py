"""Filters on documents' fields: the language of `--filter`, its parser, and the matching of documents.

    lang=de and year>=2020 and not (kind in (draft, 'old note') or public=false)
    file^=cargo/commands/

A value is a number, true, false, a word, or any text in quotes; the name of a field is a word, or in quotes. The name
`a.b` is the field of this name, or else the field b within a. If a field is a list, one element must match the
comparison; a document without the field matches no comparison, so it matches every `not`. `^=` compares the beginning
of a text, up to a slash. Numbers are compared by value, and dates in ISO 8601 by time; other texts have no order.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import chain
from operator import ge, gt, le, lt
from typing import Any, Literal, TypeAlias, cast, get_args

from vocable.core.tables import shortened
from vocable.errors import ArgumentError

Operator: TypeAlias = Literal["=", "^=", "<", "<=", ">", ">="]
Value: TypeAlias = str | int | float | bool
ORDERS: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
MAX_PARTS = 256  # comparisons and brackets in a filter, since engines limit their queries
MAX_NAMES = 100_000  # characters in the names of all fields
MAX_NUMBER = 400  # characters of a number
MAX_SHOWN = 80  # characters of a filter in a message
MAX_PREFIX = 256  # characters of a beginning
EXACT = 2**53  # whole numbers below it are exact in float64, which engines order
MISSING = object()  # in place of the value of a field that a document lacks
FILTER_KEYWORDS = ("and", "or", "in", "not")
BARE_WORD = re.compile(r"""(?:(?!\^=)[^\s'"!=<>(),])+""")  # such as the name of a field
QUOTED_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
LISTED_NAME = re.compile(rf"\s*(?:(?P<quoted>{QUOTED_TEXT})|(?P<word>[^,]*?))\s*(?:,|$)")
FILTER_TOKEN = re.compile(
    rf"""\s*(?:(?P<quoted>{QUOTED_TEXT})|(?P<sign>!=|\^=|<=|>=|[=<>(),])|(?P<word>{BARE_WORD.pattern}))"""
)
NUMBER = re.compile(r"[+-]?\d+(?P<fraction>\.\d+)?(?P<exponent>[eE][+-]?\d+)?")


@dataclass(frozen=True)
class Comparison:
    """A comparison of a field with a value; 1 and true are different values.

    Raises `ArgumentError` for an order of values that have none, or of numbers that float64 cannot tell apart.
    """

    field: str
    operator: Operator
    value: Value
    kind: type = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self.value))
        text = f"filter: {shown(f'{self.field} {self.operator} {self.value}')}"
        if not self.keyed and not _has_order(self.value):
            raise ArgumentError(f"{text}: only numbers and ISO dates have an order")
        if not self.keyed and not isinstance(self.value, str) and not abs(self.value) < EXACT:
            raise ArgumentError(f"{text}: numbers are ordered below 2**53")

    @property
    def keyed(self) -> bool:
        """True for a comparison of equal values or beginnings, which engines look up; False for an order."""
        return self.operator in ("=", "^=")


@dataclass(frozen=True)
class Every:
    """A filter whose parts must all hold."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Some:
    """A filter that holds if at least one part holds."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Not:
    """A filter whose part must not hold."""

    part: Filter


Filter: TypeAlias = Comparison | Every | Some | Not
Matcher: TypeAlias = Callable[[Mapping[str, object]], bool]


def parse_filter(text: str) -> Filter:
    """Parse a filter; raise `ArgumentError` with the position of an error.

    >>> parse_filter("not year>=2020")
    Not(part=Comparison(field='year', operator='>=', value=2020))
    """
    try:
        return _Parser(text).whole()
    except RecursionError as error:
        raise ArgumentError(f"filter {shown(text)!r}: too many nested brackets") from error


def shown(text: str) -> str:
    """Return a filter, or a part of it, shortened for a message."""
    return shortened(text, MAX_SHOWN)


def listed_names(text: str) -> list[str]:
    """Return the names of fields in a list with commas; a name may stand in quotes.

    >>> listed_names("lang, 'a, b', file/")
    ['lang', 'a, b', 'file/']
    """
    names, place = list[str](), 0
    while place <= len(text) and (name := LISTED_NAME.match(text, place)):
        names.append(name["word"] if name["quoted"] is None else _unquoted(name["quoted"]))
        place = name.end() if name[0].endswith(",") else len(text) + 1
    return names


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def spelled_name(name: str) -> str:
    """Return the name of a field as a filter has it, in quotes if necessary.

    >>> spelled_name("year"), spelled_name("two words"), spelled_name("and")
    ('year', "'two words'", "'and'")
    """
    if BARE_WORD.fullmatch(name) and name.lower() not in FILTER_KEYWORDS:
        return name
    return "'" + re.sub(r"(['\\])", r"\\\1", name) + "'"


def field_names(fields: Mapping[str, object]) -> Iterator[str]:
    """Iterate over the names of a document's fields; a nested field is named with a dot.

    >>> list(field_names({"lang": "de", "made": {"by": "x"}}))
    ['lang', 'made', 'made.by']
    """
    left = [("", fields)]
    while left:  # no recursion: fields may be nested hundreds deep
        prefix, inner = left.pop()
        for name, value in inner.items():
            yield f"{prefix}{name}"
            if isinstance(value, Mapping):
                left.append((f"{prefix}{name}.", value))


def names_of(documents: Iterable[Mapping[str, object]], known: Collection[str] = ()) -> frozenset[str] | None:
    """Return the `known` names and the names of all documents' fields; None if they are too long to keep."""
    names, size = set(known), sum(map(len, known))
    for name in chain.from_iterable(map(field_names, documents)):
        if name not in names:
            names.add(name)
            size += len(name)
            if size > MAX_NAMES:
                return None
    return frozenset(names)


def check_fields(filter: Filter, known: Collection[str], option: str = "filter") -> None:
    """Raise `ArgumentError`, with the nearest of the `known` names, for a field that no document has."""
    for name in _fields_of(filter):
        check_field(name, known, option)


def check_field(name: str, known: Collection[str], option: str) -> None:
    """Raise `ArgumentError`, with the nearest of the `known` names, for a field of an option that no document has."""
    if name not in known:
        folded = {field.casefold(): spelled_name(field) for field in sorted(known)}
        near = [folded[match] for match in get_close_matches(name.casefold(), folded, n=1)]
        hint = f"did you mean {near[0]}?" if near else f"they have {', '.join(folded.values()) or 'no fields'}"
        folders = "; file/ counts folders" if option == "facets" and "file" in known else ""
        raise ArgumentError(f"{option}: no document has the field {shown(name)!r}: {shown(hint)}{folders}")


def _fields_of(filter: Filter) -> Iterator[str]:
    if isinstance(filter, Comparison):
        yield filter.field
    else:
        for part in (filter.part,) if isinstance(filter, Not) else filter.parts:
            yield from _fields_of(part)


def matches(filter: Filter, fields: Mapping[str, object]) -> bool:
    """Return whether a document with these fields passes the filter.

    >>> matches(parse_filter("tags=news and not year<2020"), {"tags": ["news", "sport"], "year": 2024})
    True
    """
    return matcher(filter)(fields)


def matcher(filter: Filter) -> Matcher:
    """Return the function that tells whether a document with some fields passes the filter, for many documents."""
    if isinstance(filter, Not):
        inner = matcher(filter.part)
        return lambda fields: not inner(fields)
    if not isinstance(filter, Comparison):
        parts, combine = [matcher(part) for part in filter.parts], all if isinstance(filter, Every) else any
        return lambda fields: combine(part(fields) for part in parts)
    holds, field = _test(filter), filter.field

    def compare(fields: Mapping[str, object]) -> bool:
        value = _value_of(fields, field)
        return any(map(holds, value)) if isinstance(value, list) else holds(value)

    return compare


def decided(filter: Filter, field: str, value: object) -> Filter | bool:
    """Return the filter for documents whose `field` has this value: without it, or whether they pass.

    >>> decided(parse_filter("index=guides and year>=2020"), "index", "guides")
    Comparison(field='year', operator='>=', value=2020)
    >>> decided(parse_filter("index=guides and year>=2020"), "index", "papers")
    False
    """
    if isinstance(filter, Comparison):
        return matches(filter, {field: value}) if filter.field == field else filter
    if isinstance(filter, Not):
        part = decided(filter.part, field, value)
        return not part if isinstance(part, bool) else Not(part)
    parts, deciding = [decided(part, field, value) for part in filter.parts], isinstance(filter, Some)
    if any(part is deciding for part in parts):
        return deciding
    left = tuple(part for part in parts if not isinstance(part, bool))
    return type(filter)(left) if len(left) > 1 else left[0] if left else not deciding


def values_of_field(fields: Mapping[str, object], name: str) -> list[object]:
    """Return the values of a field: the elements of a list, otherwise a list of the value or of None if it is missing.

    >>> values_of_field({"from": {"city": "Rome"}, "tags": ["a", "b"]}, "from.city")
    ['Rome']
    """
    value = _value_of(fields, name)
    return value if isinstance(value, list) else [value]


def named_values(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a document's fields, also of nested fields, by the names that filters have for them.

    >>> named_values({"made": {"by": "x"}, "made.by": "y"})
    {'made': {'by': 'x'}, 'made.by': 'y'}
    """
    return {name: _value_of(fields, name) for name in field_names(fields)}


def _value_of(fields: Mapping[str, object], name: str) -> Any:
    """Return the value of a field, or None: the longest beginning of a name up to a dot comes first."""
    value = _found(fields, name)
    return None if value is MISSING else value


def _found(fields: Mapping[str, object], name: str) -> Any:
    value: Any = fields.get(name, MISSING)
    place = len(name)
    while value is MISSING and (place := name.rfind(".", 0, place)) >= 0:
        inner = fields.get(name[:place])
        if isinstance(inner, Mapping):
            value = _found(inner, name[place + 1 :])
    return value


def beginnings(value: object) -> list[str]:
    """Return the beginnings of a text up to each of its first slashes, which `^=` compares.

    >>> beginnings("cargo/commands/build.html"), beginnings(2024)
    (['cargo/', 'cargo/commands/'], [])
    """
    if not isinstance(value, str):
        return []
    return [value[: place + 1] for place, character in enumerate(value[:MAX_PREFIX]) if character == "/"]


def time_of(value: object) -> datetime | None:
    """Return the time in a text in ISO 8601 (UTC by default); None for any other value."""
    if not isinstance(value, str) or not value[:4].isdecimal() or "-" not in value:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _has_order(value: Value) -> bool:
    return time_of(value) is not None if isinstance(value, str) else not isinstance(value, bool)


def _test(comparison: Comparison) -> Callable[[object], bool]:
    """Return the function that tells whether the comparison holds for a value."""
    bound = comparison.value
    if comparison.operator == "=":
        is_bool, same_time = isinstance(bound, bool), time_of(bound)  # `True` does not match 1
        if same_time is not None:
            return lambda value: value == bound or time_of(value) == same_time
        return lambda value: isinstance(value, bool) == is_bool and bool(value == bound)
    if comparison.operator == "^=":
        return lambda value: bound in beginnings(value)
    order, time = ORDERS[comparison.operator], time_of(bound)
    if isinstance(bound, str):
        return lambda value: (of := time_of(value)) is not None and order(of, time)
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and order(value, bound)


class _Parser:
    """Recursive descent over the tokens of a filter: `or` binds weakest, then `and`, then `not`."""

    def __init__(self, text: str) -> None:
        self.text, self.position, self.parts = text, 0, 0
        self.tokens: list[tuple[str, str, int]] = []  # kind, text and position of each token
        end = len(text.rstrip())
        while self.position < end:
            token = FILTER_TOKEN.match(text, self.position)
            if token is None:
                raise self._wrong("a quote is not closed" if text[self.position :].strip()[0] in "'\"" else "")
            kind = str(token.lastgroup)
            self.tokens.append((kind, token[kind], token.start(kind)))
            self.position = token.end()
        self.tokens.append(("end", "", len(text)))

    def whole(self) -> Filter:
        filter = self._either()
        if self.tokens[0][0] != "end":
            raise self._wrong("expected and, or, or the end")
        return filter

    def _either(self) -> Filter:
        parts = [self._both()]
        while self._next("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _both(self) -> Filter:
        parts = [self._one()]
        while self._next("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _one(self) -> Filter:
        self._count()
        # Grammar: not FILTER, (FILTER).
        if self._next("not"):
            return Not(self._one())
        if self._next("("):
            filter = self._either()
            self._expect(")")
            return filter
        # Grammar: FIELD, a word or a quoted text.
        kind, field, _ = self.tokens[0]
        if kind not in ("word", "quoted") or (kind == "word" and field.lower() in FILTER_KEYWORDS):
            raise self._wrong("expected the name of a field")
        self.tokens.pop(0)
        field = _unquoted(field) if kind == "quoted" else field
        # Grammar: FIELD [not] in (VALUE, ...).
        negated = self._next("not")
        if self._next("in"):
            self._expect("(")
            values = [self._value()]
            while self._next(","):
                self._count()
                values.append(self._value())
            self._expect(")")
            listed = Some(tuple(Comparison(field, "=", value) for value in values))
            return Not(listed) if negated else listed
        # Grammar: FIELD OPERATOR VALUE.
        kind, operator, _ = self.tokens[0]
        if negated or kind != "sign" or operator not in (*get_args(Operator), "!="):
            raise self._wrong("expected =, !=, ^=, <, <=, >, >= or in")
        self.tokens.pop(0)
        if operator == "^=":
            return self._prefix(field)
        value = self._value()
        if operator in ORDERS and not _has_order(value):
            raise self._wrong(f"{value!r} has no order: only numbers and ISO dates have one:")
        if operator == "!=":
            return Not(Comparison(field, "=", value))
        return Comparison(field, cast(Operator, operator), value)

    def _prefix(self, field: str) -> Filter:
        value = str(self._value())
        if not value.endswith("/") or len(value) > MAX_PREFIX:
            raise self._wrong(
                f"^= takes at most {MAX_PREFIX} characters up to a slash, as {spelled_name(field)}^=cargo/:"
            )
        return Comparison(field, "^=", value)

    def _value(self) -> Value:
        kind, text, _ = self.tokens[0]
        if kind not in ("word", "quoted"):
            raise self._wrong("expected a value")
        if kind == "word" and "*" in text:
            raise self._wrong("* stands for itself, in quotes; for all of a folder write file^=folder/:")
        self.tokens.pop(0)
        if kind == "quoted":
            return _unquoted(text)
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        number = NUMBER.fullmatch(text)
        if number is None or not text.isascii():
            return text
        if len(text) > MAX_NUMBER or not math.isfinite(float(text)):
            raise self._wrong(f"{shown(text)} is too large a number")
        return float(text) if number["fraction"] or number["exponent"] else int(text)

    def _count(self) -> None:
        """Count a part, and raise `ArgumentError` if the filter has too many."""
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise self._wrong(f"more than {MAX_PARTS} parts")

    def _next(self, word: str) -> bool:
        """Take the next token if it is this word or sign, and return whether it is."""
        kind, text, _ = self.tokens[0]
        if kind in ("word", "sign") and text.lower() == word:
            self.tokens.pop(0)
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._next(sign):
            raise self._wrong(f"expected {sign}")

    def _wrong(self, message: str) -> ArgumentError:
        place = self.tokens[0][2] if self.tokens and self.tokens[-1][0] == "end" else self.position
        rest = self.text[place:].strip()
        where = f"at {rest[:20]!r}" if rest else "at its end"
        return ArgumentError(
            f"filter {shown(self.text)!r}: {message or 'cannot be read'} {where} (character {place + 1})"
        )
