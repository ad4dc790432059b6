"""reStructuredText as blocks of text: titles, paragraphs, literal blocks, and the content of directives.

Not by docutils, which finds the same headings and words in ten times the time, and knows Sphinx's roles and directives
only if its own tables are replaced for the whole process (research/documents.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

from vocable.data.pages.blocks import MOST_NESTED, Block, Page
from vocable.data.pages.budget import Insertions

ADORNMENT = re.compile(r"([!-/:-@[-`{-~])\1+[ \t]*")
TABLE_RULE = re.compile(r"[ \t]*[-=+|][-=+| \t]*")
DIRECTIVE = re.compile(r"\.\. (?:\|[^|]+\| )?([\w:+.-]+)::(?:[ \t]+(.*))?")
EXPLICIT = re.compile(r"(?:\.\.|__)(?:[ \t]|$)")  # or a target without a name
FOOTNOTE = re.compile(r"\.\. \[([^\]]+)\](?:[ \t]+|$)")
REPLACEMENT = re.compile(r"^[ ]*\.\. \|([^|\n]+)\| (?:replace|unicode)::[ ]*(.*(?:\n[ ]{3,}\S.*)*)", re.MULTILINE)
REPLACED = re.compile(r"(?<!\.\. )\|(\w[^|\n]*)\|(?:__?(?!\w))?")
DIRECTIVE_OPTION = re.compile(r":([\w-]+):(?:[ \t]+(.*))?")
CODE_DIRECTIVES = frozenset(
    ["code", "code-block", "sourcecode", "doctest", "testcode", "testoutput", "parsed-literal", "math"]
)
SILENT_DIRECTIVES = frozenset(
    {"contents", "toctree", "raw", "include", "literalinclude", "index", "meta", "highlight", "default-role", "role"}
    | {"sectnum", "tabularcolumns", "currentmodule", "module", "testsetup", "testcleanup", "class", "header", "footer"}
    | {"replace", "unicode", "date", "title", "automodule", "autoclass", "autofunction", "automethod", "autosummary"}
)
SHOWN_OPTIONS = ("type", "value", "default")  # of a setting or an attribute
CONDITIONS = frozenset(["only", "ifconfig", "container"])  # whose argument is no text
IMAGE_DIRECTIVES = frozenset(["image", "figure"])
INLINE = re.compile(
    r"""(?P<literal>``(?P<code>.+?)``)
    | (?:(?<![\w:]):(?P<role>[\w:+.-]{1,50}):)?`(?P<text>[^`]+)`(?:__?|:[\w:+.-]{1,50}:)?
    | (?P<strong>\*\*?)(?=\S)(?P<bold>[^*\n]+?)(?<=\S)(?P=strong)
    | \|(?P<name>\w[^|\n]*)\|_{0,2}
    | [ ]?\[[\w#*.-]{1,50}\]_
    | (?<![\w.+:-])(?P<reference>[^\W_]+(?:[-._+:][^\W_]+)*)__?(?=$|[\s'")\]}>/:.,;!?-])
    | \\(?P<escaped>.)""",
    re.VERBOSE | re.DOTALL,
)


def rest_page(text: str) -> Page:
    """Return the page of a text in reStructuredText."""
    lines = _substituted(text.expandtabs(8)).split("\n")
    return Page([block for block in _blocks(lines, 1, []) if block.text.strip()])


def _substituted(text: str) -> str:
    """Replace each `|name|` of a `replace` or `unicode` directive by its text."""
    texts = {name: " ".join(value.split()) for name, value in REPLACEMENT.findall(text)}
    insertions = Insertions([text])
    return REPLACED.sub(lambda match: insertions.insert(texts.get(match[1], match[0])), text) if texts else text


def _blocks(lines: list[str], first: int, styles: list[str] | None, depth: int = 0) -> Iterator[Block]:
    """Yield the blocks of lines that begin at line `first`.

    `styles` collects the styles of titles in the order of their levels; with None, titles are not recognized.
    """
    at = 0
    if depth > MOST_NESTED:
        yield Block("\n".join(lines), first)
        return
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        # A style that is new has the level below all earlier styles.
        elif styles is not None and (title := _title(lines, at)) is not None:
            text, style, length = title
            styles += [style] * (style not in styles)
            yield Block(inline(text), first + at, styles.index(style) + 1)
            at += length
        elif ADORNMENT.fullmatch(line) and len(line.strip()) >= 4:  # a transition
            at += 1
        # A directive, footnote, target or comment, with the indented lines below it.
        elif EXPLICIT.match(line):
            end = _indented_end(lines, at + 1)
            yield from _explicit(lines[at:end], first + at, depth)
            at = end
        # An indented block, such as a quotation.
        elif line[0] == " ":
            end = _indented_end(lines, at)
            yield from _blocks(dedent("\n".join(lines[at:end])).split("\n"), first + at, None, depth + 1)
            at = end
        else:
            end = next((number for number in range(at, len(lines)) if not lines[number].strip()), len(lines))
            yield from _paragraph(lines[at:end], first + at)
            at = end
            # A paragraph that ends in `::` announces indented lines of code.
            if lines[end - 1].rstrip().endswith("::"):
                at, begin = max(_indented_end(lines, end), end), _text_start(lines, end)
                yield Block(dedent("\n".join(lines[begin:at])), first + begin)


def _title(lines: list[str], at: int) -> tuple[str, str, int] | None:
    """Return the text, style and number of lines of a title that begins at a line, or None."""
    if at + 2 < len(lines) and ADORNMENT.fullmatch(lines[at]) and lines[at + 1].strip():
        over, text, under = lines[at].rstrip(), lines[at + 1].strip(), lines[at + 2].rstrip()
        if over == under and not ADORNMENT.fullmatch(lines[at + 1]):
            return text, over[0] * 2, 3
    if at + 1 < len(lines) and lines[at][0] != " " and ADORNMENT.fullmatch(lines[at + 1]):
        text, under = lines[at].strip(), lines[at + 1].rstrip()
        if not ADORNMENT.fullmatch(lines[at]) and len(under) >= min(len(text), 4):
            return text, under[0], 2
    return None


def _indented_end(lines: list[str], at: int) -> int:
    """Return the end of the indented or blank lines from `at`, without final blank lines."""
    end = last = at
    while end < len(lines) and (not lines[end].strip() or lines[end][0] == " "):
        end += 1
        last = end if lines[end - 1].strip() else last
    return last


def _text_start(lines: list[str], at: int) -> int:
    """Return the first line from `at` that is not blank, or the end."""
    return next((number for number in range(at, len(lines)) if lines[number].strip()), len(lines))


def _paragraph(lines: list[str], first: int) -> Iterator[Block]:
    """Yield a paragraph, a list, a table without its rules, or an interactive session."""
    if lines[0].startswith(">>> "):
        yield Block("\n".join(lines), first)
        return
    kept = [re.sub(r"^[|+] ?| ?[|+]$", "", line) if line[0] in "|+" else line for line in lines]
    text = inline("\n".join(line.rstrip() for line in kept if not TABLE_RULE.fullmatch(line)))
    if text.endswith("::"):
        text = text.removesuffix("::").rstrip() + ":" * (text.strip() != "::" and not text.endswith(" ::"))
    yield Block(re.sub(r"(?m)^:([^:\n]+):(?=\s)", r"\1:", text), first)


def _explicit(lines: list[str], first: int, depth: int) -> Iterator[Block]:
    """Yield the blocks of a directive or footnote; skip comments, targets and directives for the layout."""
    if footnote := FOOTNOTE.match(lines[0]):
        yield Block(inline(" ".join([lines[0][footnote.end() :], *map(str.strip, lines[1:])])), first)
    if (directive := DIRECTIVE.match(lines[0])) is None or directive[1].lower() in SILENT_DIRECTIVES:
        return
    # A directive has a name, an argument, options, a blank line and content.
    name, argument, at = directive[1].lower(), (directive[2] or "").strip(), 1
    options = dict[str, str]()
    while at < len(lines) and lines[at].strip():  # up to a blank line: options, or more of the argument
        if option := DIRECTIVE_OPTION.fullmatch(lines[at].strip()):
            options[option[1]] = option[2] or ""
        elif options or name in CODE_DIRECTIVES:
            break
        else:
            argument += f"\n{lines[at].strip()}"
        at += 1
    # Yield what a reader sees, in the order of the page.
    at = _text_start(lines, at)
    content = dedent("\n".join(lines[at:]))
    yield Block(inline(options.get("caption", "")), first)
    if name in CODE_DIRECTIVES:
        yield Block(content or argument, first)
        return
    if name not in CONDITIONS:
        yield Block(options.get("alt", "") if name in IMAGE_DIRECTIVES else inline(argument), first)
    yield Block(inline(options.get("header", "")), first)  # of a table
    shown = [f"{option}: {inline(options[option])}" for option in SHOWN_OPTIONS if options.get(option)]
    yield Block("\n".join(shown), first)
    yield from _blocks(content.split("\n"), first + at, None, depth + 1)


def inline(text: str) -> str:
    """Return a text without inline markup.

    >>> inline("See :func:`json.dumps`, `the docs <https://a.b>`_ and ``x``, *not* |name|.")
    'See json.dumps, the docs and x, not name.'
    """

    def plain(match: re.Match[str]) -> str:
        if match["text"] is not None:
            name, _, target = match["text"].rpartition("<") if match["text"].endswith(">") else (match["text"], "", "")
            document = f"{match['role'].upper()} " if match["role"] in ("pep", "rfc") else ""
            return document + (name.strip() or target.removesuffix(">")).lstrip("~!")
        return next(
            (match[name] for name in ("code", "bold", "name", "reference", "escaped") if match[name] is not None), ""
        )

    return INLINE.sub(plain, text)
