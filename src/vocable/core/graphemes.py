"""Cuts of texts between graphemes, so that no accent, emoji or flag is halved."""

from __future__ import annotations

import unicodedata

JOINER = "\u200d"  # makes one emoji of two
MOST_CODES = 64  # code points of a grapheme; a longer one is cut


def boundary(text: str, at: int) -> int:
    r"""Return the last place between two graphemes that is not after `at`.

    >>> boundary("cafe\u0301", 4), boundary("a\N{WOMAN}\u200d\N{PERSONAL COMPUTER}", 2), boundary("fox", 2)
    (3, 1, 2)
    """
    if at >= len(text):
        return len(text)
    for place in range(at, max(at - MOST_CODES, 0), -1):
        if _divides(text, place):
            return place
    # A grapheme that is too long is cut; any other begins the text.
    return at if at > MOST_CODES else 0


def beginning(text: str, length: int) -> str:
    """Return a text of at most `length` characters, or its beginning with an ellipsis.

    >>> beginning("東京都の猫", 2), beginning("fox", 3)
    ('東京…', 'fox')
    """
    return text if len(text) <= length else f"{text[: boundary(text, length)]}…"


def _divides(text: str, at: int) -> bool:
    """Return whether a grapheme ends before `at` (the rules of Unicode's annex 29 that matter for shown texts)."""
    left, right = text[at - 1], text[at]
    if left == JOINER or (left, right) == ("\r", "\n"):
        return False
    if right in "\u200c\u200d\uff9e\uff9f" or unicodedata.category(right).startswith("M") or _continues(right):
        return False
    if not (_is_flag_letter(left) and _is_flag_letter(right)):
        return True
    start = at - 1
    while start and _is_flag_letter(text[start - 1]):
        start -= 1
    return (at - start) % 2 == 0  # two letters are a flag


def _continues(character: str) -> bool:
    """Return whether a character is a vowel or final of Hangul, a skin tone, or a tag of a flag."""
    code = ord(character)
    return 0x1160 <= code <= 0x11FF or 0x1F3FB <= code <= 0x1F3FF or 0xE0020 <= code <= 0xE007F


def _is_flag_letter(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF
