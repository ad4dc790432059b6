from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data.pages.admonitions import quoted
from vocable.data.pages.blocks import MOST_NESTED
from vocable.data.pages.markdown import markdown_page


def texts(text: str) -> list[str]:
    return [block.text for block in markdown_page(text).blocks]


@pytest.mark.parametrize(
    "start", ["!!! note", "!!!note", "??? tip", "???+ danger", "!!! note inline end", '!!! note ""']
)
def test_the_kind_is_no_text(start: str) -> None:
    assert texts(f"Before.\n\n{start}\n\n    Charge *it*.\n\n    - [x] one\n\nAfter.") == [
        "Before.",
        "Charge it.\n- one",
        "After.",
    ]


def test_titles_and_tabs() -> None:
    assert texts('!!! note "A \\"title\\" here"\n    Text.') == ['A "title" here\nText.']
    assert texts('=== "Linux"\n\n    apt\n\n=== "macOS"\n\n    brew\n') == ["Linux\napt", "macOS\nbrew"]


def test_alerts_of_github() -> None:
    assert texts("> [!NOTE]\n> Charge it.\n\n> [!other]\n> Text.") == ["Charge it.", "[!other]\nText."]


def test_admonitions_in_each_other_and_in_lists() -> None:
    assert texts("!!! note\n    Outer.\n\n    ??? tip\n        Inner.\n\n    Outer again.\n") == [
        "Outer.\nInner.\nOuter again."
    ]
    assert texts("- item\n\n    !!! note\n        Charge it.\n") == ["- item\n  Charge it."]


def test_headings_in_admonitions_are_text() -> None:
    assert [block.level for block in markdown_page("!!! note\n    # No heading\n\n# Heading").blocks] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "!!! important",
        "!!! important\n\ntext",
        "Heading\n===\n\n    code",
        "```\n!!! note\n    text\n```",
        "~~~ md\n```\n!!! note\n    text\n~~~",
        "!!!\n    code",
        "What???\n    more",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert quoted(text) == text


def test_deep_and_long_ones_take_no_time() -> None:
    deep = "\n".join(f"{'    ' * level}!!! note" for level in range(600)) + "\n" + "    " * 600 + "end"
    assert quoted(deep).count("\n") == deep.count("\n")
    assert quoted(deep).splitlines()[-1].startswith("> " * MOST_NESTED + " ")
    for long in ("!!! a" + " " * 200_000 + "!", '!!! a "' * 40_000, "=== " + '"' * 200_000, "`" * 200_000 + "x`"):
        assert quoted(f"{long}\n    text") == f"{long}\n    text" or long.endswith('"')


LINES = ["!!! note", '??? tip "T"', "    text", "        more", "", "```", "    ```", "- item", "> [!NOTE]", '=== "a"']


@given(st.lists(st.sampled_from(LINES), max_size=15))
def test_lines_keep_their_numbers_and_words(lines: list[str]) -> None:
    text = "\n".join(lines)
    made = quoted(text)
    assert made.count("\n") == text.count("\n")
    for word in ("text", "more", "item", "T", "a"):
        assert re.findall(r"\b\w+\b", made).count(word) == re.findall(r"\b\w+\b", text).count(word)
