"""Cuts between graphemes, as the package regex finds them."""

from __future__ import annotations

import regex
from hypothesis import given
from hypothesis import strategies as st

from vocable.core.graphemes import MOST_CODES, beginning, boundary

FAMILY, FLAG = "👩‍👩‍👧‍👦", "🇩🇪"
PARTS = ["a", " ", "e\u0301", "क्षि", FAMILY, FLAG, "👍🏽", "❤️", "각", "ｶﾞ", "\r\n", "東", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=20).map("".join)


def boundaries(text: str) -> list[int]:
    """Places between graphemes; a conjunct of Devanagari may be cut, as older versions of the rules cut it."""
    return [0, *(match.end() for match in regex.finditer(r"\X", text))]


@given(TEXTS, st.integers(0, 60))
def test_a_cut_is_the_last_place_between_graphemes(text: str, at: int) -> None:
    place = boundary(text.replace("क्षि", "कि"), at)
    allowed = [one for one in boundaries(text.replace("क्षि", "कि")) if one <= at]
    assert place == allowed[-1]


@given(TEXTS, st.integers(1, 60))
def test_a_beginning_is_whole_or_ends_with_an_ellipsis(text: str, length: int) -> None:
    shown = beginning(text, length)
    assert shown == text if len(text) <= length else shown[-1] == "…" and text.startswith(shown[:-1])
    assert len(shown) <= max(length, 1) + 1


def test_endless_marks_are_cut_at_the_limit() -> None:
    assert boundary("a" + "\u0301" * 500, 300) == 300
    assert boundary("a" + "\u0301" * 500, MOST_CODES // 2) == 0
