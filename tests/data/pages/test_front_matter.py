from __future__ import annotations

import datetime

import pytest

from vocable.data.pages.front_matter import front_matter


def test_fields() -> None:
    text = "---\ntitle: A\ntags: [a, 1]\nday: 2024-03-01\nnested: {a: {b: c}}\n1: x\n---\n# Text"
    found = front_matter(text)
    nested = {"nested": {"a": {"b": "c"}}, "1": "x"}
    assert found.fields == {"title": "A", "tags": ["a", 1], "day": datetime.date(2024, 3, 1), **nested}
    assert found[1:] == ("# Text", 8, None)


def test_fields_in_toml() -> None:
    text = '+++\ntitle = "A"\ntags = ["a", 1]\nday = 2024-03-01\n[nested.a]\nb = "c"\n+++\n# Text'
    found = front_matter(text)
    nested = {"nested": {"a": {"b": "c"}}}
    assert found.fields == {"title": "A", "tags": ["a", 1], "day": datetime.date(2024, 3, 1), **nested}
    assert found[1:] == ("# Text", 8, None)


@pytest.mark.parametrize(
    "text",
    ["", "# a", "---\nno end", "---\nText\n---\n", "---- \na: 1\n---\n", "\n---\na: 1\n---\n", "+++\na = 1\n---\n"],
)
def test_texts_without_front_matter(text: str) -> None:
    assert front_matter(text) == ({}, text, 1, None)


@pytest.mark.parametrize("text", ["---\n---\n", "---\n# nothing\n...\n", "---\n---", "+++\n+++", "+++\n# a\n+++\n"])
def test_empty_front_matter(text: str) -> None:
    assert front_matter(text)[:2] == ({}, "")


@pytest.mark.parametrize(
    ("values", "line", "fact"),
    [
        ("a: 1\nb: [1", 4, "expected"),
        ("a: 1\n\tb: 1", 3, "token"),
        ("title: one: two", 2, "mapping values"),
        ("d: 2024-02-31", 2, "day"),
        ("a: &x [1]\nb: *x", 3, "aliases"),
        ("a: !!python/object:os.system 1", 2, "constructor"),
        ("a: " + "[" * 5000, 2, "recursion"),
        ("n: " + "9" * 5000, 2, "digits"),
    ],
)
def test_front_matter_that_is_not_yaml_is_text(values: str, line: int, fact: str) -> None:
    found = front_matter(f"---\n{values}\n---\n# Text")
    assert found[:3] == ({}, f"\n{values}\n\n# Text", 1)
    assert found.remark is not None
    assert (found.remark.line, fact in found.remark.message) == (line, True)


@pytest.mark.parametrize(
    ("values", "line", "fact"),
    [
        ("a = 1\nb = [1", 3, "Unclosed array"),
        ("a = 1\ntitle: A", 3, "Expected '='"),
        ("d = 2024-02-31", 2, "date"),
        ("a = " + "[" * 5000, 2, "recursion"),
        ("n = " + "9" * 5000, 2, "digits"),
    ],
)
def test_front_matter_that_is_not_toml_is_text(values: str, line: int, fact: str) -> None:
    found = front_matter(f"+++\n{values}\n+++\n# Text")
    assert found[:3] == ({}, f"\n{values}\n\n# Text", 1)
    assert found.remark is not None
    assert (found.remark.line, fact in found.remark.message) == (line, True)


@pytest.mark.parametrize("value", ["!!bool maybe", '!!int ""', "!!int _", '!!float ""', "!!timestamp x", "[" * 10_000])
def test_a_value_that_yaml_cannot_make_leaves_the_front_matter_as_text(value: str) -> None:
    fields, text, _, remark = front_matter(f"---\na: {value}\n---\n# b")
    assert not fields
    assert value in text
    assert remark is not None
    assert "not YAML" in remark.message


@pytest.mark.parametrize("text", ["---\na: {}\n---\nb", '+++\na = "{}"\n+++\nb'])
def test_front_matter_of_more_than_16_000_characters_is_text(text: str) -> None:
    most = 16_000 - text.count('"') - len("a: \n") - text.count("=")
    assert front_matter(text.format("x" * most)).fields == {"a": "x" * most}
    found = front_matter(text.format("x" * (most + 1)))
    assert found.fields == {}
    assert "x" * (most + 1) in found.text
    assert found.remark is not None
    assert "16,000" in found.remark.message
