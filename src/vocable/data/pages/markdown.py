"""Markdown (CommonMark with tables, strikethrough and boxes of GitHub, marks of site generators, and MDX) as blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from vocable.data.pages.admonitions import quoted
from vocable.data.pages.blocks import CONTENTS_MARK, FEWEST_LINKS, Block, Page, without_contents
from vocable.data.pages.front_matter import front_matter, title_of
from vocable.data.pages.hidden import empty_hidden
from vocable.data.pages.mdx import IS_MDX, PLAIN, TAG, mdx, tags_of
from vocable.data.pages.shown import MAIN, shown
from vocable.data.pages.tags import Tag, visible
from vocable.data.pages.templates import ATTRIBUTES, templates, without_templates
from vocable.data.pages.webpage import html_blocks
from vocable.data.pages.wiki_links import wiki_links

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

NESTING = 100  # levels of quotes and lists; markdown-it drops deeper text
CODE_TOKENS = ("fence", "code_block")
MOST_BRACKETS = 16  # open at once in a paragraph with links; markdown-it's time grows with them
BRACKET = re.compile(r"[\[\]]")
CONTENTS_HERE = re.compile(r"\[TOC\]|\[\[_?TOC_?\]\]|\[\[?toc\]?\]")
BOX = re.compile(r"\[[ xX]\]\s+")  # precedes a task of a list


@cache
def _parser(*, is_mdx: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": NESTING}).enable(["table", "strikethrough"])
    parser.core.ruler.before("inline", PLAIN, _keep_plain)
    return parser.use(mdx) if is_mdx else parser.use(templates).use(wiki_links)


def _keep_plain(state: StateCore) -> None:
    """Mark paragraphs with too many brackets open at once as plain text."""
    for token in state.tokens:
        depth = deepest = 0
        for bracket in BRACKET.findall(token.content) if token.type == "inline" else ():
            depth = depth + 1 if bracket == "[" else max(0, depth - 1)
            deepest = max(deepest, depth)
        if deepest > MOST_BRACKETS:
            token.type = PLAIN


def mdx_page(text: str) -> Page:
    """Return the page of a text in MDX."""
    return markdown_page(text, is_mdx=True)


def markdown_page(text: str, *, is_mdx: bool = False) -> Page:
    """Return the page of a Markdown text, with the fields and the title of its front matter.

    A text with an import or a comment of MDX is MDX, which Docusaurus reads in files `.md` too.
    """
    fields, rest, line, remark = front_matter(text)
    tokens = _parser(is_mdx=is_mdx).parse(quoted(rest))
    if not is_mdx and any(token.level == 1 and IS_MDX.match(token.content) for token in tokens):
        is_mdx, tokens = True, _parser(is_mdx=True).parse(quoted(rest))
    empty_hidden(tokens, is_mdx=is_mdx)
    blocks = without_contents(_blocks(tokens, line))
    return Page([block for block in blocks if block.text], title_of(fields), fields, remark)


def _blocks(tokens: Sequence[Token], first_line: int) -> Iterator[Block]:
    """Yield a block for each token at the top; nested tokens are its text."""
    at = 0
    while at < len(tokens):
        token, end = tokens[at], at + 1
        # A block that opens ends with the next token of the same level.
        if token.nesting == 1:
            while tokens[end].level > token.level:
                end += 1
            end += 1
        line = first_line + (token.map[0] if token.map else 0)
        if token.type == "heading_open":
            heading = " ".join(_inline(tokens[at + 1], in_heading=True).split())
            yield Block(heading, line, int(token.tag[1:]), _anchor(tokens, at))
        elif token.type == "html_block":
            html = html_blocks(without_templates(token.content))
            yield from (block._replace(line=line + block.line - 1) for block in html)
        elif _is_contents(tokens[at:end]):
            yield Block(CONTENTS_MARK, line)
        else:
            yield Block("\n".join(_lines(tokens[at:end])).strip("\n"), line)
        at = end


def _is_contents(tokens: Sequence[Token]) -> bool:
    """Return whether a block is a table of contents: links to anchors and nothing else, or a mark for one."""
    links, is_link = 0, False
    children = [child for token in tokens for child in token.children or ()]
    for child in children:
        if child.type == "link_open":
            is_link = str(child.attrs.get("href", "")).startswith("#")
            links += is_link
        elif child.type == "link_close":
            is_link = False
        elif not is_link and re.search(r"\w", child.content):
            return len(tokens) == 3 and CONTENTS_HERE.fullmatch(tokens[1].content) is not None
    return links >= FEWEST_LINKS


def _anchor(tokens: Sequence[Token], at: int) -> str:
    """Return the anchor of a heading: from attributes in it, or from attributes in the line below."""
    # A heading is three tokens: begin, text and end. The next two are the begin and text of a paragraph.
    heading, text, _, *below = tokens[at : at + 5]
    children = [*(text.children or ())]
    if len(below) == 2 and below[0].type == "paragraph_open":
        first_line, line_after_heading = (below[1].map or ())[:1], (heading.map or ())[1:]
        if first_line == line_after_heading:
            children += (below[1].children or ())[:1]
    return next((child.content for child in children if child.type == ATTRIBUTES and child.content), "")


def _lines(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the lines of a block's tokens; list items keep their marks, and bars separate cells."""
    # Indents of the open lists, marks of list items whose text has not begun, and cells of the open row.
    indents, marks, cells = list[str](), list[str](), list[str]()
    for token in tokens:
        if token.type in ("bullet_list_open", "ordered_list_open"):
            indents.append("")
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            indents.pop()
        elif token.type == "list_item_close":
            marks.clear()  # of an item without text
        elif token.type == "list_item_open":
            marks.append(f"{token.info}{token.markup} ")
            indents[-1] = " " * len(marks[-1])
        elif token.type == "tr_close":
            if any(cells):
                yield " | ".join(cells)
            cells.clear()
        elif token.type in ("th_open", "td_open"):
            cells.append("")
        elif token.content:
            if cells:
                cells[-1] = " ".join(_inline(token).split())
                continue
            # Lists may begin in one line: it has their marks, and the lines below have their indents.
            mark = "".join(marks)
            outer = "".join(indents)[: -len(mark)] if mark else "".join(indents)
            text = BOX.sub("", _text(token), 1) if marks and token.type == "inline" else _text(token)
            # The mark of an item precedes only its first text.
            if text:
                marks.clear()
            for number, line in enumerate(text.splitlines()):
                yield f"{outer}{mark}{line}" if number == 0 else f"{''.join(indents)}{line}"


def _text(token: Token) -> str:
    if token.type in CODE_TOKENS:
        return token.content.rstrip("\n")
    if token.type == "html_block":
        return "\n".join(block.text for block in html_blocks(without_templates(token.content)))
    return _inline(token)


def _inline(token: Token, *, in_heading: bool = False) -> str:
    """Return the text of inline Markdown that a page shows: of links their text, of images their description.

    A heading has no text of components, such as badges.
    """
    pieces = [token.content] if token.type == PLAIN else list[str]()
    for tag in shown(_tags(token.children or ()), MAIN):
        if not (in_heading and tag.attributes and tag.text.strip()):
            pieces.append(tag.text)
    text = re.sub(" {2,}", " ", "".join(pieces))
    return visible("\n".join(filter(None, map(str.strip, text.split("\n")))))


def _tags(children: Sequence[Token]) -> Iterator[Tag]:
    """Yield the tokens of inline Markdown as tags and texts."""
    for child in children:
        if child.type in ("text", "code_inline", "text_special"):
            yield Tag("", 0, text=child.content)
        elif child.type == "image":
            yield Tag("img", 0, text=child.content)
        elif child.type in ("softbreak", "hardbreak"):
            yield Tag("", 0, text="\n")
        elif child.type == "html_inline" and (tag := TAG.match(child.content)) is not None:
            yield from tags_of(tag)
