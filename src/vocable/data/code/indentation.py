"""The outline of a file in any language, by its blank lines and indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vocable.data.code.outline import Definition, Outline
from vocable.data.pages.blocks import MOST_NESTED

DEFINING_WORDS = (
    "class|interface|struct|enum|union|trait|impl|module|namespace|object|record|protocol|extension|contract"
    "|def|defp|defmodule|function|func|fun|fn|sub|proc|procedure|method|macro|type|resource|message|service"
)
HOLDS = re.compile(
    r"class|interface|struct|trait|impl|module|namespace|object|protocol|extension|contract|defmodule|service"
)
# A keyword and a name, after words such as `public` and `async`.
KEYWORD_AND_NAME = re.compile(
    rf"^(?:[\w\[\]()<>@]+\s+){{0,4}}?({DEFINING_WORDS})\b\s*(?:\([^)]*\)\s*|<[^>]*>\s*)?([\w$]+(?:(?:::|\.)[\w$]+)*[?!]?)"
)
CREATED = re.compile(
    r"^create\s+(?:or\s+\w+\s+)?(?:\w+\s+){1,3}?(?:if\s+not\s+exists\s+)?([\w.\"`\[\]]+)", re.IGNORECASE
)
ASSIGNED = re.compile(
    r"^(?:export\s+|const\s+|let\s+|var\s+|local\s+)*([\w$.]+)\s*(?:=|<-|:=)\s*.*(?:function\b|=>|\{$)"
)
CALLED = re.compile(r"([\w$~:]+)\s*\(")  # of C: a type, a name and arguments
CLOSES = re.compile(r"[\])}]|(?:end|fi|done|esac)\b|\*/")
OPENS = re.compile(r"[{(\[]")
NOT_NAMES = re.compile(
    r"if|for|while|switch|return|catch|elif|else|with|when|do|try|assert|sizeof|defined|__attribute__"
)
COMMENT_LINE = re.compile(r"\s*(?:#(?!\[)|//|/?\*|--|;|%|\"\"\"|''')")


def indentation_outline(text: str) -> Outline:
    """Return the outline of a text, whose blocks of lines at one indentation may have names."""
    lines = text.split("\n")
    depths = [len(line) - len(line.lstrip()) if line.strip() else None for line in lines]
    starts = frozenset(at for at, line in enumerate(lines, start=1) if line.strip() and not CLOSES.match(line.strip()))
    return Outline(tuple(_definitions(lines, depths, 0, len(lines))), starts)


def _definitions(
    lines: list[str], depths: list[int | None], first: int, end: int, nested: int = 0
) -> Iterator[Definition]:
    """Yield the named blocks among the lines from `first` to before `end`, counted from 0."""
    known = [depth for depth in depths[first:end] if depth is not None]
    if not known:
        return
    least = min(known)
    for start, stop in _blocks(lines, depths, first, end, least):
        # The name stands in the first lines that are no comments.
        code = [
            number for number in range(start, stop) if lines[number].strip() and not COMMENT_LINE.match(lines[number])
        ]
        name, holds = _name(" ".join(lines[number].strip() for number in code[:4])) if code else ("", False)
        if not name or (stop - start < 2 and not holds):
            continue
        # What it holds stands deeper, between lines such as `{` and `}`.
        deeper = [number for number in range(code[0] + 1, stop) if (depths[number] or 0) > least]
        has_inner = bool(holds and deeper and nested < MOST_NESTED)
        inner = _definitions(lines, depths, deeper[0], deeper[-1] + 1, nested + 1) if has_inner else ()
        yield Definition(name, start + 1, stop, tuple(inner), holds)


def _blocks(lines: list[str], depths: list[int | None], first: int, end: int, least: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each block: lines at the `least` depth and the deeper lines below them.

    A block ends after a closing line such as `}`, before a line at that depth that names a definition once the block
    has deeper lines, and before such a line after a blank line.
    """
    start, is_deep, after_blank, last = first, False, False, first
    for number in range(first, end):
        if (depth := depths[number]) is None:
            after_blank = True
            continue
        line = lines[number].strip()
        closes = CLOSES.match(line) is not None
        if depth <= least and number > start and not closes and not line.startswith("{"):
            is_comment = COMMENT_LINE.match(lines[number]) is not None
            if after_blank or (is_deep and (is_comment or _name(line)[0])):
                yield start, last + 1
                start, is_deep = number, False
        is_deep = is_deep or depth > least
        after_blank, last = False, number
        if depth <= least and closes and is_deep and not OPENS.search(line):
            yield start, number + 1
            start, is_deep, last = number + 1, False, number + 1
    if start < end:
        yield start, min(last + 1, end)


def _name(code: str) -> tuple[str, bool]:
    """Return the name that a piece of code defines, "" if none, and whether it holds definitions.

    >>> _name("public class Lamp extends Thing {"), _name("static struct lamp *lamp_on(int one) {")
    (('Lamp', True), ('lamp_on', False))
    >>> _name("CREATE TABLE IF NOT EXISTS lamps ("), _name("if (lamp) {"), _name("const on = (lamp) => {")
    (('lamps', False), ('', False), ('on', False))
    """
    match = KEYWORD_AND_NAME.match(code)
    if match and not (match[1] in ("struct", "enum", "union") and "(" in code.partition("{")[0]):
        return match[2], HOLDS.fullmatch(match[1]) is not None
    if match := CREATED.match(code) or ASSIGNED.match(code):
        return match[1].strip('"`[]'), False
    if (match := CALLED.search(code)) and "{" in code and "=" not in code[: match.start()]:
        return ("", False) if NOT_NAMES.fullmatch(match[1]) else (match[1], False)
    return "", False
