"""Records in JSON: what is read is what was written, and the first fault of other values is named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypedDict

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le
from hypothesis import given
from hypothesis import strategies as st

from vocable.core.records import WrongRecordError, as_json, as_record


class Span(NamedTuple):
    start: int
    stop: int = 9


@dataclass(frozen=True)
class Inner:
    name: str
    share: float = 0.0


@dataclass(frozen=True)
class Outer:
    kind: Literal["one", "two"]
    inner: Inner
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    spans: Sequence[Span] = ()
    place: Path = Path()
    count: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)


class Limits(TypedDict, total=False):
    terms: Annotated[int, Ge(1)] | None


@dataclass(frozen=True)
class Limited:
    share: Annotated[float, Gt(0), Le(1)]
    limits: Limits
    inner: Mapping[str, Inner] = field(default_factory=dict)


INNERS = st.builds(Inner, st.text(), st.floats(allow_nan=False))
OUTERS = st.builds(
    Outer,
    st.sampled_from(["one", "two"]),
    INNERS,
    st.dictionaries(st.text(), INNERS, max_size=3),
    st.lists(st.builds(Span, st.integers(-9, 9), st.integers(-9, 9)), max_size=3),
    st.just(Path("a/b")),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(st.text(), st.none() | st.integers(-9, 9) | st.text() | st.lists(st.booleans()), max_size=3),
)


@given(OUTERS)
def test_what_was_written_is_read(record: Outer) -> None:
    values = json.loads(json.dumps(as_json(record)))
    assert as_record(values, Outer) == record
    assert as_record([values, values], list[Outer]) == [record, record]


def test_numbers_of_numpy_and_named_tuples_are_values() -> None:
    assert as_json({"n": np.int64(3), "x": np.float32(0.5), 7: Span(1)}) == {"n": 3, "x": 0.5, "7": (1, 9)}
    assert as_record({"start": 4}, Span) == Span(4) == as_record([4], Span)
    assert as_record({"any": 1, "number": [2.0]}, dict[str, object]) == {"any": 1, "number": [2.0]}


INNER = {"name": "n"}


@pytest.mark.parametrize(
    ("kind", "values", "message", "keys"),
    [
        (Outer, {"inner": INNER}, "kind: this key is missing", True),
        (Outer, {"kind": "one", "inner": {}}, "inner: name: this key is missing", True),
        (Outer, {"kind": "one", "inner": {"name": 3}}, "inner: name must be text, not a whole number", False),
        (Outer, {"kind": "one", "inner": []}, "inner must be a mapping of keys, not a list", False),
        (Outer, {"kind": "one", "inner": INNER, "count": "3"}, "count must be a whole number or null, not text", False),
        (Outer, {"kind": "three", "inner": INNER}, "kind: Invalid enum value 'three'", False),
        (Outer, {"kind": "one", "inner": INNER, "more": 1}, "more: unknown key", True),
        (Outer, {"kind": "one", "inner": INNER | {"more": 1}}, "inner: more: unknown key", True),
        (
            Outer,
            {"kind": "one", "inner": INNER, "by_name": {"k": INNER | {"x": 1}}},
            "by_name: k: x: unknown key",
            True,
        ),
        (Outer, {"kind": "one", "inner": INNER, "spans": [[1], ["1"]]}, "spans: 1: 0 must be a whole", False),
        (Outer, {"kind": "one", "inner": INNER, "place": 3}, "place: ", False),
        (Span, {"stop": 4}, "start: this key is missing", True),
        (Span, {"start": 4, "end": 5}, "end: unknown key", True),
        (Span, {"start": "4"}, "start must be a whole number, not text", False),
        (Span, 3, "must be a list, not a whole number", False),
        (dict[str, int], {"k": 1.5}, "k must be a whole number, not a number", False),
        (dict[str, Inner], {"k": {}}, "k: name: this key is missing", True),
        (Limited, {"share": 0.0, "limits": {}}, "share must be above 0 and at most 1, not 0", False),
        (Limited, {"share": 1, "limits": {"terms": 0}}, "limits: terms must be at least 1, not 0", False),
        (Limited, {"share": 1, "limits": {"more": 0}}, "limits: more: unknown key", True),
    ],
)
def test_the_first_fault_is_named(kind: type, values: object, message: str, keys: bool) -> None:
    with pytest.raises(WrongRecordError) as error:
        as_record(values, kind)
    assert message in str(error.value)
    assert error.value.keys is keys


def test_unknown_keys_may_be_allowed() -> None:
    assert as_record(INNER | {"more": 1}, Inner, forbid=False) == Inner("n")
    assert as_record({"start": 4, "more": 1}, Span, forbid=False) == Span(4)
