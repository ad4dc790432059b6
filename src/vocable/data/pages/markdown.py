"""Markdown (CommonMark with the tables, strikethrough and boxes of GitHub, and admonitions) as blocks of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from vocable.data.pages.admonitions import quoted
from vocable.data.pages.blocks import Block, Page
from vocable.data.pages.front_matter import front_matter
from vocable.data.pages.webpage import web_page

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

OWN_ANCHOR = re.compile(r"\s*\{:?\s*#([\w.:-]+)[^{}]*\}\s*$")  # ## Heading {#anchor}, of MkDocs and Pandoc
NESTING = 100  # levels of quotes and lists; markdown-it drops deeper text
CODE_TOKENS = ("fence", "code_block")
MOST_BRACKETS = 16  # open at once in a paragraph with links; markdown-it's time grows with them
BRACKET = re.compile(r"[\[\]]")
PLAIN = "plain"  # type of tokens whose text has no markup
BOX = re.compile(r"\[[ xX]\]\s+")  # precedes a task of a list


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": NESTING}).enable(["table", "strikethrough"])
    parser.core.ruler.before("inline", PLAIN, _keep_plain)
    return parser


def _keep_plain(state: StateCore) -> None:
    """Mark paragraphs with too many brackets open at once as plain text."""
    for token in state.tokens:
        depth = deepest = 0
        for bracket in BRACKET.findall(token.content) if token.type == "inline" else ():
            depth = depth + 1 if bracket == "[" else max(0, depth - 1)
            deepest = max(deepest, depth)
        if deepest > MOST_BRACKETS:
            token.type = PLAIN


def markdown_page(text: str) -> Page:
    """Return the page of a Markdown text, with the fields and the title of its front matter."""
    fields, rest, line, remark = front_matter(text)
    blocks = [block for block in _blocks(_parser().parse(quoted(rest)), line) if block.text]
    title = fields.get("title")
    title = " ".join(str(title).split()) if isinstance(title, str | int | float) else ""
    return Page(blocks, title, fields, remark)


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
            heading, anchor = " ".join(_inline(tokens[at + 1]).split()), ""
            if anchor_mark := OWN_ANCHOR.search(heading):
                heading, anchor = heading[: anchor_mark.start()], anchor_mark[1]
            yield Block(heading, line, int(token.tag[1:]), anchor)
        elif token.type == "html_block":
            yield from (block._replace(line=line + block.line - 1) for block in web_page(token.content).blocks)
        else:
            yield Block("\n".join(_lines(tokens[at:end])).strip("\n"), line)
        at = end


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
                cells[-1] = _inline(token)
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
        return "\n".join(block.text for block in web_page(token.content).blocks)
    return _inline(token)


def _inline(token: Token) -> str:
    """Return the text of inline Markdown: links give their text, images their description, HTML tags nothing."""
    text = token.content if token.type == PLAIN else ""
    for child in token.children or ():
        if child.type in ("text", "code_inline", "image", "text_special"):
            text += child.content
        elif child.type in ("softbreak", "hardbreak"):
            text += "\n"
    return text
