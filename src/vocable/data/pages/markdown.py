"""Markdown (CommonMark with tables, strikethrough and boxes of GitHub, marks of site generators, and MDX) as blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from vocable.data.pages.admonitions import quoted
from vocable.data.pages.blocks import Block, Page
from vocable.data.pages.front_matter import front_matter, title_of
from vocable.data.pages.mdx import COMPONENT, IS_MDX, PLAIN, TAG, mdx, shown
from vocable.data.pages.templates import ATTRIBUTES, templates, without_templates
from vocable.data.pages.webpage import web_page

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

NESTING = 100  # levels of quotes and lists; markdown-it drops deeper text
CODE_TOKENS = ("fence", "code_block")
MOST_BRACKETS = 16  # open at once in a paragraph with links; markdown-it's time grows with them
BRACKET = re.compile(r"[\[\]]")
BOX = re.compile(r"\[[ xX]\]\s+")  # precedes a task of a list


@cache
def _parser(*, is_mdx: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": NESTING}).enable(["table", "strikethrough"])
    parser.core.ruler.before("inline", PLAIN, _keep_plain)
    return parser.use(mdx if is_mdx else templates)


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
        tokens = _parser(is_mdx=True).parse(quoted(rest))
    return Page([block for block in _blocks(tokens, line) if block.text], title_of(fields), fields, remark)


def _blocks(tokens: Sequence[Token], first_line: int) -> Iterator[Block]:
    """Yield a block for each token at the top; nested tokens are its text."""
    at = 0
    while at < len(tokens):
        token, end = tokens[at], at + 1
        if token.nesting == 1:
            while tokens[end].level > token.level:
                end += 1
            end += 1
        line = first_line + (token.map[0] if token.map else 0)
        if token.type == "heading_open":
            heading = " ".join(_inline(tokens[at + 1], in_heading=True).split())
            yield Block(heading, line, int(token.tag[1:]), _anchor(tokens, at))
        elif token.type == "html_block":
            html = web_page(without_templates(token.content))
            yield from (block._replace(line=line + block.line - 1) for block in html.blocks)
        else:
            yield Block("\n".join(_lines(tokens[at:end])).strip("\n"), line)
        at = end


def _anchor(tokens: Sequence[Token], at: int) -> str:
    """Return the anchor of a heading: from attributes in it, or from attributes in the line below."""
    children = [*(tokens[at + 1].children or ())]
    below = tokens[at + 4] if at + 4 < len(tokens) and tokens[at + 3].type == "paragraph_open" else None
    if below and (below.map or ())[:1] == (tokens[at].map or ())[1:]:
        children += (below.children or ())[:1]
    return next((child.content for child in children if child.type == ATTRIBUTES and child.content), "")


def _lines(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the lines of a block's tokens; list items keep their marks, and bars separate cells."""
    indents, marks, cells = list[str](), list[str](), list[str]()
    for token in tokens:
        if token.type in ("bullet_list_open", "ordered_list_open"):
            indents.append("")
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            indents.pop()
        elif token.type == "list_item_open":
            marks.append(f"{token.info}{token.markup} ")
            indents[-1] = " " * len(marks[-1])
        elif token.type == "tr_close":
            yield " | ".join(cells)
            cells.clear()
        elif token.type in ("th_open", "td_open"):
            cells.append("")
        elif token.content:
            if cells:
                cells[-1] = " ".join(_inline(token).split())
                continue
            mark = "".join(marks)
            outer = "".join(indents)[: -len(mark)] if mark else "".join(indents)
            text = BOX.sub("", _text(token), 1) if marks and token.type == "inline" else _text(token)
            marks.clear()
            for number, line in enumerate(text.splitlines()):
                yield f"{outer}{mark}{line}" if number == 0 else f"{''.join(indents)}{line}"


def _text(token: Token) -> str:
    if token.type in CODE_TOKENS:
        return token.content.rstrip("\n")
    if token.type == "html_block":
        return "\n".join(block.text for block in web_page(without_templates(token.content)).blocks)
    return _inline(token)


def _inline(token: Token, *, in_heading: bool = False) -> str:
    """Return the text of inline Markdown: links give their text, images their description, tags what they show.

    A heading has no text of components, such as badges.
    """
    text = token.content if token.type == PLAIN else ""
    for child in token.children or ():
        if child.type in ("text", "code_inline", "image", "text_special"):
            text += child.content
        elif child.type in ("softbreak", "hardbreak"):
            text += "\n"
        elif (shows := _shown(child)) and not (in_heading and shows.strip()):
            text += shows
    return "\n".join(filter(None, map(str.strip, text.split("\n"))))


def _shown(child: Token) -> str:
    """Return the text that a tag stands for."""
    if child.type == "html_inline" and (tag := TAG.match(child.content)) is not None:
        return shown(tag)
    return child.content if child.type == COMPONENT else ""
