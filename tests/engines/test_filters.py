"""Filters: what they are read as, what they let through, and where a text is said to be wrong."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.engines.filters import (
    MAX_PARTS,
    Comparison,
    Every,
    Filter,
    Not,
    Some,
    check_fields,
    field_names,
    listed_names,
    matches,
    parse_filter,
    spelled_name,
)
from vocable.errors import ArgumentError

FIELDS = {"file": "cargo/commands/build.html", "links": ["https://x.org/a/b", 7, "c"]} | {
    "lang": "de",
    "year": 2021,
    "tags": ["a", "b"],
    "open": True,
    "made": {"by": "x"},
    "at": "2021-05-06",
}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("lang=de", True),
        ("lang='de'", True),
        ("lang=DE", False),
        ("lang=de and year>=2021", True),
        ("lang=en or year<2022 and open=true", True),
        ("(lang=en or year<2022) and open=false", False),
        ("not lang=en", True),
        ("not not lang=en", False),
        ("missing=1", False),
        ("missing!=1", True),
        ("tags=b", True),
        ("tags!=b", False),
        ("tags in (c, b)", True),
        ("tags not in (c, d)", True),
        ("made.by=x", True),
        ("made.to=x", False),
        ("open=1", False),
        ("year=2021.0", True),
        ("year='2021'", False),
        ("year>2e3", True),
        ("at>='2021-05-06'", True),
        ("at<'2021-05-06T00:00:01'", True),
        ("lang>'2021-05-06'", False),
        ("NOT lang=en AND open=TRUE", True),
        ("file^=cargo/", True),
        ("file^=cargo/commands/ and lang=de", True),
        ("file ^= 'cargo/commands/'", True),
        ("file^=commands/", False),
        ("file^=Cargo/", False),
        ("not file^=cargo/commands/build.html/", True),
        ("links^=https://x.org/a/", True),
        ("links^=https://x.org/a/b/", False),
        ("made.by^=x/ or missing^=x/ or year^=2/", False),
    ],
)
def test_a_filter_lets_documents_pass(text: str, passes: bool) -> None:
    assert matches(parse_filter(text), FIELDS) is passes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"\(character 1\)"),
        ("a", r"=, .*\(character 2\)"),
        ("a=", "character 3"),
        ("a=1 b=2", r"'b=2' \(character 5\)"),
        ("(a=1", r" \) "),
        ("a in (1", r" \)"),
        ("a in 1", r" \( "),
        ("a<xyz", "'xyz'"),
        ("a<true", "True"),
        ("a='x", r"\(character 3\)"),
        ("and=1", "character 1"),
        ("a not = 1", "character 7"),
        ("not " * (MAX_PARTS + 1) + "a=1", f"{MAX_PARTS} "),
        (" or ".join(["a=1"] * (MAX_PARTS + 1)), f"{MAX_PARTS} "),
        (f"a in ({', '.join(map(str, range(MAX_PARTS + 1)))})", f"{MAX_PARTS} "),
        (f"a not in ({'b,' * 50_000}b)", f"{MAX_PARTS} "),
        ("a=" + "9" * 5000, "9… "),
        ("a<" + "1" * 5000, "… "),
        ("a in (1, " + "0" * 5000 + ")", "… "),
        ("a=-1e999", "-1e999 "),
        ("a=1." + "0" * 5000, "… "),
        ("file=cargo/*", r"\* stands for itself, in quotes; .*file\^=folder/"),
        ("file in (a, b*)", r"\* stands for itself"),
        ("file^=cargo/*", r"\* stands for itself"),
        ("file^=cargo", r"up to a slash, as file\^=cargo/: at its end"),
        ("file^=7", r"up to a slash"),
        ("file^=" + "a/" * 129, "at most 256 characters"),
        ("file not ^= a/", r"expected =, !=, \^="),
    ],
)
def test_a_wrong_filter_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        parse_filter(text)
    assert len(str(caught.value)) < 250


def test_brackets_beyond_the_stack_are_one_line() -> None:
    def after(calls: int) -> Filter:
        return after(calls - 1) if calls else parse_filter("(" * 255 + "a=1" + ")" * 255)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # a library of another test may have raised it
    try:
        with pytest.raises(ArgumentError):
            after(500)
    finally:
        sys.setrecursionlimit(limit)


def test_a_long_filter_is_read_in_linear_time() -> None:
    copied: list[int] = []

    class Text(str):
        def rstrip(self, *_: Any) -> str:  # type: ignore[override]
            copied.append(len(self))
            return str.rstrip(self)

    with pytest.raises(ArgumentError):
        parse_filter(Text("a " * 200_000))
    assert copied == [400_000]  # once, not for each token


@pytest.mark.parametrize(("one", "other"), [("a=1", "a=true"), ("a=0", "a=false"), ("a in (1, 2)", "a in (true, 2)")])
def test_filters_that_let_through_other_documents_are_not_equal(one: str, other: str) -> None:
    first, second = parse_filter(one), parse_filter(other)
    assert first != second
    assert first == parse_filter(one)
    assert len({first, second, parse_filter(one)}) == 2
    assert matches(first, {"a": 1}) != matches(second, {"a": 1}) or one.startswith("a=0")
    assert matches(first, {"a": False}) is False


FIELDS_OF_ALL = set(field_names(FIELDS)) | {"Language"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("laang=de", "'laang': did you mean lang?"),
        ("LANG=de", "'LANG': did you mean lang?"),
        ("language=de", "'language': did you mean Language?"),
        ("not (year=1 or yaer>2)", "'yaer': did you mean year?"),
        ("made.bi=x", "'made.bi': did you mean made.by?"),
        ("made.by.x=1", "'made.by.x': did you mean made.by?"),
        ("zzz not in (1, 2)", "'zzz': they have Language, at, file, lang, links, made, made.by, open, tags, year"),
    ],
)
def test_a_field_that_no_document_has_is_said_with_the_nearest(text: str, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_fields(parse_filter(text), FIELDS_OF_ALL)
    assert str(caught.value) == f"filter: no document has the field {said}"


def test_a_field_of_any_value_is_known() -> None:
    names = set(field_names({"none": None, "empty": {}, "list": [{"deep": 1}], "a": {"b": {"c": 1}}, "x.y": 1}))
    assert names == {"none", "empty", "list", "a", "a.b", "a.b.c", "x.y"}
    check_fields(parse_filter("a=1 and none=1 or not a.b.c>2"), names)
    with pytest.raises(ArgumentError):
        check_fields(parse_filter("a=1"), set())


@pytest.mark.parametrize("value", [2**53, -(2**53), 1e300, "text", True])
def test_a_value_without_an_exact_order_is_refused(value: float | str) -> None:
    with pytest.raises(ArgumentError):
        Comparison("year", ">=", value)
    assert Comparison("year", "=", value).value == value


DOTTED: dict[str, Any] = {
    "meta.lang": "de",
    "meta": {"lang": "en", "by": "x"},
    "a.b": {"c": 1},
    "a": {"b": {"c": 2, "d": 3}, "b.d": 4},
}
DOTTED |= {"two words": "yes", "and": 7, "it's": [True], "x\\y": 1, "none.x": None, "none": {"x": 1}}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("meta.lang=de", True),  # the literal name
        ("meta.lang=en", False),
        ("meta.by=x", True),  # the nested one
        ("a.b.c=1", True),  # the longest beginning
        ("a.b.d=4", True),
        ("none.x=1", False),
        ("'meta.lang'=de", True),
        ("'two words'=yes", True),
        ('"two words" in (no, yes)', True),
        ("not 'two words' not in (no, yes) and 'and'>6", True),
        (r"'it\'s'=true", True),
        (r"'x\\y'=1", True),
        ("'two words'^=yes/", False),
    ],
)
def test_a_name_is_the_literal_field_then_the_nested_one_and_may_be_quoted(text: str, passes: bool) -> None:
    assert matches(parse_filter(text), DOTTED) is passes


@pytest.mark.parametrize("text", ["and=7", "in=1", "'two words' yes", "'two words'", "not=1", "= 'x'"])
def test_a_keyword_without_quotes_is_no_name(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_filter(text)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("at=2021-05-06", True),
        ("at=2021-05-06T00:00:00Z", True),
        ("at='2021-05-06 02:00+02:00'", True),
        ("at in (x, 2021-05-05T23:00-01:00)", True),
        ("at!=2021-05-06T00:00", False),
        ("at=2021-05-07", False),
        ("lang=2021-05-06", False),
        ("year=2021-05-06", False),
    ],
)
def test_dates_are_equal_by_time(text: str, passes: bool) -> None:
    assert matches(parse_filter(text), FIELDS) is passes


def test_names_of_facets_may_be_quoted() -> None:
    assert listed_names(" lang ,'a, b',\"c\", d e/ ") == ["lang", "a, b", "c", "d e/"]
    assert listed_names("lang,") == ["lang", ""]


def written(filter: Filter) -> str:
    if isinstance(filter, Comparison):
        value = f"'{filter.value}'" if isinstance(filter.value, str) else str(filter.value).lower()
        return f"{spelled_name(filter.field)}{filter.operator}{value}"
    if isinstance(filter, Not):
        return f"not ({written(filter.part)})"
    word = " and " if isinstance(filter, Every) else " or "
    return "(" + word.join(map(written, filter.parts)) + ")"


def holds(filter: Filter, fields: dict[str, Any]) -> bool:
    """Apply a filter by Python's own operators."""
    if isinstance(filter, Comparison):
        if filter.operator == "^=":
            return str(fields.get(filter.field)).startswith(str(filter.value))
        return filter.field in fields and bool(fields[filter.field] == filter.value)
    if isinstance(filter, Not):
        return not holds(filter.part, fields)
    return (all if isinstance(filter, Every) else any)(holds(part, fields) for part in filter.parts)


FIELD_NAMES = st.sampled_from(["a", "b.c", "two words", "Not", "'", '"', "\\", "a\n=1", "^=", ""])
comparisons = st.builds(Comparison, FIELD_NAMES, st.just("="), st.sampled_from([1, 2, 2**53 + 1, "x", "2021-05-06"]))
comparisons |= st.builds(Comparison, FIELD_NAMES, st.just("^="), st.sampled_from(["x/", "x/y/", "*/"]))
filters = st.recursive(
    comparisons,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(lambda some: Every(tuple(some)), st.lists(parts, min_size=2, max_size=3)),
        st.builds(lambda some: Some(tuple(some)), st.lists(parts, min_size=2, max_size=3)),
    ),
    max_leaves=8,
)


@given(filters, st.dictionaries(FIELD_NAMES, st.sampled_from([1, 2, 2**53, "x", "x/y", "x/y/z", "*/", "2021-05-06"])))
def test_a_filter_written_out_is_read_again(filter: Filter, fields: dict[str, Any]) -> None:
    assert parse_filter(written(filter)) == filter
    assert matches(filter, fields) is holds(filter, fields)
