"""AsciiDoc as blocks of text: titles, paragraphs, lists, code, tables, and the content of other delimited blocks.

Files are not included, and both sides of a condition are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape

from vocable.data.pages.blocks import Block, Page
from vocable.data.pages.budget import Insertions
from vocable.data.pages.front_matter import front_matter, title_of

TITLE = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
INNER_ANCHOR = re.compile(r"\[\[([^\s\[\],]{1,200})[^\[\]]{0,200}\]\]")
LEVEL_MARKS = "=-~^+"  # of titles, by level
UNDERLINE = re.compile(r"([=\-~^+])\1+")
VERBATIM = re.compile(r"(-{4,}|\.{4,}|`{3,}(?=\w*$))\w*")  # delimiters
PASSED = re.compile(r"/{4,}|\+{4,}")  # of comments, and of text in the output's format
COMMENT = re.compile(r"//(?!/)")
NO_TEXT = re.compile(
    r"\+?|'{3}|---|<<<|(?:ifn?def|ifeval|endif|include)::[^\s\[]*\[.*\]"
    r"|={4,}|\*{4,}|_{4,}|--"  # delimiters of blocks whose content is read
)
CONDITION = re.compile(r"ifn?def::[^\s\[]+\[(.+)\]")  # of one line
TABLE = re.compile(r"[|,:!]={3,}")
CELL = r"(?:^|(?<![ \t])[ \t]+)(?:\d*(?:\.\d+)?[+*])?[<^>.]*[a-z]?{}[ \t]*"
CELLS = [re.compile(CELL.format(mark)) for mark in (r"\|", "!")]  # of a table, and of a table in a cell
ATTRIBUTE_ENTRY = re.compile(r":(!?[\w-]+!?):(?:[ \t]+(.*))?")
BLOCK_ATTRIBUTES = re.compile(r"\[(?:\[(?P<anchor>[^\s\],]++)[^\]]*+\]|(?P<list>[^\[\]]*+|.*=.*))\]")
SUBSTITUTED = re.compile(r"\bsubs=[\"']?[\w+,-]*(?:attributes|normal|\ba\b)")  # attributes in code
ANCHOR_GIVEN = re.compile(r"(?:^|[^\w&])#([\w:.-]+)|\bid=[\"']?([\w:.-]+)")
BLOCK_MACRO = re.compile(r"(\w+)::([^\s\[]*)\[(.*)\]")
CAPTION = re.compile(r"\.([^\s.].*)")
LIST_ITEM = re.compile(r"\s*(?:[*-]+|\.+|\d+\.|<[\d.]+>)\s+\S|.*[^\s:](?:::++|;;)(?:\s|$)")
TERM_END = re.compile(r"(?<=[^\s:])(?:::++|;;)(?=\s|$)", re.MULTILINE)
CONTINUED = re.compile(r"(?<![ \t])[ \t]+\+$", re.MULTILINE)  # a line end
ADOC_INLINE = re.compile(
    r"""^(?P<item>[*.-]+)(?=[ \t]) | \\(?P<escaped>[*_`\#+{<\[])
    | \[\[[^\[\]\n]{1,200}\]\]
    | (?:\[[\w.\#%-]{1,100}\])?(?:(?P<double>\*\*|__|``|\#\#|\+\+)(?P<inner>[^\n]{1,500}?)(?P=double)
      | (?<![\w*_`\#+])(?P<mark>[*_`\#+])(?=\S)(?P<marked>[^\n]{0,500}?\S)(?P=mark)(?![\w`]))
    | (?P<raised>[\^~])(?P<small>[^\s^~]{1,100})(?P=raised)
    | <<(?P<target>[^\n<>,]{1,200})(?:,\s*(?P<name>[^<>]{1,200}))?>>
    | \(\(\([^()]{1,200}\)\)\) | \(\((?P<term>[^()]{1,200})\)\)
    | (?<!\w)(?P<macro>[a-z]\w{1,20}):{1,2}(?P<place>[^\s\[\]]{0,500})\[(?P<text>[^\]]{0,500})\]""",
    re.VERBOSE | re.MULTILINE,
)
MOST_VALUE = 4096  # characters of an attribute, as in Asciidoctor's secure mode
REFERENCE = re.compile(r"(\\?)\{(\w[\w-]{0,60})\}")  # to an attribute
SILENT_MACROS = frozenset(["anchor", "toc", "indexterm", "video", "audio", "icon"])


def asciidoc_page(text: str) -> Page:
    """Return the page of a text in AsciiDoc."""
    fields, rest, first, remark = front_matter(text)
    blocks = [block for block in _Lines(rest.split("\n"), first).blocks() if block.text.strip()]
    return Page(blocks, title_of(fields), fields, remark, makes_anchors=False)


class _Lines:
    """The lines of a page that begin at line `first`, and the attributes and anchors so far."""

    def __init__(self, lines: list[str], first: int) -> None:
        self.lines, self.first, self.at = [CONDITION.sub(r"\1", line.rstrip()) for line in lines], first, 0
        self.insertions = Insertions(lines)
        self.attributes = {"empty": "", "nbsp": " ", "vbar": "|", "plus": "+", "pp": "++", "cpp": "C++"}
        self.anchors = Counter[str]()
        self.anchor = ""  # of the next block
        self.is_substituted = False  # the next block of code
        self.in_list = False

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of the page."""
        while self.at < len(self.lines):
            start, line = self.at, self.lines[self.at]
            self.at += 1
            if (title := self._title(start)) is not None:
                yield title
            elif VERBATIM.fullmatch(line):
                is_substituted, code = self.is_substituted, "\n".join(self._delimited(line))
                yield Block(self._with_values(code) if is_substituted else code, self.first + start + 1)
            elif TABLE.fullmatch(line):
                yield Block(self.inline("\n".join(_rows(self._delimited(line)))), self.first + start + 1)
            elif PASSED.fullmatch(line):
                self._delimited(line)
            elif not self._is_setting(line):
                yield self._paragraph(start)

    def _is_setting(self, line: str) -> bool:
        """Read a line that is no text; return whether it is one."""
        if (attribute := ATTRIBUTE_ENTRY.fullmatch(line)) is not None:
            value = attribute[2] or ""
            while value.endswith(" \\") and self.at < len(self.lines):
                value, self.at = f"{value[:-1]}{self.lines[self.at].strip()}", self.at + 1
            self.attributes[attribute[1]] = self.inline(value)[:MOST_VALUE]
        elif (given := BLOCK_ATTRIBUTES.fullmatch(line)) is not None:
            anchor = ANCHOR_GIVEN.search(given["list"] or "")
            self.anchor = given["anchor"] or (anchor and (anchor[1] or anchor[2])) or self.anchor
            self.is_substituted = SUBSTITUTED.search(given["list"] or "") is not None
        else:
            return bool(NO_TEXT.fullmatch(line) or COMMENT.match(line))
        return True

    def _title(self, at: int) -> Block | None:
        """Return the title that begins at a line, or None."""
        line, below = self.lines[at], self.lines[at + 1] if at + 1 < len(self.lines) else ""
        if (match := TITLE.fullmatch(line)) is not None:
            text, level = match[2].removesuffix(f" {match[1]}"), len(match[1])
        elif UNDERLINE.fullmatch(below) and abs(len(below) - len(line)) <= 2 and line[:1].isalnum():
            text, level = line, LEVEL_MARKS.index(below[0]) + 1
            self.at += 1
        else:
            return None
        inner = INNER_ANCHOR.search(text)
        anchor, heading = self.anchor or (inner[1] if inner else ""), " ".join(self.inline(text).split())
        self.anchor, self.in_list = "", False
        if level == 1:
            self._skip_authors()
            return Block(heading, self.first + at, level, anchor)
        return Block(heading, self.first + at, level, anchor or self._made_anchor(heading))

    def _skip_authors(self) -> None:
        """Skip the lines below the title of the page up to a blank line, but for attributes: authors and revisions."""
        while self.at < len(self.lines) and (line := self.lines[self.at]):
            self._is_setting(line)
            self.at += 1

    def _made_anchor(self, heading: str) -> str:
        """Return the anchor that Asciidoctor makes of a heading."""
        prefix, separator = self.attributes.get("idprefix", "_"), self.attributes.get("idseparator", "_")
        words = re.sub(r"[^\w .-]+", "", heading.lower())
        anchor = prefix + re.sub(r"[ .-]+", separator, words).strip(separator)
        self.anchors[anchor] += 1
        return anchor + (f"{separator}{self.anchors[anchor]}" if self.anchors[anchor] > 1 else "")

    def _delimited(self, delimiter: str) -> list[str]:
        """Return the lines up to a delimiter, or to the end of the page, and move behind it."""
        start, closing = self.at, re.match(r"\W+", delimiter)[0]  # type: ignore[index]
        while self.at < len(self.lines) and self.lines[self.at] != closing:
            self.at += 1
        self.at, self.anchor, self.is_substituted = self.at + 1, "", False
        return self.lines[start : self.at - 1]

    def _paragraph(self, start: int) -> Block:
        """Return a paragraph, a list, or an indented literal."""
        while self.at < len(self.lines) and not self._ends_paragraph(self.lines[self.at]):
            self.at += 1
        lines, self.anchor = [line for line in self.lines[start : self.at] if not COMMENT.match(line)], ""
        is_item = any(map(LIST_ITEM.match, lines[:2]))  # perhaps after a caption
        self.in_list = is_item or (self.in_list and (lines[0][0] in " \t" or self.lines[start - 1] == "+"))
        if not self.in_list and lines[0][0] in " \t":
            return Block("\n".join(lines), self.first + start)
        if caption := CAPTION.fullmatch(lines[0]):
            lines[0] = caption[1]
        if macro := BLOCK_MACRO.fullmatch(lines[0]):
            lines[0] = "" if macro[1] in SILENT_MACROS else macro[3].partition(",")[0].strip('"')
        text = self.inline("\n".join(map(str.strip, lines))).strip()
        return Block(TERM_END.sub(":", text), self.first + start)

    def _ends_paragraph(self, line: str) -> bool:
        return any(pattern.fullmatch(line) for pattern in (NO_TEXT, VERBATIM, PASSED, TABLE, BLOCK_ATTRIBUTES))

    def inline(self, text: str) -> str:
        """Return a text without inline markup.

        >>> _Lines([], 1).inline("*Bold* `code`, <<id,the part>> and https://a.org/[A], {x}{empty}linkgit:git-gc[1].")
        'Bold code, the part and A, {x}git-gc(1).'
        """

        def plain(match: re.Match[str]) -> str:
            if (marked := match["marked"] or match["inner"]) is not None:
                return marked if match[0][0] in "`+" else ADOC_INLINE.sub(plain, marked)
            if match["macro"] is not None:
                return _macro(match["macro"], match["place"], match["text"])
            return (
                match["item"]
                or match["escaped"]
                or match["name"]
                or match["small"]
                or match["target"]
                or match["term"]
                or ""
            )

        return unescape(ADOC_INLINE.sub(plain, self._with_values(CONTINUED.sub("", text))))

    def _with_values(self, text: str) -> str:
        """Replace references by the values of attributes."""

        def value(match: re.Match[str]) -> str:
            known = None if match[1] else self.attributes.get(match[2])
            return match[0] if known is None else self.insertions.insert(known)

        return REFERENCE.sub(value, text)


def _rows(lines: list[str]) -> Iterator[str]:
    """Yield the rows of a table with bars between cells, and of the tables in its cells."""
    is_inner = False
    for line in filter(None, lines):
        if TABLE.fullmatch(line):
            is_inner = not is_inner
        else:
            yield CELLS[is_inner].sub(" | ", line).removeprefix(" | ")


def _macro(name: str, place: str, text: str) -> str:
    """Return the text that an inline macro shows."""
    if name in SILENT_MACROS:
        return ""
    if name == "menu":
        return " > ".join(filter(None, (place, text)))
    if text.isdecimal():  # of manual pages
        return f"{place}({text})"
    shown = text.partition(",")[0].strip('"^ ') if name in ("image", "link", "xref", "http", "https") else text
    return shown or (f"{name}:{place}" if name in ("http", "https", "mailto") else place)
