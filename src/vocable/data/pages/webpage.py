"""HTML pages as blocks of text: their main part, without navigation, scripts and other chrome."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from vocable.data.pages.blocks import Block, Page
from vocable.data.pages.tags import Tag, tags

VOID_TAGS = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
UNREAD = frozenset(["nav", "template", "svg", "noscript", "select", "button", "object", "rp", "rt"])
CHROME = frozenset(["header", "footer", "aside"])  # not read outside the main part
CHROME_ROLES = frozenset(["navigation", "search", "banner", "contentinfo", "complementary"])  # never read
UNREAD_CLASSES = frozenset(  # and ids: permanent links, numbers of lines, chrome of generators such as DocBook
    {"headerlink", "anchor-link", "permalink", "hash-link", "headeranchor", "linenos", "linenodiv"}
    | {"navheader", "navfooter", "nav-panel", "footer", "toctree-wrapper", "ingroups", "inherited-list"}
)
NOTES = frozenset(["note", "tip", "important", "warning", "caution", "danger", "admonition"])  # classes; no sections
TITLE_CLASS = "headertitle"  # Doxygen's title of a page
HEADINGS = {f"h{level}": level for level in range(1, 7)}
PARAGRAPHS = frozenset(["p", "pre", "ul", "ol", "table", "section", "article", "main", *HEADINGS])  # end a heading
BLOCK_TAGS = frozenset(
    {"address", "aside", "audio", "blockquote", "body", "caption", "dd", "details", "dialog", "div", "dl", "dt"}
    | {"fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "label", "legend", "menu"}
    | {"summary", "tbody", "tfoot", "thead", "video", *PARAGRAPHS}
)
TIGHT = ("ul", "ol", "menu", "table")  # blocks inside are lines
SECTIONS = ("section", "div", "article")  # whose id is the anchor of their first heading
SITE = re.compile(r"\s+[|—·]\s[^|—·]*$|\s+\([^()]* API\)$|(?<=\S) - Rust$")  # a site's name at the end of a title
BODY, ARTICLE, MAIN = range(3)  # parts of a page, the later the better


def web_page(text: str) -> Page:
    """Return the page of an HTML text: the content of `main`, else of `article`, else all but the chrome, else all."""
    reader = _read(text, whole=False)
    if not reader.blocks:
        reader = _read(text, whole=True)
    best = max((part for part, _ in reader.blocks), default=BODY)
    title = SITE.sub("", " ".join(reader.title.split()))
    return Page([block for part, block in reader.blocks if part == best], title, makes_anchors=False)


def _read(text: str, *, whole: bool) -> _Reader:
    reader = _Reader(text, whole)
    for tag in tags(text):
        if tag.name == "":
            reader.add(tag)
        elif tag.is_end:
            reader.end(tag.name)
        else:
            reader.begin(tag)
    reader.flush()
    return reader


class _Element(NamedTuple):
    """An open element, with its part of the page; `anchor` is the id of its section.

    `out` tells that its text is not read, `note` that it is in a note.
    """

    name: str
    out: bool = False
    note: bool = False
    part: int = BODY
    anchor: str = ""
    is_heading: bool = False


class _Reader:
    """The blocks of a page so far, each with its part, the open elements, and the block that is being read.

    With `whole`, all text is read, the chrome included.
    """

    def __init__(self, page: str, whole: bool) -> None:
        self.page, self.whole = page, whole
        self.blocks: list[tuple[int, Block]] = []
        self.title = ""
        self.open = [_Element("")]
        self.counts: Counter[str] = Counter()  # of open elements, by name
        self.used: set[str] = set()  # anchors of sections whose heading is read
        self.pieces: list[str] = []
        self.raw = self.has_text = False  # the block has preformatted text; it has any text
        self.start = self.line_start = 0  # of the block, and of the line that was counted
        self.line = 1
        self.level = 0  # of the heading that is being read
        self.anchor = ""  # of that heading, or of the last element that began after the last text
        self.above = ""  # anchor before that heading, or of its section
        self.cells = 0

    def add(self, tag: Tag) -> None:
        """Add a text to the block."""
        top = self.open[-1]
        if top.name == "title" and not self.counts["svg"]:
            self.title = self.title or tag.text
        elif not top.out:
            raw = self.counts["pre"] > 0
            text = tag.text if raw else re.sub(r"\s+", " ", tag.text)
            if not raw and self.pieces and self.pieces[-1][-1:] in ("", " ", "\n"):
                text = text.lstrip(" ")
            if not self.pieces:
                self.start = tag.at
            if text.strip():
                self.raw, self.has_text = self.raw or raw, True
                self.anchor = self.anchor if self.level else ""
            if text and (raw or self.pieces or text.strip()):
                self.pieces.append(text)

    def begin(self, tag: Tag) -> None:
        """Open an element."""
        name, top = tag.name, self.open[-1]
        element = self._element(tag, top)
        if (self.level and name in PARAGRAPHS) or (name in BLOCK_TAGS and not self.level):
            self._break()
        own_anchor = tag.attributes.get("id") or tag.attributes.get("name" if name == "a" else "") or ""
        if element.is_heading and not (top.out or top.note):
            self.flush()
            self.level = HEADINGS.get(name, 1)
            self.above = self.anchor or self._section_anchor(top.anchor)
            self.anchor = own_anchor
        elif not element.out and not (self.level and (self.has_text or self.anchor)):
            self.anchor = own_anchor or self.anchor
        if not top.out:
            self._mark(name, tag)
        if name not in VOID_TAGS:
            self.open.append(element)
            self.counts[name] += 1

    def _mark(self, name: str, tag: Tag) -> None:
        """Add the text that an element stands for: a line end, the mark of an item, a bar, an image's description."""
        if name in ("br", "tr", "li"):
            self._new_line()
            self.cells = 0
        if name == "li":
            self.pieces.append("- ")
        if name in ("td", "th"):
            self.pieces += [" | "] * (self.cells > 0)
            self.cells += 1
        if name == "img" and (alt := " ".join(tag.attributes.get("alt", "").split())):
            self.add(Tag("", tag.at, text=alt))

    def _element(self, tag: Tag, above: _Element) -> _Element:
        values, name = tag.attributes, tag.name
        role, classes = values.get("role", "").lower(), {*values.get("class", "").split(), values.get("id", "")}
        part = max(above.part, MAIN if name == "main" or role == "main" else ARTICLE * (name == "article"))
        hidden = "hidden" in values or values.get("aria-hidden") == "true" or not UNREAD_CLASSES.isdisjoint(classes)
        chrome = part == BODY and (name in CHROME)
        out = above.out or name in UNREAD or role in CHROME_ROLES or hidden or chrome
        anchor = values.get("id", "") if name in SECTIONS else ""
        note = above.note or not NOTES.isdisjoint(classes)
        is_heading = name in HEADINGS or TITLE_CLASS in classes
        return _Element(
            name=name,
            out=out and not self.whole,
            note=note,
            part=part,
            anchor=anchor or above.anchor,
            is_heading=is_heading,
        )

    def end(self, name: str) -> None:
        """Close the last open element of a name and the elements in it; do nothing if no such element is open."""
        if self.counts[name]:
            while self.open[-1].name != name:
                self._close()
            self._close()

    def _close(self) -> None:
        name = self.open[-1].name
        if name in BLOCK_TAGS and (self.open[-1].is_heading or not self.level):
            self._break()
        self.open.pop()
        self.counts[name] -= 1

    def _section_anchor(self, anchor: str) -> str:
        """Return the id of a section for its first heading, and "" for later headings."""
        if anchor in self.used:
            return ""
        self.used.add(anchor)
        return anchor

    def _break(self) -> None:
        """End the block, or the line in a list or table."""
        if not self.level and any(self.counts[name] for name in TIGHT):
            self._new_line()
        else:
            self.flush()

    def _new_line(self) -> None:
        if self.pieces and not self.pieces[-1].endswith(("\n", "- ", "| ")):
            self.pieces.append("\n")

    def flush(self) -> None:
        """End the block, and drop it if it has no text."""
        text = "".join(self.pieces)
        if self.level:
            text = " ".join(text.split())
        elif self.raw:
            text = "\n".join(line.rstrip() for line in text.split("\n")).strip("\n").removesuffix("\n-")
        else:
            text = "\n".join(line for line in map(str.strip, text.split("\n")) if line not in ("", "-", "|"))
        if text.strip("-| \n"):
            self.line += self.page.count("\n", self.line_start, self.start)
            self.line_start = max(self.start, self.line_start)
            anchor = (self.anchor or self.above) if self.level else ""
            self.blocks.append((self.open[-1].part, Block(text, self.line, self.level, anchor)))
            self.anchor = "" if self.level else self.anchor
        self.pieces, self.raw, self.has_text, self.level, self.cells = [], False, False, 0, 0
