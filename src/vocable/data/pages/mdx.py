"""MDX, Markdown with components of JSX, as rules of markdown-it: imports and expressions are no text.

import { Tabs } from './tabs'     nothing          <Tab label="Linux">apt</Tab>    Linux, apt
{/* a comment */}, <!-- one -->   nothing          {'text'}                        text
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vocable.data.pages.tags import BLOCK_TAGS, VOID_TAGS, Tag
from vocable.data.pages.templates import ATTRIBUTES, ENDED, add_containers, kept

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

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
JSX_ATTRIBUTE = re.compile(
    rf"""([\w:.-]++)(?:\s*=\s*(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)'|(?P<braces>{BRACES})|(?P<bare>[^\s"'{{}}]++)))?"""
)
HTML_COMMENT = re.compile(r"<!--(?:>|->|.*?-->)", re.DOTALL)
STRING = re.compile(r"""\{\s*(?:"([^"]*)"|'([^']*)'|`([^`]*)`)\s*\}""")
COMMENTED_ANCHOR = re.compile(r"\{/\*\s*#([\w.:-]+)\s*\*/\}")  # of Docusaurus
JSX_NAMES = {"className": "class", "htmlFor": "for"}  # of attributes in JSX
LINE_TAGS = BLOCK_TAGS | {"br", "tr", "li"}  # begin a line


def mdx(parser: MarkdownIt) -> None:
    """Add the rules to a parser, and disable what MDX does not have: indented code, HTML and links in `<>`."""
    parser.disable(["code", "html_block", "html_inline", "autolink"])
    add_containers(parser)
    parser.block.ruler.before("fence", "comment", _comment, {"alt": ENDED})
    parser.block.ruler.before("fence", "module", _module)
    parser.block.ruler.before("fence", "tags", _tags, {"alt": ENDED})
    parser.inline.ruler.before("link", "comment", _inline_comment)
    parser.inline.ruler.before("link", "tag", _tag)
    parser.inline.ruler.after(ATTRIBUTES, "expression", _expression)


def tags_of(match: re.Match[str]) -> Iterator[Tag]:
    """Yield the tag that `TAG` matches, whose text is what it stands for, and the end of an element without content."""
    name, attributes = match["name"] or "", match["attributes"] or ""
    values = dict[str, str]()
    for attribute in JSX_ATTRIBUTE.finditer(attributes):
        value = next((attribute[kind] for kind in ("double", "single", "bare") if attribute[kind] is not None), None)
        braces = (attribute["braces"] or "")[1:-1].strip(" '\"`")
        values.setdefault(JSX_NAMES.get(attribute[1], attribute[1]).lower(), braces if value is None else value)
    yield Tag(name, 0, bool(match["end"]), values, _stands_for(match))
    if match["closed"] and name not in VOID_TAGS:
        yield Tag(name, 0, is_end=True)


def _stands_for(tag: re.Match[str]) -> str:
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


def _comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Skip lines from `<!--` to `-->`, and the rest of the last line."""
    match = HTML_COMMENT.match(state.src, state.bMarks[start] + state.tShift[start], state.eMarks[end - 1])
    if match is None or state.src[match.end() : state.src.find("\n", match.end()) % (len(state.src) + 1)].strip():
        return False
    while not silent and state.line < end and state.bMarks[state.line] < match.end():
        state.line += 1
    return True


def _tags(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read lines of nothing but tags and expressions as inline text."""
    at, last = state.bMarks[start] + state.tShift[start], state.eMarks[end - 1]
    while (match := TAG.match(state.src, at, last) or EXPRESSION.match(state.src, at, last)) is not None:
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
        token = state.push("inline", "", 0)
        token.content = state.src[state.bMarks[start] + state.tShift[start] : at]  # without the mark of an item
        token.map, token.children = [start, line + 1], []
        state.line = line + 1
    return True


def _inline_comment(state: StateInline, silent: bool) -> bool:
    match = HTML_COMMENT.match(state.src, state.pos, state.posMax)
    if match is not None:
        state.pos = match.end()
    return match is not None


def _tag(state: StateInline, silent: bool) -> bool:
    match = TAG.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push("html_inline", "", 0).content = match[0]
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
