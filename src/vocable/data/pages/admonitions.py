"""Conversion of MkDocs admonitions and tabs, and of GitHub alerts, to quotes, which Markdown knows.

!!! note "Before you begin"        > Before you begin
    Charge the battery.       ->   > Charge the battery.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vocable.data.pages.blocks import MOST_NESTED

CONTENT_INDENT = " " * 4
START = re.compile(r"^[ \t]*(?:!!!|\?\?\?|===|>[ ]?\[!)", re.MULTILINE)
# !!! note "Title", ??? tip, === "Tab"; the kind only selects a style, like the name of a directive.
ADMONITION = re.compile(
    r"""(?P<indent>[ ]*)(?:(?:!!!|\?\?\?\+?)[ ]?\w[\w -]*(?:"(?P<title>.*)")?|===[+!]?[ ]+"(?P<tab>.*)")"""
)
ALERT = re.compile(r"[ ]{0,3}>[ ]?\[!(?:note|tip|important|warning|caution)\][+-]?[ ]*", re.IGNORECASE)
FENCE = re.compile(r"[ >]*(?P<mark>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")


def quoted(text: str) -> str:
    """Return a Markdown text with each admonition as a quote that begins with its title; lines keep their numbers.

    >>> quoted('!!! note\\n    Charge the battery.\\n\\n> [!TIP]\\n> Twice.')
    '>\\n> Charge the battery.\\n\\n>\\n> Twice.'
    """
    return "\n".join(_quoted(text.expandtabs(4).split("\n"))) if START.search(text) else text


def _quoted(lines: Sequence[str], depth: int = 0) -> list[str]:
    result, fence, at = list[str](), "", 0
    while at < len(lines) and depth < MOST_NESTED:
        line, end = lines[at].rstrip(), at + 1
        # An admonition with indented content becomes a quotation, but not in a fence of code.
        fence = _fence(line, fence)
        if not fence and (start := ADMONITION.fullmatch(line)) and (end := _end(lines, at, start["indent"])) > at + 1:
            indent = len(start["indent"])
            content = _quoted([inner[indent + len(CONTENT_INDENT) :] for inner in lines[at + 1 : end]], depth + 1)
            title = start["title"] or start["tab"] or ""
            result += [f"{start['indent']}> {inner}".rstrip() for inner in (title, *content)]
        else:
            result.append(">" if not fence and ALERT.fullmatch(line) else lines[at])
        at = end
    return [*result, *lines[at:]]


def _fence(line: str, open_mark: str) -> str:
    """Return the mark of the block of code that is open after a line, or "" outside code."""
    fence = FENCE.fullmatch(line)
    if fence is None:
        return open_mark
    if not open_mark:
        return fence["mark"]
    closes = fence["mark"].startswith(open_mark) and not fence["info"].strip()
    return "" if closes else open_mark


def _end(lines: Sequence[str], at: int, indent: str) -> int:
    """Return the end of the lines that are indented below a line, without final blank lines."""
    end = last = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(indent + CONTENT_INDENT)):
        end += 1
        last = end if lines[end - 1].strip() else last
    return last
