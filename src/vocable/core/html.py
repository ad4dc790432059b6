"""Reports as HTML: one page that needs no other file and runs no code."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from vocable.core.figures import save_figure
from vocable.core.storage import replacing
from vocable.core.tables import NONE, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS, PAGE = "results.json", "index.html"
STYLE = """
:root { color-scheme: light dark; --text: #222; --quiet: #555; --line: #ddd; --page: #fff; }
@media (prefers-color-scheme: dark) { :root { --text: #ddd; --quiet: #aaa; --line: #444; --page: #181818; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
body { color: var(--text); background: var(--page); }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; }
caption { text-align: left; padding-bottom: 0.25rem; color: var(--quiet); }
th, td { padding: 0.15rem 0.75rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:first-child, td:first-child, .words th, .words td { text-align: left; }
.words td { white-space: pre-wrap; }
.wide { overflow-x: auto; }
img { max-width: 100%; background: #fff; }
.lists table { width: 100%; }
.lists th, .lists td { text-align: left; padding: 0.25rem 0.5rem; min-width: 10rem; }
.lists ol { margin: 0; padding-left: 1.5rem; }
.lists li { overflow-wrap: anywhere; }
.lists small { color: var(--quiet); display: block; }
mark { color: inherit; background: #8c84; font-weight: bold; }
"""


class Drawing(NamedTuple):
    """The content of an SVG file, and a description of the figure."""

    svg: str
    shows: str


class Words(NamedTuple):
    """A table of words: all columns are aligned to the left."""

    grid: Table


class Entry(NamedTuple):
    """An entry of a list: its text, its address, a link if it begins with http, and whether it is marked."""

    text: str
    address: str = ""
    marked: bool = False


class Lists(NamedTuple):
    """Lists of entries side by side below a caption: each has its name above, and a line below it."""

    caption: str
    lists: Mapping[str, tuple[Sequence[Entry], str]]


PagePart: TypeAlias = str | Table | Words | Drawing | Lists


class Section(NamedTuple):
    """A heading and the parts below it; a string is a paragraph."""

    heading: str
    parts: Sequence[PagePart]


def drawing(figure: Figure, folder: Path, name: str, shows: str) -> Drawing:
    """Write a figure into the folder as NAME.png and NAME.svg, and return it for a page."""
    for ending in ("png", "svg"):
        save_figure(figure, folder / f"{name}.{ending}")
    return Drawing((folder / f"{name}.svg").read_text(encoding="utf-8"), shows)


def settings_section(settings: Mapping[str, object]) -> Section:
    """Return a section with the settings of a measurement, which are JSON values."""
    rows = [[name, _shown(value)] for name, value in settings.items()]
    return Section("Settings", [Words(Table("", ["setting", "value"], rows))])


def write_page(folder: Path, title: str, sections: Sequence[Section]) -> None:
    """Write a page as index.html into the folder, atomically."""
    with replacing(folder / PAGE) as file:
        file.write(page(title, sections).encode())


def page(title: str, sections: Sequence[Section]) -> str:
    """Return a page; every text in it is escaped.

    >>> "<td>&lt;b&gt;</td>" in page("terms", [Section("wacky", ["one term", Table("", ["term"], [["<b>"]])])])
    True
    """
    body = "\n".join(f"<h2>{escape(part.heading)}</h2>\n" + "\n".join(map(_part, part.parts)) for part in sections)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _shown(value: object) -> str:
    """Return a setting as text for a reader.

    >>> _shown(["a", "b"]), _shown(True), _shown(None), _shown(100)
    ('a, b', 'yes', '–', '100')
    """
    if isinstance(value, list):
        return ", ".join(str(item) or NONE for item in value) or NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NONE if value is None else str(value)


def _part(part: PagePart) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Lists):
        head = "".join(f"<th>{escape(name)}</th>" for name in part.lists)
        cells = (
            f"<td><ol>{''.join(map(_entry, entries))}</ol><small>{escape(line)}</small></td>"
            for entries, line in part.lists.values()
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody><tr>{''.join(cells)}</tr></tbody></table>"
        return f'<h3>{escape(part.caption)}</h3>\n<div class="wide lists">{table}</div>'
    if isinstance(part, Words):
        return f'<div class="wide words">{part.grid.html()}</div>'
    if isinstance(part, Drawing):
        # Embedded as an image: ids of two drawings cannot clash, and scripts in a drawing do not run.
        data = b64encode(part.svg.encode()).decode()
        return f'<img alt="{escape(part.shows)}" src="data:image/svg+xml;base64,{data}">'
    return f'<div class="wide">{part.html()}</div>'


def _entry(entry: Entry) -> str:
    text = escape(entry.text)
    if entry.address.startswith(("http://", "https://")):
        text = f'<a href="{escape(entry.address)}">{text}</a>'
    text = f"<mark>{text} ✓</mark>" if entry.marked else text
    address = f"<small>{escape(entry.address)}</small>" if entry.address not in ("", entry.text) else ""
    return f"<li>{text}{address}</li>"
