"""Blocks of a page, which each reader of a format makes, and the anchors of headings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vocable.data.records import MalformedError

MOST_NESTED = 20  # levels of nested blocks; deeper blocks are plain text

CONTENTS_MARK = "\0"  # text of a block in place of a table of contents
CONTENTS = re.compile(  # headings
    r"(?P<always>table of contents|on this page)|contents|toc|in this (?:article|section|page)|page contents",
    re.IGNORECASE,
)
INHERITED = re.compile(  # headings of lists by Javadoc and Doxygen
    r"(?:[\w/, ]{1,60} (?:inherited from|declared in) (?:class|interface)"
    r"|(?:public|protected|private|static|additional)\b[\w/, ]{1,60} inherited from) \S.*",
    re.IGNORECASE,
)
FEWEST_LINKS = 3  # to anchors, of a table of contents


class PageError(MalformedError):
    """A file cannot be read as a page; `line` is the line in the file."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Block(NamedTuple):
    """A heading, a paragraph, a list, a table or code, as text.

    Args:
        text: its text without markup; pages omit blocks without text.
        line: its first line in the file, counted from 1.
        level: the level of a heading, from 1; 0 for other blocks.
        anchor: the anchor of a heading, if the page sets it.
    """

    text: str
    line: int
    level: int = 0
    anchor: str = ""


def without_contents(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks without tables of contents, the headings above them, and lists of inherited members."""
    kept, is_inherited = list[Block](), False
    for block in blocks:
        if block.level:
            is_inherited = INHERITED.fullmatch(block.text) is not None
            match = CONTENTS.fullmatch(block.text)
            if not is_inherited and not (match and match["always"]):
                kept.append(block)
        elif block.text == CONTENTS_MARK:
            if kept and kept[-1].level and CONTENTS.fullmatch(kept[-1].text):
                kept.pop()
        elif not is_inherited:
            kept.append(block)
    return kept


class Remark(NamedTuple):
    """A message about a line that is probably not read as its author meant it."""

    message: str
    line: int


class Part(NamedTuple):
    """A document of a page: a section, several small sections, or a part of a large section; or a part of source code.

    Args:
        anchor: the anchor of its first heading; None before the first heading.
        number: the number of the part of a large section, from 1.
        title: its first heading.
        path: the headings above it and its first heading, from the top, without repetitions and general headings.
        text: the text after the first heading.
        line: the line of its first block, counted from 1.
        last_line: of source code, its last line.
    """

    anchor: str | None
    number: int
    title: str
    path: str
    text: str
    line: int
    last_line: int = 0


class Page(NamedTuple):
    """The blocks of a page in order, its title if it has one apart from the headings, and further fields.

    With `makes_anchors`, a site makes an anchor of a heading that has none in the page. `unreadable` counts characters
    that are not in the encoding of the page. `left_out` names parts that many pages repeat.

    Source code has no blocks but `code`, its documents; `is_generated` if a program wrote it.
    """

    blocks: list[Block]
    title: str = ""
    fields: Mapping[str, object] = {}
    remark: Remark | None = None
    makes_anchors: bool = True
    unreadable: int = 0
    left_out: str = ""
    code: tuple[Part, ...] = ()
    is_generated: bool = False


class Anchors:
    """The anchors of the headings of a page as GitHub makes them, all different.

    >>> anchors = Anchors()
    >>> [anchors.of(heading) for heading in ("What's new?", "Whats new", "C++ & C", "Whats new")]
    ['whats-new', 'whats-new-1', 'c--c', 'whats-new-2']
    """

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}

    def is_free(self, anchor: str) -> bool:
        """Return whether `of` would return an explicit anchor as it is."""
        return anchor not in self._uses and not re.search(r"\s", anchor)

    def of(self, heading: str, explicit: str = "") -> str:
        """Return an unused anchor made from a heading, or from the `explicit` anchor that the page sets."""
        base = re.sub(r"\s+", "-", explicit.strip()) or "".join(filter(_stays, heading.lower())).replace(" ", "-")
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
