"""HTML pages as blocks of text: their main part, without navigation, scripts and other chrome."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from vocable.data.pages.blocks import CONTENTS_MARK, FEWEST_LINKS, Block, Page, without_contents
from vocable.data.pages.shown import BLANKET, BODY, MAIN, part_of, shown
from vocable.data.pages.tags import BLOCK_TAGS, PARAGRAPHS, VOID_TAGS, Tag, tags

NOTES = frozenset(["note", "tip", "important", "warning", "caution", "danger", "admonition"])  # classes; no sections
TITLE_CLASS = "headertitle"  # Doxygen's title of a page
HEADINGS = {f"h{level}": level for level in range(1, 7)}
TIGHT = ("ul", "ol", "menu", "table")  # blocks inside are lines
TABLE_CELLS = ("td", "th")  # are in the line of their row
KEEP_LINES = ("tr", "li", "pre", *TABLE_CELLS)  # in a cell: it is a part of the page, or lacks its end tag
SECTIONS = ("section", "div", "article")  # whose id is the anchor of their first heading
SITE = re.compile(r"\s+[|—·]\s[^|—·]*$|\s+\([^()]* API\)$|(?<=\S) - Rust$")  # a site's name at the end of a title


def web_page(text: str) -> Page:
    """Return the page of an HTML text: the content of `main`, else of `article`, else all but the chrome, else all."""
    reader = _read(text, whole=False)
    if not reader.blocks:
        reader = _read(text, whole=True)
    best = max((part for part, _ in reader.blocks), default=BODY)
    title = SITE.sub("", " ".join(reader.title.split()))
    blocks = without_contents(block for part, block in reader.blocks if part == best)
    left_out = "blanket implementations" if f'id="{BLANKET}-list"' in text else ""
    return Page(blocks, title, makes_anchors=False, left_out=left_out)


def html_blocks(text: str) -> list[Block]:
    """Return the blocks that a piece of HTML in the main part of a page shows."""
    return without_contents(block for _, block in _read(text, whole=False, part=MAIN).blocks)


def _read(text: str, *, whole: bool, part: int = BODY) -> _Reader:
    """Read what a page, or a part of it, shows; with `whole`, the chrome included."""
    reader = _Reader(text)
    for tag in tags(text) if whole else shown(tags(text), part):
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

    `note` tells that it is in a note, `is_local` that it is in a link to an anchor.
    """

    name: str
    note: bool = False
    is_local: bool = False
    part: int = BODY
    anchor: str = ""
    is_heading: bool = False


class _Reader:
    """The blocks of a page so far, each with its part, the open elements, and the block that is being read."""

    def __init__(self, page: str) -> None:
        self.page = page
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
        self.cell_start = -1  # of the open cell, in `pieces`; -1 if it keeps its lines
        self.links = 0  # to anchors, in the block; -1 after other text

    def add(self, tag: Tag) -> None:
        """Add a text to the block."""
        top = self.open[-1]
        if top.name == "title" and not self.counts["svg"]:
            self.title = self.title or tag.text
        else:
            raw = self.counts["pre"] > 0
            text = tag.text if raw else re.sub(r"\s+", " ", tag.text)
            if not raw and self.pieces and self.pieces[-1][-1:] in ("", " ", "\n"):
                text = text.lstrip(" ")
            if not self.pieces:
                self.start = tag.at
            if text.strip():
                self.raw, self.has_text = self.raw or raw, True
                self.anchor = self.anchor if self.level else ""
                if not top.is_local and re.search(r"[^\W\d]", text):
                    self.links = -1
            if text and (raw or self.pieces or text.strip()):
                self.pieces.append(text)

    def begin(self, tag: Tag) -> None:
        """Open an element."""
        name, top = tag.name, self.open[-1]
        element = self._element(tag, top)
        if (self.level and name in PARAGRAPHS) or (name in BLOCK_TAGS and not self.level):
            self._break()
        own_anchor = tag.attributes.get("id") or tag.attributes.get("name" if name == "a" else "") or ""
        if element.is_heading and not top.note:
            self.flush()
            self.level = HEADINGS.get(name, 1)
            self.above = self.anchor or self._section_anchor(top.anchor)
            self.anchor = own_anchor
        elif not (self.level and (self.has_text or self.anchor)):
            self.anchor = own_anchor or self.anchor
        self.links += element.is_local and not top.is_local and self.links >= 0
        self._mark(name, tag)
        if name not in VOID_TAGS:
            self.open.append(element)
            self.counts[name] += 1

    def _mark(self, name: str, tag: Tag) -> None:
        """Add the text that an element stands for: a line end, the mark of an item, a bar, an image's description."""
        if name in KEEP_LINES or name in HEADINGS:
            self.cell_start = -1
        if name in ("br", "tr", "li"):
            self._new_line()
        if name in ("tr", "li"):
            self.cells = 0
        if name == "li":
            self.pieces.append("- ")
        if name in TABLE_CELLS:
            if self.cells and self.pieces[-1:] == ["\n"]:
                self.pieces.pop()
            self.pieces += [" | "] * (self.cells > 0)
            self.cells += 1
            self.cell_start = len(self.pieces)
        if name == "img" and (alt := " ".join(tag.attributes.get("alt", "").split())):
            self.add(Tag("", tag.at, text=alt))

    def _element(self, tag: Tag, above: _Element) -> _Element:
        values, name = tag.attributes, tag.name
        classes = values.get("class", "").split()
        anchor = values.get("id", "") if name in SECTIONS else ""
        return _Element(
            name=name,
            note=above.note or not NOTES.isdisjoint(classes),
            is_local=above.is_local or (name == "a" and values.get("href", "").startswith("#")),
            part=part_of(tag, above.part),
            anchor=anchor or above.anchor,
            is_heading=name in HEADINGS or TITLE_CLASS in classes,
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
        if name in TABLE_CELLS:
            self._join_lines()
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

    def _join_lines(self) -> None:
        """Make one line of the paragraphs of the cell that ends."""
        if (start := self.cell_start) >= 0:
            self.pieces[start:] = [" " if piece == "\n" else piece for piece in self.pieces[start:]]
            if self.pieces[start:][-1:] == [" "]:
                self.pieces.pop()
        self.cell_start = -1

    def flush(self) -> None:
        """End the block, and drop it if it has no text."""
        text = "".join(self.pieces)
        if self.level:
            text = " ".join(text.split())
        elif self.raw:
            text = (
                "\n".join(line.rstrip() for line in text.split("\n"))
                .strip("\n")
                .removesuffix("\n-")
                .removeprefix(" | ")
            )
        else:
            text = "\n".join(line for line in map(str.strip, text.split("\n")) if line not in ("", "-", "|"))
        if not self.level and self.links >= FEWEST_LINKS:  # a table of contents
            self.blocks.append((self.open[-1].part, Block(CONTENTS_MARK, self.line)))
        elif text.strip("-| \n"):
            self.line += self.page.count("\n", self.line_start, self.start)
            self.line_start = max(self.start, self.line_start)
            anchor = (self.anchor or self.above) if self.level else ""
            self.blocks.append((self.open[-1].part, Block(text, self.line, self.level, anchor)))
            self.anchor = "" if self.level else self.anchor
        self.pieces, self.raw, self.has_text, self.level, self.cells, self.links = [], False, False, 0, 0, 0
        self.cell_start = -1
