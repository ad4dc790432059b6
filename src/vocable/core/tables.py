"""Tables as text, markdown and HTML, and formats of numbers.

Text fits the width of the terminal, or COLUMNS; if stdout is not a terminal, lines may have any length.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO
from textwrap import fill, wrap
from typing import TYPE_CHECKING, NamedTuple

from vocable.core.graphemes import beginning

if TYPE_CHECKING:
    from rich.table import Table as RichTable  # slow to import, and a search prints no table

NONE = "–"
WIDTH = 80  # columns of running text, at most
NAME_WIDTH, LEAST_NAME_WIDTH = 40, 8  # columns at which a name breaks: preferred, and narrowest
UNLIMITED = 1 << 20  # columns of a line that is not for a terminal
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


def line_width() -> int:
    """Return the columns of a line on stdout."""
    has_width = os.environ.get("COLUMNS", "").isdecimal()
    return shutil.get_terminal_size().columns if has_width or sys.stdout.isatty() else UNLIMITED


def text_width() -> int:
    """Return the columns of running text on stdout."""
    return min(line_width(), WIDTH)


class Table(NamedTuple):
    """A table: the first column has names, the others numbers; `notes` are lines below it.

    A table that is too wide is printed in parts. `groups` has the size of each group of columns, after the first
    column, that stay together.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    groups: Sequence[int] = ()
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """Return a markdown table and the notes, without the title.

        >>> print(Table("", ["system", "R@10"], [["a|b", "0.5"]]).markdown())
        | system | R@10 |
        |:--|--:|
        | a\\|b | 0.5 |
        """
        lines = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in [self.header, *self.rows]]
        header, *rows = (f"| {' | '.join(cells)} |" for cells in lines)
        table = "\n".join([header, "|:--|" + "--:|" * (len(self.header) - 1), *rows])
        return "\n\n".join([table, *self.notes])

    def __rich__(self) -> RichTable:
        """Return the table for rich."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        # Cells are plain text: a term such as `[unused1]` would otherwise be read as a style.
        table = RichTable(title=Text(self.title), box=SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
        first, *others = self.header
        table.add_column(Text(first), overflow="fold")  # long names break
        for name in others:
            table.add_column(Text(name.replace(" ", "\n")), justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        return table

    def text(self, width: int | None = None) -> str:
        """Return the table for `width` columns, by default the width of stdout, in parts if it is wider.

        No cell is truncated: names break, and numbers may exceed the width.

        >>> table = Table("toy", ["system", "R@10", "R@100"], [["a", "0.5", "0.75"]])
        >>> print(table)
               toy
        system R@10 R@100
        ─────────────────
        a       0.5  0.75
        >>> print(table.text(12))
            toy
        system R@10
        ───────────
        a       0.5
        <BLANKLINE>
        system R@100
        ────────────
        a       0.75
        """
        from rich.console import Console
        from rich.text import Text

        width = line_width() if width is None else width
        shown = []
        for part in self._parts(width):
            table = part.__rich__()
            # A part may exceed the width, since numbers do not break.
            console = Console(
                file=StringIO(), width=max(width, part._width(LEAST_NAME_WIDTH)), force_terminal=False, highlight=False
            )
            with console.capture() as printed:
                if len(part.title) > console.measure(table).maximum:  # rich would wrap it to the width of the table
                    table.title = None
                    console.print(Text(part.title))
                console.print(table)
            shown.append("\n".join(line.rstrip() for line in printed.get().splitlines()))
        return "\n\n".join(shown) + "".join(f"\n{fill(visible(note), width)}" for note in self.notes)

    def __str__(self) -> str:
        return self.text()

    def html(self) -> str:
        """Return the table as an HTML element with the title as its caption."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.header)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def _repr_html_(self) -> str:
        return self.html()

    def _parts(self, width: int) -> Iterator[Table]:
        """Yield the table, or if it is too wide, parts of it: the first column with the groups of columns that fit."""
        if self._fits(width):
            yield self
            return
        title, start, stop = self.title, 1, 1
        for size in self.groups or [1] * (len(self.header) - 1):
            if stop > start and not self._columns("", start, stop + size)._fits(width):
                yield self._columns(title, start, stop)
                title, start = "", stop
            stop += size
        yield self._columns(title, start, stop)

    def _fits(self, width: int) -> bool:
        return self._width(NAME_WIDTH) <= width

    def _width(self, name: int) -> int:
        """Return the width of the table if names break after `name` characters."""
        from rich.console import Console

        rows = [[visible(row[0])[:name], *row[1:]] for row in self.rows]
        return Console(file=StringIO(), width=UNLIMITED).measure(Table("", self.header, rows).__rich__()).maximum

    def _columns(self, title: str, start: int, stop: int) -> Table:
        header, *rows = ([row[0], *row[start:stop]] for row in [self.header, *self.rows])
        return Table(title, header, rows)


class Tabled:
    """A result that is shown as the tables and lines that its `table()` returns, in a notebook as HTML."""

    def table(self) -> Table | Sequence[Table | str]:
        raise NotImplementedError

    def __str__(self) -> str:
        shown = self.table()
        parts = [shown] if isinstance(shown, Table) else shown
        apart = ("\n" if number and isinstance(part, Table) else "" for number, part in enumerate(parts))
        return "\n".join(f"{blank}{part}" for blank, part in zip(apart, parts, strict=True))

    def _repr_html_(self) -> str:
        shown = self.table()
        parts = [shown] if isinstance(shown, Table) else shown
        return "".join(part.html() if isinstance(part, Table) else f"<p>{escape(part)}</p>" for part in parts)


class Tabular(Tabled):
    """A result that is shown as one table."""

    def table(self) -> Table:
        raise NotImplementedError

    def markdown(self) -> str:
        return self.table().markdown()


def shortened(text: str, width: int) -> str:
    """Return the text on one line of at most `width` characters.

    >>> shortened("one two\\n three", 9)
    'one two …'
    """
    line = visible(" ".join(text.split()))
    return line if len(line) <= width else beginning(line, width - 1)


def has_colours() -> bool:
    """Return whether stdout is a terminal that shows bold text, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def wrapped(parts: Sequence[tuple[str, bool]], width: int, lines: int) -> list[str]:
    """Wrap a text to at most `lines` lines of `width` columns; parts marked True are bold if stdout has colours.

    >>> wrapped([("one ", False), ("two", True), (" three four", False)], 9, 2)
    ['one two', 'three …']
    >>> wrapped([("… ", False), ("\\n by ", False), (" …", False)], 9, 1)
    ['… by …']
    >>> wrapped([("long longer", False)], 4, 2)
    ['long', '…']
    """
    # Runs of blanks become one blank, also across the ends of parts.
    plain, pieces = "", list[tuple[str, str]]()
    for part, marked in parts:
        line = re.sub(r"\s+", " ", part)
        line = line.removeprefix(" ") if plain[-1:] in ("", " ") else line  # parts may end and begin with blanks
        pieces.append((visible(line), "bold" if marked else ""))
        plain += line
    shown = "".join(piece for piece, _ in pieces).rstrip()
    if shown.replace("…", "").isascii() and not has_colours():  # without rich, which is slow to import
        wrapped_lines = wrap(shown, width, max_lines=lines, placeholder=" …", break_on_hyphens=False)
        return [line.rstrip() for line in wrapped_lines] or [""]  # a line before a lone … ends in a blank
    from rich.console import Console
    from rich.text import Text

    # For other characters, rich knows how many columns each takes.
    text = Text.assemble(*pieces)
    console = Console(file=StringIO(), width=width)
    rows = text.wrap(console, width)
    # The last line ends in an ellipsis if there are more.
    if len(rows) > lines:
        rows[lines - 1].rstrip()
        rows[lines - 1].append(" …")
        rows[lines - 1].truncate(width, overflow="ellipsis")
    # Write bold by hand: what rich writes depends on its console.
    bold = has_colours()
    return [
        "".join(
            f"{BOLD}{segment.text}{PLAIN}" if bold and segment.style and segment.style.bold else segment.text
            for segment in row.render(console)
        ).rstrip()
        for row in rows[:lines]
    ] or [""]


def visible(text: str) -> str:
    r"""Escape the control characters of a text, which a terminal would obey.

    >>> print(visible("naïve \x1b[31m\u200b"))
    naïve \x1b[31m\u200b
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def masked(address: str) -> str:
    """Return an address without its password, for messages.

    >>> masked("postgresql://me:secret@host/db?password=secret&table=t")
    'postgresql://me:***@host/db?password=***&table=t'
    """
    return re.sub(r"(//[^/:@]*:)[^/]*@", r"\1***@", re.sub(r"(password=)[^&]*", r"\1***", address))


def p_value(p: float) -> str:
    """Format a p-value.

    >>> p_value(0.0312), p_value(0.00004)
    ('0.031', '<0.001')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def short(value: float) -> str:
    """Format a number with at most five characters and two decimals.

    >>> short(0.126), short(125.46), short(5250.7)
    ('0.13', '125.5', '5251')
    """
    return f"{value:.{2 if value < 10 else 1 if value < 1000 else 0}f}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun.

    >>> counted(1, "text"), counted(2048, "text"), counted(2, "query", "queries")
    ('1 text', '2,048 texts', '2 queries')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
