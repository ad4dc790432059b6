from __future__ import annotations

import datetime

import pytest

from vocable.data.pages.blocks import PageError
from vocable.data.pages.front_matter import front_matter


def test_fields() -> None:
    text = "---\ntitle: A\ntags: [a, 1]\nday: 2024-03-01\nnested: {a: {b: c}}\n1: x\n---\n# Text"
    fields, length = front_matter(text)
    nested = {"nested": {"a": {"b": "c"}}, "1": "x"}
    assert fields == {"title": "A", "tags": ["a", 1], "day": datetime.date(2024, 3, 1), **nested}
    assert text[length:] == "# Text"


@pytest.mark.parametrize(
    "text", ["", "# a", "---\nno end", "---\nText\n---\n", "---- \na: 1\n---\n", "\n---\na: 1\n---\n"]
)
def test_texts_without_front_matter(text: str) -> None:
    assert front_matter(text) == ({}, 0)


@pytest.mark.parametrize("text", ["---\n---\n", "---\n# nothing\n...\n", "---\n---"])
def test_empty_front_matter(text: str) -> None:
    assert front_matter(text) == ({}, len(text))


@pytest.mark.parametrize(
    ("values", "line", "fact"),
    [
        ("a: 1\nb: [1", 4, "expected"),
        ("a: 1\n\tb: 1", 3, "tab|token|character"),
        ("d: 2024-02-31", 2, "day"),
        ("a: &x [1]\nb: *x", 3, "aliases"),
        ("a: !!python/object:os.system 1", 2, "constructor"),
        ("a: " + "[" * 5000, 2, "recursion"),
        ("n: " + "9" * 5000, 2, "digits"),
    ],
)
def test_front_matter_that_is_not_yaml(values: str, line: int, fact: str) -> None:
    with pytest.raises(PageError, match=fact) as error:
        front_matter(f"---\n{values}\n---\n")
    assert error.value.line == line
