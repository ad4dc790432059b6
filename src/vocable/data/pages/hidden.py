"""Hidden elements of HTML that hold several blocks of Markdown, such as `<div hidden>`, a blank line, and text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vocable.data.pages.mdx import TAG, tags_of
from vocable.data.pages.shown import is_hidden
from vocable.data.pages.tags import VOID_TAGS, Tag, tags

if TYPE_CHECKING:
    from markdown_it.token import Token


def empty_hidden(tokens: Sequence[Token], *, is_mdx: bool) -> None:
    """Take the content of the tokens away that stand in a hidden element which an earlier token begins."""
    hidden = _HiddenElement()
    for token in tokens:
        if token.nesting < 0 and token.level < hidden.level:  # the end of a quote or an item ends the elements in it
            hidden.depth = 0
        if token.type == "html_block":
            start = hidden.end_in(tags(token.content), token.level) if hidden.depth else 0
            if start < 0:
                token.content = ""
                continue
            token.content = "\n" * token.content[:start].count("\n") + token.content[start:]
            hidden.begin_in(tags(token.content), token.level)
        elif token.type == "inline":
            _read_inline(token, hidden, is_mdx)
        elif hidden.depth:
            token.content = ""


def _read_inline(token: Token, hidden: _HiddenElement, is_mdx: bool) -> None:
    """Keep the children of a token outside the hidden element; an element of MDX alone goes on in further blocks."""
    children: list[Token] = []
    was_hidden = bool(hidden.depth)
    for child in token.children or ():
        tag = TAG.match(child.content) if child.type == "html_inline" else None
        if hidden.depth:
            hidden.end_in(() if tag is None else tags_of(tag), token.level)
            continue
        if tag is not None and is_mdx:
            hidden.begin_in(tags_of(tag), token.level)
        if not hidden.depth:
            children.append(child)
    token.children = children
    if was_hidden:
        token.content = "".join(child.content for child in children)


class _HiddenElement:
    """The hidden element that is open, if any, as the number of open elements of its name."""

    def __init__(self) -> None:
        self.name, self.depth, self.level = "", 0, 0

    def begin_in(self, elements: Iterable[Tag], level: int) -> None:
        """Open the last hidden element that the tags begin and do not end; a paragraph has no further block."""
        for tag in elements:
            if self.depth:
                self._count(tag)
            elif not tag.is_end and tag.name not in VOID_TAGS and tag.name not in ("", "p") and is_hidden(tag):
                self.name, self.depth, self.level = tag.name, 1, level

    def end_in(self, elements: Iterable[Tag], level: int) -> int:
        """Return the place of the tag that ends the hidden element, -1 if none does."""
        for tag in elements:
            self._count(tag)
            if not self.depth:
                return tag.at
        return -1

    def _count(self, tag: Tag) -> None:
        if tag.name == self.name:
            self.depth += -1 if tag.is_end else 1
