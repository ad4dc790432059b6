"""Blocks of a page, which each reader of a format makes, and the anchors of headings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from vocable.data.records import MalformedError

MOST_NESTED = 20  # blocks in blocks; deeper ones are plain text


class PageError(MalformedError):
    """A file is no page that can be read; `line` is the line in the file."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Block(NamedTuple):
    """A heading, a paragraph, a list, a table or code, as text.

    Args:
        text: without markup; blocks without text are left out of pages.
        line: its first line in the file, counted from 1.
        level: of a heading, from 1; 0 for other blocks.
        anchor: of a heading, if the page sets it.
    """

    text: str
    line: int
    level: int = 0
    anchor: str = ""


class Remark(NamedTuple):
    """A message about a line that is read otherwise than it seems to be meant."""

    message: str
    line: int


class Page(NamedTuple):
    """The blocks of a page in order, its title besides its headings, and further fields."""

    blocks: list[Block]
    title: str = ""
    fields: Mapping[str, object] = {}
    remark: Remark | None = None


class Anchors:
    """Anchors of the headings of a page as GitHub makes them, each once.

    >>> anchors = Anchors()
    >>> [anchors.of(heading) for heading in ("What's new?", "Whats new", "C++ & C", "Whats new")]
    ['whats-new', 'whats-new-1', 'c--c', 'whats-new-2']
    """

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}

    def of(self, heading: str, own: str = "") -> str:
        """Return the next anchor of a heading, or of its `own` anchor."""
        base = re.sub(r"\s+", "-", own.strip()) or "".join(filter(_stays, heading.lower())).replace(" ", "-")
        anchor = base
        while anchor in self._uses:
            self._uses[base] += 1
            anchor = f"{base}-{self._uses[base]}"
        self._uses[anchor] = 0
        return anchor


def _stays(character: str) -> bool:
    """Return whether an anchor keeps a character: letters, marks, digits, connectors, hyphens and spaces."""
    kind = unicodedata.category(character)
    return character in "- " or kind[0] in "LM" or kind in ("Nd", "Nl", "Pc")
