"""The one table of the product: text for a terminal, markdown, HTML in a notebook; how its numbers are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

NONE = "–"
WIDTH = 80  # columns of a terminal


class Table(NamedTuple):
    """A header and rows of as many cells; the first column has names, the others numbers.

    `groups` are the sizes of the groups of columns, after the first, that stay together where the table is too wide for
    the terminal and is printed in parts; unless given, each column is one.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    groups: Sequence[int] = ()

    def markdown(self) -> str:
        """A markdown table, without the title.

        >>> print(Table("", ["system", "R@10"], [["a|b", "0.5"]]).markdown())
        | system | R@10 |
        |:--|--:|
        | a\\|b | 0.5 |
        """
        rule = "|:--|" + "--:|" * (len(self.header) - 1)
        header, *rows = ("| " + " | ".join(map(_escaped, row)) + " |" for row in [self.header, *self.rows])
        return "\n".join([header, rule, *rows])

    def rich(self) -> RichTable:
        """A rich table, narrow enough for a terminal of 80 columns with two measures and all costs."""
        # Cells are plain text: a term such as `[unused1]` would otherwise be read as a style.
        table = RichTable(title=Text(self.title), box=SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
        first, *others = self.header
        table.add_column(Text(first), overflow="fold")  # where space is short, names break
        for name in others:
            table.add_column(Text(name.replace(" ", "\n")), justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        return table

    def text(self, width: int = WIDTH, *, terminal: bool = False) -> str:
        """The table for `width` columns, in parts where it is wider; bold where it is for a `terminal`.

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
        console = Console(file=StringIO(), width=width, force_terminal=terminal, highlight=False)
        shown = []
        for part in self._parts(width):
            with console.capture() as printed:
                console.print(part.rich())
            shown.append("\n".join(line.rstrip() for line in printed.get().splitlines()))
        return "\n\n".join(shown)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """The table as an HTML element, its title as the caption."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.header)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _parts(self, width: int) -> Iterator[Table]:
        """The table itself, or where it is too wide the first column with as many groups of columns as fit."""
        if _natural_width(self) <= width:
            yield self
            return
        chosen: list[int] = []
        title, start = self.title, 1
        for size in self.groups or [1] * (len(self.header) - 1):
            group = list(range(start, start + size))
            start += size
            if chosen and _natural_width(self._columns("", [*chosen, *group])) > width:
                yield self._columns(title, chosen)
                chosen, title = [], ""
            chosen += group
        yield self._columns(title, chosen)

    def _columns(self, title: str, columns: Sequence[int]) -> Table:
        header, *rows = ([row[0], *(row[column] for column in columns)] for row in [self.header, *self.rows])
        return Table(title, header, rows)


class Tabular:
    """A result that is shown as a table: as text, as markdown, and as HTML in a notebook."""

    def table(self) -> Table:
        """The result as a table."""
        raise NotImplementedError

    def markdown(self) -> str:
        """The table in markdown."""
        return self.table().markdown()

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


class Tabled:
    """A result that is printed as the tables and lines that its `table()` gives."""

    def table(self) -> Table | Sequence[Table | str]:
        """Return the tables, and lines between them."""
        raise NotImplementedError

    def __str__(self) -> str:
        shown = self.table()
        return str(shown) if isinstance(shown, Table) else "\n".join(map(str, shown))


def _natural_width(table: Table) -> int:
    """The columns of a terminal that a table takes when nothing in it is cut or wrapped."""
    return Console(file=StringIO(), width=100 * WIDTH).measure(table.rich()).maximum


def _escaped(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")


def shortened(text: str, width: int) -> str:
    """The text on one line of at most `width` characters.

    >>> shortened("one two\\n three", 9)
    'one two …'
    """
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def visible(text: str) -> str:
    r"""The text with an escape in place of each character that a terminal would obey instead of showing it.

    >>> print(visible("naïve \x1b[31m\u200b"))
    naïve \x1b[31m\u200b
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def p_value(p: float) -> str:
    """A p-value as it is printed.

    >>> p_value(0.0312), p_value(0.00004)
    ('0.031', '<0.001')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def short(value: float) -> str:
    """A number in at most five characters, with two decimals at most.

    >>> short(0.126), short(125.46), short(5250.7)
    ('0.13', '125.5', '5251')
    """
    return f"{value:.{2 if value < 10 else 1 if value < 1000 else 0}f}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun.

    >>> counted(1, "text"), counted(2048, "text"), counted(2, "query", "queries")
    ('1 text', '2,048 texts', '2 queries')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
