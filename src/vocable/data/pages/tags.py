"""Tags and texts of an HTML page, in one pass over any input.

Python's `html.parser` takes minutes for 400 kB of `<!--`, lexbor for 400 kB of nested `<div>`; libxml2 reads the same
texts without their lines, at the same speed (research/documents.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import NamedTuple

VOID_TAGS = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
PARAGRAPHS = frozenset(  # end a heading
    {"p", "pre", "ul", "ol", "table", "section", "article", "main", *(f"h{level}" for level in range(1, 7))}
)
BLOCK_TAGS = frozenset(
    {"address", "aside", "audio", "blockquote", "body", "caption", "dd", "details", "dialog", "div", "dl", "dt"}
    | {"fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "label", "legend", "menu"}
    | {"summary", "tbody", "tfoot", "thead", "video", *PARAGRAPHS}
)
# White space, a name, and perhaps a value; a quotation mark that is not closed ends the page.
ATTRIBUTE = re.compile(
    r"""[\s/]*(?:([^\s/>=][^\s/>=]*|=[^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)))?)"""
)
TAG_NAME = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)")
TAG_END = re.compile(r"[\s/]*>")
UNCLOSED = re.compile(r"""\s*=\s*["']""")
RAW_TAGS = ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")  # have no tags inside
NO_WIDTH = re.compile("[\u00ad\u200b\u2060\ufeff]")
LONG_NUMBER = re.compile(r"&#(x?[0-9a-fA-F]{9,});?")


class Tag(NamedTuple):
    """A start tag, an end tag or, with the name "", a text; `at` is its first character in the page."""

    name: str
    at: int
    is_end: bool = False
    attributes: Mapping[str, str] = {}
    text: str = ""


def tags(page: str) -> Iterator[Tag]:
    """Yield the tags and texts of a page, without comments and declarations.

    An unfinished tag and everything after it are text.
    """
    # No tag ends after the last `>`. Without this place, each `<` would be searched to the end of the page.
    at, last = 0, page.rfind(">")
    while at < len(page):
        # The text up to the next tag.
        start = page.find("<", at)
        start = len(page) if start < 0 else start
        if start > at:
            yield Tag("", at, text=decoded(page[at:start]))
        if start == len(page):
            return
        if (name := TAG_NAME.match(page, start)) is not None:
            # A tag. An element such as script contains no tags: its text is skipped or taken whole.
            parsed = _attributes(page, name.end()) if start < last else None
            if parsed is None:
                yield Tag("", start, text=decoded(page[start:]))
                return
            values, at = parsed
            tag = Tag(name[2].lower(), start, bool(name[1]), values)
            yield tag
            if tag.name in RAW_TAGS and not tag.is_end:
                end = _raw_end(page, tag.name, at)
                if tag.name in ("title", "xmp"):
                    yield Tag("", at, text=decoded(page[at:end]) if tag.name == "title" else page[at:end])
                at = end
        elif page.startswith(("<!", "<?", "</"), start):
            # A comment or declaration.
            closing = "-->" if page.startswith("<!--", start) else ">"
            end = page.find(closing, start + 2)
            at = len(page) if end < 0 else end + len(closing)
        else:
            # A "<" that begins no tag is text.
            yield Tag("", start, text="<")
            at = start + 1


def _attributes(page: str, at: int) -> tuple[dict[str, str], int] | None:
    """Return the attributes of a tag and the position after it; None if the tag does not end."""
    values = dict[str, str]()
    while (end := TAG_END.match(page, at)) is None:
        attribute = ATTRIBUTE.match(page, at)
        if attribute is None or UNCLOSED.match(page, attribute.end()):
            return None
        value = next((group for group in attribute.groups()[1:] if group is not None), "")
        values.setdefault(attribute[1].lower(), decoded(value))
        at = attribute.end()
    return values, end.end()


def _raw_end(page: str, name: str, at: int) -> int:
    """Return the position of the end tag of an element that contains no tags, or the end of the page."""
    end_tag = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(page, at)
    return len(page) if end_tag is None else end_tag.start()


def decoded(text: str) -> str:
    """Return a text without character references.

    >>> decoded("Q&amp;A &#x41; &#99999999999999;")
    'Q&A A \\ufffd'
    """
    return visible(unescape(LONG_NUMBER.sub("\ufffd", text))) if "&" in text else text


def visible(text: str) -> str:
    """Return a text without characters of no width: soft hyphens, zero-width spaces and word joiners.

    >>> visible("co\u00adoperate(\u200bint\u2060)")
    'cooperate(int)'
    """
    return text if text.isascii() else NO_WIDTH.sub("", text)
