"""The outline of a file of source code: its definitions, and the lines where statements start.

Readers of languages make outlines; `documents` makes documents of them. Lines are counted from 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Definition(NamedTuple):
    """A function, a class or another named part of a file.

    Args:
        name: its name, without the names above it.
        first: its first line, with decorators.
        last: its last line.
        inner: the definitions in it, in order.
        holds: its definitions are documents, as the methods of a class are.
    """

    name: str
    first: int
    last: int
    inner: tuple[Definition, ...] = ()
    holds: bool = False


class Outline(NamedTuple):
    """The definitions of a file, in order, and the first lines of its statements."""

    definitions: tuple[Definition, ...]
    starts: frozenset[int]


def nested(definitions: Iterable[Definition]) -> tuple[Definition, ...]:
    """Return definitions in the definitions that enclose them; a definition that begins on a taken line is left out.

    >>> [outer] = nested([Definition("f", 2, 3), Definition("C", 1, 5, holds=True), Definition("g", 3, 4)])
    >>> outer.name, [inner.name for inner in outer.inner]
    ('C', ['f'])
    """
    open_definitions: list[tuple[Definition, list[Definition]]] = []
    tops = list[Definition]()

    def close() -> None:
        done, inner = open_definitions.pop()
        (open_definitions[-1][1] if open_definitions else tops).append(done._replace(inner=tuple(inner)))

    taken = 0  # last line of the definition that was closed last
    for definition in sorted(definitions, key=lambda definition: (definition.first, -definition.last)):
        while open_definitions and open_definitions[-1][0].last < definition.first:
            taken = max(taken, open_definitions[-1][0].last)
            close()
        is_within = not open_definitions or (
            definition.last <= open_definitions[-1][0].last and definition.first > open_definitions[-1][0].first
        )
        if is_within and definition.first > taken:
            open_definitions.append((definition, []))
    while open_definitions:
        close()
    return tuple(tops)
