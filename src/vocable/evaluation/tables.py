"""A table of strings, as markdown and for the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from vocable.evaluation.cost import Cost

NONE = "–"


class Grid(NamedTuple):
    """A header and rows of as many cells; the first column names, the others are numbers."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """A markdown table, without the title.

        >>> print(Grid("", ["system", "R@10"], [["a|b", "0.5"]]).markdown())
        | system | R@10 |
        |:--|--:|
        | a\\|b | 0.5 |
        """
        rule = "|:--|" + "--:|" * (len(self.header) - 1)
        header, *rows = ("| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in [self.header, *self.rows])
        return "\n".join([header, rule, *rows])

    def table(self) -> Table:
        """A rich table, narrow enough for a terminal of 80 columns with two measures and all costs."""
        table = Table(title=Text(self.title), box=SIMPLE_HEAD, padding=0, pad_edge=False)
        first, *others = self.header
        table.add_column(Text(first), overflow="fold")  # where space is short, names break
        for name in others:
            table.add_column(Text(name.replace(" ", "\n")), justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table


def _escaped(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")


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


# The columns of a `Cost`: what stands above, and how its value is printed.
COST_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "query_terms": ("query terms", short),
    "document_terms": ("doc terms", short),
    "flops": ("FLOPS", short),
    "index_bytes": ("index MB", lambda count: short(count / 1e6)),
    "documents_per_second": ("docs/s", "{:.0f}".format),
    "search_p50_ms": ("p50 ms", short),
    "search_p95_ms": ("p95 ms", short),
    "matched": ("matched", "{:.3g}".format),
}


def cost_columns(costs: list[Cost | None]) -> tuple[list[str], list[list[str]]]:
    """The header and the cells, one list for each of `costs`, of the columns in which any of them has a value."""
    columns = {
        name: how for name, how in COST_COLUMNS.items() if any(getattr(cost, name, None) is not None for cost in costs)
    }
    rows = []
    for cost in costs:
        values = [(getattr(cost, name, None), text) for name, (_, text) in columns.items()]
        rows.append([NONE if value is None else text(value) for value, text in values])
    return [header for header, _ in columns.values()], rows
