"""Documents of source code: each definition with the comments above it, and the lines between definitions.

A class is its head and its members; a long function is cut between statements. Lines between definitions that hardly
have a word belong to the definition before them. Lines are counted from 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import dedent
from typing import NamedTuple

from vocable.data.code.outline import Definition, Outline
from vocable.data.pages.blocks import Block, Part
from vocable.data.pages.sections import LEAST_WORDS, MOST_HEADING, MOST_WORDS, cut, size_of
from vocable.data.records import BETWEEN

LONG = 4 * MOST_WORDS  # size of a function whose inner functions are documents
MOST_DEEP = 20  # levels of definitions
CODE_WORD = re.compile(r"[^\W\d]\w*")
COMMENT_START = re.compile(r"\s*(?:#(?!include|define|if|endif|else|pragma|region)|//|/\*|\*|--|@\w|\[\w|<!--)")
COMMENT_END = re.compile(r".*\*/\s*$")
LICENCE = re.compile(r"licen[cs]e|copyright|SPDX-|all rights reserved|\(c\) *\d{4}", re.IGNORECASE)
FEWEST_LETTERS = 0.3  # share of the characters of a part; one with fewer is a table of data


class _Unit(NamedTuple):
    """A definition, or lines between definitions (`is_between`), with the names above and its own.

    `is_head` marks the lines of a class before its first member.
    """

    names: tuple[str, ...]
    first: int
    last: int
    is_between: bool = False
    is_head: bool = False


def code_parts(text: str, outline: Outline) -> tuple[list[Part], bool]:
    """Return the documents of a text of source code, and whether a licence was left out of them.

    The path of a part has the names of its definition; the file's own name goes before it.
    """
    lines = text.split("\n")
    licence = _licence(lines)
    units = _joined(_units(lines, (), 1, len(lines), outline.definitions), lines, licence)
    return [*_parts(units, lines, outline.starts, licence)], bool(licence)


def _units(
    lines: Sequence[str], names: tuple[str, ...], first: int, last: int, definitions: Sequence[Definition]
) -> Iterator[_Unit]:
    """Yield the definitions among the lines from `first` to `last`, and the lines between them, in order."""
    at = first
    for definition in definitions:
        start, path = _with_comments(lines, definition.first, at), (*names, definition.name[:MOST_HEADING])
        if start > at:
            yield _Unit(names, at, start - 1, True, bool(names) and at == first)
        # The members of a class, and the functions inside a long function, are documents, too.
        inner = definition.inner if definition.holds or _size(lines, start, definition.last) > LONG else ()
        if inner and len(path) < MOST_DEEP:
            yield from _units(lines, path, start, definition.last, inner)
        else:
            yield _Unit(path, start, definition.last)
        at = definition.last + 1
    if at <= last:
        yield _Unit(names, at, last, True)


def _with_comments(lines: Sequence[str], first: int, least: int) -> int:
    """Return the first line of the comments, decorators and attributes right above a line, from `least` on."""
    while first > least:
        above = lines[first - 2]
        if COMMENT_END.match(above) and "/*" not in above:
            start = next((number for number in range(first - 2, least - 1, -1) if "/*" in lines[number - 1]), 0)
            if not start:
                return first
            first = start
        elif COMMENT_START.match(above):
            first -= 1
        else:
            return first
    return first


def _joined(units: Iterator[_Unit], lines: Sequence[str], licence: frozenset[int]) -> list[_Unit]:
    """Return units; lines between definitions with few words become part of the unit before, else of the next."""
    kept = list[_Unit]()
    waiting = 0  # first line of the few words before the next unit
    for unit in units:
        text = "\n".join(lines[number - 1] for number in range(unit.first, unit.last + 1) if number not in licence)
        words = len(CODE_WORD.findall(text))
        if unit.is_between and words < LEAST_WORDS:
            # The head of a class goes to its first member; other lines go to the definition before them.
            if kept and not waiting and not unit.is_head:
                kept[-1] = kept[-1]._replace(last=unit.last)
            elif words:
                waiting = waiting or unit.first
        else:
            kept.append(unit._replace(first=waiting or unit.first))
            waiting = 0
    if waiting:
        kept.append(_Unit((), waiting, len(lines), True))
    return kept


def _parts(
    units: Sequence[_Unit], lines: Sequence[str], starts: frozenset[int], licence: frozenset[int]
) -> Iterator[Part]:
    """Yield the documents of units: a long unit in several parts."""
    numbers = Counter[tuple[str, ...]]()
    for unit in units:
        is_first = True
        for group in cut(_statements(unit, lines, starts, licence)):
            text = dedent("\n".join(block.text for block in group))
            # A table of numbers says what it is at its beginning.
            letters = sum(map(str.isalpha, text)) / max(1, len("".join(text.split())))
            if not text.strip() or (letters < FEWEST_LETTERS and not is_first):
                continue
            is_first = False
            numbers[unit.names] += 1
            last = group[-1].line + group[-1].text.count("\n")
            last += len(licence) if licence and group[-1].line < min(licence) <= last else 0
            yield Part(
                anchor=re.sub(r"\s+", "-", ".".join(unit.names)) or None,
                number=numbers[unit.names],
                title=unit.names[-1] if unit.names else "",
                path=BETWEEN.join(unit.names),
                text=text,
                line=group[0].line,
                last_line=last,
            )


def _statements(unit: _Unit, lines: Sequence[str], starts: frozenset[int], licence: frozenset[int]) -> list[Block]:
    """Return the lines of a unit as blocks; a long unit has a block for each statement."""
    numbers = [number for number in range(unit.first, unit.last + 1) if number not in licence]
    while numbers and (not lines[numbers[0] - 1].strip() or lines[numbers[0] - 1].startswith("#!/")):
        del numbers[0]
    while numbers and not lines[numbers[-1] - 1].strip():
        del numbers[-1]
    is_long = bool(numbers) and _size(lines, numbers[0], numbers[-1]) > MOST_WORDS
    blocks = list[Block]()
    group = list[int]()
    for number in numbers:
        if group and is_long and number in starts:
            blocks.append(Block("\n".join(lines[one - 1] for one in group), group[0]))
            group = []
        group.append(number)
    return [*blocks, Block("\n".join(lines[one - 1] for one in group), group[0])] if group else []


def _size(lines: Sequence[str], first: int, last: int) -> float:
    return size_of("\n".join(lines[first - 1 : last]))


def _licence(lines: Sequence[str]) -> frozenset[int]:
    """Return the lines of a licence in the comment at the top of a file.

    >>> _licence(["#!/bin/sh", "# Copyright 2020 A", "#", "# Licensed to all.", "#", "# Lights lamps.", "lamp"])
    frozenset({2, 3, 4})
    """
    # The first comment, after a line such as `#!/bin/sh` or `<?php`.
    start = 0
    while start < len(lines) and (not lines[start].strip() or lines[start].startswith(("#!", "<?php"))):
        start += 1
    end, is_open = start, False
    while end < len(lines) and (is_open or COMMENT_START.match(lines[end])):
        is_open = ("/*" in lines[end] or is_open) and "*/" not in lines[end]
        end += 1
    # From the first to the last paragraph that speaks of it.
    groups, group = list[list[int]](), list[int]()
    for number in range(start, end):
        if re.search(r"\w", lines[number]):
            group.append(number)
        elif group:
            groups.append(group)
            group = []
    groups += [group] * bool(group)
    named = [at for at, group in enumerate(groups) if LICENCE.search("\n".join(lines[one] for one in group))]
    if not named:
        return frozenset()
    return frozenset(range(groups[named[0]][0] + 1, groups[named[-1]][-1] + 2))
