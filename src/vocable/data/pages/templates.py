"""Marks of site generators in Markdown, as rules of markdown-it: templates, attributes and containers.

{% include tip.html title="A title" %}    its title         {: #here .wide }, {#here}    an anchor of the heading
{{ page.date }}                           nothing           :::tip A title               the title
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from vocable.data.pages.blocks import Page, Remark
from vocable.data.pages.front_matter import front_matter, title_of
from vocable.data.pages.webpage import web_page

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

ENDED = ["paragraph", "reference", "blockquote", "list"]  # blocks that a container or a tag ends
ATTRIBUTES = "attributes"  # type of tokens whose content is an anchor or ""
SHOWN_NAMES = ("title", "label", "description", "text", "alt", "caption", "summary")  # whose values a page shows
SHOWN_ATTRIBUTES = re.compile(  # attributes and keys
    rf"""(?<![\w.-])(?:(?:{"|".join(SHOWN_NAMES)})(?:=\{{?|:\s*)|name:\s*)"""
    r"""(?:"([^"]*)"|'([^']*)'|`([^`]*)`)"""
)
ATTRIBUTE_NAME = r"[A-Za-z][\w:.-]*"
ONE_ATTRIBUTE = rf"""(?:\#[\w:.-]+|\.{ATTRIBUTE_NAME}|{ATTRIBUTE_NAME}=(?:"[^"\n]*"|'[^'\n]*'|[^\s"'{{}}]+))"""
ATTRIBUTE_LIST = re.compile(rf"\{{:?[ ]*{ONE_ATTRIBUTE}(?:[ ]+{ONE_ATTRIBUTE})*[ ]*\}}")
KRAMDOWN = re.compile(r"\{::?/?\w[^{}\n]*\}[ ]*(?:\n|\Z)")  # {:toc}, {::options toc_levels="2" /}
AFTER = ")*]`>"  # marks that attributes follow
LINE_END = re.compile(r"[ ]*(?:\n|\Z)")
ANCHOR = re.compile(r"[{ :]#([\w:.-]+)")
TEMPLATE = re.compile(  # of Liquid and Markdoc, and of Liquid, Vue and Hugo
    r"""\{%-?\s*raw\s*-?%\}(?P<raw>(?:(?!\{%-?\s*endraw).){0,600}+)\{%-?\s*endraw\s*-?%\}
    | \{%(?:[^%]|%(?!\})){0,600}+%\}
    | (?<!\$)\{\{(?:[^{}]++|\{[^{}]*+\})*+\}\}""",
    re.VERBOSE | re.DOTALL,
)
LINK_TARGET = re.compile(rf"(?:[^\s(){{}}<>]++|{TEMPLATE.pattern})++", TEMPLATE.flags)  # of a link
RAW_MARKS = re.compile(r"(?:^[ ]*)?\{%-?\s*(?:end)?raw\s*-?%\}[ ]*\n?", re.MULTILINE)
HIGHLIGHT = re.compile(r"\{%-?\s*highlight\s[^%\n]*%\}(?:\{% raw %\})?[ ]*\n")
END_HIGHLIGHT = re.compile(r"^(.*)\{%-?\s*endhighlight\s*-?%\}.*$", re.MULTILINE)
# ::: tip Title, :::tip[Title]{.wide}, :::{tip} Title, ::: {.callout-tip title="Title"}, ::tip{title="Title"}
CONTAINER = re.compile(
    r"""(?P<colons>:{2,})(?P<space>[ ]*)(?:\{[\w-]+\}|[A-Za-z][\w-]*+(?![^\s\[{:]))?
    [ ]*(?:\[(?P<label>[^\n]*)\])?(?P<title>[^\n]*)""",
    re.VERBOSE,
)
REDIRECTION = re.compile(  # to another page, at once
    r"<meta\b(?=[^>]{0,500}http-equiv\s*=\s*[\"']?refresh)[^>]{0,500}?content\s*=\s*[\"']?\s*[0-5]\s*[;,]\s*url",
    re.IGNORECASE,
)
BEGINNING = 4096  # characters of a page that may redirect
MOST_PROPERTIES = 100  # lines
NOTE = re.compile(r"\[\^([^\]\s]{1,100})\](:[ \t]*)?")  # [^1] in a text, and [^1]: before the note
LAST_BRACES = re.compile(r"(?:\{[^{}]*\})?[ :]*\Z")


def templates(parser: MarkdownIt) -> None:
    """Add the rules to a parser."""
    add_containers(parser)
    parser.block.ruler.before("fence", "highlight", _highlight, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.before("link", "template", _template)
    helpers: Any = parser.helpers

    def destination(text: str, at: int, end: int) -> object:
        match = LINK_TARGET.match(text, at, end)
        if match is None or "{" not in match[0]:
            return helpers.parseLinkDestination(text, at, end)
        return SimpleNamespace(ok=True, pos=match.end(), str="")

    changed: Any = SimpleNamespace(**{name: getattr(helpers, name) for name in helpers.__all__})
    changed.parseLinkDestination = destination
    parser.helpers = changed


def add_containers(parser: MarkdownIt) -> None:
    """Add the rules for containers, attributes and footnotes to a parser."""
    parser.block.ruler.before("reference", "note", _note)
    parser.inline.ruler.before("link", "mark of a note", _mark_of_note)
    parser.block.ruler.before("fence", "container", _container, {"alt": ENDED})
    parser.inline.ruler.before("link", ATTRIBUTES, _attributes)


def kept(attributes: str) -> str:
    """Return the values of attributes that a page shows.

    >>> kept('title="A title" class="wide" label={"A label"}')
    'A title\\nA label'
    """
    return "\n".join(
        "".join(match.groups("")) for match in SHOWN_ATTRIBUTES.finditer(attributes) if any(match.groups())
    )


def without_templates(text: str) -> str:
    """Return a text in HTML without templates."""
    return TEMPLATE.sub(_shown, text) if "{" in text else text


def html_source(text: str) -> Page:
    """Return the page of an HTML text, which has front matter and templates in a source of Jekyll.

    A page that leads to another page at once has no blocks.
    """
    if REDIRECTION.search(text, 0, BEGINNING):
        return Page([], remark=Remark("a redirection", 1))
    fields, rest, line, remark = front_matter(text)
    if line == 1 and remark is None:
        return web_page(text)
    page = web_page(without_templates(rest))
    blocks = [block._replace(line=block.line + line - 1) for block in page.blocks]
    return page._replace(blocks=blocks, title=title_of(fields) or page.title, fields=fields, remark=remark)


def _shown(template: re.Match[str]) -> str:
    return kept(template[0]) if template["raw"] is None else template["raw"]


def _template(state: StateInline, silent: bool) -> bool:
    """Read a template as the text that it shows."""
    match = TEMPLATE.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push("text", "", 0).content = _shown(match)
    state.pos = match.end()
    return True


def _attributes(state: StateInline, silent: bool) -> bool:
    """Read attributes: after a mark, a bracket or code, at the end of a line, on their own, or with a colon."""
    text, at = state.src, state.pos
    starts = at == 0 or text[at - 1] == "\n"
    match = KRAMDOWN.match(text, at) if starts else None
    if match is None and (match := ATTRIBUTE_LIST.match(text, at)) is not None:
        is_last = match[0].lstrip("{ ")[0] in "#." and LINE_END.match(text, match.end())
        if not (starts or is_last or match[0].startswith("{:") or text[at - 1] in AFTER):
            return False
    if match is None:
        return False
    if not silent:
        anchor = ANCHOR.search(match[0])
        state.push(ATTRIBUTES, "", 0).content = anchor[1] if anchor else ""
    state.pos = match.end()
    return True


def _note(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a footnote as a paragraph."""
    match = _note_at(state, start)
    if match is None or state.is_code_block(start):
        return False
    if not silent:
        line = start + 1
        while line < end and not state.isEmpty(line) and _note_at(state, line) is None:
            line += 1
        state.env.setdefault("notes", set()).add(match[1])
        state.push("paragraph_open", "p", 1).map = [start, line]
        inline = state.push("inline", "", 0)
        inline.content, inline.children = state.src[match.end() : state.eMarks[line - 1]], []
        state.push("paragraph_close", "p", -1)
        state.line = line
    return True


def _note_at(state: StateBlock, line: int) -> re.Match[str] | None:
    match = NOTE.match(state.src, state.bMarks[line] + state.tShift[line], state.eMarks[line])
    return match if match and match[2] else None


def _mark_of_note(state: StateInline, silent: bool) -> bool:
    """Leave out the mark of a footnote of the page."""
    match = NOTE.match(state.src, state.pos, state.posMax)
    if match is None or match[1] not in state.env.get("notes", ()):
        return False
    state.pos += len(match[1]) + len("[^]")
    return True


def _container(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read the first or last line of a container as a paragraph of its title."""
    if state.is_code_block(start):
        return False
    match = CONTAINER.fullmatch(state.src, state.bMarks[start] + state.tShift[start], state.eMarks[start])
    last = LAST_BRACES.search(match["title"]) if match else None
    if match is None or last is None:
        return False
    title = match["title"][: last.start()].strip()
    if len(match["colons"]) == 2 and (match["space"] or title):
        return False
    if not silent:
        shows, after = _properties(state, start + 1, end)
        state.push("paragraph_open", "p", 1).map = [start, start + 1]
        inline = state.push("inline", "", 0)
        inline.content, inline.children = match["label"] or title or kept(last[0]) or shows, []
        state.push("paragraph_close", "p", -1)
        state.line = after
    return True


def _properties(state: StateBlock, start: int, end: int) -> tuple[str, int]:
    """Return what a page shows of YAML between two lines `---` below the first line of a container, and the next line.

    Without such lines it is ("", start).
    """
    rulers = (line for line in range(start + 1, min(end, start + MOST_PROPERTIES)) if _line(state, line) == "---")
    if start >= end or _line(state, start) != "---" or (last := next(rulers, None)) is None:
        return "", start
    fields = front_matter(state.getLines(start, last + 1, state.blkIndent, False)).fields
    return "\n".join(str(fields[name]) for name in SHOWN_NAMES if isinstance(fields.get(name), str)), last + 1


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] : state.eMarks[line]].strip()


def _highlight(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read `{% highlight ruby %}` and the lines to `{% endhighlight %}` as code."""
    at = state.bMarks[start] + state.tShift[start]
    if state.is_code_block(start) or state.env.get("no highlight ends") or not HIGHLIGHT.match(state.src, at):
        return False
    closing = END_HIGHLIGHT.search(state.src, state.eMarks[start])
    if closing is None:
        state.env["no highlight ends"] = True
        return False
    last = start + 1
    while last < end and state.eMarks[last] < closing.end():
        last += 1
    if last == end:
        return False
    if not silent:
        code = state.push("fence", "code", 0)
        content = state.getLines(start + 1, last, state.blkIndent, True) + closing[1].rstrip(" ")
        code.content = RAW_MARKS.sub("", content)
        code.map = [start, last + 1]
        state.line = last + 1
    return True
