"""MDX, Markdown with components of JSX, as rules of markdown-it: imports and expressions are no text.

import { Tabs } from './tabs'     nothing          <Tab label="Linux">apt</Tab>    Linux, apt
{/* a comment */}                 nothing          {'text'}                        text
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vocable.data.pages.templates import ATTRIBUTES, ENDED, add_containers, kept
from vocable.data.pages.webpage import BLOCK_TAGS

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

COMPONENT = "component"  # type of tokens whose content a component shows
PLAIN = "plain"  # type of tokens whose text has no markup
IS_MDX = re.compile(r"import\s[^;]{0,1000}?\sfrom\s+(['\"])[^'\"\n]+\1;?[ ]*(?:\n|\Z)|\{/\*")
MODULE = re.compile(r"(?:import|export)[\s{*'\"]")
MOST_MODULE_LINES = 1000  # of an import or export with blank lines
BRACES = r"\{[^{}]*+\}"
for _ in range(20):  # levels in an expression
    BRACES = rf"\{{(?:[^{{}}]++|{BRACES})*+\}}"
EXPRESSION = re.compile(BRACES)
TAG = re.compile(
    rf"""<(?P<end>/?)(?:(?P<name>[A-Za-z][\w.:-]*)"""
    rf"""(?P<attributes>(?:[^<>{{}}"'/]++|/(?!>)|"[^"]*+"|'[^']*+'|{BRACES})*+)(?P<closed>/?))?>"""
)
STRING = re.compile(r"""\{\s*(?:"([^"]*)"|'([^']*)'|`([^`]*)`)\s*\}""")
COMMENTED_ANCHOR = re.compile(r"\{/\*\s*#([\w.:-]+)\s*\*/\}")  # of Docusaurus
LINE_TAGS = BLOCK_TAGS | {"br", "tr", "li"}  # begin a line


def mdx(parser: MarkdownIt) -> None:
    """Add the rules to a parser, and disable what MDX does not have: indented code, HTML and links in `<>`."""
    parser.disable(["code", "html_block", "html_inline", "autolink"])
    add_containers(parser)
    parser.block.ruler.before("fence", "module", _module)
    parser.block.ruler.before("fence", "tags", _tags, {"alt": ENDED})
    parser.inline.ruler.before("link", "tag", _tag)
    parser.inline.ruler.after(ATTRIBUTES, "expression", _expression)


def shown(tag: re.Match[str]) -> str:
    """Return the text that a tag stands for: a line end, the description of an image, the title of a component."""
    name, attributes = tag["name"] or "", tag["attributes"] or ""
    if name.lower() in LINE_TAGS:
        return "\n"
    if tag["end"] or (name.islower() and "-" not in name and name != "img"):
        return ""
    text = kept(attributes)
    return text if tag["closed"] or not text or name == "img" else f"{text}\n"


def _module(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Skip an import or export, up to a blank line outside its brackets."""
    if silent or state.blkIndent or not MODULE.match(state.src, state.bMarks[start]):
        return False
    line, depth = start, 0
    while line < min(end, start + MOST_MODULE_LINES) and not (depth <= 0 and state.isEmpty(line)):
        text = state.src[state.bMarks[line] : state.eMarks[line]]
        depth += sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
        line += 1
    state.line = line
    return True


def _tags(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read lines of nothing but tags and expressions as the text that they show."""
    at, last, texts = state.bMarks[start] + state.tShift[start], state.eMarks[end - 1], list[str]()
    while (match := TAG.match(state.src, at, last) or EXPRESSION.match(state.src, at, last)) is not None:
        texts.append(shown(match) if match.re is TAG else _string(match))
        at = match.end()
        while at < last and state.src[at] in " \t":
            at += 1
        if at == last or state.src[at] == "\n":
            break
    else:
        return False
    if not silent:
        line = start
        while state.eMarks[line] < at:
            line += 1
        token = state.push(PLAIN, "", 0)
        token.content, token.map = "\n".join(filter(str.strip, texts)), [start, line + 1]
        state.line = line + 1
    return True


def _tag(state: StateInline, silent: bool) -> bool:
    match = TAG.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push(COMPONENT, "", 0).content = shown(match)
    state.pos = match.end()
    return True


def _expression(state: StateInline, silent: bool) -> bool:
    match = EXPRESSION.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        anchor = COMMENTED_ANCHOR.fullmatch(match[0])
        token = state.push(ATTRIBUTES if anchor else "text", "", 0)
        token.content = anchor[1] if anchor else _string(match)
    state.pos = match.end()
    return True


def _string(expression: re.Match[str]) -> str:
    """Return the text of an expression that is a string, and "" for others."""
    match = STRING.fullmatch(expression[0])
    return "".join(match.groups("")) if match else ""
